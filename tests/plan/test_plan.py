"""Plans as people ask for them."""

from __future__ import annotations

from typing import Any

import pytest

from raceline.plan.make import make_plan
from raceline.plan.request import PlanRequest
from raceline.plan.result import Plan
from raceline.plan.view import front_view, plan_view
from raceline.present import terminal
from raceline.present.errors import InputError
from scenarios import TODAY, catalogue, read


def plan(model: str, **wish: Any) -> Plan:
    return make_plan(PlanRequest(model=read(model), today=TODAY, **wish), catalogue())


def test_no_flags_give_three_named_picks_with_cost_and_reasons() -> None:
    found = plan("llama-3.1-8b")
    names = {name for pick in found.picks for name in pick.name.split("+")}
    assert names == {"balanced", "cheapest", "fastest"}
    assert all(pick.cost_usd and pick.duration_s and pick.reasons for pick in found.picks)


def test_every_pick_fits() -> None:
    assert all(pick.estimate.fits == "yes" for pick in plan("llama-3.1-8b", method="full").picks)


def test_an_image_model_is_trained_by_data_parallelism_alone() -> None:
    setups = [option.scenario.setup for option in plan("resnet50", samples=1e7).front]
    assert setups and all((setup.tp, setup.pp, setup.cp) == (1, 1, 1) for setup in setups)


def test_a_budget_bounds_the_cost_of_every_pick() -> None:
    found = plan("llama-3.1-8b", method="lora", tokens=1e9, budget_usd=40.0)
    assert found.picks and all(pick.cost_usd and pick.cost_usd.mid <= 40.0 for pick in found.picks)


def test_a_deadline_bounds_the_time_of_every_pick() -> None:
    found = plan("llama-3.1-8b", method="lora", tokens=1e9, deadline_s=7200.0)
    assert found.picks and all(pick.duration_s and pick.duration_s.mid <= 7200.0 for pick in found.picks)


def test_what_does_not_fit_says_what_is_missing_and_what_comes_nearest() -> None:
    found = plan("llama-3.1-70b", method="full", on="rtx-4090", on_count=1)
    assert not found.picks
    assert found.shortfall is not None
    memory = found.shortfall.estimate.memory_gib
    assert memory.total.mid > 10 * memory.limit
    assert found.shortfall.closest and all(
        option.estimate.fits == "yes" for option in found.shortfall.closest
    )


def test_a_load_beyond_any_fleet_says_how_many_devices_it_takes() -> None:
    found = plan("llama-3.1-8b", task="infer", qps=1e9)
    assert found.shortfall and found.shortfall.reason.id == "plan.too_many_devices"
    assert found.shortfall.reason.params["count"] > 100_000


def test_a_processor_serves_with_its_own_engine_and_says_that_it_is_slow() -> None:
    found = plan("llama-3.1-8b", task="infer", on="ryzen-9-7950x", users=1)
    setup = found.picks[0].scenario.setup
    assert (setup.runtime, setup.weight_precision) == ("llama.cpp", "q4_k_m")
    assert {"plan.slower_than_usual", "catalog.usual_memory"} <= {note.id for note in found.notes}
    # the weights pass once a token: 83.2 GB/s bound it from below
    latency = found.picks[0].estimate.latency_ms
    assert latency.tpot and latency.tpot > 4.5e9 / 83.2e9 * 1e3


def test_boards_and_phones_are_not_joined_to_clusters() -> None:
    found = plan("bert-base-uncased", on="raspberry pi 4")
    assert found.picks and all(pick.count == 1 for pick in found.picks)


def test_memory_written_after_a_name_is_what_the_estimate_holds() -> None:
    found = plan("llama-3.1-8b", task="infer", on="EPYC 9654 768GB")
    assert found.picks[0].estimate.memory_gib.limit > 700


def test_a_latency_that_was_asked_for_stays_a_limit_on_named_hardware() -> None:
    found = plan("llama-3.1-8b", task="infer", on="ryzen-9-7950x", users=1, ttft_s=1.0)
    assert not found.picks and found.shortfall and found.shortfall.reason.id == "plan.too_slow"


def test_a_makers_own_runtime_is_refused_on_other_processors() -> None:
    for runtime in ("mlx", "tensorrt-llm"):
        with pytest.raises(InputError) as caught:
            plan("llama-3.1-8b", task="infer", on="ryzen-9-7950x", runtime=runtime)
        assert caught.value.message.id == "catalog.runtime_not_for_vendor"


def test_named_hardware_is_the_only_hardware() -> None:
    found = plan("llama-3.1-8b", on="l40s", on_count=2)
    assert {(pick.accelerator, pick.count) for pick in found.picks} == {("l40s", 2)}


@pytest.mark.parametrize(
    "wish",
    [
        {"on": "rtx-4090", "on_count": 2, "interconnect": "nvlink"},
        {"on": "mi300x", "runtime": "tensorrt", "task": "infer"},
        {"on": "t4", "precision": "bf16"},
        {"on": "a100-sxm-80gb", "precision": "fp8"},
    ],
)
def test_an_impossible_wish_is_refused_with_its_source(wish: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        plan("llama-3.1-8b", **wish)
    assert "http" in str(caught.value.message.params["source_url"])


def test_a_service_is_sized_by_users_and_keeps_its_limits() -> None:
    found = plan("llama-3.1-8b", task="infer", users=50, tpot_s=0.05)
    for pick in found.picks:
        concurrency = pick.scenario.workload.concurrency or 0
        assert pick.replicas * concurrency >= 50
        assert (pick.estimate.latency_ms.tpot or 0) <= 50.0


def test_more_users_never_cost_less() -> None:
    def least(users: int) -> float:
        return min(
            pick.cost_usd.mid
            for pick in plan("llama-3.1-8b", task="infer", users=users).picks
            if pick.cost_usd
        )

    assert least(20) <= least(200) <= least(2000)


def test_the_age_of_prices_is_one_line() -> None:
    notes = [note.id for note in plan("llama-3.1-8b").notes]
    assert sum(name.startswith("catalog.price_age") for name in notes) == 1


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "wish", [{}, {"task": "infer", "users": 20}, {"method": "full", "on": "rtx-4090", "on_count": 1}]
)
def test_the_screen_keeps_to_eighty_columns(language: str, wish: dict[str, Any]) -> None:
    from rich.cells import cell_len

    found = plan("llama-3.1-8b", **wish)
    text = terminal.render(plan_view(found), language, width=80) + terminal.render(
        front_view(found), language, width=80
    )
    longest = max((line for line in text.splitlines() if "http" not in line), key=cell_len)
    assert cell_len(longest) <= 80, longest
