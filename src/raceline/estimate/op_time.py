"""Time and FLOPs of every op at a shape, and the activations that it keeps: arrays over shapes.

A shape is what op times depend on: device, precision, micro batch, lengths and the cuts through a
layer. There are few of them, so they are computed once and gathered by configuration.

Matmuls and fused attention take the measured curves of `raceline.estimate.kernels`; memory-bound ops
move their bytes at the part of the bandwidth that ``data/efficiency.json`` states.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.attention import AttentionWork, attention_seconds
from raceline.estimate.calibration import TRAFFIC
from raceline.estimate.constants import Efficiency
from raceline.estimate.convolutions import plane_traffic, starts, time_convolutions
from raceline.estimate.devices import Devices
from raceline.estimate.layout import GROUPS, OUTPUT, Columns, Floats, ModelTable
from raceline.estimate.matmuls import time_matmuls

Ints = NDArray[np.int64]
_CHUNK_CELLS = 400_000


@dataclass(frozen=True, slots=True)
class Shapes:
    """Arrays of equal length U. `batch`: samples in one forward pass; `precision`: column of
    `Devices.peak`; `activation_bytes` of one element; `weight_bytes` of one quantisable element,
    `plain_weight_bytes` of the others, `cache_bytes` of a cached one; `new_fixed`, `new_tokens` and
    `new_targets`: positions of one sample that this pass computes, `seq_len` and `target_len` those
    that attention can look back to; `decoding`: 1 where the past is read from a cache;
    `expert_tp` cuts experts' matrices where `tp` cuts the others, and `expert_share` is what a device
    computes of its own sequences' visits to experts, more than 1 where other ranks send it theirs;
    `weight_s`: seconds a quantisable weight that reading takes at least (see ``streaming``);
    `slowdown`: time of the engine's matrix products over a vendor's;
    `fused`: kernels fuse elementwise work; `channels_last`: convolutions find their inputs in that order;
    `mixed`: norms and sums stay in 32 bits while the rest is cast (autocast); `flash`: no attention
    scores are kept; `early`: by a kernel older than the device; `expert_kernels`: experts are computed one after
    the other; `scale`: U x KINDS, the calibration's factors."""

    device: Ints
    precision: Ints
    batch: Floats
    seq_len: Floats
    target_len: Floats
    new_fixed: Floats
    new_tokens: Floats
    new_targets: Floats
    decoding: Floats
    tp: Floats
    cp: Floats
    ep: Floats
    expert_tp: Floats
    expert_share: Floats
    sequence_parallel: Floats
    fused: Floats
    channels_last: Floats
    mixed: Floats
    flash: Floats
    early: Floats
    expert_kernels: Floats
    activation_bytes: Floats
    weight_bytes: Floats
    plain_weight_bytes: Floats
    weight_s: Floats
    slowdown: Floats
    cache_bytes: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.device)

    def take(self, index: slice | Ints) -> Shapes:
        """A part of the shapes."""
        return Shapes(**{name: getattr(self, name)[index] for name in self.__slots__})


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """Arrays of U x GROUPS, whole model on one device of a layer's cuts (before pipelines):
    seconds bound by compute and by memory in forward and backward, launches, model FLOPs with
    causal attention counted as half, bytes kept for backward without recompute (`layer_bytes`, an
    array of U: by one repeat of the fullest block of the body), and bytes that one forward pass sends:
    all-reduced over tp, exchanged between experts, passed around cp's ring."""

    forward_compute_s: Floats
    forward_memory_s: Floats
    backward_compute_s: Floats
    backward_memory_s: Floats
    attention_forward_s: Floats
    launches_forward: Floats
    launches_backward: Floats
    flops_forward: Floats
    flops_backward: Floats
    saved_bytes: Floats
    scores_bytes: Floats
    largest_bytes: Floats
    layer_bytes: Floats
    reduced_bytes: Floats
    routed_bytes: Floats
    ring_bytes: Floats

    @classmethod
    def join(cls, parts: list[ShapeTimes]) -> ShapeTimes:
        """Parts over chunks of shapes, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__slots__))


def time_ops(table: ModelTable, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> ShapeTimes:
    """Times of all ops at all shapes, in chunks that stay in the processor's cache."""
    widest = max(len(table.matmul), len(table.traffic), len(table.tensors), 1)
    step = max(1, _CHUNK_CELLS // widest)
    parts = [
        _time_chunk(table, shapes.take(slice(start, start + step)), devices, efficiency)
        for start in range(0, len(shapes), step)
    ]
    return ShapeTimes.join(parts)


def _time_chunk(table: ModelTable, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> ShapeTimes:
    matmul = time_matmuls(table, positions(table.matmul.extents, shapes), shapes, devices, efficiency)
    attention = _attentions(table.attention, shapes, devices, efficiency)
    late = np.where(shapes.early > 0, devices.early_attention[shapes.device], 1.0)[:, None]
    attending, backing = attention.forward * late, attention.backward * late
    traffic = _traffics(table, shapes, devices, efficiency)
    saved, largest, layer = _saved(table, shapes)
    rows = positions(table.convolution.extents, shapes)
    convolved = time_convolutions(table.convolution, rows, shapes, devices, efficiency, table.is_trained)
    starting = starts(table, shapes, devices, efficiency)
    return ShapeTimes(
        forward_compute_s=matmul.forward_compute + convolved.forward_compute + attending,
        forward_memory_s=matmul.forward_memory + convolved.forward_memory + traffic.forward + starting,
        backward_compute_s=matmul.backward_compute + convolved.backward_compute + backing,
        backward_memory_s=matmul.backward_memory
        + convolved.backward_memory
        + traffic.backward
        + starting * 2.0,
        attention_forward_s=attending,
        launches_forward=_launches(table, shapes, False),
        launches_backward=_launches(table, shapes, True),
        flops_forward=matmul.flops_forward + convolved.flops_forward + attention.flops_forward,
        flops_backward=matmul.flops_backward + convolved.flops_backward + attention.flops_backward,
        saved_bytes=saved,
        scores_bytes=attention.scores_bytes,
        largest_bytes=largest,
        layer_bytes=layer + attention.layer_scores_bytes,
        **_sent(table, shapes),
    )


def _sent(table: ModelTable, shapes: Shapes) -> dict[str, Floats]:
    """Bytes sent in one forward pass. Row-split matmuls end in an all-reduce of their output;
    a token's vector goes to each of its experts and back; keys and values travel cp's ring."""
    ops, attention, element = table.matmul, table.attention, shapes.activation_bytes[:, None]
    out = positions(ops.extents, shapes) * ops["experts_per_token"] * ops["n"] * ops.count * element
    is_expert = ops["experts"] > 1
    rows = positions(attention.extents, shapes)
    kv = rows * attention["kv_heads"] * (attention["head_dim"] + attention["value_dim"]) * attention.count
    return {
        "reduced_bytes": (out * ((ops["row"] > 0) & ~is_expert)) @ ops.by_group(),
        "routed_bytes": (2.0 * out * ((ops["row"] > 0) & is_expert)) @ ops.by_group(),
        "ring_bytes": (kv * element / shapes.tp[:, None]) @ attention.by_group(),
    }


def positions(extents: Floats, shapes: Shapes) -> Floats:
    """U x rows: positions of one micro batch on one device (context parallel cuts sequences)."""
    lengths = np.stack([shapes.new_fixed, shapes.new_tokens / shapes.cp, shapes.new_targets / shapes.cp])
    return (shapes.batch[:, None] * (lengths.T @ extents.T)) if len(extents) else np.zeros((len(shapes), 0))


@dataclass(frozen=True, slots=True)
class _AttentionTimes:
    forward: Floats
    backward: Floats
    flops_forward: Floats
    flops_backward: Floats
    scores_bytes: Floats
    layer_scores_bytes: Floats


def _attentions(ops: Columns, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> _AttentionTimes:
    """Attention: 2 q kv (head_dim + value_dim) heads FLOPs; a causal one needs half, a window less.

    While decoding, a new position sees the whole cache, and the time is the reading of it.
    """
    groups = ops.by_group()
    per_sample = (
        positions(ops.extents, shapes) / shapes.batch[:, None] if len(ops) else np.zeros((len(shapes), 0))
    )
    kv = (
        ops["kv_fixed"]
        + ops["kv_token"] * shapes.seq_len[:, None]
        + ops["kv_target"] * shapes.target_len[:, None]
    )
    is_whole = (shapes.flash[:, None] <= 0) & (ops["backward"] > 0)
    seen = np.where(is_whole, kv, _keys_seen(ops, kv, shapes.decoding[:, None]))
    heads = np.ceil(np.maximum(ops["heads"] / shapes.tp[:, None], 1.0))
    pairs = shapes.batch[:, None] * per_sample * seen * heads * ops.count
    flops = 2.0 * pairs * (ops["head_dim"] + ops["value_dim"])
    work = AttentionWork(per_sample, np.minimum(kv, ops["window"]), seen, heads, pairs, flops)
    forward = attention_seconds(ops, shapes, devices, efficiency, work)
    element = shapes.activation_bytes[:, None]
    per_score = element * ops["score_copies"] + np.where(element < 4.0, 4.0 * ops["score_upcast"], 0.0)
    kept = shapes.batch[:, None] * per_sample * kv * heads * per_score * (1.0 - shapes.flash[:, None])
    kept = kept * ops["backward"]
    return _AttentionTimes(
        forward @ groups,
        (forward * ops["backward"] * efficiency.attention_backward) @ groups,
        flops @ groups,
        (2.0 * flops * ops["backward"]) @ groups,
        (kept * ops.count) @ groups,
        _fullest(kept, ops),
    )


def _keys_seen(ops: Columns, kv: Floats, decoding: Floats) -> Floats:
    """Mean number of keys that a query attends to: (1 + n)/2 of n under a causal mask, never more
    than the window; with a cache, all of it."""
    causal = np.where(ops["causal"] > 0, (kv + 1.0) / 2.0, kv)
    window = ops["window"]
    finite = np.where(np.isfinite(window), window, 0.0)
    limited = np.where(kv > window, finite - finite * (finite - 1.0) / (2.0 * np.maximum(kv, 1.0)), causal)
    limited = np.where(
        (ops["causal"] > 0) & np.isfinite(window), np.minimum(limited, causal), np.minimum(causal, window)
    )
    return np.where(decoding > 0, np.minimum(kv, window), limited)


@dataclass(frozen=True, slots=True)
class _TrafficTimes:
    forward: Floats
    backward: Floats


def _traffics(table: ModelTable, shapes: Shapes, devices: Devices, efficiency: Efficiency) -> _TrafficTimes:
    """Memory-bound ops: bytes / bandwidth, less where kernels are fused; backward moves twice."""
    ops, groups = table.traffic, table.traffic.by_group()
    tp, sp = shapes.tp[:, None], shapes.sequence_parallel[:, None]
    cut = np.where(ops["split"] > 0, tp, np.where(sp > 0, tp, 1.0))
    moved = positions(ops.extents, shapes) * ops["elements"] * ops.count / cut
    fused = efficiency.fused_training_traffic if table.is_trained else efficiency.fused_traffic
    scale = np.where(shapes.fused > 0, fused, efficiency.eager_traffic)
    per_byte = (
        scale * shapes.scale[:, TRAFFIC] / (devices.bandwidth_bytes_s[shapes.device] * efficiency.memory)
    )
    more = np.where(shapes.fused[:, None] > 0, 1.0, ops["eager"])
    if ops["plane"].any():
        more = np.where(ops["plane"] > 0, plane_traffic(ops, shapes, efficiency), more)
    moved = moved * more
    forward = moved * (shapes.activation_bytes * per_byte)[:, None]
    return _TrafficTimes(forward @ groups, (forward * ops["backward"] * 2.0) @ groups)


# Kernels that plain PyTorch launches beside a matmul with an adapter (casts, dropout, two matmuls, scaling,
# addition) with its Python, and that attention takes (reshapes, transposes, repeated keys, the mask): litgpt's
# resource tables take 2.8 to 3.4 ms a layer and step without adapters and 4.4 with, whatever the batch.
CONVOLUTION_KERNELS = 2.0
ADAPTER_KERNELS, ATTENTION_KERNELS = 10.0, 8.0
# Kernels and calls by which bitsandbytes widens one quantised matrix (its scales, their offset, the weights, casts,
# transposing): litgpt's resource tables take about 1.2 ms more a layer and pass with NF4.
WIDENING_KERNELS = 6.0


# Kernels of routing and exchange: top-k, histograms, permutations, sums.
ROUTING_KERNELS = 40.0


def _launches(table: ModelTable, shapes: Shapes, backward: bool) -> Floats:
    """Kernels launched, by group: each op is one where kernels are fused, and eager work several."""
    one, many = np.zeros((1, GROUPS)), np.zeros((1, GROUPS))
    for ops in (table.matmul, table.convolution, table.attention, table.traffic):
        passes = (ops["backward"] * 2.0) if backward else 1.0
        one = one + (ops.count * passes)[None, :] @ ops.by_group()
        many = many + (ops.count * passes * _eager_kernels(table, ops))[None, :] @ ops.by_group()
    many = many + _widening_launches(table, shapes)
    total = np.where(shapes.fused[:, None] > 0, one, many)
    return np.asarray(total + _expert_launches(table, shapes, backward))


def _widening_launches(table: ModelTable, shapes: Shapes) -> Floats:
    """Kernels by which a pass of training widens quantised weights, by group."""
    narrow = (shapes.weight_bytes < shapes.plain_weight_bytes) & table.is_trained
    if not narrow.any():
        return np.zeros((1, GROUPS))
    ops = table.matmul
    kernels = (ops["quantisable"] > 0) * ops.count * WIDENING_KERNELS
    return np.asarray(narrow[:, None] * (kernels[None, :] @ ops.by_group()))


def _expert_launches(table: ModelTable, shapes: Shapes, backward: bool) -> Floats:
    """Kernels beyond one that experts take while training, by group."""
    ops = table.matmul
    if not table.is_trained or table.experts <= 1:
        return np.zeros((1, GROUPS))
    local = np.maximum(ops["experts"] / np.minimum(shapes.ep[:, None], ops["experts"]), 1.0)
    routing = ROUTING_KERNELS / np.maximum((ops["experts"] > 1).sum(), 1)
    passes = (ops["backward"] * 2.0) if backward else 1.0
    return np.asarray(
        ((shapes.expert_kernels[:, None] * local + routing) * (ops["experts"] > 1) * ops.count * passes)
        @ ops.by_group()
    )


def _eager_kernels(table: ModelTable, ops: Columns) -> Floats:
    """Kernels of each op in plain PyTorch."""
    if ops is table.traffic:
        return ops["kernels"]
    if ops is table.attention:
        return np.full(len(ops), ATTENTION_KERNELS)
    if ops is table.convolution:
        return np.full(len(ops), CONVOLUTION_KERNELS)
    return np.asarray(1.0 + ADAPTER_KERNELS * (ops["adapter_rank"] > 0), dtype=np.float64)


def _saved(table: ModelTable, shapes: Shapes) -> tuple[Floats, Floats, Floats]:
    """Bytes kept for backward by group (without recompute), the largest single tensor by group, and
    what one repeat of the fullest block keeps."""
    ops = table.tensors
    rows = positions(ops.extents, shapes)
    width = np.where(ops["fixed_bytes"] > 0, ops["fixed_bytes"], shapes.activation_bytes[:, None])
    tp, sp = shapes.tp[:, None], shapes.sequence_parallel[:, None]
    cut = np.where((ops["split"] > 0) | (sp > 0), tp, 1.0)
    single = rows * ops["width"] * width / cut
    kept = np.where((ops["eager"] > 0) & (shapes.fused[:, None] > 0), 0.0, single)
    groups = ops.by_group()
    is_logits = (ops["width"] == table.classes) & (table.classes > 1) & (ops.group == OUTPUT)
    kept = np.where(is_logits, 0.0, kept)
    if not len(ops):
        return np.zeros((len(shapes), GROUPS)), np.zeros((len(shapes), GROUPS)), np.zeros(len(shapes))
    largest = np.max(np.where(is_logits, 0.0, single)[:, :, None] * groups[None], axis=1)
    return (kept * ops.count) @ groups, largest, _fullest(kept, ops)


def _fullest(kept: Floats, ops: Columns) -> Floats:
    """The most that one repeat of a block of the body keeps (array of U)."""
    by_block = ops.by_block()
    return (kept @ by_block).max(axis=1) if by_block.shape[1] else np.zeros(len(kept))
