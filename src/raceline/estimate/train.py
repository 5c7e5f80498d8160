"""Training scenarios as arrays, and their estimates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from raceline.estimate.calibration import columns
from raceline.estimate.choose import Choice, accumulation, activation_bytes, frozen_bytes
from raceline.estimate.configs import OFFLOADS, RECOMPUTE, SCHEDULES, Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import state_bytes
from raceline.estimate.devices import FORMATS, Devices
from raceline.estimate.layout import Floats, ModelTable
from raceline.estimate.memory import Memory, training_memory
from raceline.estimate.op_time import Shapes, time_ops
from raceline.estimate.schedule import StepTime, training_step


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Memory and step time of configurations, in order."""

    configs: Configs
    layouts: Layouts
    memory: Memory
    time: StepTime


def evaluate(
    table: ModelTable, configs: Configs, layouts: Layouts, shapes: Shapes, devices: Devices,
    efficiency: Efficiency, input_s: Floats | float = 0.0, usual: Shapes | None = None,
) -> Evaluated:  # fmt: skip
    """Memory and step time of every configuration; shapes are computed once each. `usual`: the shapes that
    most steps have, where they aren't those that decide the peak of memory."""
    times = time_ops(table, shapes, devices, efficiency)
    memory = training_memory(table, configs, layouts, shapes, times, efficiency)
    if usual is not None:
        shapes, times = usual, time_ops(table, usual, devices, efficiency)
    time = training_step(table, configs, layouts, shapes, times, devices, efficiency, input_s)
    return Evaluated(configs, layouts, memory, time)


@dataclass(frozen=True, slots=True)
class Rows:
    """Choices spread over their open settings: `owner` is the index of each row's choice."""

    owner: list[int]
    micro_batch: list[int]
    recompute: list[str]

    def __len__(self) -> int:
        return len(self.owner)


def spread(choices: Sequence[Choice]) -> Rows:
    """One row for each candidate of each choice's open settings."""
    rows = Rows([], [], [])
    for index, choice in enumerate(choices):
        for micro_batch in choice.micro_batches:
            for recompute in choice.recomputes:
                rows.owner.append(index)
                rows.micro_batch.append(micro_batch)
                rows.recompute.append(recompute)
    return rows


def arrays(
    choices: Sequence[Choice], rows: Rows, device_of: Sequence[int]
) -> tuple[Configs, Layouts, Shapes]:
    """Rows as arrays; a row's shape has the row's own index, its layout that of its choice."""
    owner = np.array(rows.owner, dtype=np.int64)
    layouts = _layouts(choices, device_of)
    configs = Configs(
        shape=np.arange(len(rows)),
        layout=owner,
        accumulation=np.array(
            [accumulation(choices[i], m) for i, m in zip(rows.owner, rows.micro_batch, strict=True)],
            dtype=np.float64,
        ),
        recompute=np.array([RECOMPUTE.index(name) for name in rows.recompute], dtype=np.int64),
    )
    shapes = _shapes(choices, layouts).take(owner)
    return configs, layouts, replace(shapes, batch=np.array(rows.micro_batch, dtype=np.float64))


def _column(values: Iterable[float | int | bool]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _layouts(choices: Sequence[Choice], device_of: Sequence[int]) -> Layouts:
    """One layout per choice."""
    states = [state_bytes(c.states, c.precision, c.optimizer) for c in choices]  # type: ignore[arg-type]
    frozen = [frozen_bytes(c) for c in choices]
    return Layouts(
        device=np.array(device_of, dtype=np.int64),
        dp=_column(c.dp for c in choices),
        tp=_column(c.tp for c in choices),
        pp=_column(c.pp for c in choices),
        cp=_column(c.cp for c in choices),
        ep=_column(c.ep for c in choices),
        zero_stage=np.array([c.zero_stage for c in choices], dtype=np.int64),
        zero_group=_column(c.zero_group for c in choices),
        schedule=np.array([SCHEDULES.index(c.schedule) for c in choices], dtype=np.int64),
        virtual_stages=_column(c.virtual_stages for c in choices),
        offload=np.array([OFFLOADS.index(c.offload) for c in choices], dtype=np.int64),
        fused=_column(c.is_fused for c in choices),
        expert_kernels=_column(c.expert_kernels for c in choices),
        logit_bytes=_column(c.logit_bytes for c in choices),
        in_backward=_column(bool(c.scenario.setup.optimizer_in_backward) for c in choices),
        weight_bytes=_column(s.weight for s in states),
        gradient_bytes=_column(s.gradient for s in states),
        master_bytes=_column(s.master for s in states),
        moment_bytes=_column(s.moments for s in states),
        temporary_bytes=_column(s.temporary for s in states),
        adapter_bytes=_column(_adapter_bytes(c) for c in choices),
        frozen_bytes=_column(pair[0] for pair in frozen),
        quantised_bytes=_column(pair[1] for pair in frozen),
        compute_bytes=_column(s.compute for s in states),
        casts_weights=_column(
            s.casts_weights and c.zero_stage < 3 for c, s in zip(choices, states, strict=True)
        ),
        bucket=_column(
            s.narrow / s.gradient if s.buffered else c.zero_stage == 0 and c.dp > 1
            for c, s in zip(choices, states, strict=True)
        ),
        buffered=_column(s.buffered for s in states),
        host_scale=_column(c.host_scale for c in choices),
        keeps_gathered=_column(bool(c.scenario.setup.keeps_frozen_gathered) for c in choices),
        scale=columns(c.scale for c in choices),
    )


def _shapes(choices: Sequence[Choice], layouts: Layouts) -> Shapes:
    """One shape per choice; the micro batch is set later."""
    element = _column(activation_bytes(c) for c in choices)
    is_quantised = _column(c.method == "qlora" for c in choices) > 0
    ones = np.ones(len(choices))
    lengths, targets = _column(c.seq_len for c in choices), _column(c.target_len for c in choices)
    return Shapes(
        device=layouts.device,
        precision=np.array([FORMATS.index(c.number_format) for c in choices], dtype=np.int64),
        batch=ones,
        seq_len=lengths,
        target_len=targets,
        new_fixed=ones,
        new_tokens=lengths,
        new_targets=targets,
        decoding=0.0 * ones,
        tp=layouts.tp,
        cp=layouts.cp,
        ep=layouts.ep,
        expert_tp=layouts.tp,
        expert_share=ones,
        sequence_parallel=_column(c.sequence_parallel for c in choices),
        fused=layouts.fused,
        expert_kernels=layouts.expert_kernels,
        channels_last=_column(c.channels_last for c in choices),
        mixed=_column(c.precision.endswith("-mixed") for c in choices),
        flash=_column(c.attention != "eager" for c in choices),
        early=_column(c.attention == "early" for c in choices),
        activation_bytes=element,
        weight_bytes=np.where(is_quantised, layouts.quantised_bytes, layouts.compute_bytes),
        plain_weight_bytes=layouts.compute_bytes,
        weight_s=0.0 * ones,
        slowdown=ones,
        cache_bytes=element,
        scale=layouts.scale,
    )


def usual_shapes(choices: Sequence[Choice], rows: Rows, shapes: Shapes) -> Shapes | None:
    """The shapes of most steps, where a choice's samples are shorter than its longest one."""
    if all(choice.usual_len == choice.seq_len for choice in choices):
        return None
    lengths = _column(choices[owner].usual_len for owner in rows.owner)
    return replace(shapes, seq_len=lengths, new_tokens=lengths)


def input_seconds(choices: Sequence[Choice], rows: Rows, configs: Configs) -> Floats:
    """Seconds to read and prepare one step's samples, as far as the scenario states what that takes."""
    per_sample = []
    for choice in choices:
        size, rate = choice.scenario.workload.sample_bytes, choice.scenario.hardware.read_mbs
        nodes = -(-choice.count // choice.device.per_node)
        reading = size / (rate * 1e6 * nodes) * choice.dp if size and rate else 0.0
        work, loaders = choice.scenario.workload.sample_cpu_s, choice.scenario.setup.loaders
        preparing = work / loaders * choice.dp / choice.count if work and loaders else 0.0
        per_sample.append(max(reading, preparing))
    owner = np.array(rows.owner, dtype=np.int64)
    return np.asarray(np.array(per_sample)[owner] * np.array(rows.micro_batch) * configs.accumulation)


def _adapter_bytes(choice: Choice) -> float:
    """All states of an adapter's element: weight, gradient and moments, in the run's format."""
    states = state_bytes(
        "true" if choice.precision.endswith("-true") else "amp", choice.precision, choice.optimizer
    )
    return states.weight + states.gradient + states.master + states.moments


def pick(
    rows: Rows, evaluated: Evaluated, choices: Sequence[Choice], limits: Floats, surely_fits: float
) -> list[int]:
    """Per choice the row that trains fastest among those that fit, else the one that needs least."""
    if len(rows) == len(choices):
        return list(range(len(rows)))
    owner = np.array(rows.owner)
    samples = np.array(rows.micro_batch) * evaluated.configs.accumulation * evaluated.layouts.dp[owner]
    rate = samples / evaluated.time.total
    fits = evaluated.memory.needed <= surely_fits * limits[evaluated.layouts.device[evaluated.configs.layout]]
    score = np.where(fits, rate, -evaluated.memory.needed)
    order = np.lexsort((score, fits, owner))
    last = np.searchsorted(owner[order], np.arange(len(choices)), side="right") - 1
    return [int(index) for index in order[last]]
