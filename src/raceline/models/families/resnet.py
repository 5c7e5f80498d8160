"""ResNet and what grew from it, in the fields of transformers' ResNetConfig and a few of timm's.

Beside `embedding_size`, `hidden_sizes`, `depths`, `layer_type` (basic or bottleneck), `hidden_act`,
`downsample_in_first_stage` and `downsample_in_bottleneck` a config may state: `groups` and
`width_per_group` (ResNeXt, wide), `stem_widths` (three 3x3 convolutions), `stem_pool` (max, conv, mean,
blur), `strides` of the stages, `avg_down` (ResNet-D), `attention` (se or eca) with `reduction`,
`antialias` (mean or blur), `norm` (batch, frozen, group), `dilations` of the stages, numbers of the
`deformable_stages` (arXiv:1703.06211), and `paths` with its own fields for 3x3 convolutions that run in
several paths (module paths).
"""

from __future__ import annotations

from math import log2
from typing import Any, NamedTuple

import msgspec

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
from raceline.models.families.paths import Paths, Place, paths_of
from raceline.models.fields import Fields
from raceline.models.graph import Model

_OFFSETS = 18  # two for each of nine places


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a residual block is made of. `frozen_norm`: batch norm as a fixed scale (detection)."""

    is_bottleneck: bool = True
    act: str = "relu"
    groups: int = 1
    width_per_group: int = 64
    stride_first: bool = False
    avg_down: bool = False
    attention: str = ""
    reduction: float = 1 / 16
    antialias: str = ""
    norm: str = "batch"
    paths: Paths | None = None


class _Step(NamedTuple):
    """Where in its network a block stands."""

    channels: int
    stride: int
    is_first: bool = False
    dilation: int = 1
    is_deformable: bool = False


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of the ResNet kind at any image size."""
    side = image_size_of(fields, image_size, 224)
    drawing = Drawing()
    features = backbone(drawing, fields, pixels(side, fields.integer("num_channels", default=3, maximum=64)))
    classes = classes_of(fields)
    drawing.block(
        "output",
        features[-1],
        lambda x: drawing.classify(drawing.global_pool(x), classes),
        role="output",
    )
    return image_model(fields, "resnet", drawing.blocks, side, hidden=features[-1].channels)


def shape_of(fields: Fields) -> Shape:
    """The residual block that a config describes."""
    return Shape(
        is_bottleneck=fields.text("layer_type", default="bottleneck") == "bottleneck",
        act=fields.text("hidden_act", default="relu"),
        groups=fields.integer("groups", default=1, maximum=4096),
        width_per_group=fields.integer("width_per_group", default=64, maximum=4096),
        stride_first=fields.flag("downsample_in_bottleneck"),
        avg_down=fields.flag("avg_down"),
        attention=fields.text("attention", default=""),
        reduction=fields.number("reduction", default=1 / 16, maximum=1.0),
        antialias=fields.text("antialias", default=""),
        norm=fields.text("norm", default="batch"),
        paths=paths_of(fields),
    )


def backbone(
    drawing: Drawing,
    fields: Fields,
    image: Feature,
    frozen_stages: int = 0,
    *,
    leaves_last: bool = False,
) -> list[Feature]:
    """Stem and stages (`leaves_last`: the last one isn't drawn); the output of each stage. The first
    `frozen_stages` (1: the stem) aren't trained, nor is their batch norm."""
    shape = shape_of(fields)
    frozen = msgspec.structs.replace(shape, norm="frozen") if shape.norm == "batch" else shape
    stem_pool = fields.text("stem_pool", default="max")
    widths = whole_numbers(fields, "stem_widths", [])
    embedding = fields.integer("embedding_size", default=64, maximum=65_536)
    stem_shape = frozen if frozen_stages else shape
    x = drawing.block(
        "stem",
        image,
        lambda given: _stem(drawing, given, [*widths, embedding], stem_shape, stem_pool),
        role="input",
        trained=frozen_stages < 1,
    )
    stages = _stages(fields)
    features = []
    for stage, (depth, step) in enumerate(stages[: max(1, len(stages) - leaves_last)]):
        trained = frozen_stages < stage + 2
        own = shape if trained else frozen
        x = _stage(drawing, x, f"layer{stage + 1}", depth, step, own, trained)
        features.append(x)
    return features


def last_stage(drawing: Drawing, fields: Fields, given: Feature) -> Feature:
    """The last stage alone, on any feature."""
    stages = _stages(fields)
    return _stage(drawing, given, f"layer{len(stages)}", *stages[-1], shape_of(fields), True)


def _stages(fields: Fields) -> list[tuple[int, _Step]]:
    """The depth of each stage and its first block."""
    depths = whole_numbers(fields, "depths", [3, 4, 6, 3], 10_000)
    sizes = whole_numbers(fields, "hidden_sizes", [256, 512, 1024, 2048])
    first = 2 if fields.flag("downsample_in_first_stage") else 1
    strides = whole_numbers(fields, "strides", [first] + [2] * (len(sizes) - 1), 64)
    dilations = whole_numbers(fields, "dilations", [1] * len(sizes), 64)
    same_length(depths=depths, hidden_sizes=sizes, strides=strides, dilations=dilations)
    deformable = whole_numbers(fields, "deformable_stages", [], len(sizes))
    return [
        (depth, _Step(channels, stride, True, dilation, index + 1 in deformable))
        for index, (depth, channels, stride, dilation) in enumerate(
            zip(depths, sizes, strides, dilations, strict=True)
        )
    ]


def _stem(drawing: Drawing, x: Feature, widths: list[int], shape: Shape, pool: str) -> Feature:
    if len(widths) == 1:
        x = _conv_norm(drawing, x, widths[0], shape, 7, 2)
    else:
        for index, width in enumerate(widths):
            x = drawing.act(x, shape.act) if index else x
            x = _conv_norm(drawing, x, width, shape, 3, 1 if index else 2)
    x = drawing.act(x, shape.act)
    if pool == "none":
        return x
    if pool == "conv":
        return drawing.act(_conv_norm(drawing, x, widths[-1], shape, 3, 2), shape.act)
    if pool == "mean":
        return drawing.pool(x, 2, 2, padding=0, kind="mean")
    if pool == "blur":
        return drawing.blur(drawing.pool(x, 3, 1), 2)
    return drawing.pool(x, 3, 2)


def _conv_norm(
    drawing: Drawing,
    x: Feature,
    channels: int,
    shape: Shape,
    kernel: int = 1,
    stride: int = 1,
    **rest: Any,
) -> Feature:
    return drawing.normed(drawing.conv(x, channels, kernel, stride, **rest), shape.norm)


def _stage(
    drawing: Drawing, x: Feature, name: str, depth: int, step: _Step, shape: Shape, trained: bool
) -> Feature:
    """The first block changes the shape; the others are alike."""
    make = _bottleneck if shape.is_bottleneck else _basic
    x = drawing.block(f"{name}.0", x, lambda given: make(drawing, given, step, shape), trained=trained)
    if depth > 1:
        same = step._replace(stride=1, is_first=False)
        x = drawing.block(
            f"{name}.1", x, lambda given: make(drawing, given, same, shape), repeat=depth - 1, trained=trained
        )
    return x


def _shortcut(drawing: Drawing, x: Feature, step: _Step, shape: Shape) -> Feature:
    if x.channels == step.channels and step.stride == 1:
        return x
    if shape.avg_down:
        pooled = drawing.pool(x, 2, 2, padding=0, kind="mean", ceil=True) if step.stride > 1 else x
        return _conv_norm(drawing, pooled, step.channels, shape)
    return _conv_norm(drawing, x, step.channels, shape, 1, step.stride)


def _spatial(drawing: Drawing, x: Feature, width: int, step: _Step, shape: Shape, groups: int = 1) -> Feature:
    """The 3x3 convolution that may stride; against aliasing it runs at full size and is smoothed after."""
    stride, dilation = step.stride, step.dilation
    late = bool(shape.antialias) and stride > 1
    own = 1 if late else stride
    offsets = None
    if step.is_deformable:
        offsets = drawing.conv(x, _OFFSETS, 3, own, dilation=dilation, bias=True, name="offsets")
    x = _conv_norm(drawing, x, width, shape, 3, own, groups=groups, dilation=dilation, sampled_at=offsets)
    x = drawing.act(x, shape.act)
    if not late:
        return x
    return (
        drawing.blur(x, stride)
        if shape.antialias == "blur"
        else drawing.pool(x, 2, 2, padding=0, kind="mean")
    )


def _middle(drawing: Drawing, x: Feature, width: int, step: _Step, shape: Shape, groups: int = 1) -> Feature:
    """The 3x3 convolution of a block, in one path or in several."""
    if shape.paths is None:
        return _spatial(drawing, x, width, step, shape, groups)
    place = Place(width, step.stride, groups, shape.act, step.is_first)
    return shape.paths.draw(drawing, x, place)


def _basic(drawing: Drawing, x: Feature, step: _Step, shape: Shape) -> Feature:
    y = _middle(drawing, x, step.channels, step, shape)
    y = _conv_norm(drawing, y, step.channels, shape, 3)
    return _close(drawing, x, y, step, shape)


def _bottleneck(drawing: Drawing, x: Feature, step: _Step, shape: Shape) -> Feature:
    width = step.channels // 4 * shape.width_per_group // 64 * shape.groups
    first, second = (step.stride, 1) if shape.stride_first else (1, step.stride)
    scales = shape.paths.scales if shape.paths else 1
    y = drawing.act(_conv_norm(drawing, x, width * scales, shape, 1, first), shape.act)
    y = _middle(drawing, y, width, step._replace(stride=second), shape, shape.groups)
    y = _conv_norm(drawing, y, step.channels, shape)
    return _close(drawing, x, y, step, shape)


def _close(drawing: Drawing, x: Feature, y: Feature, step: _Step, shape: Shape) -> Feature:
    y = _attend(drawing, y, shape)
    return drawing.act(drawing.add(y, _shortcut(drawing, x, step, shape)), shape.act)


def _attend(drawing: Drawing, y: Feature, shape: Shape) -> Feature:
    """Squeeze and excitation (arXiv:1709.01507) or a convolution over channels (ECA, arXiv:1910.03151)."""
    if shape.attention == "se":
        return drawing.squeeze_excite(y, divisible(y.channels * shape.reduction, 8))
    if shape.attention == "eca":
        kernel = int(abs(log2(y.channels) + 1) / 2)
        gate = drawing.scale(drawing.global_pool(y), learned=max(kernel if kernel % 2 else kernel + 1, 3))
        return drawing.multiply(y, drawing.act(gate, "sigmoid"))
    return y
