"""ConvNeXt, first and second version, from transformers' config fields.

arXiv:2201.03545 and arXiv:2301.00808. Beside ConvNextConfig's fields: `has_response_norm` (version 2, in place
of the learned scale), implied by the model type `convnextv2`.
"""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of depthwise 7x7 convolutions and pointwise layers."""
    side = image_size_of(fields, image_size, 224)
    depths = whole_numbers(fields, "depths", [3, 3, 9, 3], 10_000)
    widths = whole_numbers(fields, "hidden_sizes", [96, 192, 384, 768], 100_000)
    same_length(depths=depths, hidden_sizes=widths)
    is_second = fields.text("model_type", default="convnext") == "convnextv2"
    has_scale = not is_second and fields.number("layer_scale_init_value", default=1e-6) > 0
    drawing = Drawing()
    patch = fields.integer("patch_size", default=4, maximum=1024)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.layer_norm(drawing.conv(given, widths[0], patch, patch, padding=0, bias=True)),
        role="input",
    )
    for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        if index:
            x = drawing.block(f"downsample{index}", x, lambda given, wide=width: _halve(drawing, given, wide))  # type: ignore[misc]
        x = drawing.block(
            f"stage{index}", x, lambda given: _block(drawing, given, is_second, has_scale), repeat=depth
        )
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(drawing.layer_norm(drawing.global_pool(given)), classes),
        role="output",
    )
    return image_model(fields, "convnext", drawing.blocks, side, hidden=widths[-1])


def _halve(drawing: Drawing, given: Feature, width: int) -> Feature:
    return drawing.conv(drawing.layer_norm(given), width, 2, 2, padding=0, bias=True)


def _block(drawing: Drawing, given: Feature, has_response: bool, has_scale: bool) -> Feature:
    width = given.channels
    y = drawing.layer_norm(drawing.conv(given, width, 7, groups=width, bias=True))
    y = drawing.act(drawing.linear(y, 4 * width), "gelu")
    if has_response:
        y = response_norm(drawing, y)
    y = drawing.linear(y, width)
    return drawing.add(drawing.scale(y) if has_scale else y, given)


def response_norm(drawing: Drawing, given: Feature) -> Feature:
    """Global response normalisation: each channel times its norm over the image, scaled and shifted. Eager
    PyTorch keeps the input (for the norm and for the product) and the product (for the weight)."""
    product = drawing.scale(given, learned=2 * given.channels)
    gated = drawing.multiply(given, product)
    return drawing.add(gated, given)
