"""CoaT (arXiv:2104.06399): factorised attention with convolutions for positions, serial and parallel stages.

Fields: `hidden_sizes`, `depths` (serial layers) and `mlp_ratios` for each stage, `num_attention_heads`, and
`parallel_depth`: layers in which all stages but the first run side by side and add up each other's attention.
The convolutions for positions are one set for each stage, and parallel layers share one feed-forward network.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import (
    as_image,
    attend,
    feed_forward,
    first_token,
    pre_norm_layer,
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
from raceline.models.families.layers import elementwise
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Model
from raceline.present.errors import InputError

# Of eight heads two look at windows of 3 x 3, three of 5 x 5 and three of 7 x 7.
_WINDOWS = ((3, 2), (5, 3), (7, 3))
_HEADS = sum(heads for _, heads in _WINDOWS)


class _Stage(NamedTuple):
    """Sizes of one stage."""

    width: int
    depth: int
    ratio: int
    side: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier on the class tokens: of the last stage, or of the parallel stages put together."""
    side = image_size_of(fields, image_size, 224)
    stages, drawing = _stages(fields, side), Drawing()
    parallel = fields.integer("parallel_depth", default=6, minimum=0, maximum=10_000)
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    outs = []
    for index, stage in enumerate(stages):
        patch = fields.integer("patch_size", default=4, maximum=1024) if index == 0 else 2
        x = _draw_patches(drawing, x, index, stages, patch)
        x = _draw_serial(drawing, x, index, stage)
        outs.append(x)
    if parallel and len(stages) > 1:
        _check_shared(fields, stages)
        outs = _draw_parallel(drawing, outs, stages, parallel)
    _draw_output(drawing, outs, len(outs) < len(stages), classes_of(fields))
    layers = sum(stage.depth for stage in stages) + parallel
    return image_model(fields, "coat", drawing.blocks, side, hidden=x.channels, layers=layers)


def _stages(fields: Fields, side: int) -> list[_Stage]:
    widths = whole_numbers(fields, "hidden_sizes", [152, 152, 152, 152], 65_536)
    depths = whole_numbers(fields, "depths", [2, 2, 2, 2], 10_000)
    ratios = whole_numbers(fields, "mlp_ratios", [4, 4, 4, 4], 1024)
    same_length(hidden_sizes=widths, depths=depths, mlp_ratios=ratios)
    fields.integer("num_attention_heads", default=_HEADS, minimum=_HEADS, maximum=_HEADS)
    for width in widths:
        if width % _HEADS:
            field = fields.where + "num_attention_heads"
            raise InputError("models.heads_not_divisor", field=field, heads=_HEADS, hidden=width)
    sides = [patches_of(side, fields.integer("patch_size", default=4, maximum=1024))]
    for _ in widths[1:]:
        sides.append(patches_of(sides[-1], 2))
    return [_Stage(*values) for values in zip(widths, depths, ratios, sides, strict=True)]


def _check_shared(fields: Fields, stages: list[_Stage]) -> None:
    """Parallel stages are of one width, since they add up and share a feed-forward network."""
    wanted = stages[1]
    for index, stage in enumerate(stages[2:], 2):
        given = {f"hidden_sizes.{index}": stage.width, f"mlp_ratios.{index}": stage.ratio}
        for name, only in zip(given, (wanted.width, wanted.ratio), strict=True):
            Fields(given, fields.where).integer(name, minimum=only, maximum=only)


def _draw_patches(drawing: Drawing, x: Feature, index: int, stages: list[_Stage], patch: int) -> Feature:
    def make(given: Feature) -> Feature:
        image = as_image(given, stages[index - 1].side) if index else given
        y = drawing.conv(image, stages[index].width, patch, patch, padding=0, bias=True)
        return with_tokens(drawing, drawing.layer_norm(y))

    return drawing.block(f"patches{index}", x, make, role="body" if index else "input")


def _draw_serial(drawing: Drawing, x: Feature, index: int, stage: _Stage) -> Feature:
    """The first layer of a stage owns the convolutions for positions; those after it use them again."""

    def layer(given: Feature, tied: bool) -> Feature:
        placed = _place(drawing, given, stage, tied)
        return pre_norm_layer(
            drawing,
            placed,
            lambda normed: _attend(drawing, normed, stage, tied),
            lambda normed: feed_forward(drawing, normed, stage.width * stage.ratio),
        )

    x = drawing.block(f"stage{index}.0", x, lambda given: layer(given, False))
    if stage.depth == 1:
        return x
    return drawing.block(f"stage{index}.1", x, lambda given: layer(given, True), repeat=stage.depth - 1)


def _place(drawing: Drawing, given: Feature, stage: _Stage, tied: bool) -> Feature:
    """A depthwise convolution of the image beside a shortcut."""
    image = as_image(given, stage.side)
    y = drawing.conv(image, stage.width, 3, groups=stage.width, bias=True, tied=tied)
    return with_tokens(drawing, drawing.add(y, image), learned=False)


def _attend(drawing: Drawing, given: Feature, stage: _Stage, tied: bool) -> Feature:
    """q (softmax(k)^T v): the sum over positions comes first, so that each one meets a matrix of a head's width
    by its width. Depthwise convolutions of the values, times the queries, stand for positions."""
    image = as_image(given, stage.side)
    for window, heads in _WINDOWS:
        width = heads * stage.width // _HEADS
        part = image._replace(channels=width)
        drawing.conv(part, width, window, groups=width, bias=True, tied=tied)
    drawing.multiply(image, image)
    return attend(drawing, given, _HEADS, factorised=True)


def _draw_parallel(drawing: Drawing, outs: list[Feature], stages: list[_Stage], repeat: int) -> list[Feature]:
    """Every stage but the first: its own attention and that of the others at its size, then the feed-forward
    network that all share."""

    def layer(given: Feature, stage: _Stage, is_first: bool) -> Feature:
        placed = _place(drawing, given, stage, True)

        def mix(normed: Feature) -> Feature:
            y = _attend(drawing, normed, stage, True)
            for other in stages[1:]:
                if other is not stage:
                    resized = as_image(y, other.side)
                    drawing.resize(resized, (stage.side, stage.side))
                    y = drawing.add(y, y)
            return y

        inner = stage.width * stage.ratio
        return pre_norm_layer(
            drawing, placed, mix, lambda normed: feed_forward(drawing, normed, inner, tied=not is_first)
        )

    drawn = []
    for index, (x, stage) in enumerate(zip(outs[1:], stages[1:], strict=True)):
        drawn.append(
            drawing.block(
                f"parallel{index + 1}",
                x,
                lambda given, now=stage, at=index: layer(given, now, at == 0),  # type: ignore[misc]
                repeat=repeat,
            )
        )
    return drawn


def _draw_output(drawing: Drawing, outs: list[Feature], is_merged: bool, classes: int) -> None:
    for index, x in enumerate(outs[:-1] if is_merged else ()):
        drawing.block(f"norm{index}", x, drawing.layer_norm, role="output")

    def output(given: Feature) -> Feature:
        token = first_token(drawing.layer_norm(given))
        if is_merged:
            width = float(token.channels)
            merged = elementwise(
                "merge_tokens", len(outs) * width, width, rows=SAMPLE, parameters=len(outs) + 1
            )
            drawing.part(merged)
        return drawing.classify(token, classes)

    drawing.block("output", outs[-1], output, role="output")
