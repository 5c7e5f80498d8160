"""Ranges around a mid value, and the verdict that they give."""

from __future__ import annotations

from raceline.estimate.constants import Efficiency
from raceline.estimate.result import Fits, Range

# A peak this far under or over the limit is called; between them lies "tight". Planning values
# until the spread of measured against estimated peaks replaces them.
SURELY_FITS = 0.98
SURELY_FAILS = 1.01


def time_range(mid_s: float, efficiency: Efficiency) -> Range:
    """A step time with its bounds."""
    return Range(mid_s * efficiency.time_low, mid_s, mid_s * efficiency.time_high)


def memory_range(mid_gib: float, efficiency: Efficiency) -> Range:
    """A peak with its bounds."""
    return Range(mid_gib * efficiency.memory_low, mid_gib, mid_gib * efficiency.memory_high)


def verdict(needed: float, limit: float) -> Fits:
    """Whether a need is within a limit of the same unit."""
    if needed <= limit * SURELY_FITS:
        return "yes"
    return "no" if needed > limit * SURELY_FAILS else "tight"


def worst(*verdicts: Fits) -> Fits:
    """The verdict that decides."""
    return "no" if "no" in verdicts else "tight" if "tight" in verdicts else "yes"
