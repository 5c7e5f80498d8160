"""Chains of plain or densely joined convolutions: VGG (arXiv:1409.1556) and DenseNet (arXiv:1608.06993)."""

from __future__ import annotations

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

_VGG_WIDTHS = (64, 128, 256, 512, 512)
_VGG_HIDDEN = 4096
_SEVEN = (7, 7)


def build_vgg(fields: Fields, image_size: int | None = None) -> Model:
    """VGG: `depths` convolutions a stage, `has_norm` for batch norm, three wide layers at the end."""
    side = image_size_of(fields, image_size, 224)
    depths = whole_numbers(fields, "depths", [2, 2, 3, 3, 3], 1000)
    has_norm = fields.flag("has_norm")
    drawing = Drawing()

    def stage(given: Feature, width: int, depth: int) -> Feature:
        y = given
        for _ in range(depth):
            y = drawing.conv(y, width, 3, bias=True)
            y = drawing.act(drawing.norm(y) if has_norm else y)
        return drawing.pool(y, 2, 2, padding=0)

    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for index, depth in enumerate(depths):
        width = _VGG_WIDTHS[min(index, len(_VGG_WIDTHS) - 1)]
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, wide=width, many=depth: stage(given, wide, many),  # type: ignore[misc]
            role="body" if index else "input",
        )
    classes, dropped = classes_of(fields), fields.number("dropout", default=0.0, maximum=1.0)

    def output(given: Feature) -> Feature:
        """The first wide layer is a matrix over 7 x 7 places."""
        y = given if given.size == _SEVEN else drawing.resize(given, _SEVEN)
        y = drawing.flatten(y)
        for _ in range(2):
            y = drawing.dropout(drawing.act(drawing.linear(y, _VGG_HIDDEN)), dropped)
        return drawing.classify(y, classes)

    drawing.block("output", x, output, role="output")
    return image_model(fields, "vgg", drawing.blocks, side, hidden=_VGG_HIDDEN)


def build_densenet(fields: Fields, image_size: int | None = None) -> Model:
    """DenseNet: each layer reads all features before it. `stem_widths`: three 3x3 convolutions as stem;
    `antialias`: smoothed pooling (blur) in the stem."""
    side = image_size_of(fields, image_size, 224)
    depths = whole_numbers(fields, "depths", [6, 12, 24, 16], 1000)
    growth = fields.integer("growth_rate", default=32, maximum=10_000)
    network = _Dense(Drawing(), growth, fields.text("antialias", default=""))
    drawing = network.drawing
    widths = [*whole_numbers(fields, "stem_widths", []), fields.integer("embedding_size", default=64)]
    x = drawing.block("stem", pixels(side), lambda given: network.stem(given, widths), role="input")
    for index, depth in enumerate(depths):
        x = drawing.block(f"dense{index + 1}", x, lambda given, many=depth: network.layers(given, many))  # type: ignore[misc]
        if index < len(depths) - 1:
            x = drawing.block(f"transition{index + 1}", x, network.transition)
    classes = classes_of(fields)

    def output(given: Feature) -> Feature:
        return drawing.classify(drawing.global_pool(drawing.act(drawing.norm(given))), classes)

    drawing.block("output", x, output, role="output")
    return image_model(fields, "densenet", drawing.blocks, side, hidden=x.channels, layers=sum(depths))


class _Dense:
    def __init__(self, drawing: Drawing, growth: int, antialias: str) -> None:
        self.drawing, self.growth, self.antialias = drawing, growth, antialias

    def stem(self, given: Feature, widths: list[int]) -> Feature:
        y = given
        if len(widths) == 1:
            y = self.drawing.conv_norm_act(y, widths[0], 7, 2)
        else:
            for index, width in enumerate(widths):
                y = self.drawing.conv_norm_act(y, width, 3, 1 if index else 2)
        if self.antialias == "blur":
            return self.drawing.blur(self.drawing.pool(y, 3, 1), 2)
        return self.drawing.pool(y, 3, 2)

    def layers(self, given: Feature, depth: int) -> Feature:
        """1x1 to four times the growth, 3x3 to the growth, joined to what was there."""
        draw, features = self.drawing, [given]
        for _ in range(depth):
            whole = draw.concat(features)
            y = draw.conv(draw.act(draw.norm(whole)), 4 * self.growth)
            features.append(draw.conv(draw.act(draw.norm(y)), self.growth, 3))
        return draw.concat(features)

    def transition(self, given: Feature) -> Feature:
        draw = self.drawing
        y = draw.conv(draw.act(draw.norm(given)), given.channels // 2)
        return draw.pool(y, 2, 2, padding=0, kind="mean")
