"""Published reports of whether a workload fitted, as scenarios.

`scenario_of` maps one report of `fit.yaml` to the mapping that `estimate` takes. What a report
leaves out is filled by the rules here, the same for every report; `assumed` lists them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceline.present.errors import InputError

PRECISIONS = {
    "bf16-true": "bf16-true", "bf16-mixed": "bf16-mixed", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32",
    "fp16-amp": "fp16-mixed", "amp": "fp16-mixed", "fp16-mixed": "fp16-mixed", "fp16-pure": "fp16-true",
    "fp8": "fp8", "mxfp4": "bf16",
}  # fmt: skip
OPTIMIZERS = {
    "adamw": "adamw", "adam": "adamw", "adamw_fused": "adamw-fused", "adamw_8bit": "adamw-8bit",
    "adamw_bnb_8bit": "adamw-8bit", "paged_adamw_8bit": "adamw-8bit-paged", "paged_adamw_32bit": "adamw-paged",
    "adafactor": "adafactor", "sgd": "sgd-momentum",
}  # fmt: skip
OFFLOADS = {
    "cpu_params_grads_optimizer": "all", "cpu_optimizer": "optimizer", "cpu_params": "all", "cpu_all": "all",
}  # fmt: skip
QUANTISATIONS = {
    "nf4": "nf4", "nf4-double": "nf4-double", "gptq-int4": "gptq-int4", "awq-int4": "awq-int4", "int8": "int8",
    "q5_k_s": "q5_k_s",
}  # fmt: skip
METHODS = {"lora": "lora", "qlora": "qlora", "pretrain": "pretrain"}
SHARDED_BY_FSDP = ("transformers", "accelerate", "pytorch", "trl", "llama-recipes", "trl+peft")
# Recipes that turn checkpointing on unless told otherwise (preparing a quantised base for adapters
# does so too), and stacks whose attention never keeps scores.
CHECKPOINTS_BY_DEFAULT = ("unsloth", "llama-factory", "ms-swift", "qlora", "axolotl", "trl")
FUSED_ATTENTION_SINCE = "2024"
FUSED_ATTENTION = (
    "litgpt", "torchtune", "torchtitan", "unsloth", "llm-foundry", "megatron", "vllm", "sglang", "llama.cpp",
    "lmdeploy", "mlx", "nanogpt",
)  # fmt: skip
CHUNKED_BY_DEFAULT_ABOVE = 32_768
SEQUENCE_IF_UNSTATED = 512
CARD_IF_UNSTATED = "24GB card"


class FitCase(msgspec.Struct, frozen=True, kw_only=True):
    """A report as a scenario, what happened, and what was assumed."""

    id: str
    scenario: dict[str, Any]
    fits: bool
    peak_gib: float | None
    assumed: tuple[str, ...]
    source_url: str


def scenario_of(case: dict[str, Any]) -> FitCase:
    """One report of `fit.yaml`; raises InputError where a field has a word that no rule knows."""
    workload, hardware = case["workload"], case["hardware"]
    assumed: list[str] = []
    is_training = workload.get("kind") == "train"
    build = _training if is_training else _inference
    part, setup = build(case, workload, assumed)
    scenario = {
        "id": case["id"],
        "model": workload.get("arch_as") or workload["model"],
        "workload": part,
        "hardware": _hardware(hardware, assumed),
        "setup": {name: value for name, value in setup.items() if value is not None},
    }
    outcome = case["outcome"]
    return FitCase(
        id=case["id"], scenario=scenario, fits=bool(outcome["fits"]), peak_gib=outcome.get("peak_mem_gib"),
        assumed=tuple(assumed), source_url=case["source_url"],
    )  # fmt: skip


def _look(table: dict[str, str], word: str | None, field: str, default: str | None = None) -> str | None:
    if word is None:
        return default
    if word not in table:
        raise InputError("evidence.word_unknown", field=field, given=word, known=", ".join(table))
    return table[word]


def _hardware(hardware: dict[str, Any], assumed: list[str]) -> dict[str, Any]:
    count = hardware.get("gpus")
    if count is None:
        assumed.append("count=1")
    name = str(hardware["gpu"])
    if name == "single GPU":
        name = CARD_IF_UNSTATED
        assumed.append(f"accelerator={name}")
    found: dict[str, Any] = {"accelerator": name, "count": count or 1}
    if hardware.get("nodes"):
        found["per_node"] = (count or 1) // hardware["nodes"]
    if hardware.get("cpu_ram_gib"):
        found["host_memory_gib"] = float(hardware["cpu_ram_gib"])
    return found


def _training(
    case: dict[str, Any], workload: dict[str, Any], assumed: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    method = "pretrain" if workload.get("objective") == "mlm" else METHODS.get(workload["task"], "full")
    framework = str(workload.get("framework", "pytorch"))
    part: dict[str, Any] = {"task": "train", "method": method}
    seq_len = workload.get("seq_len")
    if seq_len is None and "image_size" not in workload and "audio_seconds" not in workload:
        seq_len = SEQUENCE_IF_UNSTATED
        assumed.append(f"seq_len={seq_len}")
    part["seq_len"] = seq_len
    if isinstance(workload.get("image_size"), int):
        part["image_size"] = workload["image_size"]
    if workload.get("cache_text_encoder_outputs"):
        part["components"] = ["unet", "transformer"]
    micro_batch = workload.get("micro_batch")
    if micro_batch is None:
        micro_batch = 1
        assumed.append("micro_batch=1")
    tp, pp = workload.get("tensor_parallel"), workload.get("pipeline_parallel")
    count = case["hardware"].get("gpus") or 1
    ranks = max(1, count // ((tp or 1) * (pp or 1)))
    quantisation = _look(QUANTISATIONS, workload.get("quantization"), "quantization")
    if quantisation == "nf4" and "axolotl" in framework:
        quantisation = "nf4-double"
    setup = {
        "runtime": _runtime(workload, framework),
        "precision": _precision(workload, case, assumed),
        "weight_precision": quantisation,
        "optimizer": _look(OPTIMIZERS, workload.get("optimizer"), "optimizer", "adamw"),
        "tp": tp,
        "pp": pp,
        "ep": workload.get("expert_parallel"),
        "sequence_parallel": workload.get("sequence_parallel"),
        "zero_stage": _zero(workload, ranks),
        "micro_batch": micro_batch,
        "global_batch": workload.get("global_batch") or micro_batch * ranks * (workload.get("grad_accum") or 1),
        "recompute": _recompute(workload, framework, assumed),
        "attention": _attention(workload, framework, str(case["as_of"]), assumed),
        "fused_loss": bool(workload.get("chunked_cross_entropy")) or _chunks_loss(framework, str(case["as_of"])),
        "compile": workload.get("compile"),
        "offload": _look(OFFLOADS, workload.get("offload"), "offload", "none"),
        "lora_rank": workload.get("lora_rank"),
        "lora_targets": workload.get("lora_targets"),
        "optimizer_in_backward": workload.get("optimizer_in_backward"),
        "keeps_frozen_gathered": _keeps_gathered(workload, str(case["as_of"])),
    }  # fmt: skip
    if pp and workload.get("micro_batch"):
        setup["micro_batch"], setup["global_batch"] = 1, workload["micro_batch"] * ranks
        assumed.append("micro_batch=1")
    return part, setup


def _chunks_loss(framework: str, as_of: str) -> bool | None:
    """Frameworks whose recipes compute the loss in chunks: unsloth, and torchtune since late 2024."""
    return True if "unsloth" in framework or ("torchtune" in framework and as_of >= "2024-11") else None


def _runtime(workload: dict[str, Any], framework: str) -> str:
    if workload.get("fsdp") and framework in SHARDED_BY_FSDP:
        return f"{framework}-fsdp"
    if workload.get("zero_stage") and "deepspeed" not in framework:
        return f"{framework}+deepspeed"
    return framework


def _precision(workload: dict[str, Any], case: dict[str, Any], assumed: list[str]) -> str | None:
    if workload.get("fp8"):
        return "fp8"
    stated = _look(PRECISIONS, workload.get("precision"), "precision")
    if stated is None:
        stated = "fp32"
        assumed.append(f"precision={stated}")
    return stated


def _keeps_gathered(workload: dict[str, Any], as_of: str) -> bool | None:
    """FSDP releases of 2023 kept frozen layers whole in the backward pass of an adapter's training."""
    is_adapter = workload["task"] in ("lora", "qlora")
    return True if is_adapter and workload.get("fsdp") and as_of[:4] <= "2023" else None


def _zero(workload: dict[str, Any], ranks: int) -> int | None:
    if workload.get("zero_stage") is not None:
        return int(workload["zero_stage"])
    if workload.get("fsdp") == "full_shard":
        return 3
    if workload.get("distributed_optimizer"):
        return 1
    return 0 if ranks == 1 or workload.get("data_parallel") == "ddp" else None


def _recompute(workload: dict[str, Any], framework: str, assumed: list[str]) -> str:
    stated = workload.get("grad_checkpointing")
    if isinstance(stated, str):
        return stated
    if stated is None:
        if "torchtitan" in framework:
            assumed.append("recompute=selective")
            return "selective"
        is_peft = bool(workload.get("quantization")) and "litgpt" not in framework
        stated = is_peft or any(name in framework for name in CHECKPOINTS_BY_DEFAULT)
        assumed.append(f"recompute={'full' if stated else 'none'}")
    return "full" if stated else "none"


def _attention(workload: dict[str, Any], framework: str, as_of: str, assumed: list[str]) -> str:
    if workload.get("attention"):
        return "flash"
    is_fused = any(name in framework for name in FUSED_ATTENTION) or as_of[:4] >= FUSED_ATTENTION_SINCE
    assumed.append(f"attention={'flash' if is_fused else 'eager'}")
    return "flash" if is_fused else "eager"


def _inference(
    case: dict[str, Any], workload: dict[str, Any], assumed: list[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    framework = str(workload.get("framework", "transformers"))
    part: dict[str, Any] = {"task": "infer"}
    longest = workload.get("max_model_len") or workload.get("max_seq_len")
    output = workload.get("max_new_tokens") or (1 if longest else None)
    if isinstance(workload.get("image_size"), int):
        part["image_size"] = workload["image_size"]
    if workload.get("component"):
        part["components"] = [workload["component"]]
    if "image" not in workload["task"] and "denoise" not in workload["task"]:
        if not workload.get("input_tokens") and not longest:
            assumed.append("input_len=32")
        part["output_len"] = output or 256
        part["input_len"] = (
            workload.get("input_tokens") or max(1, (longest or 0) - part["output_len"])
            if longest
            else workload.get("input_tokens") or 32
        )
    part["concurrency"] = workload.get("batch") or workload.get("max_batch_size") or 1
    if workload.get("max_batch_size") and not longest:
        part["input_len"], part["output_len"] = 1, 2047
        assumed.append("max_seq_len=2048")
    version = framework.split()[1] if " " in framework else None
    setup = {
        "runtime": framework.split(" or ")[0].split()[0],
        "runtime_version": version,
        "precision": _look(PRECISIONS, workload.get("precision"), "precision", "bf16"),
        "weight_precision": _look(QUANTISATIONS, workload.get("quantization"), "quantization")
        or ("mxfp4" if workload.get("precision") == "mxfp4" else None),
        "tp": workload.get("tensor_parallel"),
        "pp": case["hardware"].get("gpus") if workload.get("device_map") or _is_split_by_layers(workload) else None,
        "kv_memory_fraction": workload.get("gpu_memory_utilization"),
        "prefill_chunk": _chunk(framework, version, longest),
    }  # fmt: skip
    return part, setup


def _is_split_by_layers(workload: dict[str, Any]) -> bool:
    return workload.get("n_gpu_layers") == "all" or (
        workload["task"] == "chat" and not workload.get("tensor_parallel")
    )


def _chunk(framework: str, version: str | None, longest: int | None) -> int | None:
    """vLLM below 0.8 profiles one prefill of the whole context, unless it is longer than 32,768."""
    if not framework.startswith("vllm") or version is None or longest is None:
        return None
    is_old = tuple(int(part) for part in version.split(".")[:2]) < (0, 8)
    return longest if is_old and longest <= CHUNKED_BY_DEFAULT_ABOVE else None
