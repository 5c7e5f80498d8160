from __future__ import annotations

import datetime
import time

import msgspec
import numpy as np
import pytest

from raceline.catalog import dates, load, owning, prices
from raceline.catalog.prices import Wish
from raceline.catalog.types import Offer
from raceline.present.errors import InputError

TODAY = datetime.date(2026, 12, 1)


def offer(price: float | None = 10.0, count: int = 8, **more: object) -> Offer:
    base: dict[str, object] = {
        "provider": "a", "instance": "box", "accelerator": "h100-sxm", "count": count, "region": "us-1",
        "region_family": "us", "tier": "on-demand", "price_hour_usd": price, "as_of": "2026-11-01",
        "source_url": "s",
    }  # fmt: skip
    return msgspec.convert({**base, **more}, Offer)


def cheapest(offers: list[Offer], count: int = 8, **wish: object) -> prices.Price | None:
    return prices.cheapest(offers, "h100-sxm", count, msgspec.convert(wish, Wish), today=TODAY)


def test_an_instance_is_rented_whole() -> None:
    found = cheapest([offer(10.0, 8)], count=3)
    assert found is not None
    assert (found.price_hour_usd, found.instances) == (10.0, 1)


def test_more_than_a_node_costs_whole_nodes() -> None:
    found = cheapest([offer(10.0, 8)], count=12)
    assert found is not None
    assert (found.price_hour_usd, found.instances) == (20.0, 2)


def test_an_offer_per_gpu_is_taken_as_often_as_needed() -> None:
    found = cheapest([offer(2.0, 1, instance="per GPU")], count=3)
    assert found is not None
    assert (found.price_hour_usd, found.notes) == (6.0, ())


def test_whole_nodes_come_before_many_small_machines() -> None:
    found = cheapest([offer(2.0, 1, instance="per GPU"), offer(30.0, 8)], count=16)
    assert found is not None
    assert found.price_hour_usd == 60.0


def test_small_machines_are_used_and_said_where_nothing_else_is() -> None:
    found = cheapest([offer(2.0, 1, instance="small")], count=4)
    assert found is not None
    assert [note.id for note in found.notes] == ["catalog.price_of_small_machines"]


def test_a_pod_far_too_large_does_not_win_over_single_chips() -> None:
    chips = [offer(9000.0, 2176, interconnect="ICI"), offer(4.2, 1, instance="per chip", interconnect="ICI")]
    found = cheapest(chips, count=64)
    assert found is not None
    assert (found.instances, found.notes) == (64, ())


def test_a_known_date_comes_before_a_lower_price_without_one() -> None:
    found = cheapest([offer(5.0, as_of="2026", provider="b"), offer(9.0)])
    assert found is not None
    assert found.price_hour_usd == 9.0


def test_a_bare_year_is_an_unknown_age() -> None:
    found = cheapest([offer(5.0, as_of="2026")])
    assert found is not None
    assert [note.id for note in found.notes] == ["catalog.price_old_or_undated"]


def test_a_newer_price_of_the_same_thing_replaces_the_old_one() -> None:
    found = cheapest([offer(5.0, as_of="2026-01-01"), offer(9.0, as_of="2026-11-01")])
    assert found is not None
    assert found.price_hour_usd == 9.0


def test_on_demand_comes_before_a_cheaper_marketplace() -> None:
    found = cheapest([offer(5.0, tier="marketplace", provider="b"), offer(9.0)])
    assert found is not None
    assert found.price_hour_usd == 9.0


def test_spot_is_taken_only_when_wished() -> None:
    both = offer(10.0, spot_hour_usd=4.0)
    on_demand, spot = cheapest([both]), cheapest([both], spot=True)
    assert on_demand is not None and spot is not None
    assert (on_demand.price_hour_usd, spot.price_hour_usd) == (10.0, 4.0)


def test_a_region_filters_and_global_offers_count_outside_china() -> None:
    everywhere = offer(5.0, region="global", region_family="global")
    assert cheapest([everywhere], region="eu") is not None
    assert cheapest([everywhere], region="cn") is None
    assert cheapest([offer()], region="eu") is None


def test_an_unknown_region_is_refused() -> None:
    with pytest.raises(InputError, match="unknown_region"):
        cheapest([offer()], region="moon")


def test_a_provider_filters() -> None:
    assert cheapest([offer()], provider="b") is None


def test_no_offer_gives_no_price() -> None:
    assert cheapest([]) is None


def test_the_table_equals_single_answers() -> None:
    ids, counts = ("h100-sxm", "rtx-4090", "t4", "mi300x"), (1, 2, 3, 8, 16, 64)
    table = prices.price_table(load.offers(), ids, counts, today=TODAY)
    for name in ids:
        for count in counts:
            assert table.price(name, count) == prices.cheapest(load.offers(), name, count, today=TODAY)


def test_the_table_of_everything_takes_a_few_milliseconds() -> None:
    ids = tuple(load.accelerators())
    prices.price_table(load.offers(), ids, (1, 8))
    start = time.process_time()
    table = prices.price_table(load.offers(), ids, (1, 2, 4, 8, 16, 32, 64, 128, 256))
    assert time.process_time() - start < 0.1
    assert np.isfinite(table.price_hour_usd).any()


def test_more_accelerators_never_cost_less() -> None:
    counts = tuple(range(1, 9))
    table = prices.price_table([offer(2.0, 1, instance="per GPU"), offer(30.0, 8)], ("h100-sxm",), counts)
    assert (np.diff(table.price_hour_usd[0]) >= 0).all()


def test_a_date_is_as_precise_as_its_source() -> None:
    assert dates.known_date("2026-09-25") == datetime.date(2026, 9, 25)
    assert dates.known_date("2026-09") == datetime.date(2026, 9, 1)
    assert dates.known_date("2026") is None
    assert dates.known_date("launch") is None
    assert dates.known_date("2025-Q4") is None


def test_the_oldest_price_that_mattered_tells_its_age() -> None:
    age = prices.price_age([offer(as_of="2026-11-01"), offer(as_of="2026-09-01"), offer(as_of="2026")], TODAY)
    assert (age.oldest_as_of, age.oldest_days, age.unknown_count) == ("2026-09-01", 91, 1)
    assert prices.age_message(age).id == "catalog.price_age_partly_known"


def test_only_undated_prices_have_no_age() -> None:
    assert (
        prices.age_message(prices.price_age([offer(as_of="2026")], TODAY)).id == "catalog.price_age_unknown"
    )


def test_the_newest_street_price_of_a_new_card_is_what_one_pays() -> None:
    found = owning.purchase_price(load.retail_prices(), "rtx-4090")
    assert found is not None
    assert (found.kind, found.as_of) == ("street", "2026-05")


def test_an_unknown_country_has_the_world_s_electricity_price() -> None:
    world = owning.electricity_price(load.electricity(), "world")
    assert owning.electricity_price(load.electricity(), "de") != world
    assert owning.electricity_price(load.electricity(), "xx") == world


def test_owned_hardware_costs_depreciation_and_power() -> None:
    hourly = owning.owned_price_hour_usd(8766.0, 500.0, 0.2, life_years=1.0, busy_fraction=0.5, overhead=1.2)
    assert hourly == pytest.approx(2.0 + 0.5 * 1.2 * 0.2)
