"""PP-HGNet, versions 1 and 2 (https://github.com/PaddlePaddle/PaddleClas, PP-HGNetV2): each block joins the
outputs of all of its layers.

`stages` holds [input, middle and output channels, blocks, halves the image, light layers, kernel, layers] of each;
`stem_channels` three numbers for version 1, two for version 2. `has_affine`: a learned scale and shift after each
activation. A light layer is a pointwise and a depthwise convolution.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

STAGE_NUMBERS = 8


class _Stage(NamedTuple):
    given: int
    middle: int
    out: int
    blocks: int
    halves: int
    is_light: int
    kernel: int
    layers: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    side = image_size_of(fields, image_size, 224)
    stem = whole_numbers(fields, "stem_channels", [32, 48], 65_536)
    net = _Net(Drawing(), len(stem) == 3, fields.flag("has_affine"))
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    x = net.drawing.block("stem", x, lambda given: net.stem(given, stem), role="input")
    for number, stage in enumerate(_stages(fields)):
        x = net.stage(x, f"stage{number}", stage)
    classes = classes_of(fields)
    hidden = fields.integer("head_hidden_size", default=2048, maximum=65_536)
    net.drawing.block("output", x, lambda given: net.head(given, hidden, classes), role="output")
    return image_model(fields, "hgnet", net.drawing.blocks, side, hidden=x.channels)


def _stages(fields: Fields) -> list[_Stage]:
    found = []
    for values in fields.items("stages", longest=16):
        if not (
            isinstance(values, list)
            and len(values) == STAGE_NUMBERS
            and all(isinstance(value, int) and 0 <= value <= 65_536 for value in values)
            and all(values[at] > 0 for at in (0, 1, 2, 3, 6, 7))
        ):
            raise InputError("models.lists_differ", fields="stages", given=str(values)[:80])
        found.append(_Stage._make(values))
    return found


class _Net:
    def __init__(self, drawing: Drawing, is_first: bool, has_affine: bool) -> None:
        self.drawing, self.is_first, self.has_affine = drawing, is_first, has_affine

    def unit(
        self, given: Feature, channels: int, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> Feature:
        """Convolution, batch norm, activation, and a learned scale and shift."""
        made = self.drawing.conv_norm_act(given, channels, kernel, stride, groups=groups)
        return self._affine(made)

    def _affine(self, given: Feature) -> Feature:
        if not self.has_affine:
            return given
        return self.drawing.scale(self.drawing.scale(given, learned=1), learned=1)

    def stem(self, given: Feature, channels: list[int]) -> Feature:
        """Version 1: three convolutions and a pool; version 2: two branches that are joined."""
        drawing = self.drawing
        if self.is_first:
            for at, width in enumerate(channels):
                given = self.unit(given, width, 3, 1 if at else 2)
            return drawing.pool(given, 3, 2)
        middle, out = channels[0], channels[-1]
        x = self._padded(self.unit(given, middle, 3, 2))
        narrow = self._padded(self._pair(x, max(1, middle // 2)))
        joined = drawing.concat([drawing.pool(x, 2, 1, padding=0), self._pair(narrow, middle)])
        return self.unit(self.unit(joined, middle, 3, 2), out)

    def _padded(self, given: Feature) -> Feature:
        """A row and a column more, by a copy."""
        return self.drawing.resize(given, tuple(length + 1 for length in given.size))

    def _pair(self, given: Feature, channels: int) -> Feature:
        made = self.drawing.conv_norm_act(given, channels, 2, padding=0)
        return self._affine(made)

    def stage(self, x: Feature, name: str, stage: _Stage) -> Feature:
        """Halving by a depthwise convolution, then blocks; all but the first add their input."""
        drawing = self.drawing
        if stage.halves:
            x = drawing.block(
                f"{name}.down",
                x,
                lambda given: drawing.conv_norm(given, given.channels, 3, 2, groups=given.channels),
            )
        x = drawing.block(f"{name}.first", x, lambda given: self._block(given, stage))
        if stage.blocks > 1:
            x = drawing.block(
                f"{name}.next",
                x,
                lambda given: drawing.add(self._block(given, stage), given),
                repeat=stage.blocks - 1,
            )
        return x

    def _block(self, given: Feature, stage: _Stage) -> Feature:
        x, all_of = given, [given]
        for _ in range(stage.layers):
            if stage.is_light:
                x = self.drawing.conv_norm(x, stage.middle)
                x = self.unit(x, stage.middle, stage.kernel, groups=stage.middle)
            else:
                x = self.unit(x, stage.middle, stage.kernel)
            all_of.append(x)
        joined = self.drawing.concat(all_of)
        if not self.is_first:
            return self.unit(self.unit(joined, max(1, stage.out // 2)), stage.out)
        made = self.unit(joined, stage.out)
        gate = self.drawing.conv(self.drawing.global_pool(made), stage.out, bias=True)
        return self.drawing.multiply(made, self.drawing.act(gate, "sigmoid"))

    def head(self, given: Feature, hidden: int, classes: int) -> Feature:
        """A wider layer on the mean, and the classifier."""
        drawing = self.drawing
        wide = self._affine(drawing.act(drawing.conv(drawing.global_pool(given), hidden)))
        return drawing.classify(wide, classes)
