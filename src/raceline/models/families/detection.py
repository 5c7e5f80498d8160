"""Detectors on a ResNet: Faster and Mask R-CNN, and RetinaNet, on a feature pyramid.

Layers and defaults as in detectron2 (modeling/) and torchvision (models/detection).
`backbone` holds ResNet fields; `image_height` and `image_width` the usual size of a resized image. An image
size that a workload states is the short side; both sides are padded to multiples of 32. The second stage is
drawn with as many proposals as training takes of each image, a quarter of them for masks.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature
from raceline.models.families.images import classes_of, image_model, pixels
from raceline.models.families.resnet import backbone
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Extent, Model, fixed

_ANCHORS_TWO_STAGE, _ANCHORS_ONE_STAGE = 3, 9
_DIVISOR = 32


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A detector of one or two stages."""
    height, width = _sides(fields, image_size)
    part = fields.part("backbone", default=None)
    spec = part if part is not None else Fields({}, fields.where + "backbone.")
    frozen = fields.integer("frozen_stages", default=0, minimum=0, maximum=5)
    drawing = Drawing()
    kind = fields.text("model_type", default="rcnn")
    levels = backbone(drawing, spec, pixels((height, width)), frozen)
    make = _one_stage if kind == "retinanet" else _two_stage
    make(drawing, levels, fields)
    return image_model(
        fields, kind, drawing.blocks, min(height, width), objective="detect", hidden=256,
        notes=("models.detector_proposals",) if kind == "rcnn" else (),
    )  # fmt: skip


def _sides(fields: Fields, image_size: int | None) -> tuple[int, int]:
    """Height and width, padded. A stated size scales both."""
    height = fields.integer("image_height", default=800, maximum=LARGEST_IMAGE)
    width = fields.integer("image_width", default=1333, maximum=LARGEST_IMAGE)
    scale = (image_size or min(height, width)) / min(height, width)
    high, wide = (ceil(round(side * scale) / _DIVISOR) * _DIVISOR for side in (height, width))
    return high, wide


def pyramid(drawing: Drawing, levels: list[Feature], channels: int, extra: str = "pool") -> list[Feature]:
    """A feature pyramid (arXiv:1612.03144). `extra`: one more level by pooling, two by convolutions of the
    last backbone level (conv_c5) or of the last pyramid level (conv_p5), or none."""
    made: list[Feature] = []

    def make(given: Feature) -> Feature:
        whole = [*levels[:-1], given]
        inner: Feature | None = None
        for level in reversed(whole):
            lateral = drawing.conv(level, channels, bias=True)
            inner = lateral if inner is None else drawing.add(lateral, drawing.resize(inner, level.size))
            made.insert(0, drawing.conv(inner, channels, 3, bias=True))
        if extra == "pool":
            made.append(drawing.pool(made[-1], 1, 2, padding=0))
        elif extra.startswith("conv"):
            sixth = drawing.conv(given if extra == "conv_c5" else made[-1], channels, 3, 2, bias=True)
            made.extend((sixth, drawing.conv(drawing.act(sixth), channels, 3, 2, bias=True)))
        return made[-1]

    last = drawing.block("pyramid", levels[-1], make)
    return [*made[:-1], last]


def _shared(drawing: Drawing, x: Feature, outputs: list[int], depth: int, is_first: bool) -> Feature:
    """`depth` 3x3 convolutions with ReLU and a 3x3 (after several) or 1x1 output, weights shared by levels."""
    rest: dict[str, Any] = {"bias": is_first, "tied": not is_first}
    y = x
    for _ in range(depth):
        y = drawing.act(drawing.conv(y, x.channels, 3, **rest))
    last = y
    for channels in outputs:
        last = drawing.conv(y, channels, 3 if depth > 1 else 1, **rest)
    return last


def _places(levels: list[Feature], anchors: int) -> Extent:
    return fixed(anchors * sum(prod(level.size) for level in levels))


def _one_stage(drawing: Drawing, levels: list[Feature], fields: Fields) -> None:
    """RetinaNet: two towers of four convolutions over five levels (arXiv:1708.02002)."""
    extra = fields.text("extra_levels", default="conv_c5")
    levels = pyramid(drawing, levels[1:], 256, extra)
    classes, anchors = classes_of(fields, 80), _ANCHORS_ONE_STAGE

    def head(given: Feature, is_first: bool, is_last: bool) -> Feature:
        _shared(drawing, given, [anchors * classes], 4, is_first)
        out = _shared(drawing, given, [anchors * 4], 4, is_first)
        if is_last:
            drawing.part(loss(classes, _places(levels, anchors)))
        return out

    for index, level in enumerate(levels):
        is_last = index == len(levels) - 1
        drawing.block(
            f"head.p{index + 3}",
            level,
            lambda given, at=index, end=is_last: head(given, at == 0, end),  # type: ignore[misc]
            role="output",
        )


def _two_stage(drawing: Drawing, levels: list[Feature], fields: Fields) -> None:
    """Proposals from all levels, then a box head and perhaps a mask head on those that were sampled."""
    levels = pyramid(drawing, levels, 256)
    anchors = _ANCHORS_TWO_STAGE
    for index, level in enumerate(levels):
        drawing.block(
            f"proposals.p{index + 2}",
            level,
            lambda given, at=index: _shared(drawing, given, [anchors, 4 * anchors], 1, at == 0),  # type: ignore[misc]
        )
    classes = classes_of(fields, 80)
    proposals = fields.integer("proposals", default=512, maximum=100_000)
    if fields.flag("has_masks"):
        samples = max(1, proposals // 4)
        drawing.block(
            "masks", levels[0], lambda given: _masks(drawing, given, samples, classes), owns_input=False
        )
    drawing.block(
        "boxes",
        levels[0],
        lambda given: _boxes(drawing, given, proposals, classes),
        role="output",
        owns_input=False,
    )


def _boxes(drawing: Drawing, given: Feature, proposals: int, classes: int) -> Feature:
    """Crops of 7 x 7, two layers of 1024, classes and boxes."""
    crops = drawing.resize(given, (proposals * 7, 7))
    y = crops._replace(channels=crops.channels * 49, size=(proposals, 1))
    for _ in range(2):
        y = drawing.act(drawing.linear(y, 1024))
    out = drawing.linear(y, 4 * classes)
    drawing.linear(y, classes + 1)
    drawing.part(loss(classes + 1, fixed(proposals)))
    return out


def _masks(drawing: Drawing, given: Feature, samples: int, classes: int) -> Feature:
    """Crops of 14 x 14, four convolutions, twice the size, a mask for each class."""
    y = drawing.resize(given, (samples, 14, 14))
    for _ in range(4):
        y = drawing.act(drawing.conv(y, 256, (1, 3, 3), padding=(0, 1, 1), bias=True))
    flat = y._replace(size=(samples * 14, 14))
    return drawing.conv(drawing.act(drawing.upconv(flat, 256)), classes, bias=True)
