"""Least squares on logarithms: the same care for a kernel of 5 us and for one of 50 ms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Floats = NDArray[np.float64]
Limits = Mapping[str, tuple[float, float, float]]
# Beyond about this relative error a point pulls linearly, not by its square.
OUTLIER = 0.1
# Less than this share of its start is a constant that the fit does without.
NOTHING = 1e-6
TRIALS = 60


def fit(
    limits: Limits,
    predict: Callable[[Mapping[str, float]], Floats],
    measured: Floats,
    fixed: Mapping[str, float],
) -> dict[str, float]:
    """Constants (start, low, high by name) for which `predict` comes closest to `measured`, beside the
    `fixed` ones."""
    names = list(limits)
    units = np.array([start or high for start, _, high in limits.values()])
    start, low, high = (np.array(column) / units for column in zip(*limits.values(), strict=True))

    def residuals(scaled: Floats) -> Floats:
        constants = {**dict(zip(names, scaled * units, strict=True)), **fixed}
        return np.log(predict(constants)) - np.log(measured)

    found: Any = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=OUTLIER, max_nfev=TRIALS
    )
    return {**fixed} | {
        name: _rounded(value)
        for name, value in zip(names, np.where(found.x < NOTHING, 0.0, found.x * units), strict=True)
    }


def error(predicted: Floats, measured: Floats) -> tuple[float, float]:
    """Median and 90th percentile of |predicted / measured - 1|."""
    off = np.abs(predicted / measured - 1.0)
    return round(float(np.median(off)), 3), round(float(np.quantile(off, 0.9)), 3)


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
