"""Why nothing was picked: which part of the wish failed, by how much, and what comes nearest."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from raceline.estimate.constants import Efficiency
from raceline.estimate.hardware import Catalogue
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import Hardware, Scenario, Setup, Workload
from raceline.plan import picks
from raceline.plan.request import Job, PlanRequest
from raceline.plan.result import Option, Shortfall
from raceline.plan.serving import MOST_DEVICES, PATIENT_S, ServingSearch, plan_serving
from raceline.plan.training import TrainingSearch, plan_training
from raceline.present.errors import Message, message

CLOSEST = 3


def training_shortfall(
    request: PlanRequest, found: TrainingSearch, catalogue: Catalogue, efficiency: Efficiency
) -> Shortfall:
    """A deadline or budget that no option keeps, memory that lacks, or a layout that doesn't exist."""
    if found.options:
        return Shortfall(reason=_missed(found.options, request), closest=_nearest(found.options))
    closest = _elsewhere(request, found.job, catalogue, efficiency)
    if request.on is None:
        return Shortfall(reason=message("plan.nothing_anywhere"), closest=closest)
    smallest = _smallest(request, found.job)
    return _by_memory(smallest, request, catalogue, efficiency, closest)


def serving_shortfall(
    request: PlanRequest, found: ServingSearch, catalogue: Catalogue, efficiency: Efficiency
) -> Shortfall:
    """A budget or a latency that no option keeps, or memory that lacks."""
    if found.options:
        return Shortfall(reason=_missed(found.options, request), closest=_nearest(found.options))
    if found.fewest_devices is not None and found.fewest_devices > MOST_DEVICES:
        return Shortfall(
            reason=message("plan.too_many_devices", count=found.fewest_devices, limit=MOST_DEVICES)
        )
    patient = msgspec.structs.replace(
        request, budget_usd=None, ttft_s=PATIENT_S, tpot_s=PATIENT_S, p99_s=None
    )
    same = plan_serving(patient, catalogue, efficiency).options
    if same:
        return Shortfall(reason=_slow(same, found), closest=_nearest(same))
    anywhere = msgspec.structs.replace(patient, on=None, on_count=None)
    closest = _nearest(plan_serving(anywhere, catalogue, efficiency).options)
    if request.on is None:
        return Shortfall(reason=message("plan.nothing_anywhere"), closest=closest)
    wish = found.wish
    scenario = Scenario(
        model=request.model.name,
        workload=Workload(
            task="infer", input_len=wish.input_len or None, output_len=wish.output_len or None, concurrency=1
        ),
        hardware=Hardware(accelerator=request.on, count=request.on_count or 1),
        setup=Setup(weight_precision="awq-int4"),
    )
    return _by_memory(scenario, request, catalogue, efficiency, closest)


def _missed(options: Sequence[Option], request: PlanRequest) -> Message:
    """The deadline or the budget, and how near the best option comes."""
    fastest, cheapest = min(map(picks.time_of, options)), min(map(picks.cost_of, options))
    if request.deadline_s is not None and fastest > request.deadline_s:
        return message("plan.deadline_missed", deadline_s=request.deadline_s, time_s=fastest)
    if request.budget_usd is not None and cheapest > request.budget_usd:
        return message("plan.budget_missed", budget_usd=request.budget_usd, cost_usd=cheapest)
    return message(
        "plan.both_missed",
        deadline_s=request.deadline_s,
        budget_usd=request.budget_usd,
        time_s=fastest,
        cost_usd=cheapest,
    )


def _slow(options: Sequence[Option], found: ServingSearch) -> Message:
    """The latencies that were asked for, and the best that there are."""
    latencies = [option.estimate.latency_ms for option in options]
    firsts = [latency.ttft for latency in latencies if latency.ttft is not None]
    tokens = [latency.tpot for latency in latencies if latency.tpot is not None]
    batches = [latency.batch for latency in latencies if latency.batch is not None]
    if not firsts:
        return message("plan.batch_too_slow", best_ms=min(batches, default=None), p99_s=found.wish.p99_s)
    return message(
        "plan.too_slow", ttft_ms=min(firsts), tpot_ms=min(tokens), wanted_ttft_s=found.wish.ttft_s,
        wanted_tpot_s=found.wish.tpot_s, p99_s=found.wish.p99_s,
    )  # fmt: skip


def _nearest(options: Sequence[Option]) -> tuple[Option, ...]:
    """The cheapest, the fastest and the balanced of what there is."""
    return tuple(picks.pick(options, None, None))[:CLOSEST]


def _elsewhere(
    request: PlanRequest, job: Job, catalogue: Catalogue, efficiency: Efficiency
) -> tuple[Option, ...]:
    """What comes nearest: more of the same card, a smaller method on it, then any hardware."""
    free = msgspec.structs.replace(request, on_count=None, deadline_s=None, budget_usd=None)
    tries = []
    if request.on is not None:
        tries.append(free)
        if job.method in ("full", "lora"):
            tries.append(msgspec.structs.replace(free, method="qlora", on_count=request.on_count))
    tries.append(msgspec.structs.replace(free, on=None))
    found: list[Option] = []
    for wish in tries:
        options = plan_training(wish, catalogue, efficiency).options
        if options:
            found.append(min(options, key=lambda option: (option.count, picks.cost_of(option))))
            cheapest = min(options, key=picks.cost_of)
            found.extend([cheapest] if wish.on is None else [])
    unique = {(option.accelerator, option.count, option.scenario.workload.method): option for option in found}
    return tuple(unique.values())[: CLOSEST + 1]


def _smallest(request: PlanRequest, job: Job) -> Scenario:
    """The job at its smallest on the hardware asked for."""
    count = request.on_count or 1
    return Scenario(
        model=request.model.name,
        workload=Workload(
            task="train", method=job.method, seq_len=job.seq_len or None, image_size=request.image_size
        ),
        hardware=Hardware(accelerator=request.on or "", count=count),
        setup=Setup(
            micro_batch=1, global_batch=count, recompute="full", attention="flash", fused_loss=True,
            zero_stage=3 if count > 1 else None, lora_rank=job.lora_rank,
        ),
    )  # fmt: skip


def _by_memory(
    scenario: Scenario,
    request: PlanRequest,
    catalogue: Catalogue,
    efficiency: Efficiency,
    closest: tuple[Option, ...],
) -> Shortfall:
    """What the smallest set-up needs; where it would fit, no layout keeps the other wishes."""
    outcome = estimate_many([scenario], catalogue, lambda _reference, _size: request.model, efficiency)[0]
    if not isinstance(outcome, Estimate):
        raise outcome
    accelerator = catalogue.resolve(scenario.hardware.accelerator).accelerator
    name = "plan.nothing_fits" if outcome.fits != "yes" else "plan.no_layout"
    count = scenario.hardware.count
    return Shortfall(
        reason=message(name, hardware=f"{count} × {accelerator.name}", global_batch=request.global_batch),
        accelerator_name=accelerator.name,
        count=count,
        estimate=outcome if outcome.fits != "yes" else None,
        closest=closest,
    )
