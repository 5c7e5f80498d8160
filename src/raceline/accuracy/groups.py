"""Which group a measured value is scored in: by what was run, never by how well it is predicted."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import msgspec

from raceline.estimate.calibration import Keys
from raceline.evidence.rows import Metric, Row

_VISION = ("cnn", "vit", "detection", "two towers", "gan", "other")
_LANGUAGE = ("dense", "moe")
_EDGE_KINDS = ("npu", "phone", "edge")


class Bar(msgspec.Struct, frozen=True):
    """A group and what its error should be at most; None where no bar is set. `peer`: what the
    best other tool reaches."""

    group: str
    median: float | None
    p90: float | None
    peer: str | None


@cache
def bars() -> tuple[Bar, ...]:
    """The groups in the order in which they are shown."""
    raw = files("raceline.accuracy").joinpath("data/bars.json").read_bytes()
    return msgspec.json.decode(raw, type=tuple[Bar, ...])


def group_of(row: Row, keys: Keys, metric: Metric, is_edge: bool) -> str:
    """The group of one measured value."""
    if metric == "fits":
        return "fit"
    if metric in ("memory_allocated_gib", "memory_reserved_gib"):
        return "memory-allocated"
    if metric == "memory_device_gib":
        return "memory-device"
    return _training(row, keys) if keys.task == "train" else _inference(row, keys, metric, is_edge)


def _training(row: Row, keys: Keys) -> str:
    if row.table == "training_vision":
        return "vision-train"
    if row.table == "megatron_ci":
        return "train-tiny"
    if keys.model_class == "moe":
        return "train-moe"
    if keys.model_class in ("dense", "seq2seq") and keys.method in ("full", "lora", "qlora"):
        return "train-finetune"
    if keys.model_class in ("cnn", "encoder", "detection", "vit"):
        return "train-classic"
    if keys.model_class != "dense":
        return "train-other"
    if keys.numbers.startswith("16bit") and keys.generation in ("Ampere", "Hopper"):
        return "train-dense-16bit"
    is_new = keys.numbers[:4] in ("8bit", "4bit") or keys.generation.startswith(("Blackwell", "TPU"))
    return "train-dense-new" if is_new else "train-dense-other"


def _inference(row: Row, keys: Keys, metric: Metric, is_edge: bool) -> str:
    if row.table == "inference_vision":
        return "vision-infer"
    if keys.model_class in _LANGUAGE:
        return _language(row, metric)
    if is_edge:
        return "infer-edge"
    if keys.model_class == "encoder":
        return "infer-encoder"
    return "infer-vision" if keys.model_class in _VISION else "infer-other"


def _language(row: Row, metric: Metric) -> str:
    at_once = (row.scenario or {}).get("workload", {}).get("concurrency") or 1
    if metric == "tpot_ms":
        return "decode-one-stream" if at_once == 1 and row.table != "serving" else "serve-tpot"
    if metric == "ttft_ms":
        return "prefill" if at_once == 1 and row.table != "serving" else "serve-ttft"
    return "serve-throughput" if metric == "tokens_per_s_per_device" else "decode-batch"


def family_of(model: str) -> str:
    """The family in a model's name: its first word (llama, resnet, convnext)."""
    name = model.rsplit("/", 1)[-1].lower()
    words = [word for word in re.split(r"[^a-z]+", name) if len(word) > 1]
    return words[0] if words else name
