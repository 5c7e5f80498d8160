"""Totals by hand."""

import pytest

from raceline.accuracy.totals import alternatives, errors_of, half_width, median, quantile, standing
from scores_by_hand import scored


def test_a_quantile_lies_between_two_neighbours():
    # nine tenths of the way from the first of four to the last: 0.7 past the third
    assert quantile([40.0, 10.0, 30.0, 20.0], 0.9) == pytest.approx(37.0)
    assert quantile([5.0], 0.9) == 5.0


def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two():
    assert median([1.0, 9.0, 3.0, 5.0]) == 4.0


def test_errors_are_of_predicted_over_measured():
    # errors +10 %, -20 %, +50 %, -40 %
    found = errors_of([scored(100, 110), scored(100, 80), scored(100, 150), scored(100, 60)])
    assert found.median == pytest.approx(0.30)
    assert found.mean == pytest.approx(0.30)
    assert found.p90 == pytest.approx(0.4 + 0.7 * 0.1)
    assert found.bias == pytest.approx((0.8 + 1.1) / 2 - 1)


def test_every_source_counts_once_in_the_median_over_sources():
    # one source with three values of 10 % error, two sources with one value of 40 and of 60 %
    values = [scored(100, 110, id=str(at)) for at in range(3)]
    values += [scored(100, 140, source="two"), scored(100, 160, source="three")]
    found = errors_of(values)
    assert (found.median, found.median_of_sources) == (pytest.approx(0.1), pytest.approx(0.4))
    assert found.worse_median == pytest.approx(0.4)
    assert found.sources == 3


def test_coverage_is_the_share_inside_the_range():
    # 110 / 1.21 = 91 holds 100; 130 / 1.21 = 107 does not
    assert errors_of([scored(100, 110), scored(100, 130)]).inside == 0.5


def test_the_half_width_is_taken_on_a_logarithmic_scale():
    # low 80, high 125: each a quarter from the middle, 100
    assert half_width(scored(100, 100, low=80.0, high=125.0)) == pytest.approx(0.25)


def test_the_width_is_compared_with_the_median_error():
    found = errors_of([scored(100, 110, low=80.0, high=125.0)])
    assert found.width_to_error == pytest.approx(2.5)
    assert errors_of([scored(100, 100)]).width_to_error is None


def both(measured: float, family: float, accelerator: float, id: str):
    return [
        scored(measured, family, id=id, fold="family=mixtral"),
        scored(measured, accelerator, id=id, fold="accelerator=h100"),
    ]


def test_two_ways_of_leaving_out_are_two_lists_of_the_same_values():
    found = alternatives([*both(100, 110, 120, "a"), *both(100, 90, 130, "b")])
    assert {way: [item.predicted for item in part] for way, part in found.items()} == {
        "family": [110, 90],
        "accelerator": [120, 130],
    }


def test_a_value_that_has_one_way_stands_in_both_lists():
    found = alternatives([*both(100, 110, 120, "a"), scored(100, 105, id="own", fold="none")])
    assert [len(part) for part in found.values()] == [2, 2]


def test_ways_that_share_no_value_are_one_list():
    found = alternatives([scored(100, 110, id="a"), scored(100, 90, id="own", fold="none")])
    assert [(way, len(part)) for way, part in found.items()] == [("none + source", 2)]


def test_the_way_that_is_further_off_stands_for_the_group():
    chosen = standing([*both(100, 110, 120, "a"), *both(100, 90, 130, "b")])
    assert [item.predicted for item in chosen] == [120, 130]
