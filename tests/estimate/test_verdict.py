"""Fits, tight or no: from the spread of measured peaks, and tight says what decides it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from raceline.estimate import constants
from raceline.estimate.ranges import verdict
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_one
from raceline.estimate.spread import Spread
from scenarios import catalogue, read

SPREAD = Spread(verdict=(-0.05, 0.11))


@pytest.mark.parametrize(
    "need,said",
    [
        (100 * math.exp(-0.11) - 0.01, "yes"),
        (100 * math.exp(-0.11) + 0.01, "tight"),
        (100 * math.exp(0.05) - 0.01, "tight"),
        (100 * math.exp(0.05) + 0.01, "no"),
    ],
)
def test_the_spread_decides(need: float, said: str) -> None:
    assert verdict(need, 100.0, SPREAD) == said


def estimated(memory_gib: float, spread: Spread) -> Estimate:
    given = {
        "model": "llama-3.1-8b",
        "workload": {"task": "train", "method": "lora", "seq_len": 4096},
        "hardware": {"accelerator": "h100-sxm", "memory_gib": memory_gib},
        "setup": {"micro_batch": 1, "recompute": "full"},
    }
    return estimate_one(given, catalogue(), read, replace(constants.load(), spread=spread))


def test_a_wider_spread_makes_a_sure_answer_tight_and_names_what_decides() -> None:
    shipped = constants.load().spread
    needed = estimated(79.0, shipped).memory_gib.needed
    room = needed * 1.2
    assert estimated(room, replace(shipped, verdict=(-0.05, 0.1))).fits == "yes"
    tight = estimated(room, replace(shipped, verdict=(-0.05, 0.3)))
    assert tight.fits == "tight"
    told = next(item for item in tight.warnings if item.id == "estimate.tight_memory").params
    assert told["part"] == "parameters"
    assert told["low_gib"] == pytest.approx(needed * math.exp(-0.05), rel=1e-3)
    assert told["high_gib"] == pytest.approx(needed * math.exp(0.3), rel=1e-3)


def test_what_ships_lets_peaks_lie_on_both_sides() -> None:
    low, high = constants.load().spread.verdict
    assert low < 0.0 < high
