"""Serving configurations: weights, cache and engine reserve in memory, and the shapes of their passes."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import RESERVE, WORKING
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices
from raceline.estimate.layout import BODY, Columns, Floats, ModelTable
from raceline.estimate.memory import GIB
from raceline.estimate.op_time import Ints, Shapes


@dataclass(frozen=True, slots=True)
class Serving:
    """Arrays of N serving configurations. `concurrency`: sequences in flight on one replica (in all of a
    service whose prompts a pool of their own computes). A replica has `workers` of tp x pp x `attention_dp`
    devices: so many groups attend to sequences of their own, and the experts are spread over all of
    them (`expert_tp` x `ep`). `prefill_workers`: those of the other pool, with its cuts (0: the same
    workers compute prompts). `mixes`: prompts ride along with others' tokens; `drafts`: tokens proposed
    in each step; `first_token_s`: the engine's own time on a request, and `first_token_steps` of others
    meanwhile; `reserved_answer`: the share of an answer that its place in the cache counts.

    `weight_s`: seconds a weight that reading takes at least; `widens`: 1 where a kernel before
    each product of narrow weights brings the input to integers; `narrow_kernels`: launched beside each
    matmul of narrow weights;
    `slowdown`: time of the engine's matrix products over a vendor's; `own_sums`: 1 where it sums over ranks
    with kernels of its own, not the vendor's library.

    `input_len` and `output_len` in tokens (0 out: one forward pass answers); `cached_len`: tokens before
    the prompt that are in the cache; `chunk`: tokens of one
    prefill pass; bytes are per element. `engine_fraction`: the share of memory that the engine takes for
    itself (0: only what it needs); `replicas`: independent copies; `scale`: N x KINDS, the
    calibration's factors."""

    device: Ints
    precision: Ints
    tp: Floats
    pp: Floats
    ep: Floats
    expert_tp: Floats
    attention_dp: Floats
    workers: Floats
    replicas: Floats
    prefill_workers: Floats
    prefill_tp: Floats
    prefill_pp: Floats
    prefill_ep: Floats
    prefill_expert_tp: Floats
    prefill_attention_dp: Floats
    concurrency: Floats
    cached_len: Floats
    input_len: Floats
    output_len: Floats
    max_model_len: Floats
    chunk: Floats
    activation_bytes: Floats
    weight_bytes: Floats
    plain_weight_bytes: Floats
    weight_s: Floats
    slowdown: Floats
    own_sums: Floats
    widens: Floats
    narrow_kernels: Floats
    cache_bytes: Floats
    engine_fraction: Floats
    engine_reserve_bytes: Floats
    fused: Floats
    channels_last: Floats
    mixed: Floats
    flash: Floats
    host_scale: Floats
    all_at_once: Floats
    mixes: Floats
    drafts: Floats
    first_token_s: Floats
    first_token_steps: Floats
    reserved_answer: Floats
    cache_growth: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.device)

    @property
    def devices(self) -> Floats:
        """Devices of one replica: of both pools where there are two."""
        generating = self.workers * self.tp * self.pp * self.attention_dp
        reading = self.prefill_workers * self.prefill_tp * self.prefill_pp * self.prefill_attention_dp
        return generating + reading

    @property
    def sequences(self) -> Floats:
        """Sequences in flight on the fullest attention group."""
        return np.ceil(self.concurrency / (self.workers * self.attention_dp))

    def reading(self) -> Serving:
        """The workers that compute prompts, as configurations of one pool."""
        is_apart = self.prefill_workers > 0
        names = ("workers", "tp", "pp", "ep", "expert_tp", "attention_dp")
        own = {
            name: np.where(is_apart, getattr(self, f"prefill_{name}"), getattr(self, name)) for name in names
        }
        return replace(self, **own)

    def take(self, index: slice | Ints | NDArray[np.bool_]) -> Serving:
        """Some of the configurations, in that order."""
        return replace(self, **{item.name: getattr(self, item.name)[index] for item in fields(self)})


@dataclass(frozen=True, slots=True)
class ServingMemory:
    """Bytes on one device, by part; `needed` is what must fit, `cache_tokens` what there is room for."""

    total: Floats
    weights: Floats
    kv_cache: Floats
    activations: Floats
    logits: Floats
    reserved: Floats
    cache_bytes_per_sequence: Floats
    cache_tokens: Floats


def weight_bytes(table: ModelTable, serving: Serving) -> Floats:
    """Bytes of weights on the fullest device: quantisable ones at their own width."""
    share = np.ceil(table.layers / serving.pp) / table.layers
    ends = np.where(serving.pp > 1, 0.5, 1.0)
    quantisable, total = table.quantisable, table.parameters
    per_group = (ends, share, ends, np.ones(len(serving)))
    sum_bytes = np.zeros(len(serving))
    for index, weight in enumerate(per_group):
        cuts = (serving.tp, np.ones(len(serving)), serving.expert_tp * serving.ep, serving.tp)
        for kind, cut in enumerate(cuts):
            plain = total[index, kind] - quantisable[index, kind]
            held = quantisable[index, kind] * serving.weight_bytes + plain * serving.plain_weight_bytes
            sum_bytes = sum_bytes + weight * held / cut
    return sum_bytes


def cache_elements(table: ModelTable, length: Floats, tp: Floats, other_length: Floats) -> Floats:
    """Elements of cache of one sequence of `length` positions on one tensor-parallel rank. A window
    caps what its layers keep; heads that tp can't split are copied; latent caches are copied."""
    ops = table.attention
    if not len(ops):
        return np.zeros(len(length))
    cached = ops["cache_width"] > 0
    kv = ops["kv_fixed"] + ops["kv_token"] * length[:, None] + ops["kv_target"] * other_length[:, None]
    kept = np.minimum(kv, ops["window"])
    heads = np.maximum(ops["kv_heads"], 1.0)
    plain = ops["kv_heads"] * (ops["head_dim"] + ops["value_dim"])
    is_latent = cached & (ops["cache_width"] < plain)
    cut = np.where(is_latent, 1.0, np.minimum(tp[:, None], heads))
    return np.asarray((np.where(cached, kept * ops["cache_width"], 0.0) * ops.count / cut).sum(axis=1))


def serving_memory(
    table: ModelTable, serving: Serving, devices: Devices, efficiency: Efficiency
) -> ServingMemory:
    """Memory of each configuration with its wanted sequences in the cache at full length."""
    weights = weight_bytes(table, serving)
    share = np.ceil(table.layers / serving.pp) / table.layers
    length = np.maximum(serving.cached_len + serving.input_len + serving.output_len, serving.max_model_len)
    other = np.full(len(serving), float(table.model.target_len or 0))
    per_sequence = cache_elements(table, length, serving.tp, other) * serving.cache_bytes * share
    one = cache_elements(table, length + 1.0, serving.tp, other) * serving.cache_bytes * share - per_sequence
    activations, logits = _working_set(table, serving, efficiency)
    activations = activations * serving.scale[:, WORKING]
    buffers = np.where(serving.tp * serving.pp > 1, efficiency.collective_buffers_gib * GIB, 0.0)
    reserved = efficiency.context_gib * GIB + buffers + serving.engine_reserve_bytes
    reserved = (reserved + (activations + logits) * efficiency.allocator_slack) * serving.scale[:, RESERVE]
    cache = np.where(serving.output_len > 0, per_sequence * serving.sequences * serving.cache_growth, 0.0)
    limit = devices.memory_bytes[serving.device]
    share_of = np.where(serving.engine_fraction > 0, serving.engine_fraction, 1.0)
    room = limit * share_of - (weights + activations + logits + reserved)
    mean = per_sequence / np.maximum(length, 1.0)
    tokens = np.where(
        mean > 0,
        np.maximum(room, 0.0) / np.where(one > 0, np.minimum(mean, one), np.maximum(mean, 1e-9)),
        0.0,
    )
    return ServingMemory(
        total=weights + cache + activations + logits + reserved,
        weights=weights,
        kv_cache=cache,
        activations=activations,
        logits=logits,
        reserved=reserved,
        cache_bytes_per_sequence=per_sequence,
        cache_tokens=tokens,
    )


def _working_set(table: ModelTable, serving: Serving, efficiency: Efficiency) -> tuple[Floats, Floats]:
    """The prefill's activations (a few tensors of the widest op alive at once) and its logits."""
    one_by_one = (serving.output_len > 0) & (serving.all_at_once <= 0)
    batch = np.where(one_by_one, 1.0, serving.sequences)
    shapes = pass_shapes(table, serving, batch, prefill=True)
    lengths = np.stack([shapes.batch * shapes.new_fixed, shapes.batch * shapes.new_tokens,
                        shapes.batch * shapes.new_targets])  # fmt: skip
    ops, tp = table.matmul, serving.tp[:, None]
    cut_n, cut_k = np.where(ops["column"] > 0, tp, 1.0), np.where(ops["row"] > 0, tp, 1.0)
    wide = (3.0 * ops["n"] / cut_n + 2.0 * ops["k"] / cut_k) * ops["experts_per_token"]
    widest = _widest(lengths, ops, wide, table)
    convolved = table.convolution
    wide = (1.5 * convolved["n"] / convolved["groups"] + convolved["k"]) * np.ones_like(tp)
    widest = np.maximum(widest, _widest(lengths, convolved, wide, table))
    activations = widest * serving.activation_bytes
    logits = np.where(serving.output_len > 0, serving.sequences * table.classes * 4.0, 0.0)
    return activations, logits


def _widest(lengths: Floats, ops: Columns, wide: Floats, table: ModelTable) -> Floats:
    """Elements at the widest op, as far as it is one whose output stays on the device."""
    if not len(ops):
        return np.zeros(lengths.shape[1])
    counts = (ops.group == BODY) | (table.classes < 2)
    return np.asarray((lengths.T @ ops.extents.T * wide * np.where(counts, 1.0, 0.0)).max(axis=1))


def pass_shapes(table: ModelTable, serving: Serving, batch: Floats, prefill: bool) -> Shapes:
    """Shapes of one forward pass. Prefill computes a chunk of tokens of `batch` prompts on each attention
    group, decode one token of each of `batch` sequences."""
    count = len(serving)
    zeros, ones = np.zeros(count), np.ones(count)
    generates = serving.output_len > 0
    two_sided = table.model.target_len > 0
    if prefill:
        whole = np.where(serving.input_len > 0, serving.input_len, float(table.model.seq_len or 1))
        tokens = np.where(generates, np.minimum(whole, serving.chunk), whole)
        targets = np.full(count, 1.0 if two_sided else 0.0)
        # a token of the prompt sees half of it in the mean, and all that is cached
        seen = whole + 2.0 * serving.cached_len
        return _shapes(serving, batch, seen, targets, ones, tokens, targets, zeros)
    past = serving.cached_len + serving.input_len + serving.output_len / 2.0
    targets = serving.output_len / 2.0
    if two_sided:
        return _shapes(serving, batch, serving.input_len, targets, zeros, zeros, ones, ones)
    return _shapes(serving, batch, past, zeros, zeros, 1.0 + serving.drafts, zeros, ones)


def _shapes(
    serving: Serving, batch: Floats, seq_len: Floats, target_len: Floats, new_fixed: Floats,
    new_tokens: Floats, new_targets: Floats, decoding: Floats,
) -> Shapes:  # fmt: skip
    return Shapes(
        device=serving.device, precision=serving.precision, batch=batch, seq_len=seq_len,
        target_len=target_len, new_fixed=new_fixed, new_tokens=new_tokens, new_targets=new_targets,
        decoding=decoding, tp=serving.tp, cp=np.ones(len(serving)), ep=serving.ep,
        expert_tp=serving.expert_tp, expert_share=serving.attention_dp / serving.ep,
        sequence_parallel=np.zeros(len(serving)), fused=serving.fused,
        channels_last=serving.channels_last, mixed=serving.mixed, flash=serving.flash,
        early=np.zeros(len(serving)), expert_kernels=np.zeros(len(serving)),
        activation_bytes=serving.activation_bytes, weight_bytes=serving.weight_bytes,
        plain_weight_bytes=serving.plain_weight_bytes, weight_s=serving.weight_s, slowdown=serving.slowdown,
        cache_bytes=serving.cache_bytes, scale=serving.scale,
    )  # fmt: skip
