"""The constants that ship are what calibration gives."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from raceline import api
from raceline.accuracy import fit
from raceline.accuracy.constants import Constants, pack, stored
from raceline.accuracy.folds import folds, kinds_by_group
from raceline.accuracy.score import observed, score
from raceline.estimate import constants

WITHIN_CONSTANT, WITHIN_PREDICTION = 1e-3, 1e-4
FOLDS = (
    "source=mosaicml/llm-foundry",
    "source=bigscience-workshop/bigscience (BLOOM prequel)",
    "family=resnet",
)


def _agree(fresh: Sequence[int], kept: Sequence[int]) -> bool:
    """Whether constants, in the units in which they are stored, are within 0.1 % of each other, or one unit."""
    ours, shipped = np.array(fresh), np.array(kept)
    return bool((np.abs(ours - shipped) <= np.maximum(1.0, WITHIN_CONSTANT * np.abs(shipped))).all())


def test_calibration_gives_the_constants_and_predictions_that_ship() -> None:
    observations = observed(api.load_catalogue(), cache(api.read_model))
    found = fit.refit(observations, {})
    fresh, kept = pack(found.names, found.whole, {}), stored()
    assert fresh.names == kept.names, "run `make calibrate`: other constants are fitted than those that ship"
    assert _agree(fresh.whole, kept.whole)
    ours = observations.predicted(observations.scale(fresh.calibration(None)))
    shipped = observations.predicted(observations.scale(constants.load().calibration))
    usable = np.isfinite(ours) & np.isfinite(shipped) & (shipped > 0)
    assert usable.mean() > 0.99
    assert float(np.abs(ours[usable] / shipped[usable] - 1.0).max()) <= WITHIN_PREDICTION


def test_constants_and_ranges_of_folds_are_those_that_ship() -> None:
    observations = observed(api.load_catalogue(), cache(api.read_model))
    every = folds(observations.items, kinds_by_group(observations.items))
    kept = stored()
    assert set(every) == set(kept.folds)
    some = {name: every[name] for name in FOLDS}
    found = fit.refit(observations, some)
    fresh = pack(found.names, found.whole, found.folds)
    for name in FOLDS:
        assert _agree(_whole(fresh, name), _whole(kept, name)), name
    _, _, residuals = score(observations, kept)
    ours, shipped = residuals.spread(), constants.load().spread
    assert dict(ours.counts) == dict(shipped.counts)
    assert ours.widths == pytest.approx(shipped.widths, rel=WITHIN_CONSTANT, abs=0.002)
    assert ours.verdict == pytest.approx(shipped.verdict, rel=WITHIN_CONSTANT, abs=0.002)
    assert ours.groups.keys() == shipped.groups.keys()
    for group, ends in ours.groups.items():
        assert ends == pytest.approx(shipped.groups[group], rel=WITHIN_CONSTANT, abs=0.002), group


def _whole(known: Constants, fold: str) -> list[int]:
    values = list(known.whole)
    for index, difference in known.folds[fold]:
        values[index] += difference
    return values
