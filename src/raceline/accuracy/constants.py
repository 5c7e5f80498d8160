"""The fitted constants: of all evidence, and of each fold, as they are stored and read."""

from __future__ import annotations

import gzip
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import Calibration, of_constants

Floats = NDArray[np.float64]
# Constants are stored in units of this.
UNIT = 1e-4
Name = tuple[str, str]


class Constants(msgspec.Struct, frozen=True, kw_only=True):
    """Constants by (scope, kind) of the whole evidence, and for each fold how they differ, in units of
    UNIT. Most differences are 0, so a fold names those that aren't: index, difference."""

    names: tuple[Name, ...]
    whole: tuple[int, ...]
    folds: dict[str, tuple[tuple[int, int], ...]]
    schema: str = "raceline.folds/1"

    def of(self, fold: str | None) -> dict[str, dict[str, float]]:
        """The constants of a fold (None: of all evidence) by scope and kind."""
        values = list(self.whole)
        for index, difference in self.folds[fold] if fold is not None else ():
            values[index] += difference
        found: dict[str, dict[str, float]] = defaultdict(dict)
        for (scope, kind), value in zip(self.names, values, strict=True):
            if value:
                found[scope][kind] = round(value * UNIT, 4)
        return dict(found)

    def calibration(self, fold: str | None) -> Calibration:
        """The constants of a fold as the value that `estimate` takes."""
        return of_constants(self.of(fold))


def pack(names: Sequence[Name], whole: Floats, folds: Mapping[str, Floats]) -> Constants:
    """Constants in units of UNIT."""
    base = np.rint(whole / UNIT).astype(int)
    by_fold: dict[str, tuple[tuple[int, int], ...]] = {}
    for label, values in folds.items():
        change = np.rint(values / UNIT).astype(int) - base
        at = np.flatnonzero(change)
        by_fold[label] = tuple(zip(at.tolist(), change[at].tolist(), strict=True))
    return Constants(names=tuple(names), whole=tuple(base.tolist()), folds=by_fold)


@cache
def stored() -> Constants:
    """The constants that ship with this version."""
    packed = files("raceline.accuracy").joinpath("data/folds.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(packed), type=Constants)


def encode(constants: Constants) -> bytes:
    """As they are stored, byte for byte the same each time."""
    return gzip.compress(msgspec.json.encode(constants), compresslevel=9, mtime=0)
