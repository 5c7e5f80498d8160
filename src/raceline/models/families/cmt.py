"""CMT (arXiv:2107.06263): transformer layers with depthwise convolutions around attention and within.

Fields: `stem_channels`, `hidden_sizes`, `depths`, `num_attention_heads` and `sr_ratios` for each stage,
`mlp_ratio`, `head_channels`. As MindCV builds it, the tables of relative positions are constants.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import attend, pre_norm_layer
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


class _Stage(NamedTuple):
    """Sizes of one stage."""

    width: int
    depth: int
    heads: int
    reduction: int
    inner: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier: a stem of convolutions, four stages at halved sides, a last convolution."""
    side = image_size_of(fields, image_size, 224)
    stages, drawing = _stages(fields), Drawing()
    stem = fields.integer("stem_channels", default=32, maximum=65_536)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: _stem(drawing, given, stem),
        role="input",
    )
    for index, stage in enumerate(stages):
        x = drawing.block(
            f"patches{index}",
            x,
            lambda given, wide=stage.width: drawing.layer_norm(  # type: ignore[misc]
                drawing.conv(given, wide, 2, 2, padding=0, bias=True)
            ),
        )
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, now=stage: _layer(drawing, given, now),  # type: ignore[misc]
            repeat=stage.depth,
        )
    last, classes = fields.integer("head_channels", default=1280, maximum=1_000_000), classes_of(fields)

    def output(given: Feature) -> Feature:
        y = drawing.act(drawing.norm(drawing.conv(given, last, bias=True)), "silu")
        return drawing.classify(drawing.global_pool(y), classes)

    drawing.block("output", x, output, role="output")
    layers = sum(stage.depth for stage in stages)
    return image_model(fields, "cmt", drawing.blocks, side, hidden=x.channels, layers=layers)


def _stages(fields: Fields) -> list[_Stage]:
    lists = {
        "hidden_sizes": whole_numbers(fields, "hidden_sizes", [64, 128, 256, 512], 65_536),
        "depths": whole_numbers(fields, "depths", [3, 3, 16, 3], 10_000),
        "num_attention_heads": whole_numbers(fields, "num_attention_heads", [1, 2, 4, 8], 4096),
        "sr_ratios": whole_numbers(fields, "sr_ratios", [8, 4, 2, 1], 1024),
    }
    same_length(**lists)
    ratio = fields.number("mlp_ratio", default=4.0, minimum=0.01, maximum=1024)
    lists["inner"] = [max(1, int(width * ratio)) for width in lists["hidden_sizes"]]
    return [_Stage(*values) for values in zip(*lists.values(), strict=True)]


def _stem(drawing: Drawing, given: Feature, channels: int) -> Feature:
    for stride in (2, 1, 1):
        given = drawing.act(drawing.conv(given, channels, 3, stride, bias=True), "gelu")
        given = drawing.norm(given)
    return given


def _depthwise(drawing: Drawing, given: Feature) -> Feature:
    """A depthwise convolution beside a shortcut."""
    return drawing.add(drawing.conv(given, given.channels, 3, groups=given.channels, bias=True), given)


def _layer(drawing: Drawing, given: Feature, stage: _Stage) -> Feature:
    def mix(normed: Feature) -> Feature:
        memory = None
        if stage.reduction > 1:
            memory = drawing.norm(
                drawing.conv(
                    normed, stage.width, stage.reduction, stage.reduction, padding=0, groups=stage.width,
                    bias=True,
                )
            )  # fmt: skip
        return attend(drawing, normed, stage.heads, memory=memory, has_bias=True)

    def feed(normed: Feature) -> Feature:
        y = drawing.norm(drawing.act(drawing.conv(normed, stage.inner, bias=True), "gelu"))
        y = drawing.norm(drawing.act(_depthwise(drawing, y), "gelu"))
        return drawing.norm(drawing.conv(y, stage.width, bias=True))

    return pre_norm_layer(drawing, _depthwise(drawing, given), mix, feed)
