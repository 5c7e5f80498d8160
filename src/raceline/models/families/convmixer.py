"""ConvMixer (arXiv:2201.09792): every layer is a large depthwise and a pointwise convolution at one resolution.

`hidden_size`, `num_hidden_layers`, `kernel_size` and `patch_size` describe it; batch norm comes after the
activation (`hidden_act`).
"""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of, image_model, image_size_of, pixels
from raceline.models.fields import Fields
from raceline.models.graph import Model


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    side = image_size_of(fields, image_size, 224)
    width = fields.integer("hidden_size", maximum=65_536)
    layers = fields.integer("num_hidden_layers", maximum=10_000)
    kernel = fields.integer("kernel_size", default=9, maximum=1024)
    patch = fields.integer("patch_size", default=7, maximum=1024)
    kind = fields.text("hidden_act", default="gelu")
    drawing = Drawing()

    def normed(given: Feature) -> Feature:
        return drawing.norm(drawing.act(given, kind))

    def layer(given: Feature) -> Feature:
        mixed = drawing.conv(given, width, kernel, groups=width, bias=True)
        return normed(drawing.conv(drawing.add(normed(mixed), given), width, bias=True))

    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    x = drawing.block(
        "patches",
        x,
        lambda given: normed(drawing.conv(given, width, patch, patch, padding=0, bias=True)),
        role="input",
    )
    x = drawing.block("layer", x, layer, repeat=layers)
    classes = classes_of(fields)
    drawing.block(
        "output", x, lambda given: drawing.classify(drawing.global_pool(given), classes), role="output"
    )
    return image_model(fields, "convmixer", drawing.blocks, side, hidden=width)
