"""Inference in time: one pass, and the closed loop of requests that prompts and answers are part of.

A measured service is a closed loop: so many clients ask as `concurrency` says, each asks anew when
it has its answer, all start together, and each asks some ten times.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from raceline.estimate import kernels
from raceline.estimate.calibration import COLLECTIVE, HOST
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Devices
from raceline.estimate.layout import Floats, ModelTable
from raceline.estimate.op_time import Ints, Shapes, ShapeTimes, time_ops
from raceline.estimate.serving import Serving, ServingMemory, pass_shapes

# The share of requests that wait behind half of all others' prompts: in benchmarks all clients start together
# and ask ten times (https://github.com/SemiAnalysisAI/InferenceX); some of that queue is left in later rounds.
FIRST_ROUND = 0.17
ROUNDS_TO_SETTLE = 12
# The least share of a prompt's own time that a pass takes longer for it: such passes run outside of the recorded
# graphs (read off the time of a token against concurrency in the evidence).
MIXED_LEAST = 0.5
# Drafted tokens that turn out right, given those before: 85 to 90 % of DeepSeek-V3's second tokens
# (https://arxiv.org/abs/2412.19437, section 5.4.3), less where text is drawn at random.
ACCEPTED = 0.8
# Collectives of a layer: after attention and after the feed-forward part.
PER_LAYER = 2.0
# Chunks of a prompt that follow each other through a pipeline before the next ones start: llama.cpp's
# n_batch over n_ubatch, https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md.
CHUNKS_ON_THE_WAY = 4.0


@dataclass(frozen=True, slots=True)
class ServingTime:
    """Seconds: of one batch (models that answer in one pass), to the first token, per output token;
    rates per device; parts of one decode step (or pass); FLOPs on one device a second."""

    batch_s: Floats
    ttft_s: Floats
    tpot_s: Floats
    tokens_per_s_per_device: Floats
    samples_per_s_per_device: Floats
    compute: Floats
    memory_bound: Floats
    communication: Floats
    host: Floats
    flops_per_s: Floats
    step_s: Floats


@dataclass(frozen=True, slots=True)
class PassTime:
    """Seconds of one pass by part; `attention` is in them too: what each sequence adds by itself."""

    total: Floats
    compute: Floats
    memory: Floats
    communication: Floats
    host: Floats
    attention: Floats
    flops: Floats


def serving_time(
    table: ModelTable, serving: Serving, memory: ServingMemory, devices: Devices, efficiency: Efficiency,
    steps: float = 1.0,
) -> ServingTime:  # fmt: skip
    """Latency and throughput at the wanted concurrency. `steps`: forward passes that one answer
    needs (denoising)."""
    generates = serving.output_len > 0
    batch = np.where(generates & (serving.all_at_once <= 0), 1.0, serving.sequences)
    prompt = _prompt(table, serving, batch, devices, efficiency)
    loop = _closed_loop(table, serving, memory, prompt, devices, efficiency)
    answer_s = np.where(
        generates, loop.ttft + loop.tpot * np.maximum(serving.output_len - 1.0, 0.0), prompt.total * steps
    )
    answers = serving.concurrency / answer_s / serving.devices
    shown = PassTime(
        *(
            np.where(generates, getattr(loop.step, item.name), getattr(prompt, item.name) * steps)
            for item in fields(PassTime)
        )
    )
    return ServingTime(
        batch_s=np.where(generates, np.nan, prompt.total * steps),
        ttft_s=np.where(generates, loop.ttft, np.nan),
        tpot_s=np.where(generates, loop.tpot, np.nan),
        tokens_per_s_per_device=np.where(generates, answers * serving.output_len, np.nan),
        samples_per_s_per_device=np.where(generates, np.nan, answers),
        compute=shown.compute,
        memory_bound=shown.memory,
        communication=shown.communication,
        host=shown.host,
        flops_per_s=shown.flops / np.maximum(shown.total, 1e-12),
        step_s=shown.total,
    )


@dataclass(frozen=True, slots=True)
class _Loop:
    ttft: Floats
    tpot: Floats
    step: PassTime


def _closed_loop(
    table: ModelTable, serving: Serving, memory: ServingMemory, prompt: PassTime, devices: Devices,
    efficiency: Efficiency,
) -> _Loop:  # fmt: skip
    """Time to the first token and per token. Prompts of others delay tokens where the same workers compute
    both; a cache too small for all leaves some waiting."""
    output = np.maximum(serving.output_len, 1.0)
    together, is_apart = _prompts_together(table, serving, devices, efficiency), serving.prefill_workers > 0
    wanted = serving.sequences
    running = np.minimum(wanted, _room(serving, memory))
    step = _decode(table, serving, running, devices, efficiency)
    if np.any(is_apart):
        running = np.where(
            is_apart, _generating(table, serving, together, step, running, devices, efficiency), running
        )
        step = _decode(table, serving, running, devices, efficiency)
    at_once = serving.all_at_once > 0
    shared = serving.mixes * (step.total - step.attention)
    delay = np.maximum(together - shared, np.where(serving.mixes > 0, MIXED_LEAST * prompt.total, 0.0))
    others = delay * (running - 1.0) / output
    # a pass takes one chunk of prompts at most, and no token waits longer than for one pass
    one_pass = together * serving.chunk / np.maximum(serving.input_len, 1.0)
    others = np.where(serving.mixes > 0, np.minimum(others, one_pass), others)
    others = np.where(at_once | is_apart, 0.0, others)
    tpot = step.total + others
    behind = np.where(
        is_apart, _queue(serving, together, output * step.total), _behind(serving, together, step, running)
    )
    first = 0.5 * np.maximum(np.where(is_apart, _prompts(serving), running) - 1.0, 0.0) * together
    waiting = FIRST_ROUND * np.maximum(first, behind) + (1.0 - FIRST_ROUND) * behind
    server = serving.first_token_s + serving.first_token_steps * step.total
    others_there = 1.0 - 1.0 / np.maximum(serving.concurrency, 1.0)
    ttft = server * others_there + prompt.total + waiting
    ttft += np.where(is_apart, 0.0, (wanted / running - 1.0) * (ttft + output * tpot))
    return _Loop(np.where(at_once, prompt.total, ttft), tpot, step)


def _prompts(serving: Serving) -> Floats:
    """Requests for each group that computes prompts."""
    reading = serving.reading()
    return serving.concurrency / (reading.workers * reading.attention_dp)


def _behind(serving: Serving, together: Floats, step: PassTime, running: Floats) -> Floats:
    """Mean wait behind prompts that came just before, where prompts come first: requests come as others end."""
    queue = running - 1.0
    load = queue * together / (np.maximum(serving.output_len, 1.0) * step.total)
    return np.minimum(0.5 * together * load, 0.5 * queue * together)


def _queue(serving: Serving, together: Floats, generating: Floats) -> Floats:
    """Mean wait for a pool that computes prompts alone: the approximate mean value analysis of a closed
    network of one queue and `generating` seconds elsewhere (Schweitzer 1979; Bard 1979)."""
    surplus = together * _prompts(serving) - generating
    return np.maximum(0.5 * (surplus + np.sqrt(surplus**2 + 4.0 * together * generating)) - together, 0.0)


def _generating(
    table: ModelTable, serving: Serving, together: Floats, full: PassTime, most: Floats, devices: Devices,
    efficiency: Efficiency,
) -> Floats:  # fmt: skip
    """Sequences that one group of a pool of its own generates at once: the others' prompts are waiting."""
    output = np.maximum(serving.output_len, 1.0)

    def share(step_s: Floats) -> Floats:
        generating = output * step_s
        away = _queue(serving, together, generating) + together
        return np.maximum(most * generating / (generating + away), 1.0)

    fewer = share(full.total)
    part = _decode(table, serving, fewer, devices, efficiency).total
    slope = (full.total - part) / np.maximum(most - fewer, 1e-9)
    found = fewer
    for _ in range(ROUNDS_TO_SETTLE):
        found = 0.5 * (found + share(np.maximum(part + slope * (found - fewer), 0.2 * part)))
    return np.minimum(found, most)


def _room(serving: Serving, memory: ServingMemory) -> Floats:
    """Sequences that an engine's cache has room for on one attention group."""
    length = serving.cached_len + serving.input_len + serving.output_len * serving.reserved_answer
    room = np.floor(memory.cache_tokens / np.maximum(length, 1.0))
    return np.where((serving.engine_fraction > 0) & (room > 0), room, np.inf)


def _prompt(
    table: ModelTable, serving: Serving, batch: Floats, devices: Devices, efficiency: Efficiency
) -> PassTime:
    """All passes of a batch of prompts; a pipeline's stages compute several chunks at once."""
    reading = serving.reading()
    one = _pass_time(table, reading, pass_shapes(table, reading, batch, True), devices, efficiency)
    chunks = np.where(
        serving.output_len > 0, np.ceil(np.maximum(serving.input_len, 1.0) / serving.chunk), 1.0
    )
    passes = 1.0 + (chunks - 1.0) * (1.0 / serving.pp + (1.0 - 1.0 / serving.pp) / CHUNKS_ON_THE_WAY)
    return PassTime(*(getattr(one, item.name) * passes for item in fields(PassTime)))


def _prompts_together(
    table: ModelTable, serving: Serving, devices: Devices, efficiency: Efficiency
) -> Floats:
    """Seconds a prompt where as many share a pass as the engine puts into one."""
    most = np.floor(serving.chunk / np.maximum(serving.input_len, 1.0))
    batch = np.clip(most, 1.0, np.maximum(serving.sequences, 1.0))
    batch = np.where(serving.all_at_once > 0, 1.0, batch)
    return np.asarray(_prompt(table, serving, batch, devices, efficiency).total / batch)


def _decode(
    table: ModelTable, serving: Serving, batch: Floats, devices: Devices, efficiency: Efficiency
) -> PassTime:
    """One step, for each token that it yields."""
    step = _pass_time(table, serving, pass_shapes(table, serving, batch, False), devices, efficiency)
    if not np.any(serving.drafts > 0):
        return step
    kept = 1.0 + ACCEPTED * (1.0 - ACCEPTED**serving.drafts) / (1.0 - ACCEPTED)
    proposing = 1.0 + serving.drafts / table.layers
    return PassTime(*(getattr(step, item.name) * proposing / kept for item in fields(PassTime)))


def _pass_time(
    table: ModelTable, serving: Serving, shapes: Shapes, devices: Devices, efficiency: Efficiency
) -> PassTime:
    """One forward pass through all stages of a pipeline."""
    times: ShapeTimes = time_ops(table, shapes, devices, efficiency)
    compute, memory = times.forward_compute_s.sum(axis=1), times.forward_memory_s.sum(axis=1)
    communication = _exchange(table, serving, shapes, devices) * serving.scale[:, COLLECTIVE]
    launch = np.where(serving.fused > 0, efficiency.launch_s, efficiency.eager_host_s)
    fixed = np.where(serving.fused > 0, efficiency.decode_host_s, 0.0)
    batch = efficiency.sequence_host_s * shapes.batch
    host_speed = devices.host[serving.device] * serving.scale[:, HOST]
    launching = launch * np.minimum(serving.host_scale, 1.0) * host_speed
    kernels = times.launches_forward.sum(axis=1)
    extra = serving.widens * (serving.output_len > 0) * efficiency.widening_kernel * table.matmul.count.sum()
    eager = serving.narrow_kernels * (table.matmul.count @ (table.matmul["quantisable"] > 0))
    # the curves of matmuls and attention have theirs in them
    gaps = (
        (table.traffic.count.sum() + table.convolution.count.sum() + extra)
        * efficiency.kernel_s
        * serving.scale[:, HOST]
    )
    host = np.maximum((kernels + eager) * launching - compute - memory, gaps)
    host += (fixed * serving.host_scale + batch) * host_speed * (serving.output_len > 0)
    flops = times.flops_forward.sum(axis=1) / serving.pp
    return PassTime(
        compute + memory + communication + host,
        compute,
        memory,
        communication,
        host,
        times.attention_forward_s.sum(axis=1),
        flops,
    )


def _exchange(table: ModelTable, serving: Serving, shapes: Shapes, devices: Devices) -> Floats:
    """Seconds that the ranks of a replica talk in one pass: sums over tp after attention and feed-forward
    parts; where attention groups share experts, tokens go to the experts and back instead."""
    rows = shapes.batch * np.maximum(
        shapes.new_tokens + shapes.new_targets, np.where(shapes.new_tokens > 0, 0, 1.0)
    )
    payload = rows * table.hidden * shapes.activation_bytes
    ops = table.matmul
    routed = float(((ops["experts"] > 1) & (ops["row"] > 0)).astype(float) @ ops.count) if len(ops) else 0.0
    per_token = float(ops["experts_per_token"].max()) if len(ops) else 1.0
    is_shared = serving.attention_dp > 1
    sums = PER_LAYER * table.layers - np.where(is_shared, routed, 0.0)
    own = _collective(devices, serving.device, "engine_all_reduce", payload, serving.tp)
    if np.all(serving.own_sums > 0):
        total = sums * own
    else:
        library = _collective(devices, serving.device, "all_reduce", payload, serving.tp)
        total = sums * np.where(serving.own_sums > 0, own, library)
    if not np.any(is_shared):
        return total
    group = serving.tp * serving.attention_dp
    gathered = _collective(devices, serving.device, "all_gather", payload * serving.attention_dp, group)
    copies = np.minimum(per_token, serving.ep)
    sent = _collective(devices, serving.device, "all_to_all", payload / serving.tp * copies, serving.ep)
    exchange = np.where(serving.ep > 1, np.minimum(gathered, sent), gathered)
    return total + np.where(is_shared, 2.0 * routed * exchange, 0.0)


def _collective(devices: Devices, device: Ints, name: str, payload: Floats, size: Floats) -> Floats:
    """Seconds of one collective; beyond a node, what crosses the network takes its time."""
    column = kernels.COLLECTIVES.index(name)
    curve = kernels.row_of(devices.kernels.collective, (device, column))
    links = devices.intra_bytes_s[device] * devices.torus_share[device]
    inside = kernels.collective_seconds(curve, name, payload, size, links)
    inside = inside + np.where(size > 1, devices.torus_start_s[device], 0.0)
    crossing = kernels.moved_share(name, np.maximum(size, 1.0)) * payload
    network = crossing / np.maximum(devices.inter_bytes_s[device], 1.0)
    return np.where(size > devices.per_node[device], np.maximum(inside, network), inside)
