"""llm-analysis: FLOPs of a training step over the peak times one constant; memory by part.

Called as its README does (`LLMAnalysis(model, gpu, dtype, parallelism, flops_efficiency).training(…)`)
with the row's degrees, batch, length, ZeRO stage, recomputation and kernel family. The device is its own
`GPUConfig` filled from the datasheet. A gated feed-forward layer is stated as the two-matrix layer of
as many weights, as its own Llama file does. Its memory figure is the sum of its parts.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tools.peers.case import Case

NAME = "llm-analysis"
DISTRIBUTION = "llm-analysis"
REQUIREMENTS = ("llm-analysis",)
TIME_GROUPS = ("train-dense-16bit", "train-dense-new", "train-moe", "train-finetune")
GROUPS = (*TIME_GROUPS, "memory-allocated", "memory-device", "fit")
EFFICIENCY = {"efficiency 1.0, its default": 1.0, "efficiency 0.5": 0.5}
VARIANTS = tuple(EFFICIENCY)
# The constant is in no memory figure, so these are counted once.
ONE_VARIANT_GROUPS = ("memory-allocated", "memory-device", "fit")
NOTE = "FLOPs over peak x a constant; device file from the datasheet"
NOTES = dict.fromkeys(ONE_VARIANT_GROUPS, "sum of its weights, gradients, optimizer states and activations")
BITS = {"bf16": 16, "fp16": 16, "amp": 16, "fp8": 8, "mxfp8": 8, "nvfp4": 4, "fp4": 4, "mxfp4": 4}
GIB = 2**30


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if case.workload.get("task") != "train":
        return "asked about training only"
    if not case.is_training_all:
        return "no adapters"
    if not case.shape.is_decoder or not case.shape.heads or not case.shape.ffn:
        return "not a plain decoder"
    if case.degree("cp") > 1:
        return "no context parallel"
    if _bits(case) is None:
        return "16, 8 or 4 bit only"
    if case.metric.startswith("memory") or case.metric == "fits":
        return _memory_refusal(case)
    if case.metric == "step_time_s" and not case.setup.get("global_batch"):
        return "the row states no batch"
    return None


def _memory_refusal(case: Case) -> str | None:
    if not case.setup.get("micro_batch"):
        return "the row states no micro batch"
    return "no offload" if case.setup.get("offload") else None


def _bits(case: Case) -> int | None:
    word = str(case.setup.get("precision") or "bf16").removesuffix("-mixed").removesuffix("-true")
    return BITS.get(word)


def answer(case: Case, variant: str) -> float:
    """Its figure for the metric of the case; for `fits`, GiB."""
    found = _training(case, EFFICIENCY[variant])
    if case.metric.startswith("memory") or case.metric == "fits":
        states = found["(weight+op_state+grad)_memory_per_gpu"]
        return float((states + found["activation_memory_per_gpu"]) / GIB)
    step_s = float(found["latency_per_iter"])
    samples = found["global_batch_size"] / step_s / case.count
    if case.metric == "step_time_s":
        return step_s
    return float(samples * (case.workload["seq_len"] if case.metric == "tokens_per_s_per_device" else 1))


@cache
def _library() -> tuple[Any, Any]:
    from llm_analysis import analysis, config
    from llm_analysis.logger import logger

    logger.setLevel("ERROR")
    return analysis, config


def _training(case: Case, efficiency: float) -> dict[str, Any]:
    analysis, config = _library()
    bits, shape, device = _bits(case), case.shape, case.device
    assert bits and shape.ffn and shape.hidden
    width = shape.ffn * 1.5 if shape.is_gated else shape.ffn
    model = config.ModelConfig(
        name=case.model, num_layers=shape.layers, n_head=shape.heads, hidden_dim=shape.hidden,
        vocab_size=shape.vocabulary, max_seq_len=case.workload["seq_len"], num_key_value_heads=shape.kv_heads,
        ffn_embed_dim=width, expansion_ratio=width / shape.hidden, moe_num_experts=shape.experts,
        moe_top_k=shape.experts_per_token,
    )  # fmt: skip
    gpu = config.GPUConfig(
        name=case.accelerator, mem_per_GPU_in_GB=device.memory_gib, peak_fp16_TFLOPS=device.tflops_16bit,
        hbm_bandwidth_in_GB_per_sec=device.memory_gbs, intra_node_min_message_latency=8e-6,
        intra_node_bandwidth_in_GB_per_sec=device.link_gbs or 32.0,
        peak_i8_TFLOPS=device.tflops_8bit, peak_i4_TFLOPS=device.tflops_4bit,
    )  # fmt: skip
    tp, pp, ep = case.degree("tp"), case.degree("pp"), case.degree("ep")
    dp = case.count // (tp * pp)
    layout = config.ParallelismConfig(
        tp_size=tp,
        pp_size=pp,
        dp_size=dp,
        ep_size=ep,
        sp_size=tp if case.setup.get("sequence_parallel") else 1,
    )
    numbers = config.DtypeConfig(f"w{bits}a{bits}e16", bits, bits, 16)
    micro = int(case.setup.get("micro_batch") or 1)
    recompute = str(case.setup.get("recompute") or "none").upper()
    batch = int(case.setup.get("global_batch") or micro * dp)
    found: dict[str, Any] = analysis.LLMAnalysis(
        model, gpu, numbers, layout, flops_efficiency=efficiency
    ).training(
        batch_size_per_gpu=micro,
        global_batch_size=batch,
        seq_len=case.workload["seq_len"],
        activation_recomputation=analysis.ActivationRecomputation[recompute],
        ds_zero=analysis.DSZeRO(case.setup.get("zero_stage") or 0),
        flash_attn=case.setup.get("attention") != "eager",
        mlp_gated_linear_units=shape.is_gated,
    )
    return found
