"""Peak memory of a training step on the fullest device: the maximum over the step's phases.

Phases: the end of the forward pass (all activations and the logits), the end of the last backward
pass (all gradients, one layer's working set), the optimizer step (its temporary). With pipelines
the first stage holds most micro batches, the last one the logits; the fuller of the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raceline.estimate.configs import Configs
from raceline.estimate.constants import Efficiency
from raceline.estimate.layout import BODY, EXPERT, FROZEN, INPUT, OUTPUT, TABLE, Floats, ModelTable
from raceline.estimate.layout import REPLICATED, SPLIT
from raceline.estimate.op_time import Shapes, ShapeTimes

GIB = 2.0**30
SCORE_BYTES_PER_ACTIVATION_BYTE = 2.5


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes on the fullest device (arrays of N): parts at the peak, which add up to `total`."""

    total: Floats
    parameters: Floats
    gradients: Floats
    optimizer: Floats
    activations: Floats
    logits: Floats
    workspace: Floats
    reserved: Floats


@dataclass(frozen=True, slots=True)
class Elements:
    """Elements on one device of a stage, before ZeRO: dense and expert ones apart (arrays of N)."""

    dense: Floats
    expert: Floats

    @property
    def all(self) -> Floats:
        """Dense and expert elements together."""
        return self.dense + self.expert


def layer_share(table: ModelTable, configs: Configs) -> Floats:
    """The share of the body that the fullest pipeline stage holds: ceil(L / pp) / L."""
    return np.ceil(table.layers / configs.pp) / table.layers


def elements(counts: Floats, configs: Configs, weights: tuple[Floats | float, ...]) -> Elements:
    """Elements held when group g counts `weights`[g] times (its share of this stage)."""
    split = sum(weight * counts[group, SPLIT] for group, weight in enumerate(weights))
    whole = sum(weight * counts[group, REPLICATED] for group, weight in enumerate(weights))
    expert = sum(weight * counts[group, EXPERT] for group, weight in enumerate(weights))
    tables = sum(weight * counts[group, TABLE] for group, weight in enumerate(weights))
    dense = split / configs.tp + whole + tables / (configs.dp * configs.tp)
    return Elements(dense, expert / (configs.tp * configs.ep) + np.zeros(len(configs)))


def training_memory(
    table: ModelTable, configs: Configs, shapes: Shapes, times: ShapeTimes, efficiency: Efficiency
) -> Memory:
    """Peak memory of each configuration."""
    share = layer_share(table, configs)
    one_stage = (configs.pp == 1).astype(float)
    first = _Stage(table, configs, shapes, times, efficiency, share, np.ones(len(configs)), one_stage)
    last = _Stage(table, configs, shapes, times, efficiency, share, one_stage, np.ones(len(configs)))
    if not np.any(configs.pp > 1):
        return first.peak()
    one, other = first.peak(), last.peak()
    fuller = one.total >= other.total
    return Memory(*(np.where(fuller, getattr(one, name), getattr(other, name)) for name in Memory.__slots__))


class _Stage:
    """One pipeline stage of every configuration: what it holds, and its peak."""

    def __init__(
        self, table: ModelTable, configs: Configs, shapes: Shapes, times: ShapeTimes,
        efficiency: Efficiency, share: Floats, has_input: Floats, has_output: Floats,
    ) -> None:  # fmt: skip
        self.table, self.configs, self.efficiency = table, configs, efficiency
        self.shapes, self.times, self.share = shapes, times, share
        self.has_input, self.has_output = has_input, has_output
        self.groups: tuple[Floats | float, ...] = (has_input, share, has_output, 1.0)
        self.held = elements(table.parameters, configs, self.groups)
        self.trained = elements(table.trainable, configs, self.groups)
        self.quantisable = elements(table.quantisable, configs, self.groups)

    def peak(self) -> Memory:
        configs, efficiency = self.configs, self.efficiency
        weights, gradients, optimizer = self._states()
        gathered = self._gathered()
        kept, working, logits = self._activations()
        layer_gradients = self._layer_elements() * configs.gradient_bytes
        running = np.where(configs.in_backward > 0, np.minimum(gradients, layer_gradients), gradients)
        carried = np.where(configs.accumulation > 1, running, 0.0)
        temporary = self._sharded(self.trained, 1) * configs.temporary_bytes * self._on_device(1)
        base = weights + optimizer
        forward = carried + kept + logits + gathered + working * 0.0
        backward = running + working + gathered + np.where(configs.zero_stage >= 2, layer_gradients, 0.0)
        update = running + temporary
        phase = np.argmax(np.stack([forward, backward, update]), axis=0)
        dynamic = np.where(phase == 0, forward, np.where(phase == 1, backward, update))
        reserved = self._reserved(dynamic)
        workspace = np.where(phase < 2, gathered, temporary) + np.where(
            (phase == 1) & (configs.zero_stage >= 2), layer_gradients, 0.0
        ) + efficiency.workspace_gib * GIB
        return Memory(
            total=base + dynamic + reserved + efficiency.workspace_gib * GIB,
            parameters=weights,
            gradients=np.where(phase == 0, carried, running),
            optimizer=optimizer,
            activations=np.where(phase == 0, kept, np.where(phase == 1, working, 0.0)),
            logits=np.where(phase == 0, logits, 0.0),
            workspace=workspace,
            reserved=reserved,
        )

    def _states(self) -> tuple[Floats, Floats, Floats]:
        """Bytes of weights, of gradients (with DDP's buckets) and of optimizer states and masters."""
        configs, trained = self.configs, self.trained
        adapters = self._adapters()
        frozen = Elements(self.held.dense - trained.dense, self.held.expert - trained.expert)
        quantised = Elements(
            np.minimum(self.quantisable.dense, frozen.dense), np.minimum(self.quantisable.expert, frozen.expert)
        )
        plain = Elements(frozen.dense - quantised.dense, frozen.expert - quantised.expert)
        on_device = self._on_device(2)
        weights = on_device * (
            self._sharded(trained, 3) * configs.weight_bytes
            + self._sharded(plain, 3) * configs.frozen_bytes
            + self._sharded(quantised, 3) * configs.quantised_bytes
        )
        weights = weights + trained.all * configs.compute_bytes * configs.casts_weights
        gradients = self._sharded(trained, 2) * configs.gradient_bytes * (1.0 + configs.bucket)
        gradients = np.where(configs.offload > 0, gradients * 0.5, gradients)
        states = configs.master_bytes + configs.moment_bytes
        optimizer = self._sharded(trained, 1) * states * self._on_device(1)
        adapter_bytes = np.where(configs.zero_stage >= 3, adapters / configs.zero_group, adapters)
        return weights, gradients, optimizer + adapter_bytes * configs.adapter_bytes

    def _adapters(self) -> Floats:
        counts = self.table.adapters
        total = sum(weight * counts[group] for group, weight in enumerate(self.groups))
        return total / self.configs.tp + np.zeros(len(self.configs))

    def _sharded(self, part: Elements, from_stage: int) -> Floats:
        """Elements after ZeRO, where its stage is at least `from_stage`."""
        configs = self.configs
        dense = np.where(configs.zero_stage >= from_stage, part.dense / configs.zero_group, part.dense)
        over = np.maximum(configs.zero_group / configs.ep, 1.0)
        return dense + np.where(configs.zero_stage >= from_stage, part.expert / over, part.expert)

    def _on_device(self, offload: int) -> Floats:
        """0 where these states live in host memory (1: optimizer, 2: parameters), else 1."""
        is_away = self.configs.offload >= offload
        return np.where(is_away, 0.0, 1.0)

    def _layer_elements(self) -> Floats:
        """Elements of one layer on a device before ZeRO."""
        return elements(self.table.parameters, self.configs, (0.0, 1.0 / self.table.layers, 0.0, 0.0)).all

    def _gathered(self) -> Floats:
        """ZeRO-3's whole layers: the running and the prefetched one, and embedding and head."""
        configs, efficiency = self.configs, self.efficiency
        ends = elements(self.table.parameters, configs, (self.has_input, 0.0, self.has_output, 0.0)).all
        layers = self._layer_elements() * efficiency.prefetched_layers
        is_sharded = (configs.zero_stage >= 3) & (configs.zero_group > 1) | (configs.offload >= 2)
        return np.where(is_sharded, (layers + ends) * configs.compute_bytes, 0.0)

    def _activations(self) -> tuple[Floats, Floats, Floats]:
        """Bytes kept at the end of the forward pass, one layer's working set, and the logits."""
        configs, table, at = self.configs, self.table, self.configs.shape
        saved, scores = self.times.saved_bytes[at], self.times.scores_bytes[at]
        element = self.shapes.activation_bytes[at]
        score_bytes = scores[:, BODY] * element * SCORE_BYTES_PER_ACTIVATION_BYTE
        full = saved[:, BODY] + score_bytes
        edges = boundary_bytes(table, self.shapes)[at]
        selective = np.maximum(saved[:, BODY] * self.efficiency.selective_kept, edges)
        body = np.choose(configs.recompute, [full, np.minimum(selective, full), np.minimum(edges, full)])
        working = np.where(configs.recompute > 0, full / table.layers, 0.0)
        working = working + 2.0 * self.times.largest_bytes[at, BODY]
        in_flight = self._in_flight()
        kept = in_flight * (body * self.share + saved[:, INPUT] * self.has_input)
        kept = kept + saved[:, OUTPUT] * self.has_output
        return kept, working, self._logits() * self.has_output

    def _in_flight(self) -> Floats:
        """Micro batches whose activations this stage holds at once."""
        configs = self.configs
        is_first = self.has_input > 0
        depth = np.minimum(configs.pp, configs.accumulation)
        chunks = 1.0 + (configs.pp - 1.0) / (configs.pp * configs.virtual_stages)
        depth = np.where(configs.schedule == 1, depth * chunks, depth)
        depth = np.where(configs.schedule == 3, configs.accumulation, depth)
        return np.where((configs.pp > 1) & is_first, depth, 1.0)

    def _logits(self) -> Floats:
        """Logits and the loss's copies of them: bytes per logit by how the loss is computed."""
        configs, table, at = self.configs, self.table, self.configs.shape
        rows = self.shapes.batch[at] * _length(table.loss_extent, self.shapes)[at] / configs.cp
        per_logit = np.where(
            configs.fused > 0, self.efficiency.logit_bytes_fused, self.efficiency.logit_bytes_eager
        )
        per_logit = np.where(configs.fused_loss > 0, per_logit / self.efficiency.logit_chunks, per_logit)
        return rows * table.classes / configs.tp * per_logit

    def _reserved(self, dynamic: Floats) -> Floats:
        """The context, communication buffers, and what the caching allocator can't reuse."""
        efficiency = self.efficiency
        buffers = np.where(self.configs.count > 1, efficiency.collective_buffers_gib * GIB, 0.0)
        return efficiency.context_gib * GIB + buffers + dynamic * efficiency.allocator_slack


def boundary_bytes(table: ModelTable, shapes: Shapes) -> Floats:
    """Bytes that full recompute keeps over all layers, per micro batch (array of U)."""
    cut = np.where(shapes.sequence_parallel > 0, shapes.tp, 1.0) * shapes.cp
    rows = _length(table.boundary, shapes)
    return shapes.batch * rows * shapes.activation_bytes * table.layers / cut


def _length(extent: Floats, shapes: Shapes) -> Floats:
    return np.asarray(extent[0] + extent[1] * shapes.seq_len + extent[2] * shapes.target_len)


def states_off_device(table: ModelTable, configs: Configs) -> Floats:
    """Bytes of states that offload moves to host memory, per device: weights with `parameters`,
    gradients, masters and moments with any offload."""
    share = layer_share(table, configs)
    groups: tuple[Floats | float, ...] = (1.0, share, 1.0, 1.0)
    trained = elements(table.trainable, configs, groups).all
    held = elements(table.parameters, configs, groups).all
    sharded = np.where(configs.zero_stage >= 1, configs.zero_group, 1.0)
    states = trained * (configs.master_bytes + configs.moment_bytes + configs.gradient_bytes)
    frozen = np.where(configs.quantised_bytes > 0, configs.quantised_bytes, configs.frozen_bytes)
    weights = trained * configs.weight_bytes + (held - trained) * frozen
    weights = np.where(configs.zero_stage >= 3, weights / configs.zero_group, weights)
    states = np.where(configs.offload > 0, states / sharded, 0.0)
    return states + np.where(configs.offload >= 2, weights, 0.0)


assert FROZEN == 3 and INPUT == 0 and OUTPUT == 2  # the order of `_Stage.groups`
