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

    def predicted(self, scale: Floats) -> Floats:
        """Predictions under `scale` (scenarios x KINDS)."""
        at, column = self._gather
        return np.asarray(self.prepared.figures(scale)[at, column])

    def needed_gib(self, scale: Floats) -> Floats:
        """The peak of every scenario."""
        return np.asarray(self.prepared.figures(scale)[:, METRICS.index("needed_gib")])

    def limit_gib(self, scale: Floats) -> Floats:
        """The memory that every scenario's device has for it."""
        return np.asarray(self.prepared.figures(scale)[:, METRICS.index("limit_gib")])

    def parameters_b(self, at: int) -> float:
        """Billions of parameters of a scenario's model."""
        choice = self.prepared.choices[at]
        return count.parameters(choice.model) / 1e9 if choice else float("nan")

    def sensitivity(self, scale: Floats) -> tuple[Floats, Floats]:
        """Predictions, and d log(time or bytes) / d log(factor), observations x KINDS."""
        base = self.predicted(scale)
        slopes = np.zeros((len(self), len(KINDS)))
        for kind in range(len(KINDS)):
            changed = scale.copy()
            changed[:, kind] *= np.exp(STEP)
            slopes[:, kind] = self.sign * np.log(self.predicted(changed) / base) / STEP
        return base, np.nan_to_num(slopes)


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
