"""SSD (arXiv:1512.02325): boxes from several features of one network.

`backbone` holds the fields of a ResNet or of a network of inverted residual blocks (`stages`); `taps` are the
stages (from the end, -1 the last) that heads read beside the `extras`, rows of ``[middle, channels, stride,
padding]``. `anchors` a place of each level, `head_kernel` and `head_strides` of the heads.
"""

from __future__ import annotations

from math import prod

from raceline.models.families import mbconv, resnet
from raceline.models.families.convnet import Drawing, Feature, Make
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed
from raceline.present.errors import InputError

_EXTRAS = ([256, 512, 2, 1], [256, 512, 2, 1], [128, 256, 2, 1], [128, 256, 1, 0], [128, 256, 1, 0])
_ANCHORS = (4, 6, 6, 6, 4, 4)


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A detector of one stage. Defaults are those of NVIDIA's SSD300 example."""
    side = image_size_of(fields, image_size, 300)
    spec = fields.part("backbone", default=None) or Fields({}, fields.where + "backbone.")
    act = spec.text("hidden_act", default="relu")
    drawing = Drawing()
    if spec.values.get("stages") is not None:
        stages = mbconv.trunk(drawing, spec, side)
    else:
        stages = resnet.backbone(drawing, spec, pixels(side))
    kept = fields.integer("tapped_stage", default=len(stages) - 1, minimum=0, maximum=len(stages) - 1)
    levels = [stages[-1]] if kept == len(stages) - 1 else [stages[kept], stages[-1]]
    for index, row in enumerate(_extras(fields)):
        levels.append(drawing.block(f"extra{index}", levels[-1], _extra(drawing, row, act)))
    _heads(drawing, fields, levels)
    notes = ("models.coarse_graph",) if fields.flag("coarse") else ()
    return image_model(fields, "ssd", drawing.blocks, side, objective="detect", hidden=256, notes=notes)


def _extras(fields: Fields) -> list[list[int]]:
    rows: list[list[int]] = fields.items("extras", default=list(_EXTRAS), longest=64)
    for row in rows:
        if not isinstance(row, list) or len(row) != 4 or not all(type(value) is int for value in row):
            raise InputError(
                "models.field_not_list", field=fields.where + "extras", given=str(row)[:60], longest=4
            )
    return rows


def _extra(drawing: Drawing, row: list[int], act: str) -> Make:
    middle, channels, stride, padding = row

    def make(given: Feature) -> Feature:
        y = drawing.conv_norm_act(given, middle, kind=act)
        return drawing.conv_norm_act(y, channels, 3, stride, padding=padding, kind=act)

    return make


def _heads(drawing: Drawing, fields: Fields, levels: list[Feature]) -> None:
    """Boxes and classes at each place, from convolutions of each level's own."""
    anchors = whole_numbers(fields, "anchors", _ANCHORS, 1000)
    strides = whole_numbers(fields, "head_strides", [1] * len(levels), 16)
    same_length(levels=levels, anchors=anchors, head_strides=strides)
    kernel, classes = fields.integer("head_kernel", default=3, maximum=16), classes_of(fields, 81)

    def make(given: Feature) -> Feature:
        places, y = 0, given
        for level, count, stride in zip([*levels[:-1], given], anchors, strides, strict=True):
            y = drawing.conv(level, 4 * count, kernel, stride, bias=True)
            drawing.conv(level, classes * count, kernel, stride, bias=True)
            places += count * prod(y.size)
        drawing.part(loss(classes, fixed(places)))
        return y

    drawing.block("heads", levels[-1], make, role="output")
