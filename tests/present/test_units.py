"""Numbers as people read them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.present import units


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (32760.0, "s", "9.1 h"),
        (0.0214, "s", "21.4 ms"),
        (214.0, "ms", "214 ms"),
        (0.5, "hours", "30 min"),
        (9e5, "s", "10.4 d"),
        (31.24, "gib", "31.2 GiB"),
        (1127.4, "gib", "1,127 GiB"),
        (0.05, "gib", "51.2 MiB"),
        (8.03e9, "count", "8.03 B"),
        (4096, "count", "4,096"),
        (17.2, "usd", "$17"),
        (8.2, "usd", "$8.20"),
        (0.0042, "usd", "$0.0042"),
        (-3, "usd", "-$3.00"),
        (1.99, "hour_usd", "$1.99/h"),
        (0.314, "fraction", "31 %"),
        (9.996, "", "10.0"),
        (2912.4, "tokens_per_s", "2,912 tokens/s"),
        (None, "s", "–"),
        (math.nan, "s", "–"),
    ],
)
def test_a_number_is_shown_in_the_unit_that_fits_its_size(value, unit, text):
    assert units.quantity(value, unit) == text


def test_a_range_is_shown_in_the_unit_of_its_middle():
    assert units.quantity(32760, "s", 29520, 37440) == "9.1 h (8.2–10.4)"


def test_a_share_of_a_limit_names_the_unit_once():
    assert units.of_limit(33.1, 44, "gib") == "33.1 / 44 GiB"


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("needed_gib", "gib"),
        ("tokens_per_s", "tokens_per_s"),
        ("duration_s", "s"),
        ("ranks", ""),
        ("heads", ""),
        ("price_hour_usd", "hour_usd"),
        ("cost_usd", "usd"),
        ("s", "s"),
        ("parameters", ""),
    ],
)
def test_the_unit_is_read_off_the_parameter_name(name, unit):
    assert units.unit_of(name) == unit


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(sorted(units.UNITS)))
def test_every_number_has_a_text_in_every_unit(value, unit):
    assert units.quantity(value, unit)


@given(st.floats(min_value=1e-5, max_value=1e14))
def test_rounding_keeps_three_digits(value):
    assert float(units.plain(value).replace(",", "")) == pytest.approx(value, rel=0.006)
