"""The measured runs that lie nearest to a scenario.

A distance is a sum of differences, each in units of what it usually costs in agreement: another class of model
counts most, then another generation, runtime, method and number format; sizes count by their ratio. 0 is the
same setup; beyond about 1 a run says little about another.
"""

from __future__ import annotations

import gzip
import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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
# Rows that are looked at before it is known how many more can be near, and scenarios looked up at once.
FIRST, BLOCK = 128, 64

# Sets of metrics, each with how many values are wanted of it.
Asked = tuple[tuple[tuple[str, ...], int], ...]


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
        self._cached: dict[tuple[object, ...], list[_Like]] = {}
        tasks = np.array(index.tasks)
        for code in np.unique(tasks).tolist():
            self.rows[code] = np.flatnonzero(tasks == code)

    def nearest(self, wanted: Features, metrics: Sequence[str], most: int = 3) -> tuple[Found, ...]:
        """The nearest measured values of these metrics, one a run; none of another task or class."""
        return self.nearest_of(wanted, ((tuple(metrics), most),))

    def nearest_of(self, wanted: Features, asked: Asked) -> tuple[Found, ...]:
        """The nearest values of several sets of metrics, one set after the other."""
        return self.nearest_of_each((wanted,), asked)[0]

    def nearest_of_each(self, wanted: Sequence[Features], asked: Asked) -> list[tuple[Found, ...]]:
        """`nearest_of` for many at once: those whose words are the same are looked up together."""
        alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for at, item in enumerate(wanted):
            alike[item.task, item.model_class, *(getattr(item, name) for name in WORDS)].append(at)
        found: list[list[Found]] = [[] for _ in wanted]
        for (task, model_class, *words), members in alike.items():
            sets = self._alike(task, model_class, asked, tuple(words))
            for start in range(0, len(members), BLOCK):
                block = members[start : start + BLOCK]
                sizes = [[max(getattr(wanted[at], name), 1e-9) for name in SIZES] for at in block]
                own = np.log2(np.array(sizes))
                for like, (_, most) in zip(sets, asked, strict=True):
                    for at, nearest in zip(block, _nearest(like, own, 3 * most), strict=True):
                        found[at] += self._listed(nearest, most)
        return [tuple(items) for items in found]

    def _listed(self, nearest: Iterable[tuple[int, float]], most: int) -> Iterable[Found]:
        """Of rows and their distances the first, one a run."""
        found: dict[str, Found] = {}
        for row, distance in nearest:
            name = self.index.ids[row]
            if name not in found:
                found[name] = self._found(row, distance)
                if len(found) == most:
                    break
        return found.values()

    def _alike(self, task: str, model_class: str, asked: Asked, words: tuple[str, ...]) -> list[_Like]:
        """For each set of metrics the rows of a task and a class, those with the most of `words` first."""
        key = (task, model_class, asked, words)
        if key not in self._cached:
            if len(self._cached) >= MOST_CACHED:
                self._cached.clear()
            of_task = self.rows.get(self.code.get(f"{task}/{model_class}", -1), np.zeros(0, dtype=np.int64))
            self._cached[key] = [self._rows_like(of_task, metrics, words) for metrics, _ in asked]
        return self._cached[key]

    def _rows_like(self, rows: NDArray[np.int64], metrics: tuple[str, ...], words: tuple[str, ...]) -> _Like:
        codes = [self.code[metric] for metric in metrics if metric in self.code]
        rows = rows[np.isin(self.metrics[rows], codes)]
        total = np.zeros(len(rows))
        for (name, cost), word in zip(WORDS.items(), words, strict=True):
            total += cost * (self.features[name][rows] != self.code.get(word, -1))
        order = np.argsort(total, kind="stable")
        rows = rows[order]
        return _Like(rows, total[order], [self.sizes[name][rows] for name in SIZES])

    def _found(self, row: int, distance: float) -> Found:
        index = self.index
        return Found(
            id=index.ids[row],
            metric=index.words[index.metrics[row]],
            measured=index.measured[row],
            distance=round(distance, 3),
            source_url=index.words[index.sources[row]],
        )


@dataclass(frozen=True, slots=True)
class _Like:
    """Rows that may be near: what their words cost, rising, and their sizes."""

    rows: NDArray[np.int64]
    words: Floats
    sizes: list[Floats]

    def distances(self, own: Floats, upto: int) -> Floats:
        """From each of `own` (B x SIZES) to each of the first rows."""
        total = np.tile(self.words[:upto], (len(own), 1))
        for cost, sizes, mine in zip(SIZES.values(), self.sizes, own.T, strict=True):
            total += cost * np.abs(sizes[:upto] - mine[:, None])
        return total


def _nearest(like: _Like, own: Floats, most: int) -> list[list[tuple[int, float]]]:
    """For each of `own` the nearest rows and their distances, in order; of equal ones the first come first.

    A row is at least as far as its words are, so the first ones tell which others need a look."""
    if not len(like.rows):
        return [[] for _ in own]
    some = min(max(FIRST, most), len(like.rows))
    last = min(most, some) - 1
    distances = like.distances(own, some)
    farthest = np.partition(distances, last, axis=1)[:, last]
    upto = int(np.searchsorted(like.words, farthest.max(), "right"))
    if upto > some:
        distances = like.distances(own, upto)
        farthest = np.partition(distances, last, axis=1)[:, last]
    which, column = np.nonzero(distances <= farthest[:, None])
    values = distances[which, column]
    order = np.lexsort((values, which))
    pairs = list(zip(like.rows[column[order]].tolist(), values[order].tolist(), strict=True))
    ends = np.searchsorted(which, np.arange(len(own) + 1)).tolist()
    return [pairs[start : min(end, start + most)] for start, end in itertools.pairwise(ends)]


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
