"""U-Nets of plain convolutions on images or volumes: nnU-Net and MLPerf's U-Net 3D.

Two convolutions with instance norm a stage, a strided first one to go down, a transposed one to go up
(arXiv:1809.10486; mlcommons/training, image_segmentation). Fields: `features` of each stage, `patch`
(two or three sides), `hidden_act`, `bias`, `deep_supervision`.
"""

from __future__ import annotations

from math import prod

from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature
from raceline.models.families.images import classes_of, image_model, pixels, whole_numbers
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed
from raceline.present.errors import InputError

_FEATURES = (32, 64, 128, 256, 320, 320)
_PATCH = (128, 128, 128)


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A segmentation network; `image_size` is the side of a square or cubic patch."""
    patch = whole_numbers(fields, "patch", _PATCH, LARGEST_IMAGE)
    sides = tuple([image_size] * len(patch) if image_size else patch)
    features = whole_numbers(fields, "features", _FEATURES, 100_000)
    if len(sides) not in (2, 3) or len(features) < 2:
        raise InputError(
            "models.lists_differ", fields="patch, features", given=f"{len(sides)}, {len(features)}"
        )
    network = _Network(fields, classes_of(fields, 3))
    x = pixels(sides, fields.integer("num_channels", default=1, maximum=1024))
    network.draw(x, features)
    blocks = network.drawing.blocks
    notes = ("models.coarse_graph",) if fields.flag("coarse") else ()
    return image_model(fields, "plain_unet", blocks, max(sides), hidden=features[0], notes=notes)


class _Network:
    def __init__(self, fields: Fields, classes: int) -> None:
        self.drawing, self.classes = Drawing(), classes
        self.act: str = fields.text("hidden_act", default="leaky_relu")
        self.bias = fields.flag("bias", default=True)
        self.is_deep = fields.flag("deep_supervision", default=True)

    def _pair(self, x: Feature, channels: int, stride: int = 1) -> Feature:
        for step in (stride, 1):
            y = self.drawing.conv(x, channels, 3, step, bias=self.bias)
            x = self.drawing.act(self.drawing.norm(y, "group", groups=channels), self.act)
        return x

    def draw(self, x: Feature, features: list[int]) -> None:
        """Down through the stages, up again, and the output."""
        down = []
        for index, channels in enumerate(features):
            x = self.drawing.block(
                f"down{index}",
                x,
                lambda given, at=index, wide=channels: self._pair(given, wide, 2 if at else 1),  # type: ignore[misc]
                role="body" if index else "input",
            )
            down.append(x)
        for level in reversed(range(len(features) - 1)):
            x = self.drawing.block(
                f"up{level}",
                x,
                lambda given, skip=down[level], at=level: self._up(given, skip, at),  # type: ignore[misc]
            )
        self.drawing.block("output", x, self._output, role="output")

    def _up(self, given: Feature, skip: Feature, level: int) -> Feature:
        large = self.drawing.upconv(given, skip.channels, bias=self.bias)._replace(size=skip.size)
        out = self._pair(self.drawing.concat([large, skip]), skip.channels)
        if self.is_deep and level:
            self.drawing.conv(out, self.classes, bias=True)
        return out

    def _output(self, given: Feature) -> Feature:
        out = self.drawing.conv(given, self.classes, bias=True)
        self.drawing.part(loss(self.classes, fixed(prod(given.size))))
        return out
