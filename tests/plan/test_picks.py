"""Fronts and picks on options whose order is plain."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from raceline.estimate.result import Range
from raceline.estimate.scenario import parse
from raceline.plan.picks import cost_of, front, pick, time_of
from raceline.plan.result import Option
from scenarios import DESIGN_EXAMPLE, estimate

BASE = Option(
    name="", accelerator="a", accelerator_name="A", count=1, scenario=parse(DESIGN_EXAMPLE),
    estimate=estimate(DESIGN_EXAMPLE)
)  # fmt: skip


def option(name: str, seconds: float, usd: float, risk: float = 0.0) -> Option:
    return msgspec.structs.replace(
        BASE, accelerator=name, accelerator_name=name, duration_s=Range(seconds, seconds, seconds),
        cost_usd=Range(usd, usd, usd), risk=risk,
    )  # fmt: skip


def test_the_front_leaves_out_what_is_beaten() -> None:
    options = [option("slow", 10, 1), option("fast", 1, 10), option("beaten", 11, 2)]
    assert [one.accelerator for one in front(options)] == ["slow", "fast"]


def test_the_cheapest_and_the_fastest_within_the_budget_are_named() -> None:
    options = [option("cheap", 1000, 1), option("fast", 10, 9), option("fastest", 1, 100)]
    picks = {name: one.accelerator for one in pick(options, None, 10.0) for name in one.name.split("+")}
    assert picks["cheapest"] == "cheap"
    assert picks["fastest"] == "fast"


def test_the_fastest_is_the_fastest_whatever_its_risk() -> None:
    options = [option("calm", 100, 10), option("quick", 10, 11, risk=0.9)]
    picks = {name: one.accelerator for one in pick(options, None, None) for name in one.name.split("+")}
    assert picks["fastest"] == "quick"


def test_a_deadline_leaves_out_what_is_late() -> None:
    options = [option("late", 1000, 1), option("early", 10, 50)]
    assert [one.accelerator for one in pick(options, 100.0, None)] == ["early"]


def test_nothing_is_picked_where_nothing_meets_the_wish() -> None:
    assert pick([option("late", 1000, 1)], 1.0, None) == []


def test_a_risk_can_cost_an_option_its_place() -> None:
    risky = option("risky", 100, 10, risk=0.9)
    calm = option("calm", 100, 11)
    balanced = next(one for one in pick([risky, calm], None, None) if "balanced" in one.name)
    assert balanced.accelerator == "calm"


@given(st.lists(st.tuples(st.floats(1, 1e6), st.floats(0.01, 1e6), st.floats(0, 1)), min_size=1, max_size=12))
def test_every_option_is_on_the_front_or_beaten_by_one_of_it(
    figures: list[tuple[float, float, float]],
) -> None:
    options = [option(str(index), *figure) for index, figure in enumerate(figures)]
    best = front(options)
    for one in options:
        assert any(
            time_of(other) <= time_of(one)
            and cost_of(other) <= cost_of(one)
            and round(other.risk, 2) <= round(one.risk, 2)
            for other in best
        )
