"""Time of a training step: layers in order, what overlaps, what is exposed, and the bubble."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raceline.estimate.collectives import Group, group
from raceline.estimate.configs import Configs
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices
from raceline.estimate.layout import BODY, FROZEN, INPUT, OUTPUT, Floats, ModelTable
from raceline.estimate.memory import boundary_bytes, elements, layer_share, states_off_device
from raceline.estimate.op_time import Shapes, ShapeTimes

OPTIMIZER_BYTES = 30.0
HOST_OPTIMIZER_BYTES = 24.0


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of one optimizer step by part (arrays of N), which add up to `total`, and the model's
    FLOPs on one device in that step (recompute not counted, causal attention as half)."""

    total: Floats
    compute: Floats
    memory_bound: Floats
    communication_exposed: Floats
    pipeline_bubble: Floats
    optimizer: Floats
    input: Floats
    host: Floats
    flops: Floats


@dataclass(frozen=True, slots=True)
class _Pass:
    """One micro batch on the slowest stage: seconds by what bounds them."""

    compute: Floats
    memory: Floats
    launches: Floats
    communication: Floats

    @property
    def busy(self) -> Floats:
        return self.compute + self.memory


def training_step(
    table: ModelTable, configs: Configs, shapes: Shapes, times: ShapeTimes, devices: Devices,
    efficiency: Efficiency, input_s: Floats | float = 0.0,
) -> StepTime:  # fmt: skip
    """Step time of each configuration. `input_s`: what reading one step's data takes."""
    share = layer_share(table, configs)
    forward, backward = _passes(table, configs, shapes, times, devices, efficiency, share)
    host_s = np.where(configs.fused > 0, efficiency.compiled_host_s, efficiency.eager_host_s)
    busy = forward.busy + backward.busy
    host = np.maximum((forward.launches + backward.launches) * host_s - busy, 0.0)
    micro = busy + host
    shard_total, shard_exposed = _sharding(table, configs, devices, efficiency, micro)
    exposed = forward.communication + backward.communication + shard_exposed
    depth = np.where(configs.schedule == 2, (configs.pp - 1.0) / 3.0, configs.pp - 1.0)
    bubble = depth / configs.virtual_stages * (micro + exposed)
    gradients = _gradients(table, configs, devices, efficiency, backward.busy)
    update, traffic = _update(table, configs, devices, efficiency)
    repeats = configs.accumulation
    before_input = repeats * (micro + exposed) + bubble + gradients + update + traffic
    waiting = np.maximum(input_s - before_input, 0.0)
    return StepTime(
        total=before_input + waiting,
        compute=repeats * (forward.compute + backward.compute),
        memory_bound=repeats * (forward.memory + backward.memory),
        communication_exposed=repeats * exposed + gradients + traffic,
        pipeline_bubble=bubble,
        optimizer=update,
        input=waiting,
        host=repeats * host,
        flops=_flops(table, configs, times),
    )


def _passes(
    table: ModelTable, configs: Configs, shapes: Shapes, times: ShapeTimes, devices: Devices,
    efficiency: Efficiency, share: Floats,
) -> tuple[_Pass, _Pass]:  # fmt: skip
    """Forward and backward of one micro batch on the stage that takes longest."""
    at, training = configs.shape, efficiency.training
    one = configs.pp == 1
    vocabulary = _loss(table, configs, shapes, devices, efficiency)

    def stage(values: Floats) -> Floats:
        ends = np.where(one, values[at, INPUT] + values[at, OUTPUT], np.maximum(values[at, INPUT], values[at, OUTPUT]))
        return np.asarray(values[at, BODY] * share + ends + values[at, FROZEN])

    tensor = group(devices, configs.device, configs.tp, np.ones(len(configs)), efficiency)
    exposed = _layer_communication(table, configs, times, tensor, devices, efficiency, share)
    forward = _Pass(
        stage(times.forward_compute_s) * training,
        stage(times.forward_memory_s) + vocabulary,
        stage(times.launches_forward),
        exposed,
    )
    again_compute, again_memory, again_launches = (
        np.choose(configs.recompute, [0.0 * share, partial, values[at, BODY] * share])
        for values, partial in (
            (times.forward_compute_s, times.attention_forward_s[at, BODY] * share),
            (times.forward_memory_s, 0.5 * times.forward_memory_s[at, BODY] * share),
            (times.launches_forward, 0.5 * times.launches_forward[at, BODY] * share),
        )
    )
    backward = _Pass(
        (stage(times.backward_compute_s) + again_compute) * training,
        stage(times.backward_memory_s) + again_memory + vocabulary,
        stage(times.launches_backward) + again_launches,
        exposed * np.where(configs.recompute == 2, 2.0, 1.0),
    )
    return forward, backward


def _loss(
    table: ModelTable, configs: Configs, shapes: Shapes, devices: Devices, efficiency: Efficiency
) -> Floats:
    """Half of the loss's traffic over the logits (it is the same in both passes)."""
    at = configs.shape
    extent = table.loss_extent
    rows = shapes.batch * (extent[0] + extent[1] * shapes.seq_len + extent[2] * shapes.target_len)
    logits = rows[at] / configs.cp * table.classes / configs.tp
    rate = devices.bandwidth_bytes_s[configs.device] * efficiency.memory
    return np.asarray(0.5 * logits * efficiency.vocabulary_bytes / rate)


def _layer_communication(
    table: ModelTable, configs: Configs, times: ShapeTimes, tensor: Group, devices: Devices,
    efficiency: Efficiency, share: Floats,
) -> Floats:  # fmt: skip
    """Exposed communication of one forward pass: tp's all-reduces, the experts' exchange, cp's ring
    (hidden behind attention as far as it lasts) and the hand-over between stages."""
    at, ones = configs.shape, np.ones(len(configs))
    per_layer = np.where(configs.tp > 1, table.layers * share * 2.0 * tensor.latency_s, 0.0)
    reduced = tensor.all_reduce(times.reduced_bytes[at, BODY] * share) + per_layer
    total = reduced * efficiency.exposed_tensor_parallel
    if np.any(configs.ep > 1):
        experts = group(devices, configs.device, configs.ep, configs.tp, efficiency)
        total = total + experts.all_to_all(times.routed_bytes[at, BODY] * share)
    if np.any(configs.cp > 1):
        ring = group(devices, configs.device, configs.cp, configs.tp, efficiency)
        passed = times.ring_bytes[at, BODY] * share * (configs.cp - 1.0)
        hidden = times.attention_forward_s[at, BODY] * share
        total = total + np.where(configs.cp > 1, np.maximum(passed / ring.bytes_s - hidden, 0.1 * passed / ring.bytes_s), 0.0)
    if np.any(configs.pp > 1):
        stages = group(devices, configs.device, 2.0 * ones, configs.tp * configs.dp * configs.cp, efficiency)
        total = total + np.where(configs.pp > 1, stages.latency_s * configs.virtual_stages, 0.0)
    return np.asarray(total)


def _sharding(
    table: ModelTable, configs: Configs, devices: Devices, efficiency: Efficiency, busy: Floats
) -> tuple[Floats, Floats]:
    """ZeRO-3's gathers and reduce-scatters of a micro batch: their time, and what compute doesn't
    hide of it: (busy^p + comm^p)^(1/p) + rest x comm - busy."""
    share = layer_share(table, configs)
    held = elements(table.parameters, configs, (1.0, share, 1.0, 1.0)).all
    trained = elements(table.trainable, configs, (1.0, share, 1.0, 1.0)).all
    element = np.where(configs.quantised_bytes > 0, configs.quantised_bytes, configs.compute_bytes)
    ranks = group(devices, configs.device, configs.zero_group, configs.tp, efficiency)
    gathers = 2.0 * ranks.all_gather(held * element) + ranks.all_gather(trained * configs.gradient_bytes)
    layers = table.layers * share * 3.0 * ranks.latency_s
    is_sharded = (configs.zero_stage >= 3) & (configs.zero_group > 1)
    total = np.where(is_sharded, gathers + layers, 0.0)
    moves = np.where(configs.offload >= 2, 2.0 * held * element, 0.0)
    total = total + moves / (devices.pcie_bytes_s[configs.device] * efficiency.pcie)
    power = efficiency.overlap_power
    together = (busy**power + total**power) ** (1.0 / power) + efficiency.overlap_rest * total
    return total, np.where(total > 0, np.maximum(together - busy, 0.0), 0.0)


def _gradients(
    table: ModelTable, configs: Configs, devices: Devices, efficiency: Efficiency, backward: Floats
) -> Floats:
    """Exposed part of the gradients' reduction over data-parallel ranks, once a step: a share is
    never hidden, and what outlasts the last backward pass isn't either."""
    share = layer_share(table, configs)
    trained = elements(table.trainable, configs, (1.0, share, 1.0, 1.0)).all
    adapters = table.adapters.sum() * share / configs.tp
    width = np.minimum(configs.gradient_bytes, 4.0)
    payload = trained * width + adapters * 4.0
    outside = np.maximum(configs.dp * configs.cp / configs.zero_group, 1.0)
    ranks = group(
        devices, configs.device, np.where(configs.zero_stage >= 3, outside, configs.dp * configs.cp),
        np.where(configs.zero_stage >= 3, configs.tp * configs.zero_group, configs.tp), efficiency,
    )  # fmt: skip
    sharded = np.where(configs.zero_stage >= 3, payload / configs.zero_group, payload)
    reduce = ranks.all_reduce(sharded)
    again = np.where(configs.zero_stage == 2, configs.accumulation, 1.0)
    reduce = reduce * (0.5 + 0.5 * again)
    return np.maximum(reduce * efficiency.exposed_gradients, reduce - backward)


def _update(
    table: ModelTable, configs: Configs, devices: Devices, efficiency: Efficiency
) -> tuple[Floats, Floats]:
    """The optimizer's own time, on the device or on the host, and offload's traffic over PCIe."""
    share = layer_share(table, configs)
    trained = elements(table.trainable, configs, (1.0, share, 1.0, 1.0)).all
    trained = trained + table.adapters.sum() * share / configs.tp
    mine = np.where(configs.zero_stage >= 1, trained / configs.zero_group, trained)
    rate = devices.bandwidth_bytes_s[configs.device]
    on_device = mine * OPTIMIZER_BYTES * efficiency.optimizer / rate
    in_node = np.minimum(devices.per_node[configs.device], configs.count)
    on_host = mine * in_node * HOST_OPTIMIZER_BYTES / (efficiency.host_memory_gbs * 1e9)
    is_away = configs.offload > 0
    pcie = devices.pcie_bytes_s[configs.device] * efficiency.pcie
    traffic = np.where(is_away, mine * (configs.gradient_bytes + configs.compute_bytes) / pcie, 0.0)
    return np.where(is_away, on_host, on_device), traffic


def _flops(table: ModelTable, configs: Configs, times: ShapeTimes) -> Floats:
    """Model FLOPs on one device in a step, the mean over pipeline stages."""
    at = configs.shape
    one_pass = times.flops_forward[at].sum(axis=1) + times.flops_backward[at].sum(axis=1)
    return np.asarray(one_pass / configs.pp * configs.accumulation)


__all__ = ["StepTime", "boundary_bytes", "states_off_device", "training_step"]
