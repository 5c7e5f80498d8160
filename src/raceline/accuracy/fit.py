"""Fitting the calibration's constants: ridge regression on log errors, with robust weights.

For a measured value, log(measured / predicted) in terms of time or bytes is, to first order, the sum over its
scopes and the kinds of work of sensitivity x constant. Each constant is pulled to 0 by a prior whose
width depends on its scope; a source's own deviation is a constant too, which is estimated and then left
out of predictions, so that many rows of one source don't outvote the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.folds import kinds_by_group
from raceline.accuracy.observations import Observation, Observations
from raceline.estimate.calibration import (
    ALL,
    KINDS,
    TIME_KINDS,
    Calibration,
    area_of,
    of_constants,
    scopes,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]

# Which constants there are: by kind of scope, the kinds of work with the widths (standard deviations of
# log factors) of their priors; `all` is all kinds of time together.
# Memory has none: left out, it is best told by physics alone.
PRIORS: Mapping[str, Mapping[str, float]] = {
    "area": dict.fromkeys(TIME_KINDS, 0.06),
    "kernels": {"all": 0.04, "traffic": 0.06, "host": 0.1},
    "class": {"all": 0.15, "attention": 0.06, "traffic": 0.06},
    "generation": {
        "matmul": 0.06, "convolution": 0.08, "attention": 0.1, "traffic": 0.06, "weights": 0.06, "cache": 0.06,
    },
    "numbers": {"matmul": 0.05, "weights": 0.06},
    "generation+numbers": {"matmul": 0.05, "weights": 0.05},
    "generation+class": {"all": 0.04},
    "runtime": {"all": 0.1, "host": 0.12, "traffic": 0.06, "collective": 0.1},
    "runtime+class": {"all": 0.08},
    "generation+runtime": {"all": 0.04},
    "accelerator": {"all": 0.05},
    "method": {"all": 0.05, "traffic": 0.05},
}  # fmt: skip
# Areas whose times stand on measured kernels: their constants are held nearer to 0.
HELD_NEARER = {"infer/text": 0.25, "train/text": 0.6}
SOURCE_PRIOR = 0.15
# Rows that a constant needs, the least sensitivity that counts, and how much more the rows must say of it
# than its prior does (at the spread that rows usually have).
FEWEST, LEAST_SENSITIVITY, LEAST_INFORMATION, TYPICAL_SPREAD = 5, 0.02, 1.0, 0.2
LARGEST = 0.9
# Residuals beyond this many spreads of their group have no say (Tukey's constant is 4.685).
ROBUST = 4.685
SPREADS = (0.05, 2.0)
ROUNDS, FOLD_ROUNDS, OUTER_ROUNDS = 6, 3, 2


# Steps of tests that are tiny and deterministic: what starting their kernels costs says nothing of training.
SCORED_ONLY = ("train-tiny",)


def kind_of_scope(scope: str) -> str:
    """The prior that a scope takes."""
    return scope.partition("=")[0]


@dataclass(frozen=True)
class Design:
    """The regression of one block: its rows x constants, and the priors. `names` are (scope, kind) of each
    column; those of sources come last and are not kept."""

    x: Floats
    names: Sequence[tuple[str, str]]
    kept: int
    precision: Floats


def blocks(items: Sequence[Observation]) -> dict[str, Ints]:
    """Times that share constants, by area."""
    found: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        if item.metric != "fits" and not item.is_memory and item.group not in SCORED_ONLY:
            found[area_of(item.keys)].append(at)
    return {area: np.array(listed) for area, listed in sorted(found.items())}


def design(items: Sequence[Observation], slopes: Floats, lone: frozenset[str]) -> Design:
    """Columns for every constant that these observations can move. `lone`: groups of too few sources, where a
    source's deviation can't be told from the group's own and isn't taken off."""
    nearer = HELD_NEARER.get(area_of(items[0].keys), 1.0)
    columns: list[tuple[tuple[str, str], Ints, Floats, float]] = []
    for scope, members in _members(scopes(item.keys) for item in items).items():
        for kind, widest in PRIORS.get(kind_of_scope(scope), {}).items():
            prior = widest * nearer
            values = slopes[members].sum(axis=1) if kind == ALL else slopes[members, KINDS.index(kind)]
            if _is_moved(values, prior):
                columns.append(((scope, kind), members, values, prior**-2))
    kept = len(columns)
    for source, members in _members(
        () if item.group in lone else (item.row.source,) for item in items
    ).items():
        columns.append(((source, "source"), members, slopes[members].sum(axis=1), SOURCE_PRIOR**-2))
    x = np.zeros((len(items), len(columns)))
    for at, (_, members, values, _) in enumerate(columns):
        x[members, at] = values
    return Design(x, [name for name, *_ in columns], kept, np.array([precision for *_, precision in columns]))


def _members(labels: Iterable[tuple[str, ...]]) -> dict[str, Ints]:
    found: dict[str, list[int]] = defaultdict(list)
    for at, names in enumerate(labels):
        for name in names:
            found[name].append(at)
    return {name: np.array(listed) for name, listed in found.items()}


def _is_moved(values: Floats, prior: float) -> bool:
    """Whether enough rows depend on a constant, and together say more of it than its prior."""
    count = int((np.abs(values) > LEAST_SENSITIVITY).sum())
    return count >= FEWEST and float((values**2).sum()) * prior**2 > LEAST_INFORMATION * TYPICAL_SPREAD**2


def spreads(groups: NDArray[np.str_], residuals: Floats) -> Floats:
    """The spread of each observation's group: 1.48 x the median of |residual|, within bounds."""
    found = np.ones(len(groups))
    for group in np.unique(groups):
        chosen = groups == group
        sizes = np.abs(residuals[chosen & np.isfinite(residuals)])
        found[chosen] = np.clip(1.48 * np.median(sizes), *SPREADS) if len(sizes) else SPREADS[1]
    return found


class Solver:
    """One block's regression, solved for all of its rows or without some of them."""

    def __init__(self, rows: Ints, designed: Design, target: Floats, groups: NDArray[np.str_]) -> None:
        self.rows, self.design, self.groups = rows, designed, groups
        self.usable = np.isfinite(target)
        self.target = np.where(self.usable, target, 0.0)
        self.spread = np.full(len(rows), SPREADS[1])
        self.values = self._rounds(self.usable, np.zeros(len(designed.names)), ROUNDS)

    def _rounds(self, usable: Flags, values: Floats, rounds: int) -> Floats:
        """Solve, weigh rows by how far they are off (Tukey's biweight: far ones have no say), solve again."""
        x, kept = self.design.x, self.design.kept
        for _ in range(rounds):
            residual = self.target - x @ values
            told = self.target - x[:, :kept] @ values[:kept]
            spread = spreads(self.groups, np.where(usable, told, np.nan))
            distance = np.abs(residual) / (ROBUST * spread)
            weights = np.where(usable & (distance < 1.0), (1.0 - distance**2) ** 2, 0.0) * spread**-2.0
            weighted = x * weights[:, None]
            matrix = x.T @ weighted + np.diag(self.design.precision)
            values = np.asarray(np.linalg.solve(matrix, weighted.T @ self.target))
        return values

    def _bounded(self, values: Floats) -> Floats:
        return np.clip(values[: self.design.kept], -LARGEST, LARGEST)

    @property
    def names(self) -> Sequence[tuple[str, str]]:
        """(scope, kind) of the constants that predictions use."""
        return self.design.names[: self.design.kept]

    def whole(self) -> Floats:
        """Fitted on all rows."""
        return self._bounded(self.values)

    def without(self, left_out: Flags) -> Floats:
        """Fitted without the flagged observations."""
        part = left_out[self.rows]
        if not part.any():
            return self.whole()
        return self._bounded(self._rounds(self.usable & ~part, self.values, FOLD_ROUNDS))


@dataclass(frozen=True)
class Refit:
    """Constants of all evidence and of each fold, in the order of `names`."""

    names: Sequence[tuple[str, str]]
    whole: Floats
    folds: Mapping[str, Floats]


def refit(observations: Observations, folds: Mapping[str, Flags]) -> Refit:
    """Fit all constants anew: physics is made linear around the constants of the round before."""
    scale, known = observations.prepared.unscaled(), dict[tuple[str, str], float]()
    solvers: list[Solver] = []
    for _ in range(OUTER_ROUNDS):
        solvers = linear(observations, scale, known)
        known = {
            name: value
            for one in solvers
            for name, value in zip(one.names, one.whole().tolist(), strict=True)
        }
        scale = observations.scale(_by_scope(known))
    names = [name for one in solvers for name in one.names]
    return Refit(
        names,
        _joined(one.whole() for one in solvers),
        {name: _joined(one.without(left_out) for one in solvers) for name, left_out in folds.items()},
    )


def _joined(parts: Iterable[Floats]) -> Floats:
    return np.concatenate([np.zeros(0), *parts])


def _by_scope(known: Mapping[tuple[str, str], float]) -> Calibration:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (scope, kind), value in known.items():
        found[scope][kind] = value
    return of_constants(found)


def linear(observations: Observations, scale: Floats, known: Mapping[tuple[str, str], float]) -> list[Solver]:
    """The regressions around `scale`, whose constants are `known`."""
    predicted, slopes = observations.sensitivity(scale, range(len(TIME_KINDS)))
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = observations.sign * np.log(observations.measured / predicted)
    return solvers_of(observations.items, residual, slopes, known)


def solvers_of(
    items: Sequence[Observation], residual: Floats, slopes: Floats, known: Mapping[tuple[str, str], float]
) -> list[Solver]:
    """One solver for each block."""
    lone = frozenset(group for group, kinds in kinds_by_group(items).items() if "source" not in kinds)
    found = []
    for rows in blocks(items).values():
        members = [items[at] for at in rows]
        designed = design(members, slopes[rows], lone)
        values = np.array([known.get(name, 0.0) for name in designed.names])
        target = np.where(np.isfinite(residual[rows]), residual[rows] + designed.x @ values, np.nan)
        found.append(Solver(rows, designed, target, np.array([item.group for item in members])))
    return found
