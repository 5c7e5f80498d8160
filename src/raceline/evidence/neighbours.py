"""The measured runs that lie nearest to a scenario.

A distance is a sum of differences, each in units of what it usually costs in agreement: another class of model
counts most, then another generation, runtime, method and number format; sizes count by their ratio. 0 is the
same setup; beyond about 1 a run says little about another.
"""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# What another value of a setting costs, and a factor of two in a size.
WORDS = {"generation": 0.5, "accelerator": 0.25, "runtime": 0.4, "numbers": 0.4, "method": 0.4}
SIZES = {"parameters": 0.2, "length": 0.15, "batch": 0.15, "devices": 0.08}

# Setups whose rows are kept at hand: many scenarios share one.
MOST_CACHED = 256

_COSTS = np.array(list(SIZES.values()))


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What decides how near two runs are. `parameters`: those that a token visits; `length`: tokens of a
    sample or the image's side; `batch`: samples (or sequences) on one device at once."""

    task: str
    model_class: str
    generation: str
    accelerator: str
    runtime: str
    numbers: str
    method: str
    parameters: float
    length: float
    batch: float
    devices: float


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """All measured values by column; words and sources are indices into `words`."""

    words: tuple[str, ...]
    ids: tuple[str, ...]
    metrics: tuple[int, ...]
    measured: tuple[float, ...]
    sources: tuple[int, ...]
    tasks: tuple[int, ...]
    features: dict[str, tuple[int, ...]]
    sizes: dict[str, tuple[float, ...]]
    schema: str = "raceline.neighbours/1"


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A measured value near a scenario."""

    id: str
    metric: str
    measured: float
    distance: float
    source_url: str


@cache
def shipped() -> Neighbours:
    """The index that ships with this version."""
    packed = files("raceline.evidence").joinpath("data/neighbours.json.gz").read_bytes()
    return Neighbours(msgspec.json.decode(gzip.decompress(packed), type=Index))


class Neighbours:
    """An index ready to be asked: rows by task and class, as arrays."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.code = {word: at for at, word in enumerate(index.words)}
        self.metrics = np.array(index.metrics)
        self.features = {name: np.array(column) for name, column in index.features.items()}
        self.sizes = {name: np.log2(np.maximum(column, 1e-9)) for name, column in index.sizes.items()}
        self.rows: dict[int, NDArray[np.int64]] = {}
        self._cached: dict[tuple[object, ...], list[tuple[NDArray[np.int64], Floats, Floats]]] = {}
        tasks = np.array(index.tasks)
        for code in np.unique(tasks).tolist():
            self.rows[code] = np.flatnonzero(tasks == code)

    def nearest(self, wanted: Features, metrics: Sequence[str], most: int = 3) -> tuple[Found, ...]:
        """The nearest measured values of these metrics, one a run; none of another task or class."""
        return self.nearest_of(wanted, ((tuple(metrics), most),))

    def nearest_of(
        self, wanted: Features, asked: tuple[tuple[tuple[str, ...], int], ...]
    ) -> tuple[Found, ...]:
        """The nearest values of several sets of metrics, one set after the other."""
        words = tuple(getattr(wanted, name) for name in WORDS)
        alike = self._alike(wanted.task, wanted.model_class, asked, words)
        own = np.array([math.log2(max(getattr(wanted, name), 1e-9)) for name in SIZES])
        found: list[Found] = []
        for (rows, distance, sizes), (_, most) in zip(alike, asked, strict=True):
            if len(rows):
                found += self._listed(rows, distance + _COSTS @ np.abs(sizes - own[:, None]), most)
        return tuple(found)

    def _listed(self, rows: NDArray[np.int64], distance: Floats, most: int) -> Iterable[Found]:
        """The nearest rows, one a run."""
        if most == 1:
            at = int(distance.argmin())
            return (self._found(int(rows[at]), float(distance[at])),)
        found: dict[str, Found] = {}
        ids = self.index.ids
        for at in _least(distance, 3 * most).tolist():
            row = int(rows[at])
            if ids[row] not in found:
                found[ids[row]] = self._found(row, float(distance[at]))
                if len(found) == most:
                    break
        return found.values()

    def _alike(
        self,
        task: str,
        model_class: str,
        asked: tuple[tuple[tuple[str, ...], int], ...],
        words: tuple[str, ...],
    ) -> list[tuple[NDArray[np.int64], Floats, Floats]]:
        """For each set of metrics the rows of a task and a class, what their words cost beside `words`, and their
        sizes."""
        key = (task, model_class, asked, words)
        if key not in self._cached:
            if len(self._cached) >= MOST_CACHED:
                self._cached.clear()
            of_task = self.rows.get(self.code.get(f"{task}/{model_class}", -1), np.zeros(0, dtype=np.int64))
            self._cached[key] = [self._rows_like(of_task, metrics, words) for metrics, _ in asked]
        return self._cached[key]

    def _rows_like(
        self, rows: NDArray[np.int64], metrics: tuple[str, ...], words: tuple[str, ...]
    ) -> tuple[NDArray[np.int64], Floats, Floats]:
        codes = [self.code[metric] for metric in metrics if metric in self.code]
        rows = rows[np.isin(self.metrics[rows], codes)]
        total = np.zeros(len(rows))
        for (name, cost), word in zip(WORDS.items(), words, strict=True):
            total += cost * (self.features[name][rows] != self.code.get(word, -1))
        return rows, total, np.array([self.sizes[name][rows] for name in SIZES])

    def _found(self, row: int, distance: float) -> Found:
        index = self.index
        return Found(
            id=index.ids[row],
            metric=index.words[index.metrics[row]],
            measured=index.measured[row],
            distance=round(distance, 3),
            source_url=index.words[index.sources[row]],
        )


def _least(values: Floats, most: int) -> NDArray[np.int64]:
    """Where the least values stand, in order; of equal ones the first come first."""
    if len(values) <= most:
        return np.argsort(values, kind="stable")
    near = np.flatnonzero(values <= np.partition(values, most - 1)[most - 1])
    return near[np.argsort(values[near], kind="stable")[:most]]


def build(rows: Sequence[tuple[str, str, float, str, Features]]) -> Index:
    """An index of (id, metric, measured, source url, features)."""
    codes: dict[str, int] = {}

    def code(word: str) -> int:
        return codes.setdefault(word, len(codes))

    def column(name: str) -> tuple[int, ...]:
        return tuple(code(getattr(features, name)) for *_, features in rows)

    columns = {name: column(name) for name in WORDS}
    return Index(
        ids=tuple(row[0] for row in rows),
        metrics=tuple(code(row[1]) for row in rows),
        measured=tuple(float(f"{row[2]:.5g}") for row in rows),
        sources=tuple(code(row[3]) for row in rows),
        tasks=tuple(code(f"{row[4].task}/{row[4].model_class}") for row in rows),
        features=columns,
        sizes={name: tuple(float(f"{getattr(row[4], name):.4g}") for row in rows) for name in SIZES},
        words=tuple(codes),
    )


def encode(index: Index) -> bytes:
    """As it is stored, byte for byte the same each time."""
    return gzip.compress(msgspec.json.encode(index), compresslevel=9, mtime=0)
