"""The search: equal to scalar estimates, equal to brute force, and what its rules leave out."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from raceline.estimate import constants
from raceline.estimate.devices import arrange
from raceline.estimate.layout import ModelTable, tabulate
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_many
from raceline.plan.candidates import Candidates, candidates
from raceline.plan.request import Job, PlanRequest, training_job
from raceline.plan.search import Searched, best_per_hardware, search
from raceline.plan.space import Limits, build, has_fused_loss
from raceline.plan.training import job_flops, scenario_at, training_space
from scenarios import TODAY, catalogue, read

GIB = 2.0**30


@cache
def searched(
    model: str, method: str, tokens: float, on: str | None = None
) -> tuple[Searched, Job, PlanRequest, ModelTable]:
    request = PlanRequest(model=read(model), method=method, tokens=tokens, on=on, today=TODAY)  # type: ignore[arg-type]
    job = training_job(request)
    table = tabulate(request.model, job.method, job.lora_rank)
    efficiency = constants.load()
    found: Candidates = candidates(request, catalogue(), job_flops(table, job, catalogue(), efficiency))
    space = training_space(request, table, job, found, efficiency)
    return search(table, space, efficiency), job, request, table


@pytest.mark.parametrize(
    "model,method,tokens",
    [("llama-3.1-8b", "pretrain", 1e11), ("llama-3.1-8b", "qlora", 1e9), ("mixtral-8x7b-v0.1", "full", 1e10)],
)
def test_a_thousand_random_configurations_equal_scalar_estimates(
    model: str, method: str, tokens: float
) -> None:
    found, job, request, table = searched(model, method, tokens)
    rows = np.random.default_rng(7).choice(found.evaluated, 1000, replace=found.evaluated < 1000)
    fused = bool(has_fused_loss(table))
    scenarios = [scenario_at(found, int(row), job, request, fused) for row in rows]
    estimates = estimate_many(scenarios, catalogue(), lambda _reference, _size: request.model)
    for row, estimate in zip(rows, estimates, strict=True):
        assert isinstance(estimate, Estimate), estimate
        assert estimate.memory_gib.needed == pytest.approx(found.memory_bytes[row] / GIB, rel=1e-3)
        assert estimate.step_time_s is not None
        assert estimate.step_time_s.mid == pytest.approx(found.step_s[row], rel=1e-3)


def test_the_best_of_each_hardware_is_what_brute_force_finds() -> None:
    found, job, request, table = searched("qwen2.5-0.5b", "full", 1e9, "l40s")
    space = found.space
    fused = bool(has_fused_loss(table))
    scenarios = [scenario_at(found, row, job, request, fused) for row in range(found.evaluated)]
    estimates = estimate_many(scenarios, catalogue(), lambda _reference, _size: request.model)
    fastest: dict[int, float] = {}
    for scenario, estimate in zip(scenarios, estimates, strict=True):
        assert isinstance(estimate, Estimate) and estimate.step_time_s is not None
        if estimate.memory_gib.needed <= estimate.memory_gib.limit * constants.load().spread.surely_fits:
            count = scenario.hardware.count
            fastest[count] = min(fastest.get(count, np.inf), estimate.step_time_s.mid)
    best = {
        int(space.count[space.configs.layout[row % len(space.configs)]]): found.step_s[row]
        for row in best_per_hardware(found, constants.load().spread.surely_fits)
    }
    assert best == pytest.approx(fastest)


def test_pruned_layouts_could_not_have_fitted() -> None:
    efficiency = constants.load()
    request = PlanRequest(model=read("llama-3.1-8b"), method="full", on="rtx-4090", on_count=4, today=TODAY)
    job = training_job(request)
    table = tabulate(request.model, "full")
    found = candidates(request, catalogue(), 1e30)
    small = build(
        table, job, arrange(found.devices, efficiency), Limits(found.pairs, ("bf16",), "adamw"), efficiency
    )
    assert small.pruned > 0
    assert len(best_per_hardware(search(table, small, efficiency), 0.9)) <= 1


def test_degrees_multiply_to_the_count() -> None:
    layouts = searched("llama-3.1-8b", "pretrain", 1e11)[0].space.layouts
    assert np.all(layouts.dp * layouts.tp * layouts.pp * layouts.cp == layouts.count)


def test_micro_batches_and_accumulation_make_the_global_batch() -> None:
    found, job, _, _ = searched("llama-3.1-8b", "pretrain", 1e11)
    space = found.space
    whole = space.micro_batch * space.configs.accumulation * space.layouts.dp[space.configs.layout]
    assert np.all(whole == job.global_batch)


def test_an_empty_space_is_searched_without_complaint() -> None:
    efficiency = constants.load()
    request = PlanRequest(model=read("llama-3.1-405b"), method="full", on="t4", on_count=1, today=TODAY)
    table, job = tabulate(request.model, "full"), training_job(request)
    found = candidates(request, catalogue(), 1e30)
    space = build(
        table,
        job,
        arrange(found.devices, efficiency),
        Limits(found.pairs, ("fp16",), "adamw", with_offload=False),
        efficiency,
    )
    assert search(table, space, efficiency).evaluated == 0
