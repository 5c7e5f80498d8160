"""What is left out: for each group the kinds of folds, and for each fold the observations it takes away."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.observations import Observation

Flags = NDArray[np.bool_]
KINDS = ("source", "family", "accelerator")
# A group is cut by source where this many sources have this many rows each.
FEWEST_SOURCES, FEWEST_ROWS = 3, 5


def label(item: Observation, kind: str) -> str:
    """The fold of this kind that an observation belongs to."""
    name = {"source": item.row.source, "family": item.family, "accelerator": item.keys.accelerator}[kind]
    return f"{kind}={name}"


def kinds_by_group(items: Sequence[Observation]) -> dict[str, tuple[str, ...]]:
    """By source where a group has enough of them, else by model family and, apart, by accelerator."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for item in items:
        rows[item.group][item.row.source] += 1
    return {
        group: ("source",)
        if sum(count >= FEWEST_ROWS for count in sources.values()) >= FEWEST_SOURCES
        else ("family", "accelerator")
        for group, sources in rows.items()
    }


def folds(items: Sequence[Observation], kinds: Mapping[str, Sequence[str]]) -> dict[str, Flags]:
    """Every fold that some group needs, with the observations that it leaves out: all of that source,
    family or accelerator, in every group and table."""
    needed = sorted({label(item, kind) for item in items for kind in kinds[item.group]})
    members: dict[str, list[int]] = defaultdict(list)
    for at, item in enumerate(items):
        for kind in KINDS:
            members[label(item, kind)].append(at)
    found: dict[str, Flags] = {}
    for name in needed:
        flags = np.zeros(len(items), dtype=bool)
        flags[members[name]] = True
        found[name] = flags
    return found
