"""YOLOv5 and YOLOv8 at any scale: `depth_multiple`, `width_multiple`, `max_channels`, `nc`, `imgsz`.

Layers as in the model files of ultralytics (cfg/models/v5/yolov5.yaml, v8/yolov8.yaml).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import ceil, prod

from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature
from raceline.models.families.images import classes_of, image_model, pixels
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed

ACT = "silu"
BINS = 16
_ANCHORS = 3
Make = Callable[[Feature], Feature]


class Scale:
    """Channels and repeats at the model's scale."""

    def __init__(self, fields: Fields) -> None:
        self._depth: float = fields.number("depth_multiple", default=1.0, maximum=100)
        self._width: float = fields.number("width_multiple", default=1.0, maximum=100)
        self.has_inner = fields.flag("has_inner")
        self._most: int = fields.integer("max_channels", default=1024, maximum=100_000)

    def channels(self, channels: int) -> int:
        return ceil(min(channels, self._most) * self._width / 8) * 8

    def repeats(self, repeats: int) -> int:
        return max(1, round(repeats * self._depth))


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A detector of three levels; the side must be a multiple of 32 and is rounded up to one."""
    side = image_size or fields.integer("imgsz", "image_size", default=640, maximum=LARGEST_IMAGE)
    side = ceil(side / 32) * 32
    kind = fields.text("model_type", default="yolov8")
    drawing, scale = Drawing(), Scale(fields)
    kernel = (6, 2) if kind == "yolov5" else (3, 1)
    stem = scale.channels(64)
    x = drawing.block(
        "stem",
        pixels(side),
        lambda given: drawing.conv_norm_act(given, stem, kernel[0], 2, padding=kernel[1], kind=ACT),
        role="input",
    )
    network = _version(kind)(drawing, scale)
    levels = network.neck(network.backbone(x))
    classes = classes_of(fields, 80)
    drawing.block(
        "detect", levels[-1], lambda given: network.detect([*levels[:2], given], classes), role="output"
    )
    return image_model(fields, "yolo", drawing.blocks, side, objective="detect", hidden=levels[-1].channels)


def _version(kind: str) -> type[Network]:
    if kind == "yolo11":
        from raceline.models.families.yolo11 import Version11

        return Version11
    return Version5 if kind == "yolov5" else Version8


class Network(ABC):
    """What both versions share: stages that halve the image, and a neck that goes up and down again."""

    depths: tuple[int, ...] = ()
    reduces = False

    def __init__(self, drawing: Drawing, scale: Scale) -> None:
        self.drawing, self.scale = drawing, scale

    def conv(self, x: Feature, channels: int, kernel: int = 1, stride: int = 1) -> Feature:
        return self.drawing.conv_norm_act(x, channels, kernel, stride, kind=ACT)

    @abstractmethod
    def cells(self, x: Feature, channels: int, repeats: int, has_shortcut: bool) -> Feature:
        """The version's block of bottlenecks."""

    @abstractmethod
    def detect(self, levels: list[Feature], classes: int) -> Feature:
        """The version's heads and the loss."""

    def backbone(self, x: Feature) -> list[Feature]:
        """Features at strides 8, 16 and 32."""
        found = []
        for index, (channels, repeats) in enumerate(zip((128, 256, 512, 1024), self.depths, strict=True)):
            width, count = self.scale.channels(channels), self.scale.repeats(repeats)

            def stage(given: Feature, width: int = width, count: int = count) -> Feature:
                return self.cells(self.conv(given, width, 3, 2), width, count, True)

            x = self.drawing.block(f"stage{index + 1}", x, stage)
            found.append(x)
        return [found[1], found[2], self.drawing.block("pyramid_pool", x, self.pyramid)]

    def pyramid(self, given: Feature) -> Feature:
        """Three poolings one after the other, joined to their input."""
        levels = [self.conv(given, given.channels // 2)]
        for _ in range(3):
            levels.append(self.drawing.pool(levels[-1], 5, 1))
        return self.conv(self.drawing.concat(levels), given.channels)

    def neck(self, levels: list[Feature]) -> list[Feature]:
        """Down to stride 8 and up again; each step joins the feature of its stride."""
        third, fourth, fifth = levels
        side_fifth, middle = self._up("up4", fifth, fourth, 512)
        side_fourth, small = self._up("up3", middle, third, 256)
        medium = self._down("down4", small, side_fourth, 512)
        return [small, medium, self._down("down5", medium, side_fifth, 1024)]

    def _up(self, name: str, x: Feature, skip: Feature, channels: int) -> tuple[Feature, Feature]:
        """The feature that the way down joins, and the one that goes on."""
        width, count = self.scale.channels(channels), self.scale.repeats(3)
        if self.reduces:
            x = self.drawing.block(f"{name}.reduce", x, lambda given: self.conv(given, width))

        def make(given: Feature) -> Feature:
            large = self.drawing.resize(given, skip.size)
            return self.cells(self.drawing.concat([large, skip]), width, count, False)

        return x, self.drawing.block(name, x, make)

    def _down(self, name: str, x: Feature, side: Feature, channels: int) -> Feature:
        width, count = self.scale.channels(channels), self.scale.repeats(3)

        def make(given: Feature) -> Feature:
            small = self.conv(given, given.channels, 3, 2)
            return self.cells(self.drawing.concat([small, side]), width, count, False)

        return self.drawing.block(name, x, make)


class Version8(Network):
    """YOLOv8: halves with joined bottlenecks, boxes as distributions."""

    depths = (3, 6, 6, 3)

    def cells(self, x: Feature, channels: int, repeats: int, has_shortcut: bool) -> Feature:
        """Halves of one convolution; every bottleneck's output is joined to them."""
        half = channels // 2
        both = self.conv(x, 2 * half)
        parts = [both]
        y = both._replace(channels=half)
        for _ in range(repeats):
            inner = self.conv(self.conv(y, half, 3), half, 3)
            y = self.drawing.add(inner, y) if has_shortcut else inner
            parts.append(y)
        return self.conv(self.drawing.concat(parts), channels)

    def detect(self, levels: list[Feature], classes: int) -> Feature:
        """Boxes as distributions over 16 bins a side, and classes, from branches of their own."""
        box, wide = max(16, levels[0].channels // 4, 4 * BINS), max(levels[0].channels, min(classes, 100))
        for level in levels:
            for width, outputs in ((box, 4 * BINS), (wide, classes)):
                y = self.conv(self.conv(level, width, 3), width, 3)
                y = self.drawing.conv(y, outputs, bias=True)
        places = fixed(sum(prod(level.size) for level in levels))
        expectation = Feature("bins", 4, (int(places.fixed),))
        self.drawing.scale(expectation, learned=BINS)
        self.drawing.part(loss(classes + 4 * BINS, places))
        return y


class Version5(Network):
    """YOLOv5: bottlenecks beside a half, three anchors at each place."""

    depths = (3, 6, 9, 3)
    reduces = True

    def cells(self, x: Feature, channels: int, repeats: int, has_shortcut: bool) -> Feature:
        """Bottlenecks on one half, the other half beside them."""
        half = channels // 2
        y, other = self.conv(x, half), self.conv(x, half)
        for _ in range(repeats):
            inner = self.conv(self.conv(y, half), half, 3)
            y = self.drawing.add(inner, y) if has_shortcut else inner
        return self.conv(self.drawing.concat([y, other]), channels)

    def detect(self, levels: list[Feature], classes: int) -> Feature:
        """Box, objectness and classes for three anchors at each place."""
        for level in levels:
            y = self.drawing.conv(level, _ANCHORS * (classes + 5), bias=True)
        places = fixed(_ANCHORS * sum(prod(level.size) for level in levels))
        self.drawing.part(loss(classes + 5, places))
        return y
