"""Estimates from evaluated rows: figures with units, ranges, what binds, and warnings."""

from __future__ import annotations

import math
from typing import Any

from raceline.catalog.prices import Price
from raceline.estimate import cost, host
from raceline.estimate.calibration import Keys
from raceline.estimate.choose import Choice
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import peak_flops
from raceline.estimate.latency import ServingTime
from raceline.estimate.layout import ModelTable
from raceline.estimate.memory import FULLEST, GIB
from raceline.estimate.ranges import inference_range, memory_range, training_range, verdict, worst
from raceline.estimate.result import (
    Estimate,
    Fact,
    Latency,
    LatencyRanges,
    MemoryParts,
    Range,
    Throughput,
    TimeParts,
)
from raceline.estimate.serving import Serving, ServingMemory
from raceline.estimate.spread import Spread
from raceline.estimate.train import Evaluated
from raceline.present.errors import Message, message

_BOUNDS = (
    "compute",
    "memory_bound",
    "communication_exposed",
    "pipeline_bubble",
    "optimizer",
    "input",
    "host",
)
_BOUND_NAMES = {"memory_bound": "memory", "communication_exposed": "communication"}


def trained(
    choice: Choice, done: Evaluated, row: int, micro_batch: int, recompute: str, table: ModelTable,
    limit_bytes: float, offloaded_bytes: float, price: Price | None, efficiency: Efficiency, facts: tuple[Fact, ...],
) -> Estimate:  # fmt: skip
    """The estimate of a training row."""
    steps_of = float(done.configs.accumulation[row])
    global_batch = micro_batch * choice.dp * steps_of
    step_s = training_range(float(done.time.total[row]), choice.keys, efficiency)
    parts = TimeParts(**{name: float(getattr(done.time, name)[row]) for name in _BOUNDS})
    memory = _training_memory(done, row, limit_bytes, choice.keys, efficiency)
    trained_elements, adapters = float(table.trainable.sum()), float(table.adapters.sum())
    total = float(table.parameters.sum())
    needed_gib = host.host_memory_gib(choice, total, trained_elements, offloaded_bytes)
    fits, warnings = _verdict(choice, memory, needed_gib, efficiency.spread)
    workload = choice.scenario.workload
    tokens_per_sample = choice.usual_len if choice.model.unit == "token" else 0
    steps = cost.training_steps(workload.tokens, workload.samples, tokens_per_sample, global_batch)
    duration = cost.scaled(step_s, steps) if steps else None
    flops_per_s = float(done.time.flops[row]) / step_s.mid
    samples_per_s = global_batch / step_s.mid / choice.count
    tokens_per_s = samples_per_s * tokens_per_sample or None
    hour_usd = price.price_hour_usd if price else None
    return Estimate(
        id=choice.scenario.id,
        fits=fits,
        memory_gib=memory,
        host_memory_gib=needed_gib,
        disk_gib=host.disk_gib(choice, total, trained_elements, adapters),
        step_time_s=step_s,
        time_parts_s=parts,
        throughput=Throughput(
            tokens_per_s_per_device=tokens_per_s,
            samples_per_s_per_device=samples_per_s,
        ),
        latency_ms=Latency(batch=None, ttft=None, tpot=None),
        mfu=_mfu(choice, flops_per_s),
        tflops_per_device=flops_per_s / 1e12,
        bound_by=_bound(parts),
        duration_s=duration,
        cost_usd=cost.cost_usd(duration, hour_usd),
        price_usd_per_hour=hour_usd,
        cost_usd_per_million_tokens=cost.cost_usd_per_million_tokens(
            step_s, tokens_per_s, choice.count, hour_usd
        ),
        energy_kwh=cost.energy_kwh(
            duration,
            choice.device.accelerator.tdp_w,
            choice.count,
            _busy(parts, step_s.mid),
            efficiency.idle_power,
        ),
        chosen=_chosen(choice, micro_batch, recompute, global_batch),
        warnings=(*choice.notes, *warnings),
        basis=facts,
    )


def served(
    choice: Choice, serving: Serving, memory: ServingMemory, time: ServingTime, row: int, table: ModelTable,
    limit_bytes: float, price: Price | None, efficiency: Efficiency, facts: tuple[Fact, ...],
) -> Estimate:  # fmt: skip
    """The estimate of an inference row."""
    parts = TimeParts(
        compute=_value(time.compute, row) or 0.0,
        memory_bound=_value(time.memory_bound, row) or 0.0,
        communication_exposed=_value(time.communication, row) or 0.0,
        pipeline_bubble=0.0,
        optimizer=0.0,
        input=0.0,
        host=_value(time.host, row) or 0.0,
    )
    share = float(serving.engine_fraction[row]) or 1.0
    held = _serving_memory(memory, row, limit_bytes * share, choice.keys, efficiency)
    needed_gib = host.host_memory_gib(choice, float(table.parameters.sum()), 0.0, 0.0)
    fits, warnings = _verdict(choice, held, needed_gib, efficiency.spread)
    is_decoding = choice.output_len > 0
    metric = "tpot_ms" if is_decoding else "batch_ms"
    step_s = inference_range(float(time.step_s[row]), metric, choice.concurrency, choice.keys, efficiency)
    tokens, samples = _value(time.tokens_per_s_per_device, row), _value(time.samples_per_s_per_device, row)
    duration = _serving_duration(choice, tokens, samples, efficiency)
    hour_usd = price.price_hour_usd if price else None
    return Estimate(
        id=choice.scenario.id,
        fits=fits,
        memory_gib=held,
        host_memory_gib=needed_gib,
        disk_gib=host.disk_gib(choice, float(table.parameters.sum()), 0.0, 0.0),
        step_time_s=step_s,
        time_parts_s=parts,
        throughput=Throughput(tokens_per_s_per_device=tokens, samples_per_s_per_device=samples),
        latency_ms=Latency(
            batch=_milliseconds(time.batch_s, row),
            ttft=_milliseconds(time.ttft_s, row),
            tpot=_milliseconds(time.tpot_s, row),
        ),
        mfu=_mfu(choice, float(time.flops_per_s[row])),
        tflops_per_device=float(time.flops_per_s[row]) / 1e12,
        bound_by=_bound(parts),
        latency_range_ms=_latency_ranges(choice, time, row, efficiency),
        duration_s=duration,
        cost_usd=cost.cost_usd(duration, hour_usd),
        price_usd_per_hour=hour_usd,
        cost_usd_per_million_tokens=cost.cost_usd_per_million_tokens(step_s, tokens, choice.count, hour_usd),
        energy_kwh=cost.energy_kwh(
            duration,
            choice.device.accelerator.tdp_w,
            choice.count,
            _busy(parts, step_s.mid),
            efficiency.idle_power,
        ),
        chosen={**choice.chosen, "cache_tokens": int(min(memory.cache_tokens[row], 1e15))},
        warnings=(*choice.notes, *warnings),
        basis=facts,
    )


def _training_memory(
    done: Evaluated, row: int, limit_bytes: float, keys: Keys, efficiency: Efficiency
) -> MemoryParts:
    def gib(name: str) -> float:
        return float(getattr(done.memory, name)[row]) / GIB

    shown = min(gib("total"), max(gib("needed"), limit_bytes / GIB * FULLEST))
    return MemoryParts(
        total=memory_range(shown, keys, efficiency), needed=gib("needed"), limit=limit_bytes / GIB,
        parameters=gib("parameters"),
        gradients=gib("gradients"), optimizer=gib("optimizer"), activations=gib("activations"),
        logits=gib("logits"), kv_cache=None, workspace=gib("workspace"),
        reserved=gib("reserved") - gib("total") + shown,
    )  # fmt: skip


def _serving_memory(
    memory: ServingMemory, row: int, limit_bytes: float, keys: Keys, efficiency: Efficiency
) -> MemoryParts:
    def gib(name: str) -> float:
        return float(getattr(memory, name)[row]) / GIB

    return MemoryParts(
        total=memory_range(gib("total"), keys, efficiency), needed=gib("total"), limit=limit_bytes / GIB,
        parameters=gib("weights"), gradients=None, optimizer=None, activations=gib("activations"), logits=gib("logits"),
        kv_cache=gib("kv_cache"), workspace=0.0, reserved=gib("reserved"),
    )  # fmt: skip


def _verdict(
    choice: Choice, memory: MemoryParts, host_gib: float, spread: Spread
) -> tuple[Any, list[Message]]:
    """Whether it fits the accelerator and the host, and the warnings that name the limit."""
    warnings: list[Message] = []
    fits = verdict(memory.needed, memory.limit, spread)
    if fits != "yes":
        name = "estimate.exceeds_memory" if fits == "no" else "estimate.tight_memory"
        part, size = _largest(memory)
        low, high = (memory.needed * math.exp(offset) for offset in spread.verdict)
        warnings.append(
            message(
                name, needed_gib=memory.needed, limit_gib=memory.limit, low_gib=low, high_gib=high, part=part,
                part_gib=size,
            )
        )  # fmt: skip
    stated = choice.scenario.hardware.host_memory_gib
    if stated is None:
        return fits, warnings
    host_fits = verdict(host_gib, stated, spread)
    if host_fits != "yes":
        warnings.append(message("estimate.exceeds_host_memory", needed_gib=host_gib, limit_gib=stated))
    return worst(fits, host_fits), warnings


def _largest(memory: MemoryParts) -> tuple[str, float]:
    names = ("parameters", "gradients", "optimizer", "activations", "logits", "kv_cache", "workspace")
    sizes = {name: getattr(memory, name) or 0.0 for name in names}
    name = max(sizes, key=lambda key: sizes[key])
    return name, sizes[name]


def _bound(parts: TimeParts) -> str:
    name = max(_BOUNDS, key=lambda key: float(getattr(parts, key)))
    return _BOUND_NAMES.get(name, name)


def _busy(parts: TimeParts, total_s: float) -> float:
    return min(1.0, (parts.compute + parts.memory_bound + parts.optimizer) / max(total_s, 1e-12))


def _mfu(choice: Choice, flops_per_s: float) -> float | None:
    peak = peak_flops(choice.device, choice.number_format)
    return flops_per_s / peak if peak else None


def _chosen(choice: Choice, micro_batch: int, recompute: str, global_batch: float) -> dict[str, Any]:
    chosen, setup = dict(choice.chosen), choice.scenario.setup
    if setup.micro_batch is None:
        chosen["micro_batch"] = micro_batch
    if setup.recompute is None:
        chosen["recompute"] = recompute
    if setup.global_batch is None:
        chosen["global_batch"] = int(global_batch)
    return chosen


def _serving_duration(
    choice: Choice, tokens: float | None, samples: float | None, efficiency: Efficiency
) -> Range | None:
    workload = choice.scenario.workload
    amount, rate = (workload.tokens, tokens) if tokens else (workload.samples, samples)
    if amount is None or not rate:
        return None
    metric = "tokens_per_s_per_device" if tokens else "batch_ms"
    seconds = amount / (rate * choice.count)
    return inference_range(seconds, metric, choice.concurrency, choice.keys, efficiency)


def _latency_ranges(choice: Choice, time: ServingTime, row: int, efficiency: Efficiency) -> LatencyRanges:
    def around(name: str) -> Range | None:
        mid = _milliseconds(getattr(time, f"{name}_s"), row)
        if mid is None:
            return None
        return inference_range(mid, f"{name}_ms", choice.concurrency, choice.keys, efficiency)

    return LatencyRanges(batch=around("batch"), ttft=around("ttft"), tpot=around("tpot"))


def _value(values: Any, row: int) -> float | None:
    value = float(values[row])
    return None if math.isnan(value) else value


def _milliseconds(values: Any, row: int) -> float | None:
    value = _value(values, row)
    return None if value is None else value * 1000.0
