"""How far apart measurements of one scenario are."""

import pytest

from raceline.accuracy.floors import floors
from raceline.evidence.rows import Measured, Row


def row(id: str, value: float, source: str = "one", batch: int = 1) -> Row:
    scenario = {"id": id, "model": "llama", "setup": {"micro_batch": batch}}
    return Row(
        id=id, table="training", source=source, source_url="", scenario=scenario,
        measured=(Measured("step_time_s", value),),
    )  # fmt: skip


def groups(*rows: Row) -> dict[tuple[str, str], str]:
    return {(item.id, "step_time_s"): "train-moe" for item in rows}


def test_the_spread_is_largest_over_smallest():
    rows = (row("a", 1.0), row("b", 1.2), row("c", 5.0, batch=2))
    (found,) = floors(rows, groups(*rows))
    assert (found.group, found.scenarios, found.values, found.across) == ("train-moe", 1, 2, 0)
    assert found.spread == pytest.approx(0.2)
    # the middle is 1.1: off by 10 % and by 8.3 %
    assert found.error == pytest.approx((0.1 + 0.1 / 1.2) / 2)


def test_scenarios_that_several_sources_measured_are_told_apart():
    rows = (row("a", 1.0), row("b", 1.1), row("c", 1.0, batch=2), row("d", 1.5, "two", batch=2))
    (found,) = floors(rows, groups(*rows))
    assert (found.scenarios, found.across) == (2, 1)
    assert found.spread_across == pytest.approx(0.5)


def test_values_that_are_not_scored_don_t_count():
    rows = (row("a", 1.0), row("b", 1.2))
    assert floors(rows, groups(rows[0])) == ()


def test_a_figure_that_one_source_prints_twice_is_one_measurement():
    rows = (row("a", 1.0), row("b", 1.0), row("c", 2.0, batch=2), row("d", 2.0, "two", batch=2))
    (found,) = floors(rows, groups(*rows))
    assert (found.scenarios, found.values, found.spread) == (1, 2, 0.0)
