"""GhostNet (arXiv:1911.11907): half of the channels by a convolution, the other half cheaply from those.

A config lists for each block `kernel_sizes`, `expanded_sizes`, `hidden_sizes` and `strides`;
`squeezed_blocks` are the blocks (from 1) with squeeze and excitation of `squeeze_ratio`. `width` scales all
channels but `head_channels`.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    divisible,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model

_DIVISOR = 4
_CHEAP_KERNEL = 3


class _Block(NamedTuple):
    kernel: int
    expanded: int
    channels: int
    stride: int
    squeeze: float


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of ghost bottlenecks at any image size."""
    side = image_size_of(fields, image_size, 224)
    width = fields.number("width", default=1.0, minimum=0.01, maximum=100)
    blocks = _blocks(fields, width)
    stem = divisible(fields.integer("embedding_size", default=16, maximum=65_536) * width, _DIVISOR)
    drawing = Drawing()
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(given, stem, 3, 2),
        role="input",
    )
    for index, block in enumerate(blocks):
        x = drawing.block(f"block{index + 1}", x, lambda given, this=block: _bottleneck(drawing, given, this))  # type: ignore[misc]
    _head(drawing, x, fields, blocks[-1].expanded)
    return image_model(fields, "ghostnet", drawing.blocks, side, hidden=x.channels)


def _blocks(fields: Fields, width: float) -> list[_Block]:
    """The blocks with their channels scaled."""
    kernels = whole_numbers(fields, "kernel_sizes", [3], 63)
    expanded = whole_numbers(fields, "expanded_sizes", [16])
    channels = whole_numbers(fields, "hidden_sizes", [16])
    strides = whole_numbers(fields, "strides", [1], 64)
    same_length(kernel_sizes=kernels, expanded_sizes=expanded, hidden_sizes=channels, strides=strides)
    squeezed = set(whole_numbers(fields, "squeezed_blocks", [], len(kernels)))
    ratio = fields.number("squeeze_ratio", default=0.25, maximum=1.0)
    return [
        _Block(
            kernel,
            divisible(wide * width, _DIVISOR),
            divisible(out * width, _DIVISOR),
            stride,
            ratio if index + 1 in squeezed else 0.0,
        )
        for index, (kernel, wide, out, stride) in enumerate(
            zip(kernels, expanded, channels, strides, strict=True)
        )
    ]


def _ghost(drawing: Drawing, x: Feature, channels: int, kind: str) -> Feature:
    """A 1x1 convolution to half of the channels and a depthwise one from there to the other half."""
    half = channels // 2
    main = drawing.conv_norm_act(x, half, kind=kind)
    cheap = drawing.conv_norm_act(main, half, _CHEAP_KERNEL, groups=half, kind=kind)
    return drawing.concat([main, cheap])


def _bottleneck(drawing: Drawing, x: Feature, block: _Block) -> Feature:
    y = _ghost(drawing, x, block.expanded, "relu")
    if block.stride > 1:
        y = drawing.conv_norm(y, block.expanded, block.kernel, block.stride, groups=block.expanded)
    if block.squeeze:
        reduced = divisible(block.expanded * block.squeeze, _DIVISOR)
        y = drawing.squeeze_excite(y, reduced, gate="hard_sigmoid")
    y = _ghost(drawing, y, block.channels, "none")
    if block.stride == 1 and x.channels == block.channels:
        return drawing.add(y, x)
    moved = drawing.conv_norm(x, x.channels, block.kernel, block.stride, groups=x.channels)
    return drawing.add(y, drawing.conv_norm(moved, block.channels))


def _head(drawing: Drawing, x: Feature, fields: Fields, expanded: int) -> None:
    """A convolution to the last block's inner width, the mean, a wide layer and the classifier."""
    channels, classes = fields.integer("head_channels", default=1280, maximum=1_000_000), classes_of(fields)
    dropped = fields.number("dropout_rate", default=0.0, maximum=1.0)

    def output(given: Feature) -> Feature:
        y = drawing.global_pool(drawing.conv_norm_act(given, expanded))
        y = drawing.act(drawing.conv(y, channels, bias=True))
        return drawing.classify(y, classes, dropped=dropped)

    drawing.block("output", x, output, role="output")
