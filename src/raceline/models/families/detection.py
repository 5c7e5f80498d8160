"""Detectors on a ResNet or RegNet: the R-CNN family and RetinaNet.

Layers and defaults as in detectron2 (modeling/) and torchvision (models/detection).
`backbone` holds ResNet fields, or RegNet fields where its `model_type` is regnet; `image_height` and
`image_width` the usual size of a resized image. An image size that a workload states is the short side.

`neck`: fpn, a feature pyramid (`pyramid_norm`), both sides of the image padded to multiples of 32; dc5, the
last stage alone; c4, the stage before it, the last one running on the crops. `has_proposals` and `has_boxes`
false leave out the first and the second stage; `proposal_convs` of the first; `has_semantic` adds the
`semantic_classes` of Panoptic FPN. The second stage's fields stand in module regions.
"""

from __future__ import annotations

from math import ceil, prod
from typing import Any

from raceline.models.families import regions, regnet, resnet
from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature, Make
from raceline.models.families.images import classes_of, image_model, pixels
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Extent, Model, fixed

_ANCHORS_TWO_STAGE, _ANCHORS_ONE_STAGE = 3, 9
_ANCHORS_ONE_LEVEL = 15  # five sizes of three shapes
_DIVISOR = 32
_SEMANTIC_STRIDE = 4


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A detector of one or two stages."""
    kind = fields.text("model_type", default="rcnn")
    neck = fields.text("neck", default="fpn")
    height, width = _sides(fields, image_size, _DIVISOR if neck == "fpn" else 1)
    part = fields.part("backbone", default=None)
    spec = part if part is not None else Fields({}, fields.where + "backbone.")
    frozen = fields.integer("frozen_stages", default=0, minimum=0, maximum=5)
    drawing = Drawing()
    image = pixels((height, width))
    if spec.text("model_type", default="resnet") == "regnet":
        levels = regnet.trunk(drawing, spec, image, frozen)
    else:
        levels = resnet.backbone(drawing, spec, image, frozen, leaves_last=neck == "c4")
    if kind == "retinanet":
        _one_stage(drawing, levels, fields)
    else:
        _two_stage(drawing, levels, fields, spec, neck)
    has_sampled = kind == "rcnn" and fields.flag("has_boxes", default=True)
    return image_model(
        fields, kind, drawing.blocks, min(height, width), objective="detect", hidden=256,
        notes=("models.detector_proposals",) if has_sampled else (),
    )  # fmt: skip


def _sides(fields: Fields, image_size: int | None, divisor: int) -> tuple[int, int]:
    """Height and width, padded. A stated size scales both."""
    height = fields.integer("image_height", default=800, maximum=LARGEST_IMAGE)
    width = fields.integer("image_width", default=1333, maximum=LARGEST_IMAGE)
    scale = (image_size or min(height, width)) / min(height, width)
    high, wide = (max(1, ceil(round(side * scale) / divisor)) * divisor for side in (height, width))
    return high, wide


def pyramid(
    drawing: Drawing, levels: list[Feature], channels: int, extra: str = "pool", norm: str = "none"
) -> list[Feature]:
    """A feature pyramid (arXiv:1612.03144). `extra`: one more level by pooling, two by convolutions of the
    last backbone level (conv_c5) or of the last pyramid level (conv_p5), or none."""
    made: list[Feature] = []
    bias = norm == "none"

    def make(given: Feature) -> Feature:
        whole = [*levels[:-1], given]
        inner: Feature | None = None
        for level in reversed(whole):
            lateral = drawing.normed(drawing.conv(level, channels, bias=bias), norm)
            inner = lateral if inner is None else drawing.add(lateral, drawing.resize(inner, level.size))
            made.insert(0, drawing.normed(drawing.conv(inner, channels, 3, bias=bias), norm))
        if extra == "pool":
            made.append(drawing.pool(made[-1], 1, 2, padding=0))
        elif extra.startswith("conv"):
            sixth = drawing.conv(given if extra == "conv_c5" else made[-1], channels, 3, 2, bias=True)
            made.extend((sixth, drawing.conv(drawing.act(sixth), channels, 3, 2, bias=True)))
        return made[-1]

    last = drawing.block("pyramid", levels[-1], make)
    return [*made[:-1], last]


def _shared(
    drawing: Drawing, x: Feature, outputs: list[int], depth: int, is_first: bool, kernel: int = 1
) -> Feature:
    """`depth` 3x3 convolutions with ReLU and the output's, weights shared by levels."""
    rest: dict[str, Any] = {"bias": is_first, "tied": not is_first}
    y = x
    for _ in range(depth):
        y = drawing.act(drawing.conv(y, x.channels, 3, **rest))
    last = y
    for channels in outputs:
        last = drawing.conv(y, channels, kernel, **rest)
    return last


def _places(levels: list[Feature], anchors: int) -> Extent:
    return fixed(anchors * sum(prod(level.size) for level in levels))


def _one_stage(drawing: Drawing, levels: list[Feature], fields: Fields) -> None:
    """RetinaNet: two towers of four convolutions over five levels (arXiv:1708.02002)."""
    extra = fields.text("extra_levels", default="conv_c5")
    levels = pyramid(drawing, levels[1:] or levels, 256, extra)
    classes, anchors = classes_of(fields, 80), _ANCHORS_ONE_STAGE

    def head(given: Feature, is_first: bool, is_last: bool) -> Feature:
        _shared(drawing, given, [anchors * classes], 4, is_first, 3)
        out = _shared(drawing, given, [anchors * 4], 4, is_first, 3)
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


def _two_stage(drawing: Drawing, levels: list[Feature], fields: Fields, spec: Fields, neck: str) -> None:
    """Proposals from all levels, then heads on those that were sampled."""
    if neck == "fpn":
        levels = pyramid(drawing, levels, 256, norm=fields.text("pyramid_norm", default="none"))
    else:
        levels = levels[-1:]
    if fields.flag("has_proposals", default=True):
        _proposals(drawing, levels, fields)
    if fields.flag("has_semantic"):
        classes = fields.integer("semantic_classes", default=54, maximum=100_000)
        parts = levels[:-1] or levels
        drawing.block("semantic", levels[0], _semantic(drawing, parts, classes), owns_input=False)
    if not fields.flag("has_boxes", default=True):
        return
    if neck == "c4":
        regions.draw_on_last_stage(drawing, levels[0], fields, spec)
    else:
        regions.draw(drawing, levels[0], fields)


def _proposals(drawing: Drawing, levels: list[Feature], fields: Fields) -> None:
    """Whether something stands there and where, for each anchor (arXiv:1506.01497)."""
    anchors = _ANCHORS_TWO_STAGE if len(levels) > 1 else _ANCHORS_ONE_LEVEL
    depth = fields.integer("proposal_convs", default=1, maximum=64)
    is_all = not fields.flag("has_boxes", default=True)

    def make(index: int) -> Make:
        def head(given: Feature) -> Feature:
            out = _shared(drawing, given, [anchors, 4 * anchors], depth, index == 0)
            if is_all:
                drawing.part(loss(1, _places([given], anchors)))
            return out

        return head

    for index, level in enumerate(levels):
        name = f"proposals.p{index + 2}" if len(levels) > 1 else "proposals"
        drawing.block(name, level, make(index), role="output" if is_all else "body")


def _semantic(drawing: Drawing, levels: list[Feature], classes: int) -> Make:
    """A class for each pixel: every level convolved and doubled up to the largest one's size, and their sum
    (arXiv:1901.02446)."""

    def make(given: Feature) -> Feature:
        total: Feature | None = None
        for index, level in enumerate([given, *levels[1:]]):
            y = level
            for step in range(max(1, index)):
                y = drawing.act(drawing.norm(drawing.conv(y, 128, 3), "group"))
                y = drawing.resize(y, levels[index - 1 - step].size) if index else y
            total = y if total is None else drawing.add(total, y)
        assert total is not None
        y = drawing.conv(total, classes, bias=True)
        y = drawing.resize(y, tuple(side * _SEMANTIC_STRIDE for side in y.size))
        drawing.part(loss(classes, y.rows))
        return y

    return make
