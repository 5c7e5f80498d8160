"""Megatron-LM's `report_theoretical_memory`: weights, optimizer states and activations of its own runs.

The wheel of megatron-core carries the file (for Python 3.12 and newer; the file itself needs none of it).
It is loaded alone, beside a stand-in for the two helpers that it imports, and called as the training loop
calls it: with the run's arguments and the number of micro batches. Rows of the functional tests give it the
arguments that they print; arguments that a test leaves out have Megatron's defaults.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from functools import cache
from importlib.metadata import distribution
from types import ModuleType, SimpleNamespace
from typing import Any

from tools.peers.case import Case

NAME = "Megatron report_theoretical_memory"
DISTRIBUTION = "megatron-core"
REQUIREMENTS = ("megatron-core",)
# Only the file is wanted: no dependencies, and the wheel that has it whatever Python this is.
UNPACKED_WITH = ("--no-deps", "--only-binary", ":all:", "--python-version", "3.12")
GROUPS = ("memory-allocated", "memory-device", "fit")
VARIANTS = ("",)
NOTE = "its own functional tests, far smaller than real training; measured on the last pipeline rank"
PACKAGE = "megatron_training_alone"
DEFAULTS: dict[str, Any] = {
    "group_query_attention": False, "num_experts": None, "swiglu": False, "mtp_num_layers": None,
    "moe_shared_expert_intermediate_size": None, "moe_layer_freq": 1, "normalization": "LayerNorm",
    "multi_latent_attention": False, "q_lora_rank": None, "kv_lora_rank": 32, "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64, "v_head_dim": 128, "untie_embeddings_and_output_weights": False,
    "moe_latent_size": None, "moe_router_topk": 2, "virtual_pipeline_model_parallel_size": None,
    "recompute_granularity": None, "use_distributed_optimizer": False,
}  # fmt: skip
MIB_IN_A_GIB = 1024


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if not str(case.setup.get("runtime") or "").startswith("megatron"):
        return "Megatron's runs only"
    if not case.shape.is_decoder or not case.shape.heads or not case.shape.ffn:
        return "not a plain decoder"
    if case.setup.get("zero_stage") not in (None, 0, 1):
        return "ZeRO 0 and 1 only"
    if case.degree("cp") > 1:
        return "no context parallel"
    if case.setup.get("recompute") == "full":
        return "no full recomputation"
    return None if case.setup.get("micro_batch") else "the row states no micro batch"


def answer(case: Case, variant: str) -> float:
    """GiB on the fullest device."""
    arguments = _arguments(case)
    batches = case.setup.get("global_batch")
    steps = batches // (case.setup["micro_batch"] * arguments.data_parallel_size) if batches else None
    found = _module().report_theoretical_memory(arguments, num_microbatches=steps)
    return float(found[2] / MIB_IN_A_GIB)


def _arguments(case: Case) -> SimpleNamespace:
    shape, setup = case.shape, case.setup
    given = {name.replace("-", "_"): value for name, value in _printed(case).items()}
    values = {**DEFAULTS, **given}
    values |= {
        "num_layers": shape.layers, "hidden_size": shape.hidden, "num_attention_heads": shape.heads,
        "padded_vocab_size": shape.vocabulary, "seq_length": case.workload["seq_len"],
        "micro_batch_size": setup["micro_batch"], "sequence_parallel": bool(setup.get("sequence_parallel")),
        "tensor_model_parallel_size": case.degree("tp"), "pipeline_model_parallel_size": case.degree("pp"),
        "expert_model_parallel_size": case.degree("ep"), "world_size": case.count,
        "data_parallel_size": case.count // (case.degree("tp") * case.degree("pp")),
        "expert_tensor_parallel_size": int(setup.get("expert_tp") or case.degree("tp")),
        "virtual_pipeline_model_parallel_size": setup.get("virtual_stages"),
        "use_distributed_optimizer": setup.get("zero_stage") == 1,
        "add_bias_linear": not given.get("disable_bias_linear"),
    }  # fmt: skip
    if setup.get("recompute") == "selective":
        values["recompute_granularity"] = "selective"
    hidden, heads = shape.hidden or 0, shape.heads or 1
    values.setdefault("kv_channels", hidden // heads)
    values.setdefault("num_query_groups", shape.kv_heads)
    values.setdefault("ffn_hidden_size", shape.ffn if shape.experts == 1 else 4 * hidden)
    values.setdefault("moe_ffn_hidden_size", values["ffn_hidden_size"])
    if isinstance(values["moe_layer_freq"], str):
        values["moe_layer_freq"] = _frequency(values["moe_layer_freq"])
    return SimpleNamespace(**values)


def _printed(case: Case) -> dict[str, Any]:
    """The arguments that the row prints."""
    return dict(json.loads((case.record or {}).get("args") or "{}"))


def _frequency(text: str) -> Any:
    """Which layers have experts, as its arguments write them: ``1`` or ``([0]*1+[1]*15)``."""
    parts = text.strip("() ").split("+")
    if "*" not in text:
        return json.loads(text)
    pairs = [part.strip().split("*") for part in parts]
    return [layer for values, times in pairs for layer in json.loads(values) * int(times)]


@cache
def _module() -> Any:
    helpers = ModuleType(f"{PACKAGE}.utils")
    helpers.is_hybrid_model = lambda arguments: False  # type: ignore[attr-defined]
    helpers.print_rank_0 = lambda message: None  # type: ignore[attr-defined]
    package = ModuleType(PACKAGE)
    package.__path__ = []
    sys.modules |= {PACKAGE: package, f"{PACKAGE}.utils": helpers}
    path = distribution(DISTRIBUTION).locate_file("megatron/training/theoretical_memory_usage.py")
    spec = importlib.util.spec_from_file_location(f"{PACKAGE}.theoretical_memory_usage", str(path))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
