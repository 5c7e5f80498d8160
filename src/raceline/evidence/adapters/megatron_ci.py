"""Megatron-LM's functional tests (``megatron_ci.csv``): small runs with their full launch arguments.

The model of a row is a ``megatron:`` reference. A test's arguments leave the tokenizer's size, the type of the
machine's GPUs and sometimes their number to its recipe; the rules here stand in for them. Allocated memory is that
of the last pipeline rank (megatron/training/training.py, report_memory and its tensorboard writer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from raceline.evidence import exclusions
from raceline.evidence.rows import Measured, Row
from raceline.models.readers import megatron
from raceline.present.errors import InputError

COLUMNS = frozenset(
    {"id", "family", "case", "accelerator", "environment", "step_time_s", "peak_allocated_gib", "args"}
)
TABLE = "megatron_ci"
SOURCE = "megatron-lm-functional-tests"
SOURCE_URL = "https://github.com/NVIDIA/Megatron-LM/tree/main/tests/functional_tests/test_cases"
YEAR = 2026
NOTE = "last_pipeline_rank"
# What the name of a runner says of its machine: a part of the name, and the device in the catalogue.
RUNNERS = (("gb200", "gb200"), ("h100", "h100-sxm"), ("a100", "a100-sxm-80gb"))
RUNNER_UNNAMED = "a100-sxm-80gb"
DEVICES_IN_A_TEST = 8
# Tokenizers that the recipes name: GPT-2's, BERT's (lower case, and cased with T5's 100 extra ids), and
# those of the models that the release tests train.
VOCABULARIES = {"bert": 30522, "t5": 28996, "mixtral": 32000, "nemotron": 131072}
GPT2_VOCABULARY = 50257
DEEPSEEK_VOCABULARY, DEEPSEEK_MULTIPLE = 129280, 3232
T5_LENGTHS = (512, 128)
SCRIPTS = {"bert": "pretrain_bert", "t5": "pretrain_t5"}
VISION = ("mimo", "multimodal-llava")
# What attention the backend argument means; without it Transformer Engine chooses a fused one.
BACKENDS = {"flash": "flash", "fused": "flash", "unfused": "eager", "local": "eager"}
# The first images of the long-term branch, told by their runner: their fused attention had no dropout.
OLD_IMAGES = ("lts", "dracooci")
DEGREES = {
    "tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size", "cp": "context-parallel-size",
    "ep": "expert-model-parallel-size",
}  # fmt: skip


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row."""
    arguments = _arguments(record["args"])
    assumed: list[str] = []
    accelerator = _accelerator(record["accelerator"], assumed)
    count = _count(record, arguments, assumed)
    unscored = exclusions.named(record["id"]) or _why_unscored(record, count)
    scenario = None
    if unscored is None and count is not None:
        scenario = _scenario(record, arguments, accelerator, count, assumed)
    return Row(
        id=record["id"], table=TABLE, source=SOURCE, source_url=SOURCE_URL, year=YEAR, model=record["case"],
        accelerator=accelerator, framework="megatron", note=NOTE, scenario=scenario, measured=_measured(record),
        assumed=tuple(assumed), unscored=unscored, doubtful=_doubt(arguments, assumed),
    )  # fmt: skip


def _arguments(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InputError("models.megatron_wrong", field="args", given=text[:60]) from None


def _accelerator(runner: str, assumed: list[str]) -> str:
    device = next((device for part, device in RUNNERS if part in runner), RUNNER_UNNAMED)
    if device != runner:
        assumed.append(f"accelerator={device}")
    return device


def _model_ranks(arguments: Mapping[str, Any]) -> int:
    sizes = {name: int(arguments.get(argument, 1)) for name, argument in DEGREES.items()}
    return sizes["tp"] * sizes["pp"] * sizes["cp"]


def _count(record: Mapping[str, str], arguments: Mapping[str, Any], assumed: list[str]) -> int | None:
    """The devices of the run. A number below one copy of the model counts nodes, and tests without a number
    run on one node; release tests don't."""
    ranks = _model_ranks(arguments)
    stated = int(record["count"]) if record.get("count") else 0
    if stated >= ranks:
        return stated
    if "release" in record["case"] or ranks > DEVICES_IN_A_TEST:
        return None
    assumed.append(f"count={DEVICES_IN_A_TEST}")
    return DEVICES_IN_A_TEST


def _why_unscored(record: Mapping[str, str], count: int | None) -> str | None:
    if record["family"] in VISION:
        return "model_not_described"
    if count is None:
        return "count_not_stated"
    return None if _measured(record) else "no_value"


def _measured(record: Mapping[str, str]) -> tuple[Measured, ...]:
    found = []
    if record.get("peak_allocated_gib"):
        found.append(Measured("memory_last_allocated_gib", float(record["peak_allocated_gib"])))
    if record.get("step_time_s"):
        found.append(Measured("step_time_s", float(record["step_time_s"])))
    return tuple(found)


def _doubt(arguments: Mapping[str, Any], assumed: list[str]) -> str | None:
    if any(item.startswith("count=") for item in assumed):
        return "count"
    return "attention" if any(item.startswith("attention=") for item in assumed) else None


def _scenario(
    record: Mapping[str, str], arguments: Mapping[str, Any], accelerator: str, count: int, assumed: list[str]
) -> dict[str, Any]:
    workload: dict[str, Any] = {"task": "train", "method": "pretrain", "seq_len": arguments.get("seq-length")}
    if record["family"] == "t5":
        workload["seq_len"], workload["output_len"] = T5_LENGTHS
        assumed += [f"seq_len={T5_LENGTHS[0]}", f"output_len={T5_LENGTHS[1]}"]
    return {
        "id": record["id"],
        "model": _model(record["family"], arguments, assumed),
        "workload": workload,
        "hardware": {"accelerator": accelerator, "count": count},
        "setup": _setup(record, arguments, count, assumed),
    }


def _model(family: str, arguments: Mapping[str, Any], assumed: list[str]) -> str:
    given = dict(arguments)
    if family in SCRIPTS:
        given["script"] = SCRIPTS[family]
    if family == "t5":
        given["max-position-embeddings"], given["vocab-extra-ids"] = T5_LENGTHS[0], 100
    if "vocab-size" not in given:
        given["vocab-size"] = _vocabulary(family, given)
        assumed.append(f"vocab-size={given['vocab-size']}")
    return megatron.reference(given)


def _vocabulary(family: str, arguments: Mapping[str, Any]) -> int:
    if arguments.get("make-vocab-size-divisible-by") == DEEPSEEK_MULTIPLE:
        return DEEPSEEK_VOCABULARY
    return VOCABULARIES.get(family, GPT2_VOCABULARY)


def _setup(
    record: Mapping[str, str], arguments: Mapping[str, Any], count: int, assumed: list[str]
) -> dict[str, Any]:
    setup: dict[str, Any] = {name: int(arguments.get(argument, 1)) for name, argument in DEGREES.items()}
    setup |= {
        "dp": count // _model_ranks(arguments),
        "runtime": "megatron-lm",
        "precision": _precision(arguments),
        "optimizer": "muon" if arguments.get("optimizer") == "muon" else "adamw",
        "zero_stage": _zero_stage(arguments),
        "micro_batch": arguments["micro-batch-size"],
        "global_batch": arguments["global-batch-size"],
        "sequence_parallel": bool(arguments.get("sequence-parallel")),
        "recompute": arguments.get("recompute-granularity", "none"),
        "attention": _attention(record, arguments, assumed),
        "expert_tp": arguments.get("expert-tensor-parallel-size"),
    }
    stages = _virtual_stages(arguments, setup["pp"], assumed)
    if stages > 1:
        setup |= {"virtual_stages": stages, "schedule": "interleaved"}
    return {name: value for name, value in setup.items() if value is not None}


def _precision(arguments: Mapping[str, Any]) -> str:
    if arguments.get("fp8-format"):
        return "mxfp8" if arguments.get("fp8-recipe") == "mxfp8" else "fp8"
    return "bf16" if arguments.get("bf16") else "fp16" if arguments.get("fp16") else "fp32"


def _zero_stage(arguments: Mapping[str, Any]) -> int:
    if arguments.get("data-parallel-sharding-strategy") == "optim_grads_params":
        return 3
    return 1 if arguments.get("use-distributed-optimizer") else 0


def _attention(record: Mapping[str, str], arguments: Mapping[str, Any], assumed: list[str]) -> str:
    backend = "flash" if arguments.get("use-flash-attn") else arguments.get("attention-backend")
    if backend in BACKENDS:
        return BACKENDS[backend]
    is_local = arguments.get("transformer-impl") == "local"
    is_old = all(part in text for part, text in zip(OLD_IMAGES, _image(record), strict=True))
    drops = float(arguments.get("attention-dropout", 0.1)) > 0
    found = "eager" if is_local or (is_old and drops) else "flash"
    if not is_local:
        assumed.append(f"attention={found}")
    return found


def _image(record: Mapping[str, str]) -> tuple[str, str]:
    return record["environment"], record["accelerator"]


def _virtual_stages(arguments: Mapping[str, Any], pp: int, assumed: list[str]) -> int:
    """Chunks of layers that each pipeline rank holds. Where the embedding and the loss count as layers of the
    split there can be more chunks than layers; then as many as there are layers for."""
    layers = int(arguments.get("num-layers") or 0)
    per_chunk = arguments.get("num-layers-per-virtual-pipeline-stage")
    stages = int(arguments.get("num-virtual-stages-per-pipeline-rank") or 1)
    if per_chunk:
        stages = layers // (pp * int(per_chunk))
    if layers and stages * pp > layers:
        stages = layers // pp
        assumed.append(f"virtual_stages={stages}")
    return max(1, stages)
