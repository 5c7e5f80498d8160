"""RegNet X and Y from transformers' RegNetConfig fields (arXiv:2003.13678, arXiv:2103.06877)."""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature, Make
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

_SQUEEZE = 0.25


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Residual blocks of grouped convolutions; Y has a squeeze of a quarter of the block's input."""
    side = image_size_of(fields, image_size, 224)
    depths = whole_numbers(fields, "depths", [2, 6, 12, 2], 10_000)
    widths = whole_numbers(fields, "hidden_sizes", [128, 192, 512, 1088], 100_000)
    same_length(depths=depths, hidden_sizes=widths)
    group = fields.integer("groups_width", default=64, maximum=100_000)
    act = fields.text("hidden_act", default="relu")
    has_squeeze = fields.text("layer_type", default="y") == "y"
    drawing = Drawing()
    stem = fields.integer("embedding_size", default=32, maximum=100_000)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(given, stem, 3, 2, kind=act),
        role="input",
    )

    def draw(given: Feature, width: int, stride: int) -> Feature:
        groups = max(1, width // group)
        y = drawing.conv_norm_act(given, width, kind=act)
        y = drawing.conv_norm_act(y, width, 3, stride, groups=groups, kind=act)
        if has_squeeze:
            y = drawing.squeeze_excite(y, round(given.channels * _SQUEEZE), kind=act)
        y = drawing.conv_norm(y, width)
        same = given.channels == width and stride == 1
        return drawing.act(drawing.add(y, given if same else drawing.conv_norm(given, width, 1, stride)), act)

    def shaped(width: int, stride: int) -> Make:
        return lambda given: draw(given, width, stride)

    for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        stride = 2 if index or fields.flag("downsample_in_first_stage", default=True) else 1
        x = drawing.block(f"stage{index}.0", x, shaped(width, stride))
        if depth > 1:
            x = drawing.block(f"stage{index}.1", x, shaped(width, 1), repeat=depth - 1)
    classes = classes_of(fields)
    drawing.block(
        "output", x, lambda given: drawing.classify(drawing.global_pool(given), classes), role="output"
    )
    return image_model(fields, "regnet", drawing.blocks, side, hidden=widths[-1])
