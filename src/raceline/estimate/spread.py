"""How far measured values lie from estimates: the quantiles that give an estimate its range.

The residuals are of runs that did not take part in fitting what predicted them. A run that differs more
from all measured ones is given a wider range: its *support* says how near the nearest of them are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from raceline.estimate.calibration import Keys

# How well a run is supported: the same accelerator, runtime and class of model were measured; the class
# was measured on this generation or with this runtime; or neither.
TIERS = 3
FEWEST_ROWS = 3
ANY = "*"
# The ends where no residuals are known.
UNKNOWN = (-0.3, 0.45)


@cache
def support_names(keys: Keys) -> tuple[str, tuple[str, str]]:
    """The names whose counts of measured rows decide the tier: the nearest, and the two wider ones."""
    family = f"{keys.task}/{keys.model_class}"
    return (
        f"{keys.accelerator}/{family}/{keys.runtime}",
        (f"{keys.generation}/{family}", f"{family}/{keys.runtime}"),
    )


def tier(keys: Keys, counts: Mapping[str, int]) -> int:
    """0, 1 or 2: how far the nearest measured runs are."""
    nearest, wider = support_names(keys)
    if counts.get(nearest, 0) >= FEWEST_ROWS:
        return 0
    return 1 if any(counts.get(name, 0) >= FEWEST_ROWS for name in wider) else 2


@dataclass(frozen=True)
class Spread:
    """`groups`: log offsets of the range's ends by group (and by group/class), for a run of tier 0;
    `widths`: how much wider each tier is; `counts`: measured rows by support name; `own`: how much narrower
    the range is where the user's own runs speak for the setup; `verdict`: the log offsets around a need between
    which it is not said whether it fits."""

    groups: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    widths: tuple[float, ...] = (1.0,) * TIERS
    counts: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, float] = field(default_factory=dict)
    verdict: tuple[float, float] = (-0.06, 0.12)

    @property
    def surely_fits(self) -> float:
        """The share of a limit up to which a need surely fits."""
        return math.exp(-self.verdict[1])

    @property
    def surely_fails(self) -> float:
        """The share of a limit above which a need surely fails."""
        return math.exp(-self.verdict[0])

    def offsets(self, group: str, keys: Keys) -> tuple[float, float]:
        """Log offsets of low and high around the mid."""
        of_class = self.groups.get(f"{group}/{keys.model_class}")
        low, high = of_class or self.groups.get(group) or self.groups.get(ANY, UNKNOWN)
        own = self.own.get(support_names(keys)[0])
        width = self.widths[tier(keys, self.counts)] if own is None else own
        return low * width, high * width


NO_SPREAD = Spread()
