"""Totals of predictions beside measured values: medians, shares, and what stands for a group.

Every measured value weighs the same in a pooled figure, and every source the same in a median over sources.
A group that was scored by leaving out the model family and, apart from that, the accelerator has two
predictions of each value; the ones that are further off stand for the group wherever one figure is shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from raceline.accuracy.result import Scored

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)


class Errors(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of some predictions. `median`, `mean` and `p90` are of |predicted / measured - 1|; `bias`: the
    median of predicted / measured, less 1; `inside`: the share whose measured value lies in the range;
    `half_width`: the median of sqrt(high / low) - 1, by how much a range goes up and down from its middle on a
    logarithmic scale; `median_of_sources`: the median over the medians of the sources; `ratios`: predicted /
    measured at 10, 25, 50, 75 and 90 %."""

    values: int
    sources: int
    median: float
    median_of_sources: float
    mean: float
    p90: float
    bias: float
    inside: float
    half_width: float
    ratios: tuple[float, ...]

    @property
    def worse_median(self) -> float:
        """The one that a bar holds for."""
        return max(self.median, self.median_of_sources)

    @property
    def width_to_error(self) -> float | None:
        """How many times the median error a range reaches to each side."""
        return self.half_width / self.median if self.median > 0 else None


def quantile(values: Iterable[float], share: float) -> float:
    """The value below which `share` of the sorted ones lie, linear between two neighbours."""
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def median(values: Iterable[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    return quantile(values, 0.5)


def errors_of(scored: Sequence[Scored]) -> Errors:
    """Totals of at least one prediction."""
    found = [abs(item.error) for item in scored]
    ratios = sorted(item.predicted / item.measured for item in scored)
    by_source = grouped(scored, lambda item: item.source)
    return Errors(
        values=len(scored),
        sources=len(by_source),
        median=median(found),
        median_of_sources=median(median(abs(item.error) for item in part) for part in by_source.values()),
        mean=sum(found) / len(found),
        p90=quantile(found, 0.9),
        bias=median(ratios) - 1.0,
        inside=sum(item.low <= item.measured <= item.high for item in scored) / len(scored),
        half_width=median(half_width(item) for item in scored),
        ratios=tuple(quantile(ratios, share) for share in SHARES),
    )


def half_width(item: Scored) -> float:
    """By how much a range goes up and down from its middle on a logarithmic scale, as a fraction."""
    return math.sqrt(item.high / item.low) - 1.0 if item.low > 0 else math.inf


def grouped(scored: Iterable[Scored], key: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    """Lists by key, in the order of their first member."""
    found: dict[str, list[Scored]] = defaultdict(list)
    for item in scored:
        found[key(item)].append(item)
    return dict(found)


def alternatives(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    """One list of predictions for each way of leaving out, by what is left out. Every value is in each: with
    its only prediction, or with the one of that way."""
    by_value: dict[tuple[str, str, str, float], dict[str, Scored]] = defaultdict(dict)
    for item in scored:
        by_value[item.table, item.id, item.metric, item.measured][left_out(item)] = item
    ways = sorted({way for found in by_value.values() if len(found) > 1 for way in found})
    if not ways:
        return {" + ".join(sorted({left_out(item) for item in scored})): list(scored)}
    return {
        way: [found.get(way) or next(iter(found.values())) for found in by_value.values()] for way in ways
    }


def left_out(item: Scored) -> str:
    """source, family, accelerator or none."""
    return item.fold.partition("=")[0]


def standing(scored: Sequence[Scored]) -> list[Scored]:
    """One prediction of each value: the ones that stand for their groups."""
    return [item for part in grouped(scored, lambda item: item.group).values() for item in ranked(part)[0][1]]


def ranked(scored: Sequence[Scored]) -> list[tuple[str, list[Scored]]]:
    """The ways of leaving out, the one that is further off first."""
    return sorted(alternatives(scored).items(), key=lambda pair: -errors_of(pair[1]).worse_median)
