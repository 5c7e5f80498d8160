"""Pyramid vision transformers, first and second version, from transformers' config fields.

arXiv:2102.12122 and arXiv:2106.13797. Attention sees an image reduced by a convolution (version 2 with
`linear_attention`: pooled to 7 x 7). Version 2 has overlapping patches and a depthwise convolution in place of
the position tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature
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
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model

_POOLED = 7


class _Stage(NamedTuple):
    """Sizes of one stage. `kernel` and `step` of its patches; `ratio`: inner width over width."""

    width: int
    depth: int
    heads: int
    reduction: int
    ratio: int
    kernel: int
    step: int


class _Style(NamedTuple):
    """What all layers share."""

    is_second: bool
    is_linear: bool
    bias: bool
    act: str


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of four stages with attention over a reduced image."""
    own = _own_side(fields)
    side = image_size or own
    style = _Style(
        fields.text("model_type", default="pvt") == "pvt_v2",
        fields.flag("linear_attention"),
        fields.flag("qkv_bias", default=True),
        fields.text("hidden_act", default="gelu"),
    )
    stages, drawing = _stages(fields, style.is_second), Drawing()
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for index, stage in enumerate(stages):
        x = _draw_patches(drawing, x, index, stages, own, style)
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, now=stage: _layer(drawing, given, now, style),  # type: ignore[misc]
            repeat=stage.depth,
        )
    classes = classes_of(fields)

    def output(given: Feature) -> Feature:
        normed = drawing.layer_norm(given)
        pooled = drawing.global_pool(normed) if style.is_second else first_token(normed)
        return drawing.classify(pooled, classes)

    drawing.block("output", x, output, role="output")
    layers = sum(stage.depth for stage in stages)
    return image_model(fields, "pvt", drawing.blocks, side, hidden=x.channels, layers=layers)


def _own_side(fields: Fields) -> int:
    """The config's image size: a number, or ``{"height": 224, "width": 224}``."""
    if isinstance(fields.values.get("image_size"), Mapping):
        return int(fields.part("image_size").integer("height", maximum=LARGEST_IMAGE))
    return int(fields.integer("image_size", default=224, maximum=LARGEST_IMAGE))


def _stages(fields: Fields, is_second: bool) -> list[_Stage]:
    reductions = "sr_ratios" if is_second else "sequence_reduction_ratios"
    kernels, steps = ("patch_sizes", "strides") if is_second else ("strides", "patch_sizes")
    lists = {
        "hidden_sizes": whole_numbers(
            fields, "hidden_sizes", [32, 64, 160, 256] if is_second else [64, 128, 320, 512], 65_536
        ),
        "depths": whole_numbers(fields, "depths", [2, 2, 2, 2], 10_000),
        "num_attention_heads": whole_numbers(fields, "num_attention_heads", [1, 2, 5, 8], 4096),
        reductions: whole_numbers(fields, reductions, [8, 4, 2, 1], 1024),
        "mlp_ratios": whole_numbers(fields, "mlp_ratios", [8, 8, 4, 4], 1024),
        kernels: whole_numbers(fields, kernels, [7, 3, 3, 3] if is_second else [4, 2, 2, 2], 1024),
        steps: whole_numbers(fields, steps, [4, 2, 2, 2], 1024),
    }
    same_length(**lists)
    return [_Stage(*values) for values in zip(*lists.values(), strict=True)]


def _draw_patches(
    drawing: Drawing, x: Feature, index: int, stages: list[_Stage], own: int, style: _Style
) -> Feature:
    """Patches of the stage before. Version 1 adds a table made for the config's own image size, and a class
    token in the last stage; version 2 norms what the stage before gives."""
    stage, is_last = stages[index], index == len(stages) - 1

    def second(given: Feature) -> Feature:
        given = drawing.layer_norm(given) if index else given
        return drawing.layer_norm(drawing.conv(given, stage.width, stage.kernel, stage.step, bias=True))

    def first(given: Feature) -> Feature:
        y = drawing.conv(given, stage.width, stage.kernel, stage.step, padding=0, bias=True)
        y = drawing.layer_norm(y)
        y = with_tokens(drawing, y) if is_last else y
        scaled = own // 2 ** (index + 1) if index else own
        return with_positions(drawing, y, (scaled // stage.step) ** 2 + is_last)

    make = second if style.is_second else first
    return drawing.block(f"patches{index}", x, make, role="body" if index else "input")


def _layer(drawing: Drawing, given: Feature, stage: _Stage, style: _Style) -> Feature:
    inner = stage.width * stage.ratio

    def feed(normed: Feature) -> Feature:
        if not style.is_second:
            return feed_forward(drawing, normed, inner, kind=style.act)
        y = drawing.linear(normed, inner, name="dense1")
        y = drawing.act(y) if style.is_linear else y
        y = drawing.conv(y, inner, 3, groups=inner, bias=True)
        return drawing.linear(drawing.act(y, style.act), stage.width, name="dense2")

    def mix(normed: Feature) -> Feature:
        memory = _reduced(drawing, normed, stage, style.is_linear)
        return attend(drawing, normed, stage.heads, memory=memory, bias=style.bias)

    return pre_norm_layer(drawing, given, mix, feed)


def _reduced(drawing: Drawing, given: Feature, stage: _Stage, is_linear: bool) -> Feature | None:
    """What attention sees; None: all positions."""
    if is_linear:
        pooled = drawing.resize(given, (_POOLED, _POOLED))
        return drawing.act(drawing.layer_norm(drawing.conv(pooled, stage.width, bias=True)), "gelu")
    if stage.reduction == 1 or prod(given.size) == 1:
        return None
    y = drawing.conv(given, stage.width, stage.reduction, stage.reduction, padding=0, bias=True)
    return drawing.layer_norm(y)
