"""VOLO (arXiv:2106.13112): outlook attention over windows first, then transformer layers, then class attention.

Fields: `stem_channels`, `patch_size`, `hidden_sizes`, `depths`, `num_attention_heads` and `mlp_ratios` for each
stage, `post_layers` of class attention. The first stage looks out; the others are plain. As timm and MindCV
build it: no biases of queries, keys and values, and a second classifier on the tokens beside the class token, whose
largest scores timm adds to those of the first (`has_token_classifier`).
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import (
    attend,
    feed_forward,
    first_token,
    pre_norm_layer,
    with_positions,
    with_tokens,
)
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    patches_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.families.layers import Part, elementwise, join, linear, tensor
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Convolution, Model, fixed
from raceline.present.errors import InputError

_WINDOW = 3
_STEP = 2
_STEM_STEP = 2


class _Stage(NamedTuple):
    """Sizes of one stage. `ratio`: inner width over width."""

    width: int
    depth: int
    heads: int
    ratio: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier on the class token."""
    own = image_size_of(fields, None, 224)
    side = image_size_of(fields, image_size, own)
    stages, drawing = _stages(fields), Drawing()
    patch = fields.integer("patch_size", default=8, minimum=2 * _STEM_STEP, maximum=1024)
    x = _draw_stem(drawing, fields, side, patch, stages[0].width)
    for index, stage in enumerate(stages):
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, now=stage, at=index: _layer(drawing, given, now, at == 0),  # type: ignore[misc]
            repeat=stage.depth,
        )
        if index == 0:
            entries = patches_of(patches_of(own, patch), _STEP) ** 2
            x = _draw_halved(drawing, x, stages[:2][-1].width, entries)
    x = drawing.block("class_token", x, lambda given: with_tokens(drawing, given))
    post = fields.integer("post_layers", default=2, minimum=0, maximum=10_000)
    if post:
        last = stages[-1]
        x = drawing.block("post", x, lambda given: _class_layer(drawing, given, last), repeat=post)
    _draw_output(drawing, x, classes_of(fields), fields.flag("has_token_classifier", default=True))
    layers = sum(stage.depth for stage in stages) + post
    return image_model(fields, "volo", drawing.blocks, side, hidden=x.channels, layers=layers)


def _stages(fields: Fields) -> list[_Stage]:
    lists = {
        "hidden_sizes": whole_numbers(fields, "hidden_sizes", [192, 384, 384, 384], 65_536),
        "depths": whole_numbers(fields, "depths", [4, 4, 8, 2], 10_000),
        "num_attention_heads": whole_numbers(fields, "num_attention_heads", [6, 12, 12, 12], 4096),
        "mlp_ratios": whole_numbers(fields, "mlp_ratios", [3, 3, 3, 3], 1024),
    }
    same_length(**lists)
    stages = [_Stage(*values) for values in zip(*lists.values(), strict=True)]
    for index, stage in enumerate(stages):
        if stage.width % stage.heads:
            field = f"{fields.where}num_attention_heads.{index}"
            raise InputError("models.heads_not_divisor", field=field, heads=stage.heads, hidden=stage.width)
        if index > 1 and stage.width != stages[1].width:  # nothing between these stages changes the width
            given = {f"hidden_sizes.{index}": stage.width}
            Fields(given, fields.where).integer(*given, minimum=stages[1].width, maximum=stages[1].width)
    return stages


def _draw_stem(drawing: Drawing, fields: Fields, side: int, patch: int, width: int) -> Feature:
    channels = fields.integer("stem_channels", default=64, maximum=65_536)

    def stem(given: Feature) -> Feature:
        for kernel, stride in ((7, _STEM_STEP), (3, 1), (3, 1)):
            given = drawing.conv_norm_act(given, channels, kernel, stride)
        rest = patch // _STEM_STEP
        return drawing.conv(given, width, rest, rest, padding=0, bias=True)

    seen = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    return drawing.block("stem", seen, stem, role="input")


def _draw_halved(drawing: Drawing, x: Feature, width: int, entries: int) -> Feature:
    """Halves both sides and adds positions; those of another image size are interpolated."""

    def make(given: Feature) -> Feature:
        return with_positions(
            drawing, drawing.conv(given, width, _STEP, _STEP, padding=0, bias=True), entries
        )

    return drawing.block("halve", x, make)


def _layer(drawing: Drawing, given: Feature, stage: _Stage, looks_out: bool) -> Feature:
    def mix(normed: Feature) -> Feature:
        if looks_out:
            return _outlook(drawing, normed, stage.heads)
        return attend(drawing, normed, stage.heads, bias=False)

    return pre_norm_layer(
        drawing, given, mix, lambda normed: feed_forward(drawing, normed, stage.width * stage.ratio)
    )


def _outlook(drawing: Drawing, given: Feature, heads: int) -> Feature:
    """Weights for all pairs within a window come from a projection of its mean, without queries and keys.
    Windows overlap; what they give is added up where they do."""
    width, taps = given.channels, _WINDOW**2
    windows = fixed(prod(-(-length // _STEP) for length in given.size))
    scores = taps**2 * heads
    # a window's weights times its values: `width` outputs for each of its places, no parameters
    mixed = Convolution(
        name="outlook", rows=windows.scaled(taps), k=taps, n=width, groups=width, input_elements=float(width),
        keeps=("outlook_weights", "outlook_values"), tied=True,
    )  # fmt: skip
    drawing.part(
        join(
            linear("v", given.name, width, width, rows=given.rows),
            elementwise("unfold", width * _STEP**2, taps * width, rows=windows),
            tensor("outlook_values", taps * width, windows),
            elementwise("outlook_pool", width * _STEP**2, width, rows=windows),
            tensor("outlook_given", width, windows),
            linear("attn", "outlook_given", width, scores, rows=windows, bias=True),
            elementwise("outlook_softmax", scores, scores, rows=windows, keeps=("outlook_weights",)),
            tensor("outlook_weights", scores, windows),
            Part((mixed,)),
            elementwise("fold", taps * width, width * _STEP**2, rows=windows),
            tensor("outlook_core", width, given.rows),
            linear("proj", "outlook_core", width, width, rows=given.rows, bias=True, out="outlook_out"),
        )
    )
    return given._replace(name="outlook_out", kept=False)


def _class_layer(drawing: Drawing, given: Feature, stage: _Stage) -> Feature:
    """The class token alone attends to all, and goes through the feed-forward network (CaiT's layer)."""
    normed, token = drawing.layer_norm(given), first_token(given)
    seen = attend(drawing, first_token(normed), stage.heads, memory=normed, bias=False)
    token = drawing.add(seen, token)
    token = drawing.add(feed_forward(drawing, drawing.layer_norm(token), stage.width * stage.ratio), token)
    width = float(given.channels)
    drawing.part(
        join(elementwise("join", width, width, rows=given.rows), tensor("joined", width, given.rows))
    )
    return given._replace(name="joined", kept=False)


def _draw_output(drawing: Drawing, x: Feature, classes: int, has_tokens: bool) -> None:
    def output(given: Feature) -> Feature:
        normed = drawing.layer_norm(given)
        if has_tokens:
            others = normed._replace(size=(prod(normed.size) - 1,))
            scores = drawing.linear(others, classes, name="token_classifier", quantisable=False)
            drawing.part(elementwise("token_maximum", classes * scores.rows.fixed, classes, rows=SAMPLE))
        return drawing.classify(first_token(normed), classes)

    drawing.block("output", x, output, role="output")
