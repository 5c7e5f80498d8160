"""How runtimes hold states: bytes per element of weights, gradients, masters and moments."""

from __future__ import annotations

from functools import cache
from typing import Literal, cast

import msgspec

from raceline.catalog import load, runtimes
from raceline.catalog.types import Runtime, ServingHabits, TrainingHabits

States = Literal["amp", "master", "flattened", "megatron", "both", "true"]
DEFAULT_TRAINING, DEFAULT_STATES = "pytorch", "amp"
# Kernels of an expert in a loop (its tokens gathered, one matmul, added back), of one among kernels that take all
# of a device's experts once each is cast or quantised (Transformer Engine's GroupedLinear), and where one kernel
# takes all (ScatterMoE).
EXPERT_KERNELS = {"loop": 3.5, "each": 2.0, "grouped": 0.0}
DEFAULT_SERVING = ServingHabits(
    reserve_gib=0.3, chunk_tokens=10**6, batch_starts_together=True, host_scale=0.2, cache_growth=1.0
)


class Convention(msgspec.Struct, frozen=True):
    """A training runtime's habits, from the catalogue."""

    bf16: States
    fp16: States
    fused: bool
    training: TrainingHabits


class Engine(msgspec.Struct, frozen=True):
    """An inference runtime's habits; `fraction`: the share of memory that it takes for itself."""

    fused: bool
    fraction: float
    serving: ServingHabits


# Names of frameworks, and of stacks of them, and the runtime whose habits decide.
_FAMILIES = (
    ("megatron", "megatron-lm"), ("nemo", "megatron-lm"), ("deepspeed", "deepspeed"), ("fsdp", "pytorch-fsdp2"),
    ("torchtitan", "torchtitan"), ("torchtune", "torchtune"), ("litgpt", "litgpt"), ("unsloth", "unsloth"),
    ("llm-foundry", "llm-foundry"), ("mlx", "mlx"), ("maxtext", "jax"), ("jax", "jax"), ("flax", "jax"),
    ("tensorflow", "tensorflow"), ("keras", "tensorflow"), ("diffusers", "diffusers"), ("sd-scripts", "diffusers"),
    ("flux", "diffusers"), ("accelerate", "accelerate"), ("ddp", "pytorch-ddp"), ("transformers", "transformers"),
    ("dataparallel", "pytorch-dp"),
    ("trl", "transformers"), ("axolotl", "transformers"), ("factory", "transformers"), ("swift", "transformers"),
    ("qlora", "transformers"), ("alpaca", "transformers"), ("collie", "deepspeed"), ("colossal", "deepspeed"),
)  # fmt: skip
# Megatron-DeepSpeed trains in bf16 by DeepSpeed's BF16_Optimizer: as Megatron, and the 16-bit gradients stay beside
# the unsharded fp32 ones (deepspeed/runtime/bf16_optimizer.py: fp32_groups_gradients_flat, update_hp_grads).
_BF16_OPTIMIZER = "megatron-lm+deepspeed"


@cache
def convention(runtime: str) -> Convention:
    """The habits of a training runtime, by its id or the framework in its name; what the catalogue
    doesn't state of it is taken from what it is built on."""
    known = load.runtimes()
    name = runtime.lower()
    family = next((target for part, target in _FAMILIES if part in name), DEFAULT_TRAINING)
    row = known.get(name, known[family])
    line = [*runtimes.lineage(row, known), known[DEFAULT_TRAINING]]
    return Convention(
        bf16="both" if name == _BF16_OPTIMIZER else _states(line, "bf16"),
        fp16=_states(line, "fp16"),
        fused=bool(next((item.fused_kernels for item in line if item.fused_kernels is not None), False)),
        training=next(item.training for item in line if item.training is not None),
    )


@cache
def known_runtime(runtime: str, trains: bool = True) -> str:
    """The catalogue's id of a runtime, by its id or the framework in its name; another engine for inference
    is itself, one that trains is taken for the usual framework."""
    known, name = load.runtimes(), runtime.lower()
    first = name.split()[0] if name else name
    if first in known:
        return first
    other = DEFAULT_TRAINING if trains or not first else first
    return next((target for part, target in _FAMILIES if part in name), other)


def _states(line: list[Runtime], precision: str) -> States:
    return cast(
        States, next((item.states[precision] for item in line if precision in item.states), DEFAULT_STATES)
    )


@cache
def engine(runtime: str) -> Engine:
    """The habits of an inference runtime, or of what it is built on; a static engine's where the catalogue
    states none."""
    known = load.runtimes()
    row = known.get(runtime.lower().split()[0])
    if row is None:
        return Engine(True, 0.0, DEFAULT_SERVING)
    is_fused = row.fused_kernels is not False
    line = [row] if is_fused else list(runtimes.lineage(row, known))
    serving = next((item.serving for item in line if item.serving is not None), DEFAULT_SERVING)
    takes = row.serving is not None and row.memory_reserve is not None and row.memory_fraction is not None
    return Engine(is_fused, (row.memory_fraction or 0.0) if takes else 0.0, serving)


# Bits a weight with scales: nf4 has one fp32 per 64 weights, double quantisation 8 bits and one
# fp32 per 256 blocks (https://arxiv.org/abs/2305.14314); GPTQ and AWQ groups of 128 with fp16 scale
# and zero; k-quants from https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md.
_PLAIN = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "mxfp8": 1.03125}
_QUANTISED_BITS = {
    "nf4": 4.5, "nf4-double": 4.127, "int4": 4.25, "awq-int4": 4.25, "gptq-int4": 4.25, "mxfp4": 4.25,
    "nvfp4": 4.5, "q2_k": 3.0, "q2_k_s": 2.97, "q3_k_s": 3.64, "q3_k_m": 3.9, "q4_0": 4.5, "q4_k_s": 4.67,
    "q4_k_m": 4.85, "q5_0": 5.5, "q5_k_s": 5.5, "q5_k_m": 5.7, "q6_k": 6.56, "q8_0": 8.5, "iq2_xxs": 2.38,
    "iq2_xs": 2.59, "iq2_m": 2.93, "iq3_xxs": 3.25, "iq3_s": 3.66, "iq4_xs": 4.46, "iq4_nl": 4.68,
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
    """Bytes per trained element. `buffered`: gradients lie in one buffer, from which they are also
    reduced, held all the time
    (https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/distributed/param_and_grad_buffer.py).
    `narrow`: of the 16-bit gradients that stay beside it."""

    weight: float
    gradient: float
    master: float
    moments: float
    temporary: float
    compute: float
    casts_weights: bool
    buffered: bool = False
    narrow: float = 0.0


def state_bytes(states: States, precision: str, optimizer: str) -> StateBytes:
    """Bytes per trained element under a convention."""
    elements, fixed, temporary = _MOMENTS[optimizer]
    if precision in ("fp32", "tf32"):
        return StateBytes(4.0, 4.0, 0.0, 4.0 * elements + fixed, 4.0 * temporary, 4.0, False)
    if states == "true":
        return StateBytes(2.0, 2.0, 0.0, 2.0 * elements + fixed, 2.0 * temporary, 2.0, False)
    if states == "amp":
        return StateBytes(4.0, 4.0, 0.0, 4.0 * elements + fixed, 4.0 * temporary, 2.0, True)
    if states == "flattened":
        # InternEvo's step holds one flat 16-bit copy of the rank's gradients while it makes the fp32 one
        # (internlm/solver/optimizer/hybrid_zero_optim.py).
        return StateBytes(2.0, 2.0, 4.0, 4.0 * elements + fixed, 6.0, 2.0, False)
    if states in ("megatron", "both"):
        narrow = 2.0 if states == "both" else 0.0
        return StateBytes(2.0, 4.0, 4.0, 4.0 * elements + fixed, 0.0, 2.0, False, True, narrow)
    # DeepSpeed's step makes an fp32 copy of the rank's gradients (runtime/zero/stage_1_and_2.py).
    return StateBytes(2.0, 2.0, 4.0, 4.0 * elements + fixed, 4.0, 2.0, False)
