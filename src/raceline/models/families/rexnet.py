"""ReXNet (arXiv:2007.00992): inverted residuals whose channels grow by the same step in every block.

`depths` and `strides` describe the stages; the first `plain_stages` have no squeeze and excitation. From
`initial_size`, `growth_size` channels are added over all blocks. `width` scales them.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model

_EXPANSION = 6


class _Block(NamedTuple):
    channels: int
    stride: int
    expansion: int
    squeeze: float


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    side = image_size_of(fields, image_size, 224)
    width = fields.number("width", default=1.0, minimum=0.01, maximum=100)
    stem = round(fields.integer("embedding_size", default=32, maximum=65_536) * max(width, 1.0))
    drawing = Drawing()
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(given, stem, 3, 2, kind="silu"),
        role="input",
    )
    for index, block in enumerate(_blocks(fields, width)):
        x = drawing.block(f"block{index + 1}", x, lambda given, this=block: _inverted(drawing, given, this))  # type: ignore[misc]
    _head(drawing, x, fields, width)
    return image_model(fields, "rexnet", drawing.blocks, side, hidden=x.channels)


def _blocks(fields: Fields, width: float) -> list[_Block]:
    """Below width 1 the first block keeps its channels and only the growth is scaled."""
    depths = whole_numbers(fields, "depths", [1, 2, 2, 3, 3, 5], 1000)
    strides = whole_numbers(fields, "strides", [1, 2, 2, 2, 1, 2], 64)
    same_length(depths=depths, strides=strides)
    plain = fields.integer("plain_stages", default=2, minimum=0, maximum=256)
    ratio = fields.number("squeeze_ratio", default=1 / 12, maximum=1.0)
    channels = fields.integer("initial_size", default=16, maximum=65_536) / min(width, 1.0)
    step = fields.integer("growth_size", default=180, maximum=1_000_000) / sum(depths)
    blocks: list[_Block] = []
    for stage, (depth, stride) in enumerate(zip(depths, strides, strict=True)):
        for index in range(depth):
            expansion = _EXPANSION if stage else 1
            squeeze = ratio if stage >= plain else 0.0
            made = round((channels + len(blocks) * step) * width)
            blocks.append(_Block(made, 1 if index else stride, expansion, squeeze))
    return blocks


def _inverted(drawing: Drawing, x: Feature, block: _Block) -> Feature:
    middle = x.channels * block.expansion
    y = drawing.conv_norm_act(x, middle, kind="silu") if block.expansion > 1 else x
    y = drawing.conv_norm(y, middle, 3, block.stride, groups=middle)
    if block.squeeze:
        y = _squeeze(drawing, y, max(1, int(middle * block.squeeze)))
    y = drawing.conv_norm(drawing.act(y, "relu6"), block.channels)
    if block.stride > 1 or x.channels > block.channels:
        return y
    old = drawing.add(y._replace(channels=x.channels), x)
    new = y._replace(channels=block.channels - x.channels)
    return drawing.concat([old, new]) if new.channels else old


def _squeeze(drawing: Drawing, x: Feature, reduced: int) -> Feature:
    """Squeeze and excitation with a batch norm inside."""
    small = drawing.norm(drawing.conv(drawing.global_pool(x), reduced, bias=True))
    gate = drawing.conv(drawing.act(small), x.channels, bias=True)
    return drawing.multiply(x, drawing.act(gate, "sigmoid"))


def _head(drawing: Drawing, x: Feature, fields: Fields, width: float) -> None:
    channels = max(1, int(fields.integer("head_channels", default=1280, maximum=1_000_000) * width))
    classes = classes_of(fields)
    dropped = fields.number("dropout_rate", default=0.0, maximum=1.0)

    def output(given: Feature) -> Feature:
        y = drawing.global_pool(drawing.conv_norm_act(given, channels, kind="silu"))
        return drawing.classify(y, classes, dropped=dropped)

    drawing.block("output", x, output, role="output")
