"""BiT, Big Transfer (arXiv:1912.11370): ResNet v2 with group norm before each convolution.

Fields of transformers' BitConfig: `embedding_size`, `hidden_sizes`, `depths`, `num_groups`, `width_factor`,
`hidden_act`, `layer_type` (preactivation alone). The weights are standardised in each step, which is too
little work to count.
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
from raceline.models.fields import Fields, shown
from raceline.models.graph import Model
from raceline.present.errors import InputError

_KIND = "preactivation"


class _Style(NamedTuple):
    groups: int
    act: str


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    kind = fields.text("layer_type", default=_KIND)
    if kind != _KIND:
        field = f"{fields.where}layer_type"
        raise InputError("models.block_unknown", field=field, given=shown(kind), known=_KIND)
    side = image_size_of(fields, image_size, 224)
    style = _Style(
        fields.integer("num_groups", default=32, maximum=4096), fields.text("hidden_act", default="relu")
    )
    wider = fields.integer("width_factor", default=1, maximum=64)
    embedding = wider * fields.integer("embedding_size", default=64, maximum=65_536)
    drawing = Drawing()
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.pool(drawing.conv(given, embedding, 7, 2), 3, 2),
        role="input",
    )
    depths = whole_numbers(fields, "depths", [3, 4, 6, 3], 10_000)
    sizes = whole_numbers(fields, "hidden_sizes", [256, 512, 1024, 2048])
    same_length(depths=depths, hidden_sizes=sizes)
    for stage, (depth, size) in enumerate(zip(depths, sizes, strict=True)):
        x = _stage(drawing, x, f"layer{stage + 1}", depth, size * wider, 2 if stage else 1, style)
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(drawing.global_pool(_active(drawing, given, style)), classes),
        role="output",
    )
    return image_model(fields, "bit", drawing.blocks, side, hidden=x.channels)


def _stage(
    drawing: Drawing, x: Feature, name: str, depth: int, channels: int, stride: int, style: _Style
) -> Feature:
    x = drawing.block(f"{name}.0", x, lambda given: _bottleneck(drawing, given, channels, stride, style))
    if depth > 1:
        x = drawing.block(
            f"{name}.1", x, lambda given: _bottleneck(drawing, given, channels, 1, style), repeat=depth - 1
        )
    return x


def _active(drawing: Drawing, x: Feature, style: _Style) -> Feature:
    return drawing.act(drawing.norm(x, "group", style.groups), style.act)


def _bottleneck(drawing: Drawing, x: Feature, channels: int, stride: int, style: _Style) -> Feature:
    """A shortcut that changes the shape starts after the norm, a plain one before it."""
    width, ready = divisible(channels / 4), _active(drawing, x, style)
    is_same = stride == 1 and x.channels == channels
    shortcut = x if is_same else drawing.conv(ready, channels, 1, stride)
    y = _active(drawing, drawing.conv(ready, width), style)
    y = _active(drawing, drawing.conv(y, width, 3, stride), style)
    return drawing.add(drawing.conv(y, channels), shortcut)
