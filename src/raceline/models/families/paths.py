"""3x3 convolutions of a residual block that run in several paths: Res2Net, ResNeSt, SKNet.

`paths` of a config names the way. scales (Res2Net, arXiv:1904.01169): `path_count` slices of the channels,
each but the last convolved after the one before it was added. radix (ResNeSt, arXiv:2004.08955):
`path_count` outputs weighed by attention. kernels (SKNet, arXiv:1903.06586): a 3x3 and a dilated 3x3
convolution weighed by attention; `splits_input` gives each path half of the channels. `path_reduction` and
`path_divisor` size the attention.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import divisible
from raceline.models.fields import Fields, shown
from raceline.present.errors import InputError

_KERNEL_PATHS = 2
_LEAST_RADIX_ATTENTION = 32


class Place(NamedTuple):
    """Where a convolution stands: channels it makes, stride, groups, activation, first of its stage."""

    channels: int
    stride: int
    groups: int
    act: str
    is_first: bool


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """How a convolution is split."""

    kind: str
    count: int = 4
    reduction: float = 0.25
    divisor: int = 8
    splits_input: bool = False
    pools_first: bool = False

    @property
    def scales(self) -> int:
        """How many times the channels of one path stand side by side in the block."""
        return self.count if self.kind == "scales" else 1

    def draw(self, drawing: Drawing, x: Feature, place: Place) -> Feature:
        """The paths and what joins them."""
        return _MAKERS[self.kind](drawing, x, place, self)


def paths_of(fields: Fields) -> Paths | None:
    """How a config splits its convolutions, or None where it doesn't."""
    kind = fields.text("paths", default="")
    if not kind:
        return None
    if kind not in _MAKERS:
        raise InputError(
            "models.block_unknown", field=f"{fields.where}paths", given=shown(kind), known=", ".join(_MAKERS)
        )
    default = {"scales": 4}.get(kind, 2)
    return Paths(
        kind=kind,
        count=fields.integer("path_count", default=default, minimum=2, maximum=64),
        reduction=fields.number("path_reduction", default=0.25, maximum=1.0),
        divisor=fields.integer("path_divisor", default=8, maximum=1024),
        splits_input=fields.flag("splits_input"),
        pools_first=fields.flag("path_pools_first"),
    )


def _slices(x: Feature, count: int) -> list[Feature]:
    """Views of equal parts of the channels; a tensor that is kept is kept whole."""
    return [x._replace(channels=x.channels // count)] * count


def _scales(drawing: Drawing, x: Feature, place: Place, paths: Paths) -> Feature:
    """The first block of a stage adds nothing between slices and pools the last one."""
    *parts, last = _slices(x, paths.count)
    done: list[Feature] = []
    for part in parts:
        given = drawing.add(done[-1], part) if done and not place.is_first else part
        y = drawing.conv_norm(given, place.channels, 3, place.stride, groups=place.groups)
        done.append(drawing.act(y, place.act))
    rest = drawing.pool(last, 3, place.stride, kind="mean") if place.is_first else last
    return drawing.concat([*done, rest])


def _radix(drawing: Drawing, x: Feature, place: Place, paths: Paths) -> Feature:
    """Attention over the outputs of one convolution; a stride is taken by pooling after it, or before."""
    width, count = place.channels, paths.count
    if paths.pools_first and place.stride > 1:
        x = drawing.pool(x, 3, place.stride, kind="mean")
    reduced = max(_LEAST_RADIX_ATTENTION, divisible(x.channels * count * paths.reduction, paths.divisor))
    y = drawing.conv_norm(x, width * count, 3, groups=place.groups * count)
    y = drawing.act(y, place.act)
    mean = drawing.global_pool(_total(drawing, _slices(y, count)))
    small = drawing.norm(drawing.conv(mean, reduced, groups=place.groups, bias=True))
    weights = drawing.conv(drawing.act(small, place.act), width * count, groups=place.groups, bias=True)
    y = drawing.multiply(y, drawing.act(weights, "softmax"))
    y = _total(drawing, _slices(y, count))
    is_pooled = place.stride == 1 or paths.pools_first
    return y if is_pooled else drawing.pool(y, 3, place.stride, kind="mean")


def _kernels(drawing: Drawing, x: Feature, place: Place, paths: Paths) -> Feature:
    """The 5x5 path is a 3x3 convolution with dilation 2."""
    width, groups = place.channels, place.groups
    given = _slices(x, _KERNEL_PATHS) if paths.splits_input else [x] * _KERNEL_PATHS
    made = [
        drawing.act(
            drawing.conv_norm(part, width, 3, place.stride, dilation=dilation, groups=groups), place.act
        )
        for part, dilation in zip(given, (1, 2), strict=True)
    ]
    mean = drawing.global_pool(_total(drawing, made))
    reduced = divisible(width * paths.reduction, paths.divisor)
    small = drawing.act(drawing.conv_norm(mean, reduced), place.act)
    weights = drawing.act(drawing.conv(small, width * _KERNEL_PATHS), "softmax")
    return _total(drawing, _slices(drawing.multiply(drawing.concat(made), weights), _KERNEL_PATHS))


def _total(drawing: Drawing, parts: list[Feature]) -> Feature:
    total = parts[0]
    for part in parts[1:]:
        total = drawing.add(total, part)
    return total


_MAKERS = {"scales": _scales, "radix": _radix, "kernels": _kernels}
