"""MobileViT: inverted residuals, and transformer layers between convolutions, from transformers' config fields.

arXiv:2110.02178. A position attends to those at its own place in every patch: a patch of 2 x 2 makes four
sequences, each of a quarter of the positions. `stage_layers`: transformer layers of the last three stages.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import attend, feed_forward, pre_norm_layer
from raceline.models.families.images import (
    classes_of,
    divisible,
    image_model,
    image_size_of,
    pixels,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed
from raceline.present.errors import InputError

_STAGES = 3
_NECKS = 7


class _Style(NamedTuple):
    """What all blocks share."""

    act: str
    expand: float
    kernel: int
    patch: int
    heads: int
    ratio: float
    dropped: float
    bias: bool


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier: a stem, two stages of inverted residuals, three with transformer layers."""
    side = image_size_of(fields, image_size, 256)
    widths = whole_numbers(fields, "hidden_sizes", [144, 192, 240], 65_536)
    necks = whole_numbers(fields, "neck_hidden_sizes", [16, 32, 64, 96, 128, 160, 640], 65_536)
    layers = whole_numbers(fields, "stage_layers", [2, 4, 3], 10_000)
    if (len(widths), len(necks), len(layers)) != (_STAGES, _NECKS, _STAGES):
        given = f"{len(widths)}, {len(necks)}, {len(layers)}"
        raise InputError(
            "models.lists_differ", fields="hidden_sizes, neck_hidden_sizes, stage_layers", given=given
        )
    style, drawing = _style(fields), Drawing()
    x = _trunk(drawing, pixels(side, fields.integer("num_channels", default=3, maximum=64)), necks, style)
    stride = fields.integer("output_stride", default=32, maximum=32)
    dilations = {8: (1, 2, 4), 16: (1, 1, 2)}.get(stride, (1, 1, 1))
    for index, (width, depth) in enumerate(zip(widths, layers, strict=True)):
        neck = necks[index + _STAGES]
        before = dilations[max(0, index - 1)]
        x = _stage(drawing, x, f"stage{index}", neck, width, depth, (before, dilations[index]), style)
    classes = classes_of(fields)
    dropped = fields.number("classifier_dropout_prob", default=0.1, maximum=1.0)

    def output(given: Feature) -> Feature:
        y = drawing.global_pool(drawing.conv_norm_act(given, necks[-1], kind=style.act))
        return drawing.classify(y, classes, dropped=dropped)

    drawing.block("output", x, output, role="output")
    return image_model(fields, "mobilevit", drawing.blocks, side, hidden=necks[-1], layers=sum(layers))


def _style(fields: Fields) -> _Style:
    return _Style(
        fields.text("hidden_act", default="silu"),
        fields.number("expand_ratio", default=4.0, minimum=0.01, maximum=1024),
        fields.integer("conv_kernel_size", default=3, maximum=1024),
        fields.integer("patch_size", default=2, maximum=1024),
        fields.integer("num_attention_heads", default=4, maximum=4096),
        fields.number("mlp_ratio", default=2.0, minimum=0.01, maximum=1024),
        fields.number("hidden_dropout_prob", default=0.1, maximum=1.0),
        fields.flag("qkv_bias", default=True),
    )


def _trunk(drawing: Drawing, x: Feature, necks: list[int], style: _Style) -> Feature:
    """The stem, one inverted residual, and three that halve the image."""
    x = drawing.block(
        "stem", x, lambda given: drawing.conv_norm_act(given, necks[0], 3, 2, kind=style.act), role="input"
    )
    x = drawing.block("mobile0", x, lambda given: _inverted(drawing, given, necks[1], 1, 1, style))
    x = drawing.block("mobile1.0", x, lambda given: _inverted(drawing, given, necks[2], 2, 1, style))
    return drawing.block(
        "mobile1.1", x, lambda given: _inverted(drawing, given, necks[2], 1, 1, style), repeat=2
    )


def _inverted(
    drawing: Drawing, given: Feature, channels: int, stride: int, dilation: int, style: _Style
) -> Feature:
    middle = divisible(round(given.channels * style.expand))
    y = drawing.conv_norm_act(given, middle, kind=style.act)
    y = drawing.conv_norm_act(y, middle, 3, stride, groups=middle, dilation=dilation, kind=style.act)
    y = drawing.conv_norm(y, channels)
    return drawing.add(y, given) if stride == 1 and given.channels == channels else y


def _stage(
    drawing: Drawing,
    x: Feature,
    name: str,
    neck: int,
    width: int,
    depth: int,
    dilations: tuple[int, int],
    style: _Style,
) -> Feature:
    """A halving, a convolution into the layers' width, the layers, and a convolution of what came in beside
    what came out. A dilated stage keeps its size."""
    before, own = dilations
    stride = 2 if own == 1 else 1
    local = drawing.block(
        f"{name}.down", x, lambda given: _inverted(drawing, given, neck, stride, before, style)
    )

    def enter(given: Feature) -> Feature:
        y = drawing.conv_norm_act(given, neck, style.kernel, kind=style.act)
        return _whole_patches(drawing, drawing.conv(y, width), style.patch)

    def leave(given: Feature) -> Feature:
        y = drawing.layer_norm(given)
        y = drawing.resize(y, local.size) if y.size != local.size else y
        y = drawing.conv_norm_act(y, neck, kind=style.act)
        both = drawing.concat([y, y])
        return drawing.conv_norm_act(both, neck, style.kernel, kind=style.act)

    y = drawing.block(f"{name}.enter", local, enter)
    y = drawing.block(f"{name}.layers", y, lambda given: _layer(drawing, given, style), repeat=depth)
    return drawing.block(f"{name}.leave", y, leave)


def _whole_patches(drawing: Drawing, given: Feature, patch: int) -> Feature:
    """An image that patches don't divide is stretched."""
    size = tuple(ceil(side / patch) * patch for side in given.size)
    return given if size == given.size else drawing.resize(given, size)


def _layer(drawing: Drawing, given: Feature, style: _Style) -> Feature:
    inner = max(1, int(given.channels * style.ratio))
    seen = fixed(given.rows.fixed / style.patch**2)

    def mix(normed: Feature) -> Feature:
        y = attend(drawing, normed, style.heads, seen=seen, bias=style.bias)
        return drawing.dropout(y, style.dropped)

    def feed(normed: Feature) -> Feature:
        y = feed_forward(drawing, normed, inner, kind=style.act)
        return drawing.dropout(y, style.dropped)

    return pre_norm_layer(drawing, given, mix, feed)
