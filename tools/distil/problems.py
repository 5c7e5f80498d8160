"""What was measured, as inputs of the formulas in `raceline.estimate.kernels`, and limits of constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raceline.estimate import kernels

Floats = NDArray[np.float64]
Predict = Callable[[Any], Floats]

CLASS_OF = {
    "bfloat16": "16bit", "fp8": "8bit", "fp8_block": "8bit", "sq": "8bit", "nvfp4": "4bit",
    "int4_wo": "weight_only", "w4a16_mxfp4": "weight_only",
}  # fmt: skip
# Bytes of one weight with its scales: blocks of 16 (nvfp4) and 32 values share one.
WEIGHT_BYTES = {
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "sq": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53,
    "w4a16_mxfp4": 0.53,
}  # fmt: skip
# DeepSeek's latent attention, the only one measured.
LATENT, LATENT_HEAD, LATENT_VALUE, LATENT_COMPRESSED = 576.0, 192.0, 128.0, 512.0
LARGEST_PARALLEL = 32
LIMITS: dict[str, dict[str, tuple[float, float, float]]] = {
    "matmul": {
        "compute": (1.3, 1.0, 5.0), "m0": (50, 0, 2000), "n0": (50, 0, 4000), "k0": (100, 0, 2000),
        "memory": (0.8, 0.3, 1.1), "narrow": (100, 0, 5000), "floor_s": (3e-6, 0, 3e-5),
    },
    "experts": {
        "compute": (1.5, 1.0, 8.0), "m0": (50, 0, 2000), "n0": (100, 0, 4000), "memory": (0.8, 0.1, 1.1),
        "narrow": (100, 0, 4000), "floor_s": (2e-5, 0, 2e-4), "visit_s": (1e-10, 0, 1e-8),
        "spread": (0.9, 0.3, 1.3), "skew": (0.3, 0.0, 1.0),
    },
    "prefill": {
        "compute": (1.4, 0.8, 10.0), "queries0": (300, 0, 5000), "head0": (10, 0, 300), "tiles0": (100, 0, 2000),
        "memory": (0.5, 0.1, 1.1), "floor_s": (8e-6, 0, 6e-5),
    },
    "decode": {
        "compute": (3.0, 0.1, 60.0), "memory": (0.8, 0.2, 1.1), "keys0": (60, 0, 3000), "caches0": (1, 0, 50),
        "floor_s": (1e-5, 0, 6e-5), "row_s": (3e-10, 0, 5e-9),
    },
    "collective": {
        "first_s": (3e-6, 0, 6e-5), "each_s": (1.5e-6, 0, 2e-5), "rate2": (0.6, 0.01, 1.2),
        "rate4": (0.7, 0.01, 1.2), "rate8": (0.8, 0.01, 1.2), "ramp_s": (2e-5, 0, 3e-4),
        "ramp_bytes": (4e6, 1e4, 6e7),
    },
}  # fmt: skip
# 16 bits have none of it; of narrow formats: what the table's kernels spend on their input apart from the product.
INPUT_LIMITS = {"input_bytes": (3.0, 0.0, 40.0), "input_floor_s": (3e-6, 0.0, 3e-5)}
LIMITS["latent_prefill"], LIMITS["latent_decode"] = LIMITS["prefill"], LIMITS["decode"]


@dataclass(frozen=True)
class Sample:
    """Measured points of one kind and column over all systems of a family."""

    kind: str
    column: str
    rows: Any

    def measured(self) -> Floats:
        """Seconds."""
        return self.floats("latency") * 1e-3

    def floats(self, name: str) -> Floats:
        """One column of the rows."""
        return np.asarray(self.rows[name], dtype=float)

    def predict(self, values: dict[str, float], at: Any = slice(None)) -> Floats:
        """Seconds by the formula with these constants."""
        part = Sample(self.kind, self.column, self.rows[at])
        return _PREDICT[self.kind](part, kernels.curve_of(self.kind, values))


def _matmul(sample: Sample, curve: Any) -> Floats:
    m, n, k = (sample.floats(name) for name in "mnk")
    moved = n * k * sample.floats("weight_bytes") + (m * k + m * n) * 2.0
    bandwidth = sample.floats("bandwidth")
    product = kernels.matmul_seconds(curve, m, n, k, sample.floats("flop_s"), moved, bandwidth)
    return product + kernels.input_seconds(curve, m, k, bandwidth)


def _experts(sample: Sample, curve: Any) -> Floats:
    ranks = sample.floats("moe_ep_size")
    visits = sample.floats("num_tokens") * sample.floats("topk") / ranks
    return kernels.gated_expert_seconds(
        curve,
        kernels.fullest_visits(curve, visits, ranks),
        sample.floats("num_experts") / ranks,
        sample.floats("hidden_size"),
        sample.floats("inter_size") / sample.floats("moe_tp_size"),
        sample.floats("flop_s"),
        sample.floats("weight_bytes"),
        sample.floats("bandwidth"),
    )


def _prefill(sample: Sample, curve: Any) -> Floats:
    head, kv = sample.floats("head_dim"), sample.floats("kv_heads")
    heads = sample.floats("num_heads")
    return _causal(sample, curve, 2.0 * head, (2.0 * heads + 2.0 * kv) * head, head)


def _latent_prefill(sample: Sample, curve: Any) -> Floats:
    heads = sample.floats("num_heads")
    width = 2.0 * heads * (LATENT_HEAD + LATENT_VALUE)
    return _causal(
        sample,
        curve,
        np.full(len(heads), LATENT_HEAD + LATENT_VALUE),
        width,
        np.full(len(heads), LATENT_HEAD),
    )


def _causal(sample: Sample, curve: Any, depth: Floats, width: Floats, head: Floats) -> Floats:
    batch, queries, heads = (sample.floats(name) for name in ("batch_size", "isl", "num_heads"))
    flops = 2.0 * batch * heads * queries * (queries + 1.0) / 2.0 * depth
    rows = batch * heads * queries
    bounds = kernels.prefill_bounds(
        curve, flops, rows, queries, head, sample.floats("flop_s"), batch * queries * width * 2.0,
        sample.floats("bandwidth"),
    )  # fmt: skip
    return kernels.together(*bounds) + curve.floor_s


def _decode(sample: Sample, curve: Any) -> Floats:
    head, kv = sample.floats("head_dim"), sample.floats("kv_heads")
    return _cached(sample, curve, 2.0 * head, kv * 2.0 * head, kv)


def _latent_decode(sample: Sample, curve: Any) -> Floats:
    one = np.ones(len(sample.rows))
    return _cached(sample, curve, one * (LATENT + LATENT_COMPRESSED), one * LATENT, one)


def _cached(sample: Sample, curve: Any, depth: Floats, width: Floats, caches: Floats) -> Floats:
    batch, heads = sample.floats("batch_size"), sample.floats("num_heads")
    keys = sample.floats("step") + sample.floats("isl")
    cache = batch * keys * width * sample.floats("cache_bytes")
    bounds = kernels.decode_bounds(
        curve, 2.0 * batch * heads * keys * depth, batch * caches, keys, sample.floats("flop_s"), cache,
        sample.floats("bandwidth"),
    )  # fmt: skip
    return kernels.together(*bounds) + curve.floor_s + curve.row_s * batch * heads


def _collective(sample: Sample, curve: Any) -> Floats:
    payload = sample.floats("message_size") * 2.0
    return kernels.collective_seconds(
        curve, sample.column, payload, sample.floats("num_gpus"), sample.floats("link_bytes_s")
    )


_PREDICT: dict[str, Callable[[Sample, Any], Floats]] = {
    "matmul": _matmul, "experts": _experts, "prefill": _prefill, "latent_prefill": _latent_prefill,
    "decode": _decode, "latent_decode": _latent_decode, "collective": _collective,
}  # fmt: skip
