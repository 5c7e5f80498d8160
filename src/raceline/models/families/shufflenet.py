"""ShuffleNet: v1 shuffles between grouped convolutions (arXiv:1707.01083), v2 lets half of the channels
pass (arXiv:1807.11164).

Both state `depths` and `hidden_sizes` of the stages and `embedding_size` of the stem; v1 `groups`, v2
`head_channels` of a last convolution. `head_bias`: whether the classifier has biases.
"""

from __future__ import annotations

from collections.abc import Callable

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

_Change = Callable[[Feature, int, int], Feature]


def build_grouped(fields: Fields, image_size: int | None = None) -> Model:
    """ShuffleNet v1."""
    groups = fields.integer("groups", default=3, maximum=64)
    drawing = Drawing()

    def change(x: Feature, channels: int, stride: int) -> Feature:
        """Only the very first convolution reads all channels of the stem."""
        is_stem = len(drawing.blocks) == 1
        middle, made = channels // 4, channels - x.channels if stride > 1 else channels
        y = drawing.conv_norm_act(x, middle, groups=1 if is_stem else groups)
        y = drawing.shuffle(y) if groups > 1 else y
        y = drawing.conv_norm(y, middle, 3, stride, groups=middle)
        y = drawing.conv_norm(y, made, groups=groups)
        if stride == 1:
            return drawing.act(drawing.add(x, y))
        return drawing.act(drawing.concat([drawing.pool(x, 3, stride, kind="mean"), y]))

    return _network(drawing, fields, image_size, change, least=4 * groups, family="shufflenet_v1")


def build_halved(fields: Fields, image_size: int | None = None) -> Model:
    """ShuffleNet v2."""
    drawing = Drawing()
    return _network(drawing, fields, image_size, _halving(drawing, "relu"), least=2, family="shufflenet_v2")


def stages(drawing: Drawing, fields: Fields, side: int, act: str) -> list[Feature]:
    """What each stage of a ShuffleNet v2 makes of an image, for networks that read several of them."""
    return _trunk(drawing, fields, side, _halving(drawing, act), least=2, act=act)


def _halving(drawing: Drawing, act: str) -> _Change:
    def change(x: Feature, channels: int, stride: int) -> Feature:
        half = channels // 2
        moved = x if stride > 1 else x._replace(channels=half)
        y = drawing.conv_norm_act(moved, half, kind=act)
        y = drawing.conv_norm(y, half, 3, stride, groups=half)
        y = drawing.conv_norm_act(y, half, kind=act)
        if stride == 1:
            return drawing.shuffle(drawing.concat([x._replace(channels=half), y]))
        old = drawing.conv_norm(x, x.channels, 3, stride, groups=x.channels)
        return drawing.shuffle(drawing.concat([drawing.conv_norm_act(old, half, kind=act), y]))

    return change


def _network(
    drawing: Drawing, fields: Fields, image_size: int | None, change: _Change, *, least: int, family: str
) -> Model:
    """Stem, stages whose first block halves the image and widens, and the classifier."""
    side = image_size_of(fields, image_size, 224)
    x = _trunk(drawing, fields, side, change, least=least)[-1]
    _head(drawing, x, fields)
    return image_model(fields, family, drawing.blocks, side, hidden=x.channels)


def _trunk(
    drawing: Drawing, fields: Fields, side: int, change: _Change, *, least: int, act: str = "relu"
) -> list[Feature]:
    """The output of each stage."""
    embedding = fields.integer("embedding_size", default=24, maximum=65_536)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.pool(drawing.conv_norm_act(given, embedding, 3, 2, kind=act), 3, 2),
        role="input",
    )
    made = []
    for stage, (depth, channels) in enumerate(_stages(fields, embedding, least)):
        name = f"stage{stage + 2}"
        x = drawing.block(f"{name}.0", x, lambda given, wide=channels: change(given, wide, 2))  # type: ignore[misc]
        if depth > 1:
            x = drawing.block(
                f"{name}.1",
                x,
                lambda given, wide=channels: change(given, wide, 1),  # type: ignore[misc]
                repeat=depth - 1,
            )
        made.append(x)
    return made


def _stages(fields: Fields, embedding: int, least: int) -> list[tuple[int, int]]:
    """Depth and channels of each stage; channels grow from stage to stage."""
    depths = whole_numbers(fields, "depths", [4, 8, 4], 10_000)
    sizes = whole_numbers(fields, "hidden_sizes", [116, 232, 464])
    same_length(depths=depths, hidden_sizes=sizes)
    before = [embedding, *sizes]
    grown = [
        Fields({f"hidden_sizes.{index}": size}, fields.where).integer(
            f"hidden_sizes.{index}", minimum=before[index] + least
        )
        for index, size in enumerate(sizes)
    ]
    return list(zip(depths, grown, strict=True))


def _head(drawing: Drawing, x: Feature, fields: Fields) -> None:
    channels = fields.integer("head_channels", default=0, minimum=0, maximum=1_000_000)
    classes, bias = classes_of(fields), fields.flag("head_bias", default=True)

    def output(given: Feature) -> Feature:
        y = drawing.conv_norm_act(given, channels) if channels else given
        return drawing.classify(drawing.global_pool(y), classes, bias=bias)

    drawing.block("output", x, output, role="output")
