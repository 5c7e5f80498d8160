"""The space of training configurations as arrays, pruned by what can't be before it grows.

Every device and count is crossed with the layouts that cut the model over it; layouts whose states
alone exceed the memory are dropped; what is left is crossed with micro batches and recompute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.catalog import constraints, load
from raceline.estimate.calibration import Calibration, model_class
from raceline.estimate.choose import LOSS_CHUNKS, logit_bytes
from raceline.estimate.configs import RECOMPUTE, Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import EXPERT_KERNELS, bytes_per_element, convention, state_bytes
from raceline.estimate.devices import FORMATS, Device, Devices
from raceline.estimate.layout import ModelTable
from raceline.estimate.memory import stage_states
from raceline.estimate.op_time import Shapes
from raceline.plan.request import Job
from raceline.plan.scales import number_words, scales

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TENSOR = (1, 2, 4, 8)
PIPELINE = (1, 2, 4, 8, 16)
CONTEXT = (1, 2, 4, 8)
EXPERT = (1, 2, 4, 8, 16, 32)
OFFLOAD = (0, 1, 3)
LONG_SEQUENCE = 32_768
LARGE_VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class Space:
    """Configurations of one job. `runtime` and `precision` index the names, by layout. `configs` and
    `micro_batch` hold M columns, each to be run under every kind of recompute: row r x M + m is column m
    under kind r."""

    devices: Devices
    layouts: Layouts
    shapes: Shapes
    configs: Configs
    micro_batch: Floats
    count: Ints
    runtime: Ints
    precision: Ints
    runtimes: tuple[str, ...]
    precisions: tuple[str, ...]
    pruned: int

    def columns(self, rows: Ints) -> Ints:
        """The column of each row."""
        return rows % max(len(self.configs), 1)

    def recompute(self, row: int) -> str:
        """What is recomputed in a row."""
        return RECOMPUTE[row // len(self.configs)]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a search may use: pairs of device index and count, and the setup's fixed choices."""

    pairs: Sequence[tuple[int, int]]
    precisions: tuple[str, ...]
    optimizer: str
    runtime: str | None = None
    weight_precision: str | None = None
    with_offload: bool = True


def build(table: ModelTable, job: Job, devices: Devices, limits: Limits, efficiency: Efficiency) -> Space:
    """All configurations of the job that its rules allow and whose states can fit."""
    grid = _layout_grid(table, job, devices, limits)
    layouts, runtime, precision, runtimes = _layouts(
        table, job, devices, limits, grid, efficiency.calibration
    )
    fits = _states_fit(table, layouts, devices, efficiency)
    pruned = int((~fits).sum())
    layouts, runtime, precision = layouts.take(fits), runtime[fits], precision[fits]
    shapes, configs, micro_batch, dropped = _cross(table, job, layouts, precision, limits)
    return Space(
        devices=devices,
        layouts=layouts,
        shapes=shapes,
        configs=configs,
        micro_batch=micro_batch,
        count=np.asarray(layouts.count, dtype=np.int64),
        runtime=runtime,
        precision=precision,
        runtimes=runtimes,
        precisions=limits.precisions,
        pruned=pruned * len(MICRO_BATCHES) * len(RECOMPUTE) + dropped,
    )


def _layout_grid(table: ModelTable, job: Job, devices: Devices, limits: Limits) -> dict[str, Ints]:
    """Columns device, count, tp, pp, cp, ep, zero, offload, precision of the layouts that the rules allow."""
    pairs = np.array(limits.pairs, dtype=np.int64).reshape(-1, 2)
    context = CONTEXT if job.seq_len >= LONG_SEQUENCE else (1,)
    expert = EXPERT if table.experts > 1 else (1,)
    offload = OFFLOAD if limits.with_offload else (0,)
    axes = (
        np.arange(len(pairs)), np.array(TENSOR), np.array(PIPELINE), np.array(context), np.array(expert)
    )  # fmt: skip
    cuts = [axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")]
    is_whole = pairs[cuts[0], 1] % (cuts[1] * cuts[2] * cuts[3]) == 0
    is_whole &= cuts[1] <= devices.per_node[pairs[cuts[0], 0]]
    further = np.meshgrid(np.arange(4), np.array(offload), np.arange(len(limits.precisions)), indexing="ij")
    each, rows = further[0].size, int(is_whole.sum())
    pair, tp, pp, cp, ep = (np.repeat(axis[is_whole], each) for axis in cuts)
    zero, away, precision = (np.tile(axis.ravel(), rows) for axis in further)
    device, count = pairs[pair, 0], pairs[pair, 1]
    dp = count // (tp * pp * cp)
    is_allowed = dp >= 1
    is_allowed &= (pp <= table.layers) & ((pp == 1) | (tp == 1) | (tp * pp <= 128))
    is_allowed &= (ep <= table.experts) & (dp * cp % ep == 0)
    is_allowed &= np.where(dp * cp == 1, zero == 0, zero != 2)
    is_allowed &= (zero < 3) | (pp == 1)
    is_allowed &= (tp == 1) | (zero != 0) | (dp * cp == 1)
    is_allowed &= (away == 0) | ((tp * pp * cp * ep == 1) & ((zero >= 1) | (dp == 1)))
    is_allowed &= dp * cp <= job.global_batch * cp
    supports = np.array(
        [[_has_rate(devices, index, name) for name in limits.precisions] for index in range(len(devices))]
    )
    is_allowed &= supports[device, precision]
    heads = table.attention["heads"]
    widest = int(heads.max()) if len(heads) else 1
    is_allowed &= (tp == 1) | ((widest % tp == 0) & (table.hidden > 0))
    # Adapter libraries and image models run under data parallelism and ZeRO; few cut a model's layers.
    if job.method in ("lora", "qlora") or table.model.unit != "token":
        is_allowed &= tp * pp * cp == 1
    columns = {
        "device": device,
        "count": count,
        "dp": dp,
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "ep": ep,
        "zero": zero,
        "offload": away,
        "precision": precision,
    }
    return {name: values[is_allowed] for name, values in columns.items()}


def _has_rate(devices: Devices, index: int, precision: str) -> bool:
    return bool(devices.peak_flops[index, FORMATS.index(number_format(precision))] > 0)


def number_format(precision: str) -> str:
    """The catalogue's rate for a precision of the setup."""
    base = precision.removesuffix("-mixed").removesuffix("-true")
    return {"mxfp8": "fp8", "nvfp4": "fp4"}.get(base, base)


def runtime_of(tp: Ints, pp: Ints, dp: Ints, zero: Ints, own: Ints) -> NDArray[np.int64]:
    """The runtime that runs a layout, as an index of RUNTIMES; `own`: that of the device's vendor, or 0."""
    is_cut = (tp > 1) | (pp > 1)
    index = np.where(is_cut, 3, np.where(dp == 1, 0, np.where(zero == 0, 1, np.where(zero == 3, 2, 4))))
    return np.where(own > 0, own, index)


RUNTIMES = ("pytorch", "pytorch-ddp", "pytorch-fsdp2", "megatron-lm", "deepspeed", "jax", "neuron")
_OWN_RUNTIME = {"Google": 5, "AWS": 6}


def _layouts(
    table: ModelTable, job: Job, devices: Devices, limits: Limits, grid: dict[str, Ints],
    calibration: Calibration,
) -> tuple[Layouts, Ints, Ints, tuple[str, ...]]:  # fmt: skip
    own = np.array([_OWN_RUNTIME.get(device.accelerator.vendor, 0) for device in devices.items])[
        grid["device"]
    ]
    runtimes: tuple[str, ...] = RUNTIMES
    runtime = runtime_of(grid["tp"], grid["pp"], grid["dp"] * grid["cp"], grid["zero"], own)
    if limits.runtime:
        runtimes, runtime = (limits.runtime,), np.zeros(len(own), dtype=np.int64)
    states = {
        (r, p): _states(runtimes[r], limits.precisions[p], limits.optimizer)
        for r in range(len(runtimes))
        for p in range(len(limits.precisions))
    }
    runs = np.array([[_runs(device, name) for name in runtimes] for device in devices.items])
    keep = runs[grid["device"], runtime]
    grid, runtime = {name: values[keep] for name, values in grid.items()}, runtime[keep]
    codes = runtime * len(limits.precisions) + grid["precision"]
    columns = np.array([states[divmod(code, len(limits.precisions))] for code in range(len(states))])[codes]
    (
        weight,
        gradient,
        master,
        moments,
        temporary,
        compute,
        casts,
        buffered,
        fused,
        expert_kernels,
        one_process,
        logits,
    ) = columns.T
    logits = logits / (LOSS_CHUNKS if has_fused_loss(table) else 1)
    frozen = limits.weight_precision or ("nf4" if job.method == "qlora" else None)
    ones, floats = np.ones(len(codes)), {name: values.astype(np.float64) for name, values in grid.items()}
    ranks = floats["dp"] * floats["cp"]
    zero_group = np.where(grid["zero"] > 0, ranks, 1.0)
    layouts = Layouts(
        device=grid["device"], dp=floats["dp"], tp=floats["tp"], pp=floats["pp"], cp=floats["cp"], ep=floats["ep"],
        zero_stage=grid["zero"], zero_group=zero_group, schedule=np.zeros(len(codes), dtype=np.int64),
        virtual_stages=ones, offload=grid["offload"], fused=fused, expert_kernels=expert_kernels, logit_bytes=logits,
        in_backward=0.0 * ones, weight_bytes=weight, gradient_bytes=gradient, master_bytes=master, moment_bytes=moments,
        temporary_bytes=temporary, adapter_bytes=_adapter_bytes(limits, grid["precision"]),
        frozen_bytes=2.0 * ones, quantised_bytes=(bytes_per_element(frozen) if frozen else 2.0) * ones,
        compute_bytes=compute, casts_weights=casts * (grid["zero"] < 3),
        bucket=((grid["zero"] == 0) & (grid["dp"] > 1) & (buffered == 0)).astype(float), buffered=buffered,
        keeps_gathered=0.0 * ones, host_scale=np.where(one_process > 0, ranks, 1.0),
        scale=_scales(table, job, devices, limits, calibration, runtimes, grid["device"], codes),
    )  # fmt: skip
    return layouts, runtime, grid["precision"], runtimes


def _scales(
    table: ModelTable, job: Job, devices: Devices, limits: Limits, calibration: Calibration,
    runtimes: tuple[str, ...], device: Ints, codes: Ints,
) -> Floats:  # fmt: skip
    """The calibration's factors of each layout; `codes`: runtime and precision."""
    frozen = limits.weight_precision or ("nf4" if job.method == "qlora" else None)
    words = number_words(
        [number_format(name) for name in limits.precisions],
        [bytes_per_element(frozen or name) for name in limits.precisions],
    )

    def keys(code: int) -> tuple[str, str, bool]:
        runtime, precision = divmod(code, len(limits.precisions))
        return runtimes[runtime], words[precision], convention(runtimes[runtime]).fused

    return scales(calibration, devices, device, codes, keys, "train", model_class(table.model), job.method)


def _runs(device: Device, runtime: str) -> bool:
    """Whether the catalogue knows nothing against training by this runtime on this device."""
    row = load.runtimes().get(runtime)
    return row is None or not constraints.check_runtime(device.accelerator, row, None, "train")


def has_fused_loss(table: ModelTable) -> float:
    """1 where the plan uses a chunked loss: large vocabularies, whose logits would fill the card."""
    return float(table.classes >= LARGE_VOCABULARY)


def _states(runtime: str, precision: str, optimizer: str) -> tuple[float, ...]:
    habits = convention(runtime)
    convention_states = habits.fp16 if precision == "fp16" else habits.bf16
    states = state_bytes(convention_states, precision, optimizer)
    return (
        states.weight, states.gradient, states.master, states.moments, states.temporary, states.compute,
        float(states.casts_weights), float(states.buffered), float(habits.fused),
        EXPERT_KERNELS[habits.training.experts], float(habits.training.one_process),
        logit_bytes(habits.training.logit_bytes, False, False),
    )  # fmt: skip


def _adapter_bytes(limits: Limits, precision: Ints) -> Floats:
    per_precision = []
    for name in limits.precisions:
        states = state_bytes("amp", name, limits.optimizer)
        per_precision.append(states.weight + states.gradient + states.master + states.moments)
    return np.array(per_precision)[precision]


def _states_fit(
    table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency
) -> NDArray[np.bool_]:
    """Whether what doesn't depend on the batch fits: weights, optimizer and gradients."""
    if not len(layouts):
        return np.zeros(0, dtype=bool)
    ones = np.ones(len(layouts))
    states = stage_states(table, layouts, efficiency, ones, (layouts.pp == 1).astype(float))
    least = states.weights + states.optimizer + states.gradients
    return np.asarray(least <= devices.memory_bytes[layouts.device])


def _cross(
    table: ModelTable, job: Job, layouts: Layouts, precision: Ints, limits: Limits
) -> tuple[Shapes, Configs, Floats, int]:
    """Layouts x micro batches, where the micro batch divides the global one, x recompute."""
    layout = np.repeat(np.arange(len(layouts)), len(MICRO_BATCHES))
    size = np.tile(np.array(MICRO_BATCHES), len(layouts))
    per_rank = job.global_batch / layouts.dp
    steps = per_rank[layout] / size
    keep = (steps >= 1) & (steps == np.floor(steps))
    layout, size, steps = layout[keep], size[keep], steps[keep]
    shapes, shape = _shapes(job, layouts, precision, layout, size, limits)
    kinds = np.arange(len(RECOMPUTE))[:, None]
    configs = Configs(shape=shape, layout=layout, accumulation=steps, recompute=kinds)
    return shapes, configs, size.astype(np.float64), int((~keep).sum()) * len(kinds)


def _same_rows(values: Floats) -> Ints:
    """A code that rows with the same values share."""
    if not len(values) or bool((values == values[0]).all()):
        return np.zeros(len(values), dtype=np.int64)
    # equal rows have equal sums; these weights let no two different ones of a search meet
    weights = np.sqrt(np.arange(2.0, 2.0 + values.shape[1]))
    return np.asarray(np.unique(values @ weights, return_inverse=True)[1], dtype=np.int64).reshape(-1)


def _shapes(
    job: Job, layouts: Layouts, precision: Ints, layout: Ints, size: Ints, limits: Limits
) -> tuple[Shapes, Ints]:
    """The distinct shapes among the configurations, and each configuration's index of its own."""
    parts = (
        layouts.device, precision, layouts.tp.astype(np.int64), layouts.cp.astype(np.int64),
        layouts.ep.astype(np.int64), layouts.fused.astype(np.int64), layouts.expert_kernels.astype(np.int64),
        _same_rows(layouts.scale), (layouts.compute_bytes * 16).astype(np.int64),
    )  # fmt: skip
    key = np.zeros(len(layouts), dtype=np.int64)
    for values in parts:
        key = key * (int(values.max(initial=0)) + 1) + values
    _, first, of_layout = np.unique(key, return_index=True, return_inverse=True)
    step = {size: index for index, size in enumerate(MICRO_BATCHES)}
    of_size = np.array([step.get(value, 0) for value in range(max(MICRO_BATCHES) + 1)])[size]
    code = of_layout[layout] * len(MICRO_BATCHES) + of_size
    is_used = np.zeros(len(first) * len(MICRO_BATCHES), dtype=bool)
    is_used[code] = True
    position = np.cumsum(is_used) - 1
    which, batch = np.divmod(np.flatnonzero(is_used), len(MICRO_BATCHES))
    source = layouts.take(first[which])
    ones = np.ones(len(which))
    formats = np.array([FORMATS.index(number_format(name)) for name in limits.precisions], dtype=np.int64)
    elements = np.array(
        [4.0 if number_format(name) in ("fp32", "tf32") else 2.0 for name in limits.precisions]
    )
    used = precision[first[which]]
    quantised = np.where(job.method == "qlora", source.quantised_bytes, source.compute_bytes)
    shapes = Shapes(
        device=source.device, precision=formats[used], batch=np.array(MICRO_BATCHES, dtype=np.float64)[batch],
        seq_len=job.seq_len * ones, target_len=job.target_len * ones, new_fixed=ones,
        new_tokens=job.seq_len * ones, new_targets=job.target_len * ones, decoding=0.0 * ones, tp=source.tp,
        cp=source.cp, ep=source.ep, expert_tp=source.tp, expert_share=ones,
        sequence_parallel=(source.tp > 1).astype(float), fused=source.fused,
        channels_last=source.fused, mixed=0.0 * ones, flash=ones, early=0.0 * ones,
        expert_kernels=source.expert_kernels,
        activation_bytes=elements[used], weight_bytes=quantised, plain_weight_bytes=source.compute_bytes,
        weight_s=0.0 * ones, slowdown=ones, cache_bytes=elements[used], scale=source.scale,
    )  # fmt: skip
    return shapes, position[code]
