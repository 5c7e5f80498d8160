"""Fitting the calibration's constants: ridge regression on log errors, with robust weights.

For a measured value, log(measured / predicted) in terms of time or bytes is, to first order, the sum over its
scopes and the kinds of work of sensitivity x constant. Each constant is pulled to 0 by a prior whose
width depends on its scope; a source's own deviation is a constant too, which is estimated and then left
out of predictions, so that many rows of one source don't outvote the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.observations import Observations
from raceline.estimate.calibration import ALL, KINDS, TIME_KINDS, Calibration, of_constants, scopes

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

# Which constants there are: by kind of scope, the kinds of work with the widths (standard deviations of
# log factors) of their priors; `all` is all kinds of time together.
_MEMORY = {"kept": 0.2, "logits": 0.2, "working": 0.2, "reserve": 0.25}
PRIORS: Mapping[str, Mapping[str, float]] = {
    "task": dict.fromkeys(TIME_KINDS, 0.15) | _MEMORY,
    "class": {"all": 0.4, "attention": 0.15, "traffic": 0.15} | _MEMORY,
    "generation": {
        "matmul": 0.12,
        "convolution": 0.15,
        "attention": 0.2,
        "traffic": 0.12,
        "weights": 0.12,
        "cache": 0.12,
    },
    "numbers": {"matmul": 0.1, "weights": 0.15},
    "generation+numbers": {"matmul": 0.1, "weights": 0.1},
    "generation+class": {"all": 0.08},
    "runtime": {"all": 0.2, "host": 0.3, "traffic": 0.15, "collective": 0.2} | _MEMORY,
    "runtime+class": {"all": 0.15} | _MEMORY,
    "generation+runtime": {"all": 0.08},
    "accelerator": {"all": 0.1},
    "method": {"all": 0.1, "traffic": 0.1} | _MEMORY,
}
SOURCE_PRIOR = 0.15
# Observations that a constant needs, and the least sensitivity that counts as one.
FEWEST = 5
LEAST_SENSITIVITY = 0.02
LARGEST = 0.9
# Residuals beyond this many spreads of their group weigh less.
ROBUST = 1.5
ROUNDS = 3


def kind_of_scope(scope: str) -> str:
    """The prior that a scope takes."""
    return scope.partition("=")[0]


@dataclass(frozen=True)
class Design:
    """The regression: observations x constants, what is explained, and the priors. `names` are
    (scope, kind) of each column; those of sources come last and are not kept."""

    x: Floats
    names: Sequence[tuple[str, str]]
    kept: int
    precision: Floats


def design(observations: Observations, slopes: Floats) -> Design:
    """Columns for every constant that enough observations depend on."""
    members: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(observations.items):
        for scope in scopes(item.keys):
            members[scope].append(at)
    names: list[tuple[str, str]] = []
    columns: list[tuple[NDArray[np.int64], Floats]] = []
    precision: list[float] = []
    for scope, listed in members.items():
        index = np.array(listed)
        for kind, values, prior in _kinds(scope, slopes[index]):
            if prior > 0 and int((np.abs(values) > LEAST_SENSITIVITY).sum()) >= FEWEST:
                names.append((scope, kind))
                columns.append((index, values))
                precision.append(prior**-2)
    kept = len(names)
    for source, index in _sources(observations).items():
        for part, (width, is_memory) in {
            "time": (SOURCE_PRIOR, False),
            "memory": (SOURCE_PRIOR, True),
        }.items():
            values = (
                slopes[index, len(TIME_KINDS) :].sum(axis=1)
                if is_memory
                else slopes[index, : len(TIME_KINDS)].sum(axis=1)
            )
            names.append((source, part))
            columns.append((index, values))
            precision.append(width**-2)
    x = np.zeros((len(observations), len(names)))
    for column, (rows, values) in enumerate(columns):
        x[rows, column] = values
    return Design(x, names, kept, np.array(precision))


def _kinds(scope: str, slopes: Floats) -> list[tuple[str, Floats, float]]:
    time = slopes[:, : len(TIME_KINDS)].sum(axis=1)
    priors = PRIORS.get(kind_of_scope(scope), {})
    return [
        (kind, time if kind == ALL else slopes[:, KINDS.index(kind)], prior) for kind, prior in priors.items()
    ]


def _sources(observations: Observations) -> dict[str, NDArray[np.int64]]:
    found: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(observations.items):
        found[f"source={item.row.source}"].append(at)
    return {name: np.array(index) for name, index in found.items()}


def spreads(observations: Observations, residuals: Floats) -> Floats:
    """The spread of each observation's group: 1.48 x the median of |residual|, within bounds."""
    groups = np.array([item.group for item in observations.items])
    found = np.ones(len(groups))
    for group in np.unique(groups):
        chosen = groups == group
        found[chosen] = np.clip(1.48 * np.nanmedian(np.abs(residuals[chosen])), 0.05, 0.4)
    return found


class Solver:
    """Solves one design for all rows or without some of them, by taking their share of the normal
    equations away."""

    def __init__(self, designed: Design, target: Floats, spread: Floats, usable: Flags) -> None:
        self.design, self.target, self.spread = designed, target, spread
        self.weights = np.where(usable, spread**-2.0, 0.0)
        self.values = np.zeros(len(designed.names))
        for _ in range(ROUNDS):
            self._normal()
            self.values = self._solve(self.matrix, self.vector)
            self.weights = np.where(usable, self._robust(self.values) * spread**-2.0, 0.0)
        self._normal()
        self.values = self._solve(self.matrix, self.vector)

    def _normal(self) -> None:
        weighted = self.design.x * self.weights[:, None]
        self.matrix = self.design.x.T @ weighted
        self.vector = weighted.T @ self.target

    def _robust(self, values: Floats) -> Floats:
        distance = np.abs(self.target - self.design.x @ values) / self.spread
        return np.asarray(np.minimum(1.0, ROBUST / np.maximum(distance, 1e-9)))

    def _solve(self, matrix: Floats, vector: Floats) -> Floats:
        return np.asarray(np.linalg.solve(matrix + np.diag(self.design.precision), vector))

    def bounded(self, values: Floats) -> Floats:
        """The constants that predictions use: those of sources left out, none beyond LARGEST."""
        return np.clip(values[: self.design.kept], -LARGEST, LARGEST)

    def whole(self) -> Floats:
        """Fitted on all rows."""
        return self.bounded(self.values)

    def without(self, left_out: Flags) -> Floats:
        """Fitted without these rows; the weights of the others are found anew."""
        part, weights = self.design.x[left_out], self.weights[left_out]
        matrix = self.matrix - part.T @ (part * weights[:, None])
        vector = self.vector - part.T @ (weights * self.target[left_out])
        values = self._solve(matrix, vector)
        fresh = np.where(left_out | (self.weights == 0), 0.0, self._robust(values) * self.spread**-2.0)
        change = fresh - self.weights
        moved = ~left_out & (np.abs(change) > 0.02 * self.spread**-2.0)
        rows, by = self.design.x[moved], change[moved]
        matrix = matrix + rows.T @ (rows * by[:, None])
        vector = vector + rows.T @ (by * self.target[moved])
        return self.bounded(self._solve(matrix, vector))


OUTER_ROUNDS = 2


@dataclass(frozen=True)
class Refit:
    """Constants of all evidence and of each fold, in the order of `names`."""

    names: Sequence[tuple[str, str]]
    whole: Floats
    folds: Mapping[str, Floats]


def refit(observations: Observations, folds: Mapping[str, Flags]) -> Refit:
    """Fit all constants anew: physics is made linear around the constants of the round before."""
    scale, known = observations.prepared.unscaled(), dict[tuple[str, str], float]()
    for _ in range(OUTER_ROUNDS):
        solver = _linear(observations, scale, known)
        names = solver.design.names[: solver.design.kept]
        known = dict(zip(names, solver.whole().tolist(), strict=True))
        scale = observations.scale(_by_scope(known))
    return Refit(names, solver.whole(), {name: solver.without(left_out) for name, left_out in folds.items()})


def _by_scope(known: Mapping[tuple[str, str], float]) -> Calibration:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for (scope, kind), value in known.items():
        found[scope][kind] = value
    return of_constants(found)


def _linear(observations: Observations, scale: Floats, known: Mapping[tuple[str, str], float]) -> Solver:
    """The regression around `scale`, whose constants are `known`."""
    predicted, slopes = observations.sensitivity(scale)
    designed = design(observations, slopes)
    values = np.array([known.get(name, 0.0) for name in designed.names])
    with np.errstate(divide="ignore", invalid="ignore"):
        residual = observations.sign * np.log(observations.measured / predicted)
    usable = np.isfinite(residual) & np.array([item.metric != "fits" for item in observations.items])
    residual = np.where(usable, residual, np.nan)
    target = np.where(usable, residual + designed.x @ values, 0.0)
    return Solver(designed, target, spreads(observations, residual), usable)
