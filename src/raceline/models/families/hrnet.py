"""HRNet (arXiv:1908.07919): branches at several resolutions that exchange what they hold.

`hidden_size` is the width of the finest branch; each next one has twice as much at half the side.
`module_counts` has one number for each stage after the first; a stage has one branch more than the one
before it, and each module `branch_depth` basic blocks in every branch. `bottleneck_depth` and
`bottleneck_size` describe the first stage, `head_sizes` the bottlenecks before the classifier.

All branches together are one feature between blocks; each branch is a view of it.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature, strided
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

_EXPANSION = 4
_MOST_STAGES = 6


class _Branch(NamedTuple):
    """Channels and size of one branch."""

    channels: int
    size: tuple[int, ...]


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier at any image size."""
    side = image_size_of(fields, image_size, 224)
    drawing = Drawing()
    x = _first_stage(drawing, fields, side)
    fields.items("module_counts", default=[], longest=_MOST_STAGES)
    counts = whole_numbers(fields, "module_counts", [1, 4, 3], 1000)
    width = fields.integer("hidden_size", default=32, maximum=65_536)
    depth = fields.integer("branch_depth", default=4, maximum=1000)
    branches = [_Branch(x.channels, x.size)]
    for stage, count in enumerate(counts):
        before, branches = branches, _branches(width, x.size if stage == 0 else branches[0].size, stage + 2)
        x = _stage(drawing, x, f"stage{stage + 2}", count, depth, (before, branches))
    _head(drawing, x, fields, branches)
    return image_model(fields, "hrnet", drawing.blocks, side, hidden=_head_channels(fields))


def _head_channels(fields: Fields) -> int:
    """Channels that the classifier reads."""
    return int(fields.integer("head_channels", default=2048, maximum=1_000_000))


def _branches(width: int, size: tuple[int, ...], count: int) -> list[_Branch]:
    branches = [_Branch(width, size)]
    for _ in range(count - 1):
        last = branches[-1]
        halved = tuple(strided(length, 3, 2, None, 1, False) for length in last.size)
        branches.append(_Branch(2 * last.channels, halved))
    return branches


def _views(x: Feature, branches: list[_Branch]) -> list[Feature]:
    return [x._replace(channels=branch.channels, size=branch.size) for branch in branches]


def _first_stage(drawing: Drawing, fields: Fields, side: int) -> Feature:
    """Two strided convolutions and bottlenecks at a quarter of the side."""
    embedding = fields.integer("embedding_size", default=64, maximum=65_536)
    depth = fields.integer("bottleneck_depth", default=4, maximum=1000)
    inner = fields.integer("bottleneck_size", default=64, maximum=65_536)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(drawing.conv_norm_act(given, embedding, 3, 2), embedding, 3, 2),
        role="input",
    )
    x = drawing.block("stage1.0", x, lambda given: _bottleneck(drawing, given, inner))
    if depth > 1:
        x = drawing.block("stage1.1", x, lambda given: _bottleneck(drawing, given, inner), repeat=depth - 1)
    return x


def _stage(
    drawing: Drawing,
    x: Feature,
    name: str,
    count: int,
    depth: int,
    change: tuple[list[_Branch], list[_Branch]],
) -> Feature:
    """The first module starts with the transition to the stage's branches."""
    before, branches = change

    def first(given: Feature) -> Feature:
        return _module(drawing, _transition(drawing, _views(given, before), branches), depth)

    x = drawing.block(f"{name}.0", x, first)
    if count > 1:
        x = drawing.block(
            f"{name}.1",
            x,
            lambda given: _module(drawing, _views(given, branches), depth),
            repeat=count - 1,
        )
    return x


def _transition(drawing: Drawing, given: list[Feature], branches: list[_Branch]) -> list[Feature]:
    """Branches of other width are convolved; the new one is made from the coarsest."""
    old = [
        drawing.conv_norm_act(x, branch.channels, 3) if x.channels != branch.channels else x
        for x, branch in zip(given, branches, strict=False)
    ]
    return [*old, drawing.conv_norm_act(given[-1], branches[-1].channels, 3, 2)]


def _module(drawing: Drawing, branches: list[Feature], depth: int) -> Feature:
    """Blocks in every branch, then each branch adds up what all of them hold."""
    ends = [_basic_blocks(drawing, branch, depth) for branch in branches]
    sums = [_exchanged(drawing, ends, index) for index in range(len(ends))]
    whole = sums[0]._replace(
        channels=sum(each.channels * prod(each.size) for each in sums), size=(1,) * len(sums[0].size)
    )
    return drawing.act(whole)


def _exchanged(drawing: Drawing, ends: list[Feature], index: int) -> Feature:
    moved = [_moved(drawing, source, ends[index], index - number) for number, source in enumerate(ends)]
    total = moved[0]
    for other in moved[1:]:
        total = drawing.add(total, other)
    return total


def _moved(drawing: Drawing, x: Feature, target: Feature, halvings: int) -> Feature:
    """To a finer branch by a 1x1 convolution and interpolation, to a coarser one by strided ones."""
    if halvings == 0:
        return x
    if halvings < 0:
        return drawing.resize(drawing.conv_norm(x, target.channels), target.size)
    for _ in range(halvings - 1):
        x = drawing.conv_norm_act(x, x.channels, 3, 2)
    return drawing.conv_norm(x, target.channels, 3, 2)


def _basic_blocks(drawing: Drawing, x: Feature, depth: int) -> Feature:
    for _ in range(depth):
        y = drawing.conv_norm(drawing.conv_norm_act(x, x.channels, 3), x.channels, 3)
        x = drawing.act(drawing.add(y, x))
    return x


def _bottleneck(drawing: Drawing, x: Feature, inner: int) -> Feature:
    channels = inner * _EXPANSION
    y = drawing.conv_norm_act(drawing.conv_norm_act(x, inner), inner, 3)
    y = drawing.conv_norm(y, channels)
    shortcut = x if x.channels == channels else drawing.conv_norm(x, channels)
    return drawing.act(drawing.add(y, shortcut))


def _head(drawing: Drawing, x: Feature, fields: Fields, branches: list[_Branch]) -> None:
    """From the finest branch down: widened, halved, added to the next; then the classifier."""
    inner = whole_numbers(fields, "head_sizes", [32, 64, 128, 256], 65_536)
    same_length(head_sizes=inner, branches=branches)
    channels, classes = _head_channels(fields), classes_of(fields)

    def output(given: Feature) -> Feature:
        y: Feature | None = None
        for view, width in zip(_views(given, branches), inner, strict=True):
            wide = _bottleneck(drawing, view, width)
            if y is not None:
                halved = drawing.conv_norm_act(y, wide.channels, 3, 2, bias=True)
                wide = drawing.add(wide, halved)
            y = wide
        assert y is not None
        y = drawing.conv_norm_act(y, channels, bias=True)
        return drawing.classify(drawing.global_pool(y), classes)

    drawing.block("output", x, output, role="output")
