"""accelerate estimate-memory: bytes of a model built on the meta device, and its rule for Adam.

Its command reads a configuration from the Hub. Here the same steps run on the configuration that
raceline ships: `init_empty_weights`, `AutoModel.from_config` in fp32, `calculate_maximum_sizes`, then for
training `estimate_training_usage` (the largest of its entries, as its table prints it) and for inference
the total size in the row's format. It knows one device and no batch; inference split over several is
divided by them, training is asked only where each device holds the whole model.
"""

from __future__ import annotations

from functools import cache
from json import dumps, loads

from tools.peers.case import Case, Refusal

NAME = "accelerate estimate-memory"
DISTRIBUTION = "accelerate"
REQUIREMENTS = ("accelerate", "transformers")
NEEDS_TORCH = True
GROUPS = ("memory-allocated", "memory-device", "fit")
VARIANTS = ("",)
NOTE = "weights and its rule for Adam; no batch, no activations"
# Its own choices of --dtypes, by the words of the rows.
FORMATS = {
    "bf16": "float16", "bf16-true": "float16", "bf16-mixed": "float16", "fp16": "float16", "fp16-mixed": "float16",
    "fp16-true": "float16", "fp32": "float32", "int8": "int8", "nf4": "int4", "nf4-double": "int4",
    "gptq-int4": "int4", "awq-int4": "int4", "int4": "int4",
}  # fmt: skip
SHARE_OF_FP32 = {"float32": 1.0, "float16": 0.5, "int8": 0.25, "int4": 0.125}
GIB = 2**30


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if case.shape.config is None or "model_type" not in case.shape.config:
        return "no configuration file of the model"
    if _format(case) is None:
        return "a number format that it has no choice for"
    if case.workload.get("task") == "infer":
        return None
    if not case.is_training_all:
        return "no adapters"
    return None if case.is_unsplit else "no sharding"


def _format(case: Case) -> str | None:
    return FORMATS.get(str(case.setup.get("weight_precision") or case.setup.get("precision") or "bf16"))


def answer(case: Case, variant: str) -> float:
    """GiB on a device."""
    from accelerate.commands.estimate import estimate_training_usage

    size, dtype = _size(dumps(case.shape.config, sort_keys=True)), _format(case)
    assert dtype
    if case.workload.get("task") == "train":
        return float(max(estimate_training_usage(size, dtype).values()) / GIB)
    return size * SHARE_OF_FP32[dtype] / GIB / (case.degree("tp") * case.degree("pp"))


@cache
def _size(config: str) -> int:
    import torch
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes
    from transformers import CONFIG_MAPPING, AutoModel

    given = loads(config)
    family = given.pop("model_type")
    if family not in CONFIG_MAPPING:
        raise Refusal("a family that transformers doesn't have")
    settings = CONFIG_MAPPING[family](**given)
    with init_empty_weights():
        model = AutoModel.from_config(settings, dtype=torch.float32)
    total, _ = calculate_maximum_sizes(model)
    return int(total)
