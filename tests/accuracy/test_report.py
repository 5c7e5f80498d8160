"""Groups against their bars, fit, what can't be scored, what is furthest off."""

import json

import pytest

from raceline.accuracy.groups import Bar
from raceline.accuracy.report import by_size, is_bar_met, report_of, score_fit, score_group
from raceline.accuracy.totals import errors_of
from raceline.present.text import builtin
from scores_by_hand import scored, scores, unscored, verdict

BAR = Bar("train-moe", 0.25, 0.5, None)


def test_a_bar_holds_for_the_worse_of_the_pooled_median_and_that_over_sources():
    near = [scored(100, 110, id=str(at)) for at in range(3)]
    far = [scored(100, 140, source="two"), scored(100, 160, source="three")]
    assert is_bar_met(BAR, [errors_of(near)]) is True
    assert errors_of([*near, *far]).median < 0.25
    assert is_bar_met(BAR, [errors_of([*near, *far])]) is False


def test_a_bar_holds_for_the_90th_percentile_where_it_has_one():
    values = [scored(100, 110, id="a"), scored(100, 110, id="b"), scored(100, 190, id="c")]
    assert is_bar_met(BAR, [errors_of(values)]) is False
    assert is_bar_met(Bar("train-moe", 0.25, None, None), [errors_of(values)]) is True


def test_a_group_without_a_bar_is_neither():
    assert is_bar_met(Bar("prefill", None, None, None), [errors_of([scored(100, 500)])]) is None


def two_ways(family: float, accelerator: float):
    return score_group(
        BAR,
        [
            scored(100, family, id="a", fold="family=mixtral"),
            scored(100, accelerator, id="a", fold="accelerator=h100"),
        ],
    )


def test_a_bar_holds_for_the_worse_way_of_leaving_out():
    assert two_ways(110, 120).is_met is True
    found = two_ways(110, 130)
    assert found.is_met is False
    assert [(fold.left_out, fold.folds) for fold in found.folds] == [("accelerator", 1), ("family", 1)]
    assert found.errors.median == pytest.approx(0.3)
    assert found.runs == found.errors.values == 1


def test_in_sample_figures_stand_beside():
    found = score_group(BAR, [scored(100, 130, in_sample=105.0, id="a"), scored(100, 130, in_sample=97.0)])
    assert found.in_sample_median == pytest.approx(0.04)
    assert found.in_sample_p90 == pytest.approx(0.03 + 0.9 * 0.02)


@pytest.mark.parametrize(("inside", "is_met"), [(19, False), (20, True), (28, True), (29, False)])
def test_a_large_groups_range_holds_65_to_95_percent(inside, is_met):
    values = [scored(100, 110 if at < inside else 200, id=str(at)) for at in range(30)]
    assert score_group(BAR, values).is_range_met is is_met


def test_a_small_group_says_nothing_of_its_range():
    assert score_group(BAR, [scored(100, 110)]).is_range_met is None


def test_fit_counts_right_tight_and_false_verdicts():
    said = [(True, "yes")] * 6 + [(False, "no")] * 2 + [(True, "no"), (False, "yes"), (True, "tight")]
    found = score_fit([verdict(*pair) for pair in said])
    assert (found.reports, found.right, found.tight, found.false_no, found.false_yes) == (11, 8, 1, 1, 1)
    assert found.right_share == pytest.approx(8 / 10)
    assert found.tight_share == pytest.approx(1 / 11)
    assert found.false_no_share == pytest.approx(1 / 8)
    assert not found.is_met


def test_fit_is_met_where_all_three_bars_hold():
    said = [(True, "yes")] * 50 + [(False, "no")] * 44 + [(False, "yes")] + [(True, "tight")] * 5
    assert score_fit([verdict(*pair) for pair in said]).is_met
    assert not score_fit([verdict(True, "tight")] * 2 + [verdict(True, "yes")] * 8).is_met


def test_fit_is_told_by_table_and_misses_are_listed():
    found = report_of(scores(verdicts=(verdict(True, "yes"), verdict(True, "no", table="training"))))
    assert [(item.table, item.reports) for item in found.fit] == [("", 2), ("fit", 1), ("training", 1)]
    assert [item.said for item in found.fit_misses] == ["no"]


def test_unscored_rows_are_shared_out_by_rule():
    kept_out = (unscored("a", "no_batch"), unscored("b", "no_batch"), unscored("c", "inconsistent"))
    found = report_of(scores(scored(100, 110), rows=4, unscored=kept_out))
    assert [(item.rule, item.rows, item.share) for item in found.unscored] == [
        ("no_batch", 2, 0.5),
        ("inconsistent", 1, 0.25),
    ]
    assert found.unscored_share == pytest.approx(0.75)


def test_rows_that_nothing_is_heard_of_are_counted_as_unscored():
    found = report_of(scores(scored(100, 110), rows=3, unscored=(unscored("a", "no_batch"),)))
    assert [(item.rule, item.rows) for item in found.unscored] == [("no_batch", 1), ("no_figure", 1)]
    assert found.unscored_share == pytest.approx(2 / 3)


def test_the_worst_rows_are_furthest_off_by_factor():
    values = (scored(100, 150), scored(100, 40), scored(100, 101))
    found = report_of(scores(*values), worst=2)
    assert [item.predicted for item in found.worst] == [40, 150]


def test_errors_are_broken_down_by_what_is_asked_for():
    values = (scored(100, 110, source="b"), scored(100, 120, source="a"), scored(100, 130, source="b"))
    found = report_of(scores(*values), by="source")
    assert [(item.name, item.errors.values) for item in found.slices] == [("b", 2), ("a", 1)]
    assert found.slices[0].errors.median == pytest.approx(0.2)
    by_group = report_of(scores(*values, scored(1, 2, group="prefill")), by="task")
    assert [item.name for item in by_group.slices] == ["train-moe", "prefill"]


def test_groups_stand_in_the_order_of_the_bars_and_unknown_ones_last():
    values = (scored(1, 1, group="new-group"), scored(1, 1, group="prefill"), scored(1, 1))
    assert [item.group for item in report_of(scores(*values)).groups] == ["train-moe", "prefill", "new-group"]


def test_models_are_put_into_classes_of_size():
    found = by_size([scored(1, 1, parameters_b=size) for size in (0.05, 7.0, 8.0, 405.0)])
    assert [(item.name, item.errors.values) for item in found] == [
        ("≤ 0.1 B", 1),
        ("3–10 B", 2),
        ("> 300 B", 1),
    ]


def test_rows_that_are_not_published_are_counted():
    found = report_of(scores(scored(1, 1), scored(2, 2, fold="none")))
    assert (found.values, found.unknown_values) == (2, 1)


def test_nothing_scored_is_a_report_too():
    found = report_of(scores(unscored=(unscored("a", "no_batch"),), rows=1))
    assert (found.values, found.errors, found.unscored_share) == (0, None, 1.0)


def test_a_report_is_json():
    found = json.loads(
        json.dumps(builtin(report_of(scores(scored(100, 110), verdicts=(verdict(True, "yes"),)))))
    )
    assert found["schema"] == "raceline.accuracy/1"
    assert found["groups"][0]["folds"][0]["errors"]["median"] == pytest.approx(0.1)
