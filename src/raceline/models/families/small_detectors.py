"""Detectors of boxes for phones and boards: NanoDet (https://github.com/RangiLyu/nanodet) and YOLOv4-tiny
(https://github.com/WongKinYiu/PyTorch_YOLOv4/blob/master/cfg/yolov4-tiny.cfg)."""

from __future__ import annotations

from math import prod

from raceline.models.families import shufflenet
from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of, image_model, image_size_of, pixels
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed

ACT = "leaky_relu"
# Each side of a box is a distribution over 8 distances in NanoDet (reg_max 7).
SIDES = 4 * 8
# Boxes of a place and level in YOLOv4-tiny; a box has four sides and a score beside its classes.
ANCHORS = 3
BOX = 5
COCO_CLASSES = 80


def build_nanodet(fields: Fields, image_size: int | None = None) -> Model:
    """Stages of a ShuffleNet v2 (its fields), levels of `neck_channels` added up and down without
    convolutions, and a head of `head_depth` separable convolutions for each level."""
    side = image_size_of(fields, image_size, 320)
    channels = fields.integer("neck_channels", default=96, maximum=10_000)
    depth = fields.integer("head_depth", default=2, maximum=100)
    classes = classes_of(fields, COCO_CLASSES)
    drawing = Drawing()
    stages = shufflenet.stages(drawing, fields, side, ACT)

    def neck(given: Feature) -> Feature:
        levels = [drawing.conv(stage, channels, bias=True) for stage in [*stages[:-1], given]]
        for index in reversed(range(len(levels) - 1)):
            above = drawing.resize(levels[index + 1], levels[index].size)
            levels[index] = drawing.add(levels[index], above)
        for index in range(1, len(levels)):
            below = drawing.resize(levels[index - 1], levels[index].size)
            levels[index] = drawing.add(levels[index], below)
        for level in levels:
            head(level)
        drawing.part(loss(classes, fixed(sum(prod(level.size) for level in levels))))
        return levels[-1]

    def head(level: Feature) -> None:
        y = level
        for _ in range(depth):
            y = drawing.conv_norm_act(y, channels, 3, groups=channels, kind=ACT)
            y = drawing.conv_norm_act(y, channels, kind=ACT)
        drawing.conv(y, classes + SIDES, bias=True)

    drawing.block("neck", stages[-1], neck, role="output")
    return image_model(fields, "nanodet", drawing.blocks, side, objective="detect", hidden=channels)


def build_yolov4_tiny(fields: Fields, image_size: int | None = None) -> Model:
    """A stem, three stages in which half of the channels take a longer way, and two levels of boxes."""
    side = image_size_of(fields, image_size, 416)
    classes = classes_of(fields, COCO_CLASSES)
    drawing = Drawing()

    def conv(given: Feature, channels: int, kernel: int = 1, stride: int = 1) -> Feature:
        return drawing.conv_norm_act(given, channels, kernel, stride, kind=ACT)

    def crossed(given: Feature, channels: int) -> tuple[Feature, Feature]:
        """The stage's output, and the longer way's as the second level reads it."""
        whole = conv(given, channels, 3)
        first = conv(whole._replace(channels=channels // 2), channels // 2, 3)
        second = conv(first, channels // 2, 3)
        longer = conv(drawing.concat([second, first]), channels)
        return drawing.pool(drawing.concat([whole, longer]), 2, 2, padding=0), longer

    x = drawing.block("stem", pixels(side), lambda given: conv(conv(given, 32, 3, 2), 64, 3, 2), role="input")
    for index, channels in enumerate((64, 128)):
        x = drawing.block(f"stage{index}", x, lambda given, wide=channels: crossed(given, wide)[0])  # type: ignore[misc]

    def boxes(given: Feature, channels: int) -> int:
        y = drawing.conv(conv(given, channels, 3), ANCHORS * (BOX + classes), bias=True)
        return ANCHORS * prod(y.size)

    def output(given: Feature) -> Feature:
        y, longer = crossed(given, 256)
        middle = conv(conv(y, 512, 3), 256)
        places = boxes(middle, 512)
        finer = drawing.resize(conv(middle, 128), longer.size)
        places += boxes(drawing.concat([finer, longer]), 256)
        drawing.part(loss(classes, fixed(places)))
        return middle

    drawing.block("output", x, output, role="output")
    return image_model(fields, "yolov4_tiny", drawing.blocks, side, objective="detect", hidden=256)
