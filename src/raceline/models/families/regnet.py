"""RegNet X and Y from transformers' RegNetConfig fields (arXiv:2003.13678, arXiv:2103.06877).

`norm` (batch or frozen) is that of a detector's backbone.
"""

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
    """A classifier of the RegNet kind at any image size."""
    side = image_size_of(fields, image_size, 224)
    drawing = Drawing()
    channels = fields.integer("num_channels", default=3, maximum=64)
    x = trunk(drawing, fields, pixels(side, channels))[-1]
    classes = classes_of(fields)
    drawing.block(
        "output", x, lambda given: drawing.classify(drawing.global_pool(given), classes), role="output"
    )
    return image_model(fields, "regnet", drawing.blocks, side, hidden=x.channels)


def trunk(drawing: Drawing, fields: Fields, image: Feature, frozen_stages: int = 0) -> list[Feature]:
    """Stem and stages; the output of each stage. The first `frozen_stages` (1: the stem) aren't trained."""
    depths = whole_numbers(fields, "depths", [2, 6, 12, 2], 10_000)
    widths = whole_numbers(fields, "hidden_sizes", [128, 192, 512, 1088], 100_000)
    same_length(depths=depths, hidden_sizes=widths)
    first = 2 if fields.flag("downsample_in_first_stage", default=True) else 1
    act, norm = fields.text("hidden_act", default="relu"), fields.text("norm", default="batch")
    stem = fields.integer("embedding_size", default=32, maximum=100_000)
    x = drawing.block(
        "stem",
        image,
        lambda given: drawing.act(drawing.normed(drawing.conv(given, stem, 3, 2), norm), act),
        role="input",
        trained=frozen_stages < 1,
    )
    features = []
    for index, (depth, width) in enumerate(zip(depths, widths, strict=True)):
        trained = frozen_stages < index + 2
        make = _block(drawing, fields, width, 2 if index else first)
        x = drawing.block(f"stage{index}.0", x, make, trained=trained)
        if depth > 1:
            make = _block(drawing, fields, width, 1)
            x = drawing.block(f"stage{index}.1", x, make, repeat=depth - 1, trained=trained)
        features.append(x)
    return features


def _block(drawing: Drawing, fields: Fields, width: int, stride: int) -> Make:
    """A residual block of grouped convolutions; Y has a squeeze of a quarter of the block's input."""
    group = fields.integer("groups_width", default=64, maximum=100_000)
    act, norm = fields.text("hidden_act", default="relu"), fields.text("norm", default="batch")
    has_squeeze = fields.text("layer_type", default="y") == "y"
    groups = max(1, width // group)

    def conv(given: Feature, kernel: int = 1, stride: int = 1, groups: int = 1) -> Feature:
        return drawing.normed(drawing.conv(given, width, kernel, stride, groups=groups), norm)

    def make(given: Feature) -> Feature:
        y = drawing.act(conv(given), act)
        y = drawing.act(conv(y, 3, stride, groups), act)
        if has_squeeze:
            y = drawing.squeeze_excite(y, round(given.channels * _SQUEEZE), kind=act)
        y = conv(y)
        same = given.channels == width and stride == 1
        return drawing.act(drawing.add(y, given if same else conv(given, 1, stride)), act)

    return make
