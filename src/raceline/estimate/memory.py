"""Peak memory of a training step on the fullest device: the maximum over the step's phases.

Phases: the end of the forward pass (all activations and the logits), the backward pass where it
starts (all activations, one layer's working set) or ends (all gradients instead of activations), and
the optimizer step (its temporary). With pipelines
the first stage holds most micro batches, the last one the logits; the fuller of the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import KEPT, LOGITS, RESERVE, WORKING
from raceline.estimate.configs import Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.layout import (
    BODY,
    EXPERT,
    INPUT,
    OUTPUT,
    REPLICATED,
    SPLIT,
    TABLE,
    Floats,
    ModelTable,
)
from raceline.estimate.op_time import Shapes, ShapeTimes, positions

GIB = 2.0**30
# How full a device is shown to be whose allocator had to give back what it had cached.
FULLEST = 0.97
# A 3x3 convolution as Winograd F(4x4, 3x3) holds 36 places for 16 of its input and output and 36 for the 9 of
# each weight (arXiv:1509.09308, section 4); cuDNN takes it where the numbers are fp32.
_WINOGRAD_PLACES, _WINOGRAD_WEIGHTS = 36 / 16, 36 / 9
_TAPS = 9.0
_FP32 = 4.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest device (arrays of N): parts at the peak, which add up to `total`. Besides:
    `outside`, the share of `reserved` that the framework's allocator doesn't know (context, communication
    buffers), `last_allocated`, what it hands out on the last pipeline stage, and `needed`, the total under
    pressure: before it fails, the allocator gives back what lies cached."""

    total: Floats
    parameters: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    workspace: Floats
    reserved: Floats
    outside: Floats
    last_allocated: Floats
    needed: Floats

    def shown(self, limit: Floats) -> Floats:
        """The total that the driver's tool shows on a device with this limit."""
        return np.minimum(self.total, np.maximum(self.needed, limit * FULLEST))


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements on one device of a stage, before ZeRO: dense and expert ones apart, and those of
    tables, which are spread over all devices and not sharded again (arrays of K)."""

    dense: Floats
    expert: Floats
    tables: Floats

    @property
    def all(self) -> Floats:
        """All elements together."""
        return self.dense + self.expert + self.tables

    @property
    def gathered(self) -> Floats:
        """What ZeRO-3 gathers: all but tables."""
        return self.dense + self.expert

    def plus(self, part: Elements) -> Elements:
        """With `part` added."""
        return Elements(self.dense + part.dense, self.expert + part.expert, self.tables + part.tables)

    def without(self, part: Elements) -> Elements:
        """What is left when `part` is taken away."""
        return Elements(self.dense - part.dense, self.expert - part.expert, self.tables - part.tables)


@dataclass(frozen=True, slots=True)
class StageStates:
    """Bytes of states on one stage of each layout (arrays of K); what doesn't depend on the batch.

    `keeps_twice`: 1 where the backward pass of sharded frozen layers holds each layer's input and the gradient
    towards it to the end: adapters under FSDP (fms-acceleration: 245 KB a token of Mistral 7B beside 262 KB of
    layer inputs, on 2 and on 4 GPUs, and none on one)."""

    weights: Floats
    gradients: Floats
    optimizer: Floats
    temporary: Floats
    gathered: Floats
    layer_gradients: Floats
    buckets: Floats
    bucket_space: Floats
    is_sharded: Floats
    keeps_twice: Floats
    share: Floats
    has_input: Floats
    has_output: Floats


@dataclass(frozen=True, slots=True)
class ShapeMemory:
    """Bytes of activations at each shape (arrays of U), over all layers: `kept` (U x recompute) of
    the body, `ends` of input and output, one layer's `working` set when recomputed or not (U x 2),
    what the fullest convolution holds `beside` them on the way back, and one element a logit (`logits`), to be
    multiplied by the loss's bytes. `slack`: what the caching
    allocator can't reuse of them, less where every batch has the same shape."""

    kept: Floats
    input: Floats
    output: Floats
    working: Floats
    beside: Floats
    logits: Floats
    slack: float


def layer_share(table: ModelTable, layouts: Layouts) -> Floats:
    """The share of the body that the fullest pipeline stage holds: ceil(L / pp) / L."""
    return np.asarray(np.ceil(table.layers / layouts.pp) / table.layers)


def elements(counts: Floats, layouts: Layouts, weights: tuple[Floats | float, ...]) -> Elements:
    """Elements held when group g counts `weights`[g] times (its share of this stage)."""
    split, whole, expert, tables = (
        sum(weight * counts[group, kind] for group, weight in enumerate(weights))
        for kind in (SPLIT, REPLICATED, EXPERT, TABLE)
    )
    spread = tables / (layouts.dp * layouts.tp)
    return Elements(split / layouts.tp + whole, expert / (layouts.tp * layouts.ep), spread)


def whole_stage(table: ModelTable, counts: Floats, layouts: Layouts) -> Elements:
    """Elements of the fullest stage with input and output both counted (an upper bound)."""
    return elements(counts, layouts, (1.0, layer_share(table, layouts), 1.0, 1.0))


def sharded(part: Elements, layouts: Layouts, from_stage: int) -> Floats:
    """Elements after ZeRO, where its stage is at least `from_stage`; experts are sharded over the
    ranks that hold the same ones."""
    over = np.maximum(layouts.zero_group / layouts.ep, 1.0)
    whole = layouts.zero_stage < from_stage
    return np.where(whole, part.all, part.dense / layouts.zero_group + part.expert / over + part.tables)


def stage_states(
    table: ModelTable, layouts: Layouts, efficiency: Efficiency, has_input: Floats, has_output: Floats
) -> StageStates:
    """States of one stage of every layout."""
    share = layer_share(table, layouts)
    groups: tuple[Floats | float, ...] = (has_input, share, has_output, 1.0)
    held = elements(table.parameters, layouts, groups)
    trained = elements(table.trainable, layouts, groups)
    if table.tied.any():
        copied = elements(table.tied[None], layouts, ((1.0 - has_input) * has_output,))
        held = held.plus(copied)
        trained = trained.plus(copied) if table.trainable.any() else trained
    layer = elements(table.parameters, layouts, (0.0, 1.0 / table.layers, 0.0, 0.0)).all
    adapters = sum(weight * table.adapters[group] for group, weight in enumerate(groups)) / layouts.tp
    adapters = np.where(layouts.zero_stage >= 3, adapters / layouts.zero_group, adapters)
    states_here, weights_here = layouts.offload < 1, layouts.offload < 2
    gradients = sharded(trained, layouts, 2) * layouts.gradient_bytes * (1.0 + layouts.bucket)
    layer_gradients = layer * layouts.gradient_bytes * bool(table.trainable.any())
    gradients = np.where(layouts.in_backward > 0, np.minimum(gradients, layer_gradients), gradients)
    moments = layouts.master_bytes + layouts.moment_bytes
    one = sharded(trained, layouts, 1) * states_here
    is_sharded = ((layouts.zero_stage >= 3) & (layouts.zero_group > 1)).astype(float)
    return StageStates(
        weights=_weights(table, layouts, held, trained, groups) * weights_here
        + trained.all * layouts.compute_bytes * layouts.casts_weights,
        gradients=np.where(states_here, gradients, gradients * 0.5),
        optimizer=one * moments + adapters * layouts.adapter_bytes * states_here,
        temporary=one * layouts.temporary_bytes,
        gathered=_gathered(table, layouts, efficiency, layer, has_input, has_output),
        layer_gradients=np.where(layouts.zero_stage >= 2, layer_gradients, 0.0),
        buckets=sharded(trained, layouts, 2) * layouts.gradient_bytes * layouts.bucket * states_here,
        bucket_space=_bucket_space(layouts, efficiency, trained),
        is_sharded=is_sharded,
        keeps_twice=is_sharded * (not table.trainable.any()),
        share=share,
        has_input=has_input,
        has_output=has_output,
    )


def _bucket_space(layouts: Layouts, efficiency: Efficiency, trained: Elements) -> Floats:
    """DeepSpeed's buckets for reducing and gathering, by default 5e8 elements each
    (https://www.deepspeed.ai/docs/config-json/, reduce_bucket_size and allgather_bucket_size)."""
    is_engine = (layouts.master_bytes > 0) & (layouts.buffered == 0) & (layouts.zero_stage > 0)
    elements_each = np.minimum(efficiency.bucket_elements, trained.all)
    return np.where(is_engine, 2.0 * elements_each * layouts.gradient_bytes, 0.0)


def _weights(
    table: ModelTable, layouts: Layouts, held: Elements, trained: Elements,
    groups: tuple[Floats | float, ...],
) -> Floats:  # fmt: skip
    """Bytes of trained weights, frozen plain ones and frozen quantised ones."""
    frozen = held.without(trained)
    quantisable = elements(table.quantisable, layouts, groups)
    quantised = Elements(
        np.minimum(quantisable.dense, frozen.dense),
        np.minimum(quantisable.expert, frozen.expert),
        np.minimum(quantisable.tables, frozen.tables),
    )
    return (
        sharded(trained, layouts, 3) * layouts.weight_bytes
        + sharded(frozen.without(quantised), layouts, 3) * layouts.frozen_bytes
        + sharded(quantised, layouts, 3) * layouts.quantised_bytes
    )


def _gathered(
    table: ModelTable, layouts: Layouts, efficiency: Efficiency, layer: Floats, has_input: Floats,
    has_output: Floats,
) -> Floats:  # fmt: skip
    """ZeRO-3's whole layers: the running and the prefetched one, and embedding and head. Frozen
    quantised layers are gathered quantised and unpacked one matmul at a time."""
    ends = elements(table.parameters, layouts, (has_input, 0.0, has_output, 0.0)).gathered
    is_quantised = layouts.quantised_bytes < layouts.compute_bytes
    width = np.where(is_quantised & ~table.trainable.any(), layouts.quantised_bytes, layouts.compute_bytes)
    is_away = (layouts.zero_stage >= 3) & (layouts.zero_group > 1) | (layouts.offload >= 2)
    layers = np.where(layouts.keeps_gathered > 0, table.layers / layouts.pp, efficiency.prefetched_layers)
    whole = layer * layers * width + ends * layouts.compute_bytes
    return np.where(is_away, whole, 0.0)


def shape_memory(table: ModelTable, shapes: Shapes, times: ShapeTimes, efficiency: Efficiency) -> ShapeMemory:
    """Activations of every shape under each kind of recompute."""
    full = times.saved_bytes[:, BODY] + times.scores_bytes[:, BODY]
    edges = np.minimum(boundary_bytes(table, shapes), full)
    selective = np.minimum(np.maximum(times.saved_bytes[:, BODY] * efficiency.selective_kept, edges), full)
    transient = 2.0 * times.largest_bytes[:, BODY]
    extent = table.loss_extent
    rows = shapes.batch * (extent[0] + extent[1] * shapes.seq_len + extent[2] * shapes.target_len)
    is_text = table.model.unit == "token"
    return ShapeMemory(
        kept=np.stack([full, selective, edges], axis=1),
        input=times.saved_bytes[:, INPUT],
        output=times.saved_bytes[:, OUTPUT],
        working=np.stack([transient, transient + times.layer_bytes], axis=1),
        beside=beside(table, shapes),
        logits=rows / shapes.cp * table.classes / shapes.tp,
        slack=efficiency.kept_slack if is_text else efficiency.allocator_slack_images,
    )


def beside(table: ModelTable, shapes: Shapes) -> Floats:
    """Bytes that the backward pass of a plain 3x3 convolution in fp32 holds at the most: the gradients of its
    output and input, and the workspace in which both are transformed."""
    ops = table.convolution
    is_plain = (
        (ops["k"] == _TAPS * ops["input_elements"]) & (ops["groups"] == 1) & (ops["weight_gradient"] > 0)
    )
    if not is_plain.any():
        return np.zeros(len(shapes))
    rows = positions(ops.extents, shapes)
    sides = rows * (ops["input_elements"] + ops["n"])
    each = sides * (1.0 + _WINOGRAD_PLACES) + ops["k"] * ops["n"] * _WINOGRAD_WEIGHTS
    return np.where(shapes.activation_bytes == _FP32, (each * is_plain).max(axis=1) * _FP32, 0.0)


def training_memory(
    table: ModelTable, configs: Configs, layouts: Layouts, shapes: Shapes, times: ShapeTimes,
    efficiency: Efficiency,
) -> Memory:  # fmt: skip
    """Peak memory of each configuration."""
    stages = _stages(table, configs, layouts, shapes, times, efficiency)
    first, last = stages[0].parts(efficiency), stages[-1].parts(efficiency)
    if len(stages) == 1:
        return first
    fuller = first.total >= last.total
    names = [item.name for item in fields(Memory)]
    parts = {name: np.where(fuller, getattr(first, name), getattr(last, name)) for name in names}
    return Memory(**{**parts, "last_allocated": last.last_allocated})


def needed_memory(
    table: ModelTable, configs: Configs, layouts: Layouts, shapes: Shapes, times: ShapeTimes,
    efficiency: Efficiency,
) -> Floats:  # fmt: skip
    """`training_memory`'s `needed` alone."""
    stages = _stages(table, configs, layouts, shapes, times, efficiency)
    first, last = stages[0], stages[-1]
    if len(stages) == 1:
        return first.needed(efficiency)
    return np.where(first.total >= last.total, first.needed(efficiency), last.needed(efficiency))


def _stages(
    table: ModelTable, configs: Configs, layouts: Layouts, shapes: Shapes, times: ShapeTimes,
    efficiency: Efficiency,
) -> list[_Peak]:  # fmt: skip
    """The peaks of the first and, where there are pipelines, of the last stage."""
    activations = shape_memory(table, shapes, times, efficiency)
    ones, is_one_stage = np.ones(len(layouts)), (layouts.pp == 1).astype(float)
    ends = [(ones, is_one_stage)]
    if np.any(layouts.pp > 1):
        ends.append((is_one_stage, ones))
    return [
        _peak(configs, layouts, stage_states(table, layouts, efficiency, *pair), activations, efficiency)
        for pair in ends
    ]


@dataclass(frozen=True, slots=True)
class _Peak:
    """One stage at its peak (arrays of N), and which phase that is."""

    states: StageStates
    at: NDArray[np.int64]
    kept: Floats
    logits: Floats
    working: Floats
    carried: Floats
    is_turn: NDArray[np.bool_]
    is_forward: NDArray[np.bool_]
    is_update: NDArray[np.bool_]
    allocated: Floats
    spare: Floats
    reserved: Floats
    outside: Floats

    @property
    def total(self) -> Floats:
        """All bytes."""
        return self.allocated + self.reserved

    def needed(self, efficiency: Efficiency) -> Floats:
        """Bytes that must fit: what the allocator can give back under pressure not counted in full."""
        return (
            self.allocated + self.outside + (self.reserved - self.outside) * efficiency.slack_under_pressure
        )

    def parts(self, efficiency: Efficiency) -> Memory:
        """The peak by part."""
        states, at = self.states, self.at
        gradients = states.gradients[at]
        layer = np.where(self.is_forward, 0.0, states.layer_gradients[at])
        kept = np.where(self.is_update, 0.0, self.working + self.kept * self.is_turn)
        return Memory(
            total=self.total,
            parameters=states.weights[at],
            gradients=np.where(self.is_forward | (self.is_turn & ~self.is_update), self.carried, gradients),
            optimizer=states.optimizer[at],
            activations=np.where(self.is_forward, self.kept, kept),
            logits=np.where(self.is_forward, self.logits, 0.0),
            workspace=self.spare
            + np.where(self.is_update, states.temporary[at], states.gathered[at] + layer),
            reserved=self.reserved,
            outside=self.outside,
            last_allocated=self.allocated,
            needed=self.needed(efficiency),
        )


def _peak(
    configs: Configs, layouts: Layouts, states: StageStates, activations: ShapeMemory, efficiency: Efficiency
) -> _Peak:
    """The peak of one stage: the fullest phase."""
    at, of = configs.layout, configs.shape
    kept = activations.kept[of, configs.recompute] * states.share[at]
    kept += activations.input[of] * states.has_input[at]
    kept *= _in_flight(configs, layouts, states)
    kept += activations.output[of] * states.has_output[at]
    per_logit = (layouts.logit_bytes * states.has_output * layouts.scale[:, LOGITS])[at]
    logits = activations.logits[of] * per_logit
    working = activations.working[of, np.minimum(configs.recompute, 1)]
    if np.any(layouts.scale[:, KEPT:] != 1.0):
        kept, working = kept * layouts.scale[at, KEPT], working * layouts.scale[at, WORKING]
    gradients, gathered, layer = states.gradients[at], states.gathered[at], states.layer_gradients[at]
    carried = np.where((configs.accumulation > 1) | (layouts.buffered[at] > 0), gradients, states.buckets[at])
    both = carried + kept
    forward = both + logits + gathered
    is_turn = both >= gradients
    working = np.where(is_turn & (configs.recompute == 0), activations.beside[of], working)
    again: Floats | float = 0.0
    if states.keeps_twice.any():
        again = kept * states.keeps_twice[at] * (configs.recompute == 2)
    backward = np.where(is_turn, both + again, gradients) + working + gathered + layer
    update = gradients + states.temporary[at]
    acting = np.maximum(forward, backward)
    dynamic = np.maximum(acting, update)
    is_forward = (forward >= backward) & (forward >= update)
    slack = (kept + again + working) * activations.slack
    slack += activations.logits[of] * (_logit_slack(layouts, efficiency) * states.has_output)[at]
    held = np.maximum(acting + slack, update)
    held = held + _apart(states, efficiency, acting, update, gathered + layer, at)
    outside = _outside(layouts, efficiency)[at]
    spare = efficiency.workspace_gib * GIB + states.bucket_space[at]
    return _Peak(
        states=states, at=at, kept=kept, logits=logits, working=working, carried=carried, is_turn=is_turn,
        is_forward=is_forward, is_update=~is_forward & (update > backward),
        allocated=(states.weights + states.optimizer)[at] + dynamic + spare, spare=spare,
        reserved=outside + (held - dynamic) * layouts.scale[at, RESERVE], outside=outside,
    )  # fmt: skip


def _in_flight(configs: Configs, layouts: Layouts, states: StageStates) -> Floats | float:
    """Micro batches whose activations this stage holds at once: one on the last stage; interleaved,
    (v - 1) pp + 1 chunks of v there and pp v + pp - 1 on the first."""
    if not np.any(layouts.pp > 1):
        return 1.0
    chunks = 1.0 + (layouts.pp - 1.0) / (layouts.pp * layouts.virtual_stages)
    deep = layouts.pp * np.where(layouts.schedule == 1, chunks, 1.0)
    last = np.where(layouts.schedule == 1, layouts.pp - (layouts.pp - 1.0) / layouts.virtual_stages, 1.0)
    deep = np.where((layouts.pp > 1) & (states.has_input > 0), deep, last)
    deep = np.where((layouts.pp > 1) & (layouts.schedule == 3), np.inf, deep)
    return np.minimum(deep[configs.layout], np.maximum(configs.accumulation, 1.0))


def _outside(layouts: Layouts, efficiency: Efficiency) -> Floats:
    """What the framework's allocator doesn't know: the context with its kernels, and the buffers of each
    kind of process group."""
    groups = sum((degree > 1).astype(float) for degree in (layouts.dp, layouts.tp, layouts.pp, layouts.cp))
    buffers = groups * efficiency.group_buffers_gib
    return np.asarray((efficiency.training_context_gib + buffers) * GIB * layouts.scale[:, RESERVE])


def _logit_slack(layouts: Layouts, efficiency: Efficiency) -> Floats:
    """Bytes a logit in blocks that nothing else fits into, once the loss has freed them."""
    return np.minimum(efficiency.logit_slack_bytes, layouts.logit_bytes * efficiency.logit_slack_share)


def _apart(
    states: StageStates, efficiency: Efficiency, acting: Floats, update: Floats, gathered: Floats,
    at: NDArray[np.int64],
) -> Floats:  # fmt: skip
    """Blocks that the allocator can't give to another phase: those of the streams that gather and reduce, and,
    where states are sharded, a share of the shorter of activations and update."""
    share = efficiency.phase_slack * states.is_sharded
    return np.asarray(np.minimum(acting, update) * share[at] + gathered * efficiency.stream_slack)


def boundary_bytes(table: ModelTable, shapes: Shapes) -> Floats:
    """Bytes that full recompute keeps over all layers, per micro batch (array of U)."""
    cut = np.where(shapes.sequence_parallel > 0, shapes.tp, 1.0) * shapes.cp
    extent = table.boundary
    rows = extent[0] + extent[1] * shapes.seq_len + extent[2] * shapes.target_len
    return np.asarray(shapes.batch * rows * shapes.activation_bytes * table.layers / cut)


def states_off_device(table: ModelTable, layouts: Layouts) -> Floats:
    """Bytes of states that offload moves to host memory, per device: gradients, masters and
    moments with any offload, weights too with `parameters` (array of K)."""
    trained = whole_stage(table, table.trainable, layouts)
    held = whole_stage(table, table.parameters, layouts)
    states = sharded(trained, layouts, 1) * (
        layouts.master_bytes + layouts.moment_bytes + layouts.gradient_bytes
    )
    frozen = np.minimum(layouts.quantised_bytes, layouts.frozen_bytes)
    weights = sharded(trained, layouts, 3) * layouts.weight_bytes
    weights = weights + sharded(held.without(trained), layouts, 3) * frozen
    return np.where(layouts.offload > 0, states, 0.0) + np.where(layouts.offload >= 2, weights, 0.0)
