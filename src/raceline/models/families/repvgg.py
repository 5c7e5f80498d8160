"""RepVGG (arXiv:2101.03697): trained as a 3x3, a 1x1 and an identity branch, used as one 3x3 convolution.

`depths` and `hidden_sizes` describe the stages, whose first block halves the image; `embedding_size` is the
stem's. `groups` applies to every second convolution. `is_merged`: the single convolution of inference.
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


class _Block(NamedTuple):
    channels: int
    stride: int
    groups: int
    is_merged: bool


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    side = image_size_of(fields, image_size, 224)
    drawing = Drawing()
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for number, stage in enumerate(_stages(fields)):
        for index, (block, repeat) in enumerate(stage):
            x = drawing.block(
                f"stage{number}.{index}",
                x,
                lambda given, this=block: _branches(drawing, given, this),  # type: ignore[misc]
                repeat=repeat,
                role="body" if number else "input",
            )
    classes = classes_of(fields)
    drawing.block(
        "output", x, lambda given: drawing.classify(drawing.global_pool(given), classes), role="output"
    )
    return image_model(fields, "repvgg", drawing.blocks, side, hidden=x.channels)


def _stages(fields: Fields) -> list[list[tuple[_Block, int]]]:
    """The stem and the stages: blocks and how often each is repeated."""
    depths = whole_numbers(fields, "depths", [2, 4, 14, 1], 1000)
    sizes = whole_numbers(fields, "hidden_sizes", [64, 128, 256, 1280])
    same_length(depths=depths, hidden_sizes=sizes)
    groups = fields.integer("groups", default=1, maximum=4096)
    is_merged = fields.flag("is_merged")
    stem = fields.integer("embedding_size", default=min(64, sizes[0]), maximum=65_536)
    stages, layer = [[(_Block(stem, 2, 1, is_merged), 1)]], 1
    for depth, channels in zip(depths, sizes, strict=True):
        each = [1 if number % 2 else groups for number in range(layer, layer + depth)]
        layer += depth
        blocks = [_Block(channels, 1 if index else 2, group, is_merged) for index, group in enumerate(each)]
        stages.append(_runs(blocks))
    return stages


def _runs(blocks: list[_Block]) -> list[tuple[_Block, int]]:
    """Neighbours that are alike, counted."""
    runs: list[tuple[_Block, int]] = []
    for block in blocks:
        if runs and runs[-1][0] == block:
            runs[-1] = (block, runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    return runs


def _branches(drawing: Drawing, x: Feature, block: _Block) -> Feature:
    channels, stride, groups = block.channels, block.stride, block.groups
    if block.is_merged:
        return drawing.act(drawing.conv(x, channels, 3, stride, groups=groups, bias=True))
    y = drawing.conv_norm(x, channels, 3, stride, groups=groups)
    y = drawing.add(y, drawing.conv_norm(x, channels, 1, stride, groups=groups))
    if stride == 1 and x.channels == channels:
        y = drawing.add(y, drawing.norm(x))
    return drawing.act(y)
