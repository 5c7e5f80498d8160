"""The constants that ship are what calibration gives."""

from __future__ import annotations

from functools import cache

import numpy as np

from raceline import api
from raceline.accuracy import fit
from raceline.accuracy.constants import UNIT, pack, stored
from raceline.accuracy.score import observed
from raceline.estimate import constants

WITHIN_CONSTANT, WITHIN_PREDICTION = 1e-3, 1e-4


def test_calibration_gives_the_constants_and_predictions_that_ship() -> None:
    observations = observed(api.load_catalogue(), cache(api.read_model))
    found = fit.refit(observations, {})
    fresh, kept = pack(found.names, found.whole, {}), stored()
    assert fresh.names == kept.names, "run `make calibrate`: other constants are fitted than those that ship"
    drift = np.abs(np.array(fresh.whole) - np.array(kept.whole))
    assert (drift <= np.maximum(1.0, WITHIN_CONSTANT / UNIT * np.abs(np.array(kept.whole)) * UNIT)).all()
    ours = observations.predicted(observations.scale(fresh.calibration(None)))
    shipped = observations.predicted(observations.scale(constants.load().calibration))
    usable = np.isfinite(ours) & np.isfinite(shipped) & (shipped > 0)
    assert usable.mean() > 0.99
    assert float(np.abs(ours[usable] / shipped[usable] - 1.0).max()) <= WITHIN_PREDICTION
