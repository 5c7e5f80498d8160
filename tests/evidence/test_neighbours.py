"""Nearest measured runs: what many lookups at once give is what a plain search over all rows gives."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest

from raceline.evidence import neighbours
from raceline.evidence.neighbours import SIZES, WORDS, Features, Found

METRICS = ("tokens_per_s_per_device", "samples_per_s_per_device")


def wanted(seed: int) -> Features:
    """A scenario drawn from words of the index and sizes over the whole range."""
    known, draw = neighbours.shipped(), np.random.default_rng(seed)
    row = int(draw.integers(len(known.index.ids)))
    words = {name: known.index.words[known.index.features[name][row]] for name in WORDS}
    task, model_class = known.index.words[known.index.tasks[row]].split("/")
    sizes = {name: float(2.0 ** draw.uniform(0, 14)) for name in SIZES}
    sizes["parameters"] = float(10.0 ** draw.uniform(6, 11))
    return msgspec.convert({"task": task, "model_class": model_class, **words, **sizes}, Features)


def by_hand(asked: Features, most: int) -> list[float]:
    """Distances of the nearest runs, rounded as they are shown."""
    index = neighbours.shipped().index
    least: dict[str, float] = {}
    task, metrics = f"{asked.task}/{asked.model_class}", set(METRICS)
    for row, name in enumerate(index.ids):
        if index.words[index.tasks[row]] != task or index.words[index.metrics[row]] not in metrics:
            continue
        apart = sum(
            cost
            for word, cost in WORDS.items()
            if index.words[index.features[word][row]] != getattr(asked, word)
        )
        for size, cost in SIZES.items():
            mine, other = getattr(asked, size), max(index.sizes[size][row], 1e-9)
            apart += cost * abs(math.log2(mine / other))
        least[name] = min(least.get(name, math.inf), apart)
    return [round(value, 3) for value in sorted(least.values())[:most]]


def distances(found: tuple[Found, ...]) -> list[float]:
    return [item.distance for item in found]


def test_many_at_once_find_what_a_plain_search_finds() -> None:
    some = [wanted(seed) for seed in range(40)]
    found = neighbours.shipped().nearest_of_each(some, ((METRICS, 3),))
    for asked, nearest in zip(some, found, strict=True):
        assert distances(nearest) == pytest.approx(by_hand(asked, 3), abs=2e-3)
        assert len({item.id for item in nearest}) == len(nearest)
    assert any(found)


def test_one_alone_and_among_many_find_the_same() -> None:
    known, some = neighbours.shipped(), [wanted(seed) for seed in range(100, 300)]
    asked = ((METRICS, 3), (("memory_device_gib",), 1))
    assert known.nearest_of_each(some, asked) == [known.nearest_of(item, asked) for item in some]
