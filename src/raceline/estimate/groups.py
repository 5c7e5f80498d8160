"""The group of runs whose measured errors give an estimate its range."""

from __future__ import annotations

from raceline.estimate.calibration import Keys

_VISION = ("cnn", "vit", "detection", "two towers", "gan", "other")
_DENSE_LIKE = ("dense", "seq2seq")
MEMORY_ALLOCATED, MEMORY_DEVICE = "memory-allocated", "memory-device"


def training_group(keys: Keys) -> str:
    """The group of a training step's time."""
    if keys.model_class == "moe":
        return "train-moe"
    if keys.model_class in _DENSE_LIKE and keys.method in ("full", "lora", "qlora"):
        return "train-finetune"
    if keys.model_class in ("cnn", "encoder", "detection", "vit"):
        return "train-classic"
    if keys.model_class != "dense":
        return "train-other"
    if keys.numbers.startswith("16bit") and keys.generation in ("Ampere", "Hopper"):
        return "train-dense-16bit"
    is_new = keys.numbers[:4] in ("8bit", "4bit") or keys.generation.startswith(("Blackwell", "TPU"))
    return "train-dense-new" if is_new else "train-dense-other"


def inference_group(keys: Keys, metric: str, sequences: float) -> str:
    """The group of an inference figure; `sequences` are answered at once."""
    if keys.model_class in ("dense", "moe"):
        is_alone = sequences <= 1
        if metric == "tpot_ms":
            return "decode-one-stream" if is_alone else "serve-tpot"
        if metric == "ttft_ms":
            return "prefill" if is_alone else "serve-ttft"
        return "serve-throughput" if metric == "tokens_per_s_per_device" else "decode-batch"
    if keys.is_edge:
        return "infer-edge"
    if keys.model_class == "encoder":
        return "infer-encoder"
    return "infer-vision" if keys.model_class in _VISION else "infer-other"
