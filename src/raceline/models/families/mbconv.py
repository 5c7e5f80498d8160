"""Networks of inverted residual blocks: EfficientNet, MobileNet v2 and v3, MnasNet and their kin.

A stage is a list of rows ``[kind, repeat, kernel, stride, expansion, channels]`` with an optional seventh
value, the squeeze ratio, and an eighth, the activation. Kinds: ds (depthwise, then 1x1), dsa (the same with
an activation after it and no shortcut), ir (1x1, depthwise, 1x1), er (k x k, 1x1), cn (one convolution).
`width` and `depth` scale channels and repeats. `head` mobile: the mean is taken before the last convolution.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import msgspec

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of, divisible, image_model, image_size_of, pixels
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

_MOST_ROWS = 64


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Blocks of one kind within a stage."""

    kind: str
    repeat: int
    kernel: int
    stride: int
    expansion: float
    channels: int
    squeeze: float = 0.0
    act: str = ""


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """What all blocks of a network share. `squeeze_of_middle`: the ratio is of the expanded width, rounded
    to multiples of eight; else of the block's input. `group_size`: channels in one group of the spatial
    convolution."""

    act: str = "silu"
    squeeze_act: str = ""
    squeeze_gate: str = "sigmoid"
    squeeze_of_middle: bool = False
    group_size: int = 1


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of inverted residual blocks at any image size."""
    if fields.values.get("stages") is None:
        fields = _from_transformers(fields)
    side = image_size_of(fields, image_size, 224)
    drawing = Drawing(norm="group" if fields.text("norm", default="batch") == "group" else "batch")
    x = trunk(drawing, fields, side)[-1]
    _head(drawing, x, fields, style_of(fields))
    return image_model(fields, "mbconv", drawing.blocks, side, hidden=x.channels)


def style_of(fields: Fields) -> Style:
    """What the blocks of a config share."""
    return Style(
        act=fields.text("hidden_act", default="silu"),
        squeeze_act=fields.text("squeeze_act", default=""),
        squeeze_gate=fields.text("squeeze_gate", default="sigmoid"),
        squeeze_of_middle=fields.flag("squeeze_of_middle"),
        group_size=fields.integer("group_size", default=1, maximum=65_536),
    )


def trunk(drawing: Drawing, fields: Fields, side: int) -> list[Feature]:
    """Stem and stages; the output of each stage."""
    style = style_of(fields)
    stem = fields.integer("stem_channels", default=32, maximum=65_536)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(given, stem, 3, 2, kind=style.act),
        role="input",
    )
    features = []
    for number, stage in enumerate(stages(fields)):
        for index, row in enumerate(stage):
            x = _draw_row(drawing, x, f"stage{number}.{index}", row, style)
        features.append(x)
    return features


def stages(fields: Fields) -> list[list[Row]]:
    """The stages with channels and repeats scaled; the first and the last stage may keep their depth."""
    width, depth = (
        fields.number("width", default=1.0, maximum=100),
        fields.number("depth", default=1.0, maximum=100),
    )
    is_fixed, whole = fields.flag("fixed_ends"), fields.items("stages", longest=64)
    rounding = round if fields.flag("depth_rounds") else ceil
    scaled = []
    for number, stage in enumerate(whole):
        if not isinstance(stage, list) or not 0 < len(stage) <= _MOST_ROWS:
            raise InputError("models.stage_wrong", given=str(stage)[:60])
        rows = [_row(values) for values in stage]
        ends = is_fixed and number in (0, len(whole) - 1)
        repeats = (
            [row.repeat for row in rows] if ends else _repeats([row.repeat for row in rows], depth, rounding)
        )
        scaled.append(
            [
                msgspec.structs.replace(row, repeat=repeat, channels=divisible(row.channels * width))
                for row, repeat in zip(rows, repeats, strict=True)
            ]
        )
    return scaled


def _row(values: Any) -> Row:
    try:
        row = msgspec.convert(values, Row)
    except msgspec.ValidationError as error:
        raise InputError("models.stage_wrong", given=str(values)[:60]) from error
    sizes = (row.repeat, row.kernel, row.stride, row.expansion, row.channels)
    if row.kind not in _MAKERS or not all(0 < size <= 100_000 for size in sizes):
        raise InputError("models.stage_wrong", given=str(values)[:60])
    return row


def _repeats(repeats: list[int], depth: float, rounding: Any) -> list[int]:
    """Scales the sum of a stage's repeats and deals it out from the last kind to the first, so that the
    first, which changes the shape, is the least often repeated."""
    total = sum(repeats)
    left = max(1, int(rounding(total * depth)))
    dealt = []
    for repeat in reversed(repeats):
        share = max(1, round(repeat / total * left))
        dealt.append(share)
        total, left = total - repeat, left - share
    return dealt[::-1]


def _draw_row(drawing: Drawing, x: Feature, name: str, row: Row, style: Style) -> Feature:
    """The first block may change the shape; those after it keep it."""
    make = _MAKERS[row.kind]
    x = drawing.block(f"{name}.0", x, lambda given: make(drawing, given, row, style))
    if row.repeat > 1:
        same = msgspec.structs.replace(row, stride=1)
        x = drawing.block(
            f"{name}.1", x, lambda given: make(drawing, given, same, style), repeat=row.repeat - 1
        )
    return x


def _squeeze(drawing: Drawing, x: Feature, given: Feature, row: Row, style: Style) -> Feature:
    if not row.squeeze:
        return x
    if style.squeeze_of_middle:
        reduced = divisible(x.channels * row.squeeze)
    else:
        reduced = max(1, round(given.channels * row.squeeze))
    act = style.squeeze_act or row.act or style.act
    return drawing.squeeze_excite(x, reduced, kind=act, gate=style.squeeze_gate)


def _skip(drawing: Drawing, given: Feature, y: Feature, row: Row) -> Feature:
    same = row.stride == 1 and given.channels == y.channels
    return drawing.add(y, given) if same else y


def _separable(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    act = row.act or style.act
    y = drawing.conv_norm_act(
        given, given.channels, row.kernel, row.stride, groups=given.channels // style.group_size, kind=act
    )
    return drawing.conv_norm(_squeeze(drawing, y, given, row, style), row.channels)


def _separable_skip(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    return _skip(drawing, given, _separable(drawing, given, row, style), row)


def _separable_act(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    return drawing.act(_separable(drawing, given, row, style), row.act or style.act)


def _inverted(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    act = row.act or style.act
    middle = divisible(given.channels * row.expansion)
    y = drawing.conv_norm_act(given, middle, kind=act)
    y = drawing.conv_norm_act(y, middle, row.kernel, row.stride, groups=middle // style.group_size, kind=act)
    y = drawing.conv_norm(_squeeze(drawing, y, given, row, style), row.channels)
    return _skip(drawing, given, y, row)


def _edge(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    middle = divisible(given.channels * row.expansion)
    y = drawing.conv_norm_act(given, middle, row.kernel, row.stride, kind=row.act or style.act)
    y = drawing.conv_norm(_squeeze(drawing, y, given, row, style), row.channels)
    return _skip(drawing, given, y, row)


def _plain(drawing: Drawing, given: Feature, row: Row, style: Style) -> Feature:
    y = drawing.conv_norm_act(given, row.channels, row.kernel, row.stride, kind=row.act or style.act)
    return _skip(drawing, given, y, row) if row.kernel > 1 else y


_MAKERS = {
    "ds": _separable_skip,
    "dsa": _separable_act,
    "ir": _inverted,
    "er": _edge,
    "cn": _plain,
}


def _head(drawing: Drawing, x: Feature, fields: Fields, style: Style) -> None:
    """A last 1x1 convolution and the classifier."""
    channels, classes = fields.integer("head_channels", default=1280), classes_of(fields)
    dropped = fields.number("dropout_rate", default=0.0, maximum=1.0)
    bias = fields.flag("head_bias", default=True)

    def mobile(given: Feature) -> Feature:
        y = drawing.conv(drawing.global_pool(given), channels, bias=bias)
        return drawing.classify(drawing.act(y, style.act), classes, dropped=dropped)

    def plain(given: Feature) -> Feature:
        y = drawing.global_pool(drawing.conv_norm_act(given, channels, kind=style.act))
        return drawing.classify(y, classes, dropped=dropped)

    is_mobile = fields.text("head", default="plain") == "mobile"
    drawing.block("output", x, mobile if is_mobile else plain, role="output")


_LISTS: dict[str, Sequence[int]] = {
    "num_block_repeats": (1, 2, 2, 3, 3, 4, 1),
    "kernel_sizes": (3, 3, 5, 3, 5, 5, 3),
    "strides": (1, 2, 2, 2, 1, 2, 1),
    "expand_ratios": (1, 6, 6, 6, 6, 6, 6),
    "out_channels": (16, 24, 40, 80, 112, 192, 320),
}


def _from_transformers(fields: Fields) -> Fields:
    """EfficientNetConfig's fields as rows. Its defaults are those of B7: arXiv:1905.11946, table 1."""
    columns = [fields.items(name, default=list(values), longest=64) for name, values in _LISTS.items()]
    squeeze = fields.number("squeeze_expansion_ratio", default=0.25, maximum=1.0)
    width = fields.number("width_coefficient", default=2.0, maximum=100)
    rows = [
        [["ds" if expansion == 1 else "ir", repeat, kernel, stride, expansion, channels, squeeze]]
        for repeat, kernel, stride, expansion, channels in zip(*columns, strict=True)
    ]
    values = {
        "stages": rows,
        "width": width,
        "depth": fields.number("depth_coefficient", default=3.1, maximum=100),
        "stem_channels": divisible(32 * width),
        "head_channels": divisible(1280 * width),
        "hidden_act": {"swish": "silu"}.get(fields.text("hidden_act", default="swish"), "silu"),
        "image_size": fields.integer("image_size", default=600, maximum=16_384),
        "dropout_rate": fields.number("dropout_rate", default=0.0, maximum=1.0),
    }
    return Fields({**fields.values, **values}, fields.where)
