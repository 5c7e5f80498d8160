"""How runtimes hold states: bytes per element of weights, gradients, masters and moments."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

States = Literal["amp", "master", "megatron", "true"]


class Convention(msgspec.Struct, frozen=True):
    """A training runtime's habits; `zero` is the stage that it uses unless told otherwise,
    `logit_bytes` what the logits and the loss's copies of them hold at the peak, per logit."""

    runtime: str
    bf16: States
    fp16: States
    zero: int
    fused: bool
    logit_bytes: float
    loads_per_rank: bool
    source_url: str


class Engine(msgspec.Struct, frozen=True):
    """An inference runtime's habits: the share of memory that it takes, what it reserves, the
    longest prefill pass in tokens, whether a batch starts and ends together (`all_at_once`); `cache_growth`: what a cache that grows
    by concatenation holds over its own size."""

    runtime: str
    fused: bool
    fraction: float
    reserve_gib: float
    chunk: int
    all_at_once: bool
    host_scale: float
    cache_growth: float
    source_url: str


class _File(msgspec.Struct):
    rows: list[Convention]
    inference: list[Engine]


@cache
def _tables() -> tuple[dict[str, Convention], dict[str, Engine]]:
    raw = files("raceline.estimate").joinpath("data/conventions.json").read_bytes()
    data = msgspec.json.decode(raw, type=_File)
    return {row.runtime: row for row in data.rows}, {row.runtime: row for row in data.inference}


_FAMILIES = (
    ("megatron", "megatron-lm"), ("nemo", "megatron-lm"), ("deepspeed", "deepspeed"), ("fsdp", "pytorch-fsdp2"),
    ("torchtitan", "torchtitan"), ("torchtune", "torchtune"), ("litgpt", "litgpt"), ("unsloth", "unsloth"),
    ("llm-foundry", "llm-foundry"), ("mlx", "mlx"), ("maxtext", "jax"), ("jax", "jax"), ("flax", "jax"),
    ("tensorflow", "tensorflow"), ("keras", "tensorflow"), ("diffusers", "diffusers"), ("sd-scripts", "diffusers"),
    ("flux", "diffusers"), ("accelerate", "accelerate"), ("ddp", "pytorch-ddp"), ("transformers", "transformers"),
    ("trl", "transformers"), ("axolotl", "transformers"), ("factory", "transformers"), ("swift", "transformers"),
    ("qlora", "transformers"), ("alpaca", "transformers"), ("collie", "deepspeed"), ("colossal", "deepspeed"),
)  # fmt: skip


def convention(runtime: str) -> Convention:
    """The convention of a training runtime or framework, by its id or the family in its name."""
    table = _tables()[0]
    if runtime in table:
        return table[runtime]
    name = runtime.lower()
    family = next((target for part, target in _FAMILIES if part in name), "pytorch")
    return table[family]


def engine(runtime: str) -> Engine:
    """The habits of an inference runtime; a static engine's where it is not in the table."""
    table = _tables()[1]
    name = runtime.lower().split()[0]
    return table.get(name, table["*"])


_PLAIN = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "mxfp8": 1.03125}
# Bits a weight with scales: nf4 has one fp32 per 64 weights, double quantisation 8 bits and one
# fp32 per 256 blocks (https://arxiv.org/abs/2305.14314); GPTQ and AWQ groups of 128 with fp16 scale
# and zero; k-quants from https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md.
_QUANTISED_BITS = {
    "nf4": 4.5, "nf4-double": 4.127, "int4": 4.25, "awq-int4": 4.25, "gptq-int4": 4.25, "mxfp4": 4.25,
    "nvfp4": 4.5, "q2_k": 3.0, "q3_k_m": 3.9, "q4_0": 4.5, "q4_k_m": 4.85, "q5_k_s": 5.5, "q5_k_m": 5.7,
    "q6_k": 6.56, "q8_0": 8.5,
}  # fmt: skip


def bytes_per_element(precision: str) -> float:
    """Bytes of one stored element, scales included."""
    base = precision.removesuffix("-mixed").removesuffix("-true")
    return _QUANTISED_BITS[base] / 8.0 if base in _QUANTISED_BITS else _PLAIN.get(base, 2.0)


# Optimizers: moments in elements of the state type, fixed bytes beside them, and whether a
# temporary of the parameters' size lives during the update (foreach implementations). Paged states
# leave the device when memory is short: https://huggingface.co/docs/bitsandbytes/optimizers.
_MOMENTS = {
    "adamw": (2.0, 0.0, 1.0), "adamw-fused": (2.0, 0.0, 0.0), "adamw-paged": (0.0, 0.0, 0.0),
    "adamw-8bit": (0.0, 2.1, 0.0), "adamw-8bit-paged": (0.0, 0.0, 0.0), "adafactor": (0.0, 0.02, 0.3),
    "sgd": (0.0, 0.0, 0.0), "sgd-momentum": (1.0, 0.0, 1.0), "lion": (1.0, 0.0, 0.5), "muon": (1.0, 0.0, 0.5),
    "none": (0.0, 0.0, 0.0),
}  # fmt: skip


class StateBytes(msgspec.Struct, frozen=True):
    """Bytes per trained element."""

    weight: float
    gradient: float
    master: float
    moments: float
    temporary: float
    compute: float
    casts_weights: bool


def state_bytes(states: States, precision: str, optimizer: str) -> StateBytes:
    """Bytes per trained element under a convention."""
    elements, fixed, temporary = _MOMENTS[optimizer]
    if precision in ("fp32", "tf32"):
        return StateBytes(4.0, 4.0, 0.0, 4.0 * elements + fixed, 4.0 * temporary, 4.0, False)
    if states == "true":
        return StateBytes(2.0, 2.0, 0.0, 2.0 * elements + fixed, 2.0 * temporary, 2.0, False)
    if states == "amp":
        return StateBytes(4.0, 4.0, 0.0, 4.0 * elements + fixed, 4.0 * temporary, 2.0, True)
    gradient = 4.0 if states == "megatron" else 2.0
    return StateBytes(2.0, gradient, 4.0, 4.0 * elements + fixed, 0.0, 2.0, False)
