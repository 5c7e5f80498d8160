"""Planning a training job: search, then options with full estimates for the best hardware."""

from __future__ import annotations

import msgspec
import numpy as np

from raceline.estimate.calibration import unscaled
from raceline.estimate.configs import OFFLOADS
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Device, arrange
from raceline.estimate.hardware import Catalogue
from raceline.estimate.layout import ModelTable, tabulate
from raceline.estimate.op_time import Shapes, time_ops
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import Hardware, Scenario, Setup, Workload
from raceline.plan import space
from raceline.plan.candidates import Candidates, candidates, written
from raceline.plan.request import Job, PlanRequest, training_job
from raceline.plan.result import Option
from raceline.plan.risk import risks
from raceline.plan.search import Searched, best_per_hardware, search
from raceline.plan.wishes import between_nodes

MOST_OPTIONS = 48


class TrainingSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one job, unranked, and how many configurations stood behind them."""

    job: Job
    options: tuple[Option, ...]
    candidates: Candidates
    evaluated: int
    pruned: int


def plan_training(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> TrainingSearch:
    """The best configuration of each accelerator and count, as options."""
    job = training_job(request)
    table = tabulate(request.model, job.method, job.lora_rank)
    found = candidates(
        request, catalogue, job_flops(table, job, catalogue, efficiency), least_state_bytes(table, job)
    )
    if not found.pairs:
        return TrainingSearch(job=job, options=(), candidates=found, evaluated=0, pruned=0)
    searched = search(table, training_space(request, table, job, found, efficiency), efficiency)
    best = _cheapest_first(searched, best_per_hardware(searched, efficiency.spread.surely_fits), found, job)
    scenarios = [
        scenario_at(searched, int(row), job, request, bool(space.has_fused_loss(table)))
        for row in best[:MOST_OPTIONS]
    ]
    estimates = estimate_many(scenarios, catalogue, lambda _reference, _size: request.model, efficiency)
    options = [
        option_of(scenario, estimate, found, job)
        for scenario, estimate in zip(scenarios, estimates, strict=True)
        if isinstance(estimate, Estimate) and estimate.fits != "no"
    ]
    space_ = searched.space
    return TrainingSearch(
        job=job, options=tuple(options), candidates=found, evaluated=searched.evaluated, pruned=space_.pruned
    )


def least_state_bytes(table: ModelTable, job: Job) -> float:
    """Bytes of states of all devices together: weights, gradients, masters and moments in mixed
    precision, frozen weights in 16 bits."""
    trained, held = float(table.trainable.sum()), float(table.parameters.sum())
    return 16.0 * trained + (held - trained) * (0.6 if job.method == "qlora" else 2.0)


def training_space(
    request: PlanRequest, table: ModelTable, job: Job, found: Candidates, efficiency: Efficiency
) -> space.Space:
    """The space of configurations of a request."""
    limits = space.Limits(
        pairs=found.pairs,
        precisions=precisions(request, job),
        optimizer=request.optimizer or "adamw",
        runtime=request.runtime,
        weight_precision=request.weight_precision,
    )
    return space.build(table, job, arrange(found.devices, efficiency), limits, efficiency)


def precisions(request: PlanRequest, job: Job) -> tuple[str, ...]:
    """Precisions to try: 16 bits, and fp8 where a model is trained from the start."""
    if request.precision:
        return (request.precision,)
    return ("bf16", "fp16", "fp8") if job.method == "pretrain" and job.tokens_per_sample else ("bf16", "fp16")


def job_flops(table: ModelTable, job: Job, catalogue: Catalogue, efficiency: Efficiency) -> float:
    """Model FLOPs of the whole job."""
    reference = next(iter(catalogue.accelerators.values()))
    devices = arrange([Device(accelerator=reference)], efficiency)
    one = np.ones(1)
    shape = Shapes(
        device=np.zeros(1, dtype=np.int64), precision=np.zeros(1, dtype=np.int64), batch=one,
        seq_len=one * job.seq_len, target_len=one * job.target_len, new_fixed=one, new_tokens=one * job.seq_len,
        new_targets=one * job.target_len, decoding=0.0 * one, tp=one, cp=one, ep=one, expert_tp=one,
        expert_share=one, sequence_parallel=0.0 * one, fused=one,
        channels_last=one, mixed=0.0 * one, flash=one, early=0.0 * one, expert_kernels=0.0 * one,
        activation_bytes=2.0 * one, weight_bytes=2.0 * one, plain_weight_bytes=2.0 * one,
        weight_s=0.0 * one, slowdown=one, cache_bytes=2.0 * one, scale=unscaled(1),
    )  # fmt: skip
    with np.errstate(divide="ignore", invalid="ignore"):
        times = time_ops(table, shape, devices, efficiency)
    return float(times.flops_forward.sum() + times.flops_backward.sum()) * job.samples


def _cheapest_first(searched: Searched, best: space.Ints, found: Candidates, job: Job) -> space.Ints:
    """The best rows by the product of money and time, so that a limit keeps those that can win."""
    if not len(best):
        return best
    at = searched.space.configs.layout[searched.space.columns(best)]
    seconds = searched.step_s[best] * job.samples / job.global_batch
    prices = np.array(
        [
            _price(found, int(d), int(c))
            for d, c in zip(searched.space.layouts.device[at], searched.space.count[at], strict=True)
        ]
    )
    usd = seconds * prices / 3600.0
    by_cost, by_time = np.argsort(usd, kind="stable"), np.argsort(seconds, kind="stable")
    by_both = np.argsort(usd * np.sqrt(seconds), kind="stable")
    order = np.stack([by_both, by_cost, by_time], axis=1).ravel()
    _, first = np.unique(order, return_index=True)
    return np.asarray(best[order[np.sort(first)]])


def _price(found: Candidates, device: int, count: int) -> float:
    price = found.price(device, count)
    return price.price_hour_usd if price else 1e9


def scenario_at(
    searched: Searched, row: int, job: Job, request: PlanRequest, fused_loss: bool = False
) -> Scenario:
    """A configuration as the scenario that `estimate` takes: the same answer comes from it."""
    place, layouts = searched.space, searched.space.layouts
    column = row % len(place.configs)
    at = int(place.configs.layout[column])
    accelerator = place.devices.items[int(layouts.device[at])].accelerator
    method = job.method
    weight_precision = request.weight_precision or ("nf4" if method == "qlora" else None)
    return Scenario(
        id=f"{accelerator.id}x{int(place.count[at])}",
        model=request.model.name,
        workload=Workload(
            task="train", method=method, seq_len=job.seq_len or None, samples=job.samples,
            output_len=job.target_len or None, image_size=request.image_size,
        ),
        hardware=Hardware(
            accelerator=written(accelerator), count=int(place.count[at]),
            interconnect=between_nodes(request.interconnect),
        ),
        setup=Setup(
            runtime=place.runtimes[int(place.runtime[at])], precision=place.precisions[int(place.precision[at])],  # type: ignore[arg-type]
            optimizer=request.optimizer or "adamw", dp=int(layouts.dp[at]), tp=int(layouts.tp[at]),  # type: ignore[arg-type]
            pp=int(layouts.pp[at]), cp=int(layouts.cp[at]), ep=int(layouts.ep[at]),
            sequence_parallel=bool(layouts.tp[at] > 1), zero_stage=int(layouts.zero_stage[at]),
            micro_batch=int(place.micro_batch[column]), global_batch=job.global_batch,
            recompute=place.recompute(row), attention="flash",  # type: ignore[arg-type]
            fused_loss=fused_loss, schedule="1f1b", offload=OFFLOADS[int(layouts.offload[at])],  # type: ignore[arg-type]
            lora_rank=job.lora_rank, weight_precision=weight_precision,  # type: ignore[arg-type]
        ),
    )  # fmt: skip


def option_of(scenario: Scenario, estimate: Estimate, found: Candidates, job: Job) -> Option:
    """An estimate with its price and its risks."""
    ids = [written(device.accelerator) for device in found.devices]
    index = ids.index(scenario.hardware.accelerator)
    device = found.devices[index]
    price = found.price(index, scenario.hardware.count)
    risk, why = risks(scenario, estimate, device, price)
    cost = None
    if price and estimate.duration_s:
        hours = [
            value * price.price_hour_usd / 3600.0 for value in msgspec.structs.astuple(estimate.duration_s)
        ]
        cost = msgspec.convert(
            dict(zip(("low", "mid", "high"), hours, strict=True)), type(estimate.duration_s)
        )
    return Option(
        name="",
        accelerator=device.accelerator.id,
        accelerator_name=device.accelerator.name,
        count=scenario.hardware.count,
        scenario=scenario,
        estimate=estimate,
        price_hour_usd=price.price_hour_usd if price else None,
        provider=price.offer.provider if price else None,
        region=price.offer.region if price else None,
        price_as_of=price.offer.as_of if price else None,
        duration_s=estimate.duration_s,
        cost_usd=cost,
        risk=risk,
        risks=why,
    )
