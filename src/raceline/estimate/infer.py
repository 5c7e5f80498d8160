"""Inference scenarios as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from raceline.estimate.calibration import columns
from raceline.estimate.choose import Choice, activation_bytes
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import Engine, bytes_per_element, engine
from raceline.estimate.devices import FORMATS
from raceline.estimate.layout import Floats
from raceline.estimate.memory import GIB
from raceline.estimate.scenario import Pool
from raceline.estimate.serving import Serving
from raceline.estimate.streaming import is_widened, narrow_kernels, slowdown, weight_seconds


def _column(values: Iterable[float | int | bool]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _kernels(choices: Sequence[Choice]) -> dict[str, Floats]:
    """Which kernels compute, as arrays."""
    return {
        "fused": _column(c.is_fused for c in choices),
        "channels_last": _column(c.channels_last for c in choices),
        "mixed": _column(c.precision.endswith("-mixed") for c in choices),
        "flash": _column(c.attention != "eager" for c in choices),
    }


def arrays(choices: Sequence[Choice], device_of: Sequence[int], efficiency: Efficiency) -> Serving:
    """Choices as arrays; `device_of` are indices into Devices."""
    engines = [engine(c.runtime) for c in choices]
    setups = [c.scenario.setup for c in choices]
    return Serving(
        device=np.array(device_of, dtype=np.int64),
        precision=np.array([FORMATS.index(c.number_format) for c in choices], dtype=np.int64),
        tp=_column(c.tp for c in choices),
        pp=_column(c.pp for c in choices),
        ep=_column(c.ep for c in choices),
        expert_tp=_column(c.expert_tp for c in choices),
        attention_dp=_column(c.attention_dp for c in choices),
        workers=_column(s.decode.workers if s.decode else 1 for s in setups),
        replicas=_column(
            1 if s.decode else c.dp // c.attention_dp for c, s in zip(choices, setups, strict=True)
        ),
        **_prefill([s.prefill if s.decode else None for s in setups]),
        concurrency=_column(c.concurrency for c in choices),
        cached_len=_column(c.scenario.workload.cached_len or 0 for c in choices),
        input_len=_column(c.input_len for c in choices),
        output_len=_column(c.output_len for c in choices),
        max_model_len=_column(s.max_model_len or 0 for s in setups),
        chunk=_column(
            s.prefill_chunk or e.serving.chunk_tokens for s, e in zip(setups, engines, strict=True)
        ),
        activation_bytes=_column(activation_bytes(c) for c in choices),
        weight_bytes=_column(bytes_per_element(c.weight_precision or c.precision) for c in choices),
        plain_weight_bytes=_column(activation_bytes(c) for c in choices),
        **_streaming(choices, engines, efficiency),
        cache_bytes=_column(bytes_per_element(c.kv_precision) for c in choices),
        engine_fraction=_column(
            _fraction(s.kv_memory_fraction, e.fraction) for s, e in zip(setups, engines, strict=True)
        ),
        engine_reserve_bytes=_column(e.serving.reserve_gib * GIB for e in engines),
        **_kernels(choices),
        host_scale=_column(e.serving.host_scale for e in engines),
        all_at_once=_column(e.serving.batch_starts_together for e in engines),
        drafts=_column(s.draft_tokens or 0 for s in setups),
        mixes=_column(e.serving.mixes for e in engines),
        reserved_answer=_column(1.0 if e.serving.reserves_answer else 0.5 for e in engines),
        first_token_steps=_column(e.serving.first_token_steps for e in engines),
        first_token_s=_column(e.serving.first_token_ms / 1000.0 for e in engines),
        cache_growth=_column(e.serving.cache_growth for e in engines),
        scale=columns(c.scale for c in choices),
    )


def _streaming(
    choices: Sequence[Choice], engines: Sequence[Engine], efficiency: Efficiency
) -> dict[str, Floats]:
    """What an engine's kernels do with weights, and who sums over ranks."""
    pairs = list(zip(choices, engines, strict=True))
    stored = [c.weight_precision or c.precision for c in choices]
    kinds = [(name, c.number_format) for name, c in zip(stored, choices, strict=True)]
    return {
        "weight_s": _column(
            weight_seconds(c.device, e.serving, *kind, efficiency)
            for (c, e), kind in zip(pairs, kinds, strict=True)
        ),
        "own_sums": _column(e.serving.sums_itself for e in engines),
        "slowdown": _column(slowdown(c.device, e.serving) for c, e in pairs),
        "narrow_kernels": _column(
            narrow_kernels(*kind, c.is_fused, efficiency) for c, kind in zip(choices, kinds, strict=True)
        ),
        "widens": _column(
            e.serving.narrows_input and is_widened(*kind) for (_, e), kind in zip(pairs, kinds, strict=True)
        ),
    }


def _prefill(pools: Sequence[Pool | None]) -> dict[str, Floats]:
    """The pool that computes prompts, where there is one."""
    found = [pool or Pool() for pool in pools]
    return {
        "prefill_workers": _column(pool.workers if pool else 0 for pool in pools),
        "prefill_tp": _column(pool.tp for pool in found),
        "prefill_pp": _column(pool.pp for pool in found),
        "prefill_ep": _column(pool.ep or 1 for pool in found),
        "prefill_expert_tp": _column(
            pool.expert_tp or max(1, pool.tp * pool.attention_dp // (pool.ep or 1)) for pool in found
        ),
        "prefill_attention_dp": _column(pool.attention_dp for pool in found),
    }


def _fraction(stated: float | None, default: float) -> float:
    return default if stated is None else stated
