"""Measured values beside what the physics says of them: the flat list that is fitted and scored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.groups import family_of, group_of
from raceline.estimate.calibration import KINDS, UNSCALED, Calibration, Keys, columns
from raceline.estimate.constants import Efficiency
from raceline.estimate.figures import METRICS, Prepared, prepare
from raceline.estimate.hardware import Catalogue
from raceline.estimate.run import Read
from raceline.evidence.rows import Metric, Row
from raceline.models import count
from raceline.present.errors import RacelineError

Floats = NDArray[np.float64]
# Where a figure is a rate, a longer time makes it smaller.
RATES = ("tokens_per_s_per_device", "samples_per_s_per_device")
STEP = 0.05


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured value: `at` is the index of its scenario."""

    row: Row
    at: int
    keys: Keys
    metric: Metric
    measured: float
    group: str
    family: str

    @property
    def is_memory(self) -> bool:
        """Whether it is an amount of memory."""
        return self.metric.startswith("memory")

    @property
    def sign(self) -> float:
        """-1 where the figure is a rate, 1 where it grows with what the factors scale."""
        return -1.0 if self.metric in RATES else 1.0

    def around(self, mid: float, low: float, high: float) -> tuple[float, float]:
        """The range around a predicted figure from log offsets of time or bytes."""
        offsets = (low, high) if self.sign > 0 else (-high, -low)
        return mid * math.exp(offsets[0]), mid * math.exp(offsets[1])


@dataclass(frozen=True)
class Observations:
    """All measured values of some rows. `refused`: rows whose scenario can't be estimated."""

    items: Sequence[Observation]
    prepared: Prepared
    refused: Mapping[str, RacelineError]

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def _gather(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        at = np.array([item.at for item in self.items], dtype=np.int64)
        column = np.array([_COLUMN[item.metric] for item in self.items], dtype=np.int64)
        return at, column

    @cached_property
    def measured(self) -> Floats:
        """The measured values."""
        return np.array([item.measured for item in self.items])

    @cached_property
    def sign(self) -> Floats:
        """-1 where the figure is a rate, 1 where it grows with what the factors scale."""
        return np.array([item.sign for item in self.items])

    def scale(self, calibration: Calibration) -> Floats:
        """The factors of every scenario under one calibration (scenarios x KINDS)."""
        return columns(calibration.scale(keys) if keys else UNSCALED for keys in self.prepared.keys)

    @cached_property
    def _last(self) -> dict[bytes, Floats]:
        return {}

    def _figures(self, scale: Floats) -> Floats:
        """All figures under `scale`; the last ones are kept, because several questions ask for the same."""
        key = scale.tobytes()
        if key not in self._last:
            self._last.clear()
            self._last[key] = self.prepared.figures(scale)
        return self._last[key]

    def predicted(self, scale: Floats) -> Floats:
        """Predictions under `scale` (scenarios x KINDS)."""
        return np.asarray(self._figures(scale)[self._gather])

    def predicted_under(self, scales: Sequence[Floats]) -> Floats:
        """Predictions under several sets of factors at once (scales x observations)."""
        figures = self.prepared.figures_of(scales)
        self._last.clear()
        self._last[scales[0].tobytes()] = figures[0]
        at, column = self._gather
        return np.asarray(figures[:, at, column])

    def needed_gib(self, scale: Floats) -> Floats:
        """The peak of every scenario."""
        return self._figures(scale)[:, METRICS.index("needed_gib")]

    def limit_gib(self, scale: Floats) -> Floats:
        """The memory that every scenario's device has for it."""
        return self._figures(scale)[:, METRICS.index("limit_gib")]

    @cached_property
    def _parameters(self) -> dict[int, float]:
        return {}

    def parameters_b(self, at: int) -> float:
        """Billions of parameters of a scenario's model."""
        choice = self.prepared.choices[at]
        if choice is None:
            return float("nan")
        known = self._parameters
        if id(choice.model) not in known:
            known[id(choice.model)] = count.parameters(choice.model) / 1e9
        return known[id(choice.model)]

    def sensitivity(
        self, scale: Floats, kinds: Sequence[int] = tuple(range(len(KINDS)))
    ) -> tuple[Floats, Floats]:
        """Predictions, and d log(time or bytes) / d log(factor) of these kinds, observations x KINDS."""
        scales = [scale]
        for kind in kinds:
            changed = scale.copy()
            changed[:, kind] *= np.exp(STEP)
            scales.append(changed)
        at, column = self._gather
        found = self.prepared.figures_of(scales)[:, at, column]
        slopes = np.zeros((len(self), len(KINDS)))
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes[:, list(kinds)] = (self.sign * np.log(found[1:] / found[0]) / STEP).T
        return found[0], np.nan_to_num(slopes)


_COLUMN = {name: METRICS.index(name) for name in METRICS if name not in ("needed_gib", "limit_gib")}
_COLUMN["fits"] = METRICS.index("needed_gib")


def observe(rows: Sequence[Row], catalogue: Catalogue, read: Read, efficiency: Efficiency) -> Observations:
    """The measured values of the rows that can be scored."""
    usable = [row for row in rows if row.unscored is None and row.scenario is not None]
    prepared = prepare([row.scenario or {} for row in usable], catalogue, read, efficiency)
    items: list[Observation] = []
    refused: dict[str, RacelineError] = {}
    for at, row in enumerate(usable):
        keys, choice = prepared.keys[at], prepared.choices[at]
        if keys is None or choice is None or at in prepared.errors:
            refused[row.id] = prepared.errors[at]
            continue
        family = family_of(row.model or choice.model.name)
        for value in row.measured:
            group = group_of(row, keys, value.metric)
            items.append(Observation(row, at, keys, value.metric, value.value, group, family))
    return Observations(items, prepared, refused)
