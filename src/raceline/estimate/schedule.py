"""Time of a training step: layers in order, what overlaps, what is exposed, and the bubble."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raceline.estimate.calibration import COLLECTIVE, HOST, LOSS, UPDATE, WEIGHTS
from raceline.estimate.collectives import group
from raceline.estimate.configs import Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices
from raceline.estimate.layout import BODY, FROZEN, INPUT, OUTPUT, Floats, ModelTable
from raceline.estimate.memory import layer_share, sharded, whole_stage
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
class _LayoutTimes:
    """Seconds that depend on the layout alone (arrays of K): what adding up gradients takes, the host's
    part of gathering, ZeRO-3's traffic of one micro batch, the gradients' reduction, the update, offload's
    traffic; rates and latencies of groups."""

    share: Floats
    one_stage: Floats
    accumulating: Floats
    gathering_host: Floats
    sharding: Floats
    gradients: Floats
    update: Floats
    offload: Floats
    tp_seconds_per_byte: Floats
    tp_latency: Floats
    ep_seconds_per_byte: Floats
    cp_seconds_per_byte: Floats
    stage_latency: Floats
    bubble_depth: Floats


def training_step(
    table: ModelTable, configs: Configs, layouts: Layouts, shapes: Shapes, times: ShapeTimes,
    devices: Devices, efficiency: Efficiency, input_s: Floats | float = 0.0,
) -> StepTime:  # fmt: skip
    """Step time of each configuration. `input_s`: what reading one step's data takes."""
    fixed = _layout_times(table, layouts, devices, efficiency)
    at, repeats = configs.layout, configs.accumulation
    compute, memory, backward = _one_micro_batch(table, configs, shapes, times, devices, efficiency, fixed)
    memory = memory + _dequantising(table, configs, layouts, devices, efficiency, fixed)
    busy = compute + memory
    host = _not_hidden(_host(configs, layouts, times, efficiency, fixed), busy)
    accumulating = fixed.accumulating[configs.layout] * (repeats > 1)
    memory = memory + accumulating
    micro = busy + host + accumulating
    scale = layouts.scale[at]
    sent = _exposed_layers(configs, layouts, times, fixed, efficiency) * scale[:, COLLECTIVE]
    sent += _exposed_sharding(fixed.sharding[at] * scale[:, COLLECTIVE], micro, efficiency)
    bubble = fixed.bubble_depth[at] * (micro + sent)
    reduction = fixed.gradients[at] * scale[:, COLLECTIVE]
    gradients = np.maximum(reduction * efficiency.exposed_gradients, reduction - backward)
    update, offload = fixed.update[at], fixed.offload[at]
    before_input = repeats * (micro + sent) + bubble + gradients + update + offload
    waiting = np.maximum(input_s - before_input, 0.0)
    flops = times.flops_forward.sum(axis=1) + times.flops_backward.sum(axis=1)
    return StepTime(
        total=before_input + waiting,
        compute=repeats * compute,
        memory_bound=repeats * memory,
        communication_exposed=repeats * sent + gradients + offload,
        pipeline_bubble=bubble,
        optimizer=update,
        input=waiting,
        host=repeats * host,
        flops=flops[configs.shape] / layouts.pp[at] * repeats,
    )


def _stage(values: Floats, configs: Configs, fixed: _LayoutTimes) -> Floats:
    """Sum of groups on the slowest stage: its share of the body, and both ends or the longer one."""
    both = values[:, INPUT] + values[:, OUTPUT]
    longer = np.maximum(values[:, INPUT], values[:, OUTPUT])
    of, at = configs.shape, configs.layout
    ends = longer[of] + (both - longer)[of] * fixed.one_stage[at] + values[:, FROZEN][of]
    return np.asarray(values[:, BODY][of] * fixed.share[at] + ends)


def _one_micro_batch(
    table: ModelTable, configs: Configs, shapes: Shapes, times: ShapeTimes, devices: Devices,
    efficiency: Efficiency, fixed: _LayoutTimes,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Seconds bound by compute and by memory of forward and backward, and of backward alone."""
    of, share = configs.shape, fixed.share[configs.layout]
    again_compute = np.stack(
        [np.zeros(len(shapes)), times.attention_forward_s[:, BODY], times.forward_compute_s[:, BODY]], axis=1
    )
    again_memory = np.stack(
        [np.zeros(len(shapes)), 0.5 * times.forward_memory_s[:, BODY], times.forward_memory_s[:, BODY]],
        axis=1,
    )
    forward = _stage(times.forward_compute_s, configs, fixed)
    back = _stage(times.backward_compute_s, configs, fixed) + again_compute[of, configs.recompute] * share
    vocabulary = _loss(table, shapes, devices, efficiency)[of]
    memory_back = _stage(times.backward_memory_s, configs, fixed) + vocabulary
    memory_back = memory_back + again_memory[of, configs.recompute] * share
    memory = _stage(times.forward_memory_s, configs, fixed) + vocabulary + memory_back
    training = efficiency.training
    return (forward + back) * training, memory, back * training + memory_back


def _loss(table: ModelTable, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> Floats:
    """Half of the loss's traffic over the logits (it is the same in both passes)."""
    extent = table.loss_extent
    rows = shapes.batch * (extent[0] + extent[1] * shapes.seq_len + extent[2] * shapes.target_len)
    logits = rows / shapes.cp * table.classes / shapes.tp
    rate = devices.bandwidth_bytes_s[shapes.device] * efficiency.memory
    return np.asarray(0.5 * logits * efficiency.vocabulary_bytes * shapes.scale[:, LOSS] / rate)


def _host(
    configs: Configs, layouts: Layouts, times: ShapeTimes, efficiency: Efficiency, fixed: _LayoutTimes
) -> Floats:
    """Seconds that the host needs to launch a micro batch's kernels."""
    launches = _stage(times.launches_forward + times.launches_backward, configs, fixed)
    again = np.array([0.0, 0.5, 1.0])[configs.recompute] * times.launches_forward[:, BODY][configs.shape]
    at = configs.layout
    launches = launches + again * fixed.share[at]
    per_launch = np.where(layouts.fused > 0, efficiency.compiled_host_s, efficiency.eager_host_s)
    return np.asarray(
        (launches * per_launch[at] + fixed.gathering_host[at])
        * layouts.scale[at, HOST]
        * layouts.host_scale[at]
    )


def _not_hidden(host: Floats, busy: Floats) -> Floats:
    """What the device's work doesn't hide of the host's: the longer one counts, and where both are alike they
    wait for each other, (busy^3 + host^3)^(1/3) - busy."""
    return np.asarray(np.cbrt(busy * busy * busy + host * host * host) - busy)


def _dequantising(
    table: ModelTable, configs: Configs, layouts: Layouts, devices: Devices, efficiency: Efficiency,
    fixed: _LayoutTimes,
) -> Floats:  # fmt: skip
    """Seconds that frozen quantised weights need to become 16-bit ones, in each pass through them."""
    at = configs.layout
    narrow = layouts.quantised_bytes < layouts.compute_bytes
    if not narrow.any():
        return np.zeros(1)
    elements = table.quantisable.sum() * fixed.share / layouts.tp * narrow
    rate = devices.bandwidth_bytes_s[layouts.device] * efficiency.memory
    once = elements * efficiency.dequantised_bytes * layouts.scale[:, WEIGHTS] / rate
    return np.asarray(once[at] * (2.0 + (configs.recompute == 2)))


def _exposed_layers(
    configs: Configs, layouts: Layouts, times: ShapeTimes, fixed: _LayoutTimes, efficiency: Efficiency
) -> Floats:
    """Exposed communication inside a micro batch: tp's all-reduces in both passes (again under full
    recompute), the experts' exchange, cp's ring as far as attention doesn't hide it, and hand-overs."""
    of, at = configs.shape, configs.layout
    passes = np.array([2.0, 2.0, 3.0])[configs.recompute] * fixed.share[at]
    sent = (times.reduced_bytes[:, BODY][of] * fixed.tp_seconds_per_byte[at] + fixed.tp_latency[at]) * passes
    sent *= efficiency.exposed_tensor_parallel
    if np.any(layouts.ep > 1):
        sent += times.routed_bytes[:, BODY][of] * fixed.ep_seconds_per_byte[at] * passes
    if np.any(layouts.cp > 1):
        ring = times.ring_bytes[:, BODY][of] * fixed.cp_seconds_per_byte[at]
        hidden = times.attention_forward_s[:, BODY][of]
        sent += np.maximum(ring - hidden, 0.1 * ring) * passes
    return np.asarray(sent + fixed.stage_latency[at])


def _exposed_sharding(total: Floats, busy: Floats, efficiency: Efficiency) -> Floats:
    """What compute doesn't hide of ZeRO-3's traffic: (busy^p + comm^p)^(1/p) + rest x comm - busy."""
    if not np.any(total > 0):
        return np.zeros(1)
    ratio = total / busy
    power = efficiency.overlap_power
    together = (1.0 + ratio**power) ** (1.0 / power) - 1.0
    return np.asarray(busy * together + efficiency.overlap_rest * total)


def _layout_times(
    table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency
) -> _LayoutTimes:
    """All terms that depend on the layout alone."""
    ones, device = np.ones(len(layouts)), layouts.device
    share = layer_share(table, layouts)
    tensor = group(devices, device, layouts.tp, ones, efficiency)
    experts = group(devices, device, layouts.ep, layouts.tp, efficiency)
    ring = group(devices, device, layouts.cp, layouts.tp, efficiency)
    stages = group(devices, device, 2.0 * ones, layouts.tp * layouts.dp * layouts.cp, efficiency)
    update, offload = _update(table, layouts, devices, efficiency)
    depth = np.where(layouts.schedule == 2, (layouts.pp - 1.0) / 3.0, layouts.pp - 1.0)
    return _LayoutTimes(
        share=share,
        one_stage=(layouts.pp == 1).astype(float),
        accumulating=_accumulating(table, layouts, devices, efficiency),
        gathering_host=_gathering_host(table, layouts, efficiency),
        sharding=_sharding(table, layouts, devices, efficiency),
        gradients=_gradients(table, layouts, devices, efficiency),
        update=update,
        offload=offload,
        tp_seconds_per_byte=tensor.seconds_per_byte("all_reduce"),
        tp_latency=tensor.start_s("all_reduce") * 2.0 * table.layers,
        ep_seconds_per_byte=experts.seconds_per_byte("all_to_all"),
        cp_seconds_per_byte=np.where(layouts.cp > 1, (layouts.cp - 1.0) / ring.bytes_s, 0.0),
        stage_latency=np.where(
            layouts.pp > 1, 2.0 * stages.start_s("all_gather") * layouts.virtual_stages, 0.0
        ),
        bubble_depth=depth / layouts.virtual_stages,
    )


def _accumulating(table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency) -> Floats:
    """Seconds to add one micro batch's gradients to the sum: it is read and written. ZeRO-3 sums shards,
    which are small."""
    trained = whole_stage(table, table.trainable, layouts).all
    moved = trained * 2.0 * layouts.gradient_bytes
    rate = devices.bandwidth_bytes_s[layouts.device] * efficiency.memory
    return np.where(layouts.zero_stage >= 3, 0.0, moved * layouts.scale[:, UPDATE] / rate)


def _gathering_host(table: ModelTable, layouts: Layouts, efficiency: Efficiency) -> Floats:
    """Seconds of Python that ZeRO-3 needs around each layer: two gathers and a reduction."""
    units = table.layers * layer_share(table, layouts)
    return np.where(
        (layouts.zero_stage >= 3) & (layouts.zero_group > 1), units * efficiency.gather_host_s, 0.0
    )


def _sharding(table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency) -> Floats:
    """ZeRO-3's gathers (forward, backward) and reduce-scatter of one micro batch, and the traffic
    of parameters that live in host memory."""
    held = whole_stage(table, table.parameters, layouts).gathered
    trained = whole_stage(table, table.trainable, layouts).all
    frozen_width = np.minimum(layouts.quantised_bytes, layouts.compute_bytes)
    gathered = trained * layouts.compute_bytes + (held - trained) * frozen_width
    ranks = group(devices, layouts.device, layouts.zero_group, layouts.tp, efficiency)
    width = np.minimum(layouts.gradient_bytes, layouts.compute_bytes)
    moved = 2.0 * ranks.all_gather(gathered) + ranks.reduce_scatter(trained * width)
    latency = table.layers * layer_share(table, layouts) * 3.0 * ranks.start_s("all_gather")
    is_sharded = (layouts.zero_stage >= 3) & (layouts.zero_group > 1)
    own = np.where(is_sharded, gathered / layouts.zero_group, gathered)
    away = np.where(layouts.offload >= 2, 2.0 * own, 0.0)
    pcie = devices.pcie_bytes_s[layouts.device] * efficiency.pcie
    return np.where(is_sharded, moved + latency, 0.0) + away / pcie


def _gradients(table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency) -> Floats:
    """Seconds to reduce the gradients over data-parallel ranks once a step: all of them below
    ZeRO-3; with it, the shard's over its copies (hybrid sharding)."""
    trained = whole_stage(table, table.trainable, layouts).all
    adapters = table.adapters.sum() * layer_share(table, layouts) / layouts.tp
    payload = trained * layouts.gradient_bytes + adapters * 4.0
    is_sharded = layouts.zero_stage >= 3
    ranks = layouts.dp * layouts.cp
    copies = np.where(is_sharded, np.maximum(ranks / layouts.zero_group, 1.0), ranks)
    stride = np.where(is_sharded, layouts.tp * layouts.zero_group, layouts.tp)
    members = group(devices, layouts.device, copies, stride, efficiency)
    return members.all_reduce(np.where(is_sharded, payload / layouts.zero_group, payload))


def _update(
    table: ModelTable, layouts: Layouts, devices: Devices, efficiency: Efficiency
) -> tuple[Floats, Floats]:
    """The optimizer's own time, on the device or on the host, and offload's traffic over PCIe."""
    mine = sharded(whole_stage(table, table.trainable, layouts), layouts, 1)
    mine = mine + table.adapters.sum() * layer_share(table, layouts) / layouts.tp
    rate = devices.bandwidth_bytes_s[layouts.device]
    on_device = mine * OPTIMIZER_BYTES * efficiency.optimizer * layouts.scale[:, UPDATE] / rate
    in_node = np.minimum(devices.per_node[layouts.device], layouts.count)
    on_host = mine * in_node * HOST_OPTIMIZER_BYTES / (efficiency.host_memory_gbs * 1e9)
    is_away = layouts.offload > 0
    pcie = devices.pcie_bytes_s[layouts.device] * efficiency.pcie
    traffic = np.where(is_away, mine * (layouts.gradient_bytes + layouts.compute_bytes) / pcie, 0.0)
    return np.where(is_away, on_host, on_device), traffic
