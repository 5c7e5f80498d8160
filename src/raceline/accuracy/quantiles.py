"""Ranges from residuals: conformal quantiles by group, wider where less was measured."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.folds import KINDS, label
from raceline.accuracy.observations import Observation
from raceline.estimate.calibration import Keys
from raceline.estimate.groups import MEMORY_DEVICE
from raceline.estimate.spread import ANY, TIERS, Spread, support_names, tier

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# The ends of the range hold this share of the residuals between them.
LOW, HIGH = 0.1, 0.9
# "fits" and "doesn't fit" are said where this share of measured peaks would be on that side.
SURE = 0.8
# What is asked of groups that a range has not seen, and how far it is stretched or tightened for that.
WANTED, STRETCHES = 0.72, (0.85, 0.92, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0)
# One end is at least this share of the other: that all known sources lie on one side may be their own.
SHORTER = 0.2
# Residuals that a group needs for a range of its own, and a class of models within it.
FEWEST_RESIDUALS, FEWEST_OF_CLASS = 20, 30
WIDEST = 2.5


class Residuals:
    """Log residuals (measured over predicted) of left-out predictions, ready to give ranges with or
    without some of the rows. `labels`: the fold that each prediction comes from."""

    def __init__(self, items: Sequence[Observation], residuals: Floats, labels: Sequence[str]) -> None:
        self.items, self.residuals, self.labels = items, residuals, np.array(labels)
        self._code = {name: at for at, name in enumerate(dict.fromkeys(labels))}
        self.codes = np.array([self._code[name] for name in labels], dtype=np.int64)
        self._members: dict[str, NDArray[np.int64]] = {}
        self._stretches: dict[tuple[str, str], float] = {}
        self.usable = np.isfinite(residuals)
        # a group that is cut in two ways has each of its rows twice, once for each way
        self.groups = np.array([item.group for item in items])
        self.parts = np.array([part(item.group, name) for item, name in zip(items, labels, strict=True)])
        self.classes = np.array([item.keys.model_class for item in items])
        self._class_code = {name: at for at, name in enumerate(dict.fromkeys(self.classes.tolist()))}
        self.class_codes = np.array(
            [self._class_code[name] for name in self.classes.tolist()], dtype=np.int64
        )
        self.tiers = tiers(items, labels)
        self._of_group = [
            np.flatnonzero((self.groups == group) & self.usable) for group in np.unique(self.groups)
        ]
        self._widths: dict[str, tuple[float, ...]] = {}
        self._scaled: dict[str, Floats] = {}

    def widths(self, left_out: str) -> tuple[float, ...]:
        """How much wider the range of each tier is, without the rows of a fold: the median |residual| over that of
        the nearest tier of its group; 1 for the nearest, never narrower than the tier before."""
        if left_out not in self._widths:
            self._widths[left_out] = self._found_widths(left_out)
        return self._widths[left_out]

    def _found_widths(self, left_out: str) -> tuple[float, ...]:
        size = np.abs(self.residuals)
        relative: list[list[Floats]] = [[] for _ in range(TIERS)]
        for members in self._of_group:
            rest = self._without(members, {left_out})
            of_tier = self.tiers[rest]
            nearest = size[rest[of_tier == 0]]
            if len(nearest) >= FEWEST_RESIDUALS:
                middle = max(float(np.median(nearest)), 1e-6)
                for step in range(1, TIERS):
                    relative[step].append(size[rest[of_tier == step]] / middle)
        widths = [1.0]
        for step in range(1, TIERS):
            values = np.concatenate([np.zeros(0), *relative[step]])
            found = float(np.median(values)) if len(values) >= FEWEST_RESIDUALS else widths[-1]
            widths.append(float(np.clip(found, widths[-1], WIDEST)))
        return tuple(round(width, 3) for width in widths)

    def scaled(self, left_out: str) -> Floats:
        """The residuals over the widths of their tiers."""
        if left_out not in self._scaled:
            self._scaled[left_out] = self.residuals / np.array(self.widths(left_out))[self.tiers]
        return self._scaled[left_out]

    def ends(self, group: str, of_class: str, left_out: str) -> tuple[float, float]:
        """The range's ends (log offsets of tier 0) for a group and a class of models, without the rows of
        a fold: of the class where it has enough rows, else of the group, else of all."""
        chosen = part(group, left_out)
        low, high = self._quantiles(chosen, of_class, left_out)
        stretch = self._stretch(chosen, left_out)
        return low * stretch, high * stretch

    def _quantiles(self, group: str, of_class: str, left_out: str, held: str = "") -> tuple[float, float]:
        """Without a fold, and without another that is asked."""
        without = {left_out, held} if held else {left_out}
        rest = self._rest(group, without)
        chosen = rest[self.class_codes[rest] == self._class_code.get(of_class, -1)]
        if len(chosen) < FEWEST_OF_CLASS:
            chosen = rest
        if len(chosen) < FEWEST_RESIDUALS:
            chosen = self._without(np.flatnonzero(self.usable), without)
        return _around_mid(quantiles(self.scaled(left_out)[chosen]))

    def _rest(self, group: str, without: set[str]) -> NDArray[np.int64]:
        if group not in self._members:
            self._members[group] = np.flatnonzero(self.usable & (self.parts == group))
        return self._without(self._members[group], without)

    def _without(self, rows: NDArray[np.int64], labels: set[str]) -> NDArray[np.int64]:
        """The rows that belong to none of these folds."""
        codes = self.codes[rows]
        left = np.ones(len(rows), dtype=bool)
        for name in labels:
            left &= codes != self._code.get(name, -1)
        return rows[left]

    def _stretch(self, group: str, left_out: str) -> float:
        """How much wider the ends must be to hold WANTED of each fold that they haven't seen, asked of the
        folds that are left."""
        key = (group, left_out)
        if key not in self._stretches:
            self._stretches[key] = self._found_stretch(group, left_out)
        return self._stretches[key]

    def _found_stretch(self, group: str, left_out: str) -> float:
        rest = self._rest(group, {left_out})
        codes, classes = self.codes[rest], self.class_codes[rest]
        folds = np.unique(codes).tolist()
        if len(folds) < 3:
            return 1.0
        inside, factors = np.zeros(len(STRETCHES)), np.array(STRETCHES)
        names, class_names = list(self._code), list(self._class_code)
        for fold in folds:
            is_held = codes == fold
            for of_class in np.unique(classes[is_held]).tolist():
                values = self.scaled(left_out)[rest[is_held & (classes == of_class)], None]
                low, high = self._quantiles(group, class_names[of_class], left_out, names[fold])
                inside += ((values >= low * factors) & (values <= high * factors)).sum(axis=0)
        # few folds say less of the next one: the share that n of them must hold is (n + 1) / n of it
        enough = np.flatnonzero(inside / len(rest) >= min(WANTED * (1.0 + 1.0 / len(folds)), 0.8))
        return float(factors[enough[0]]) if len(enough) else float(factors[-1])

    def spread(self) -> Spread:
        """What an estimate's range is made of: ends by group, and by group and class."""
        found: dict[str, tuple[float, float]] = {}
        for group in np.unique(self.groups[self.usable]).tolist():
            names = set(self.parts[self.groups == group].tolist())
            kind = next(kind for kind in KINDS if part(group, f"{kind}=") in names)
            found[group] = _rounded(self.ends(group, "", f"{kind}="))
            members = self._rest(part(group, f"{kind}="), set())
            classes, counts = np.unique(self.classes[members], return_counts=True)
            for of_class, count in zip(classes.tolist(), counts.tolist(), strict=True):
                if count >= FEWEST_OF_CLASS:
                    found[f"{group}/{of_class}"] = _rounded(self.ends(group, of_class, f"{kind}="))
        found[ANY] = _rounded(quantiles(self.scaled("source=")[self.usable]))
        support = dict(sorted(counts_of(self.items).items()))
        return Spread(found, self.widths("source="), support, verdict=_rounded(self.verdict("source=")))

    def verdict(self, left_out: str) -> tuple[float, float]:
        """Between these log offsets of a need measured peaks lie on both sides: the middle of the residuals of what
        the driver shows, without the rows of a fold."""
        rest = self._rest(part(MEMORY_DEVICE, left_out), {left_out})
        return (
            _around_mid(quantiles(self.scaled(left_out)[rest], (1.0 - SURE, SURE)))
            if len(rest)
            else Spread.verdict
        )


def quantiles(values: Floats, shares: tuple[float, float] = (LOW, HIGH)) -> tuple[float, float]:
    """Two quantiles of at least one value, linear between two neighbours."""
    places = [share * (len(values) - 1) for share in shares]
    below = [int(place) for place in places]
    above = [min(at + 1, len(values) - 1) for at in below]
    ordered = np.partition(values, sorted({*below, *above}))
    low, high = (
        float(ordered[at] + (place - at) * (ordered[over] - ordered[at]))
        for place, at, over in zip(places, below, above, strict=True)
    )
    return low, high


def _around_mid(ends: tuple[float, float]) -> tuple[float, float]:
    """The ends with the mid well between them."""
    low, high = ends
    return min(low, -SHORTER * high, 0.0), max(high, -SHORTER * low, 0.0)


def part(group: str, left_out: str) -> str:
    """A group as one way of cutting it sees it."""
    return f"{group}|{left_out.partition('=')[0]}"


def tiers(items: Sequence[Observation], labels: Sequence[str]) -> NDArray[np.int64]:
    """The tier of each observation as its own fold sees it: without the rows that it leaves out."""
    whole = counts_of(items)
    members: dict[str, list[Observation]] = defaultdict(list)
    for kind in {name.partition("=")[0] for name in labels}:
        for item in items:
            members[label(item, kind)].append(item)
    by_label = {name: counts_of(members[name]) for name in set(labels)}

    @cache
    def seen(keys: Keys, name: str) -> int:
        nearest, wider = support_names(keys)
        return tier(keys, {part: whole[part] - by_label[name][part] for part in (nearest, *wider)})

    return np.array([seen(item.keys, name) for item, name in zip(items, labels, strict=True)], dtype=np.int64)


def counts_of(items: Sequence[Observation]) -> Counter[str]:
    """Measured rows by support name."""
    found: Counter[str] = Counter()
    for item in items:
        nearest, wider = support_names(item.keys)
        found.update((nearest, *wider))
    return found


def _rounded(ends: tuple[float, float]) -> tuple[float, float]:
    return round(ends[0], 4), round(ends[1], 4)
