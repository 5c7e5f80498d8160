"""Ranges from residuals: conformal quantiles by group, wider where less was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.folds import label
from raceline.accuracy.observations import Observation
from raceline.estimate.spread import ANY, TIERS, Spread, support_names, tier

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# The ends of the range hold this share of the residuals between them.
LOW, HIGH = 0.1, 0.9
FEWEST_RESIDUALS = 20
WIDEST = 2.5


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The smallest value below which `level` of the weight lies."""
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order][min(int(np.searchsorted(total, level * total[-1])), len(values) - 1)])


class Residuals:
    """Log residuals (measured over predicted) of left-out predictions, ready to give ranges with or
    without some of the rows. `labels`: the fold that each prediction comes from."""

    def __init__(self, items: Sequence[Observation], residuals: Floats, labels: Sequence[str]) -> None:
        self.items, self.residuals, self.labels = items, residuals, np.array(labels)
        self.usable = np.isfinite(residuals)
        self.groups = np.array([item.group for item in items])
        self.sources = np.array([item.row.source for item in items])
        self.tiers = tiers(items, labels)
        self.widths = self._tier_widths()
        self.scaled = residuals / np.array(self.widths)[self.tiers]

    def _tier_widths(self) -> tuple[float, ...]:
        """Median |residual| of each tier over that of its group, 1 for the nearest, never narrower
        than the tier before."""
        size = np.abs(self.residuals)
        relative = np.full(len(size), np.nan)
        for group in np.unique(self.groups):
            chosen = (self.groups == group) & self.usable
            nearest = chosen & (self.tiers == 0)
            if nearest.sum() >= FEWEST_RESIDUALS:
                relative[chosen] = size[chosen] / max(float(np.median(size[nearest])), 1e-6)
        widths = [1.0]
        for step in range(1, TIERS):
            values = relative[(self.tiers == step) & np.isfinite(relative)]
            found = float(np.median(values)) if len(values) >= FEWEST_RESIDUALS else widths[-1]
            widths.append(float(np.clip(found, widths[-1], WIDEST)))
        return tuple(round(width, 3) for width in widths)

    def ends(self, chosen: Flags) -> tuple[float, float]:
        """The range's ends (log offsets of tier 0) from the chosen residuals; sources weigh by the
        square root of their rows."""
        values, sources = self.scaled[chosen], self.sources[chosen]
        _, which, count = np.unique(sources, return_inverse=True, return_counts=True)
        weights = np.asarray(count[which] ** -0.5, dtype=np.float64)
        low, high = (weighted_quantile(values, weights, level) for level in (LOW, HIGH))
        return min(low, 0.0), max(high, 0.0)

    def of_group(self, group: str, left_out: Flags | None = None) -> tuple[float, float]:
        """The ends for a group, without the rows of a fold; all groups' where too few are left."""
        rest = self.usable if left_out is None else self.usable & ~left_out
        chosen = rest & (self.groups == group)
        return self.ends(chosen if chosen.sum() >= FEWEST_RESIDUALS else rest)

    def spread(self) -> Spread:
        """What an estimate's range is made of."""
        groups = {str(group): _rounded(self.of_group(str(group))) for group in np.unique(self.groups)}
        groups[ANY] = _rounded(self.ends(self.usable))
        return Spread(groups, self.widths, dict(sorted(counts_of(self.items).items())))


def tiers(items: Sequence[Observation], labels: Sequence[str]) -> NDArray[np.int64]:
    """The tier of each observation as its own fold sees it: without the rows that it leaves out."""
    whole = counts_of(items)
    by_label = {
        name: counts_of([i for i in items if label(i, name.partition("=")[0]) == name])
        for name in set(labels)
    }
    found = []
    for item, name in zip(items, labels, strict=True):
        nearest, wider = support_names(item.keys)
        found.append(
            tier(item.keys, {part: whole[part] - by_label[name][part] for part in (nearest, *wider)})
        )
    return np.array(found, dtype=np.int64)


def counts_of(items: Sequence[Observation]) -> Counter[str]:
    """Measured rows by support name."""
    found: Counter[str] = Counter()
    for item in items:
        nearest, wider = support_names(item.keys)
        found.update((nearest, *wider))
    return found


def _rounded(ends: tuple[float, float]) -> tuple[float, float]:
    return round(ends[0], 4), round(ends[1], 4)
