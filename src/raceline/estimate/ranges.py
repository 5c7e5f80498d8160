"""Ranges around a mid value, and the verdict that they give."""

from __future__ import annotations

import math

from raceline.estimate import groups
from raceline.estimate.calibration import Keys
from raceline.estimate.constants import Efficiency
from raceline.estimate.result import Fits, Range
from raceline.estimate.spread import Spread


def training_range(mid_s: float, keys: Keys, efficiency: Efficiency) -> Range:
    """A training step's time with its bounds."""
    return _around(mid_s, efficiency.spread.offsets(groups.training_group(keys), keys))


def inference_range(mid: float, metric: str, sequences: float, keys: Keys, efficiency: Efficiency) -> Range:
    """A time of inference with its bounds; `metric` is the one that was measured of such runs."""
    return _around(mid, efficiency.spread.offsets(groups.inference_group(keys, metric, sequences), keys))


def memory_range(mid_gib: float, keys: Keys, efficiency: Efficiency) -> Range:
    """A peak with its bounds."""
    return _around(mid_gib, efficiency.spread.offsets(groups.MEMORY_DEVICE, keys))


def _around(mid: float, offsets: tuple[float, float]) -> Range:
    return Range(mid * math.exp(offsets[0]), mid, mid * math.exp(offsets[1]))


def verdict(needed: float, limit: float, spread: Spread) -> Fits:
    """Whether a need is within a limit of the same unit: "tight" where measured peaks of such a need lie on
    both sides of it."""
    if needed <= limit * spread.surely_fits:
        return "yes"
    return "no" if needed > limit * spread.surely_fails else "tight"


def worst(*verdicts: Fits) -> Fits:
    """The verdict that decides."""
    return "no" if "no" in verdicts else "tight" if "tight" in verdicts else "yes"
