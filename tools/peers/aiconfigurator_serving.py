"""aiconfigurator: time to first token and per output token from its tables of measured kernels.

Called as its Python twin of `aiconfigurator cli estimate`, `cli_estimate`, in `agg` mode with the row's
engine, lengths, sequences for each attention group, degrees and matmul formats; the database is the one
that it calls current. `SILICON` answers from measured kernels alone, `HYBRID` fills gaps and is asked where
`SILICON` refuses. Llama's names on the Hub stand for the configuration files that it bundles. A call takes
seconds, so a fixed stride of the aggregated rows is asked. The rows are the sample that it publishes and
develops against.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tools.peers.case import Case

NAME = "aiconfigurator"
DISTRIBUTION = "aiconfigurator"
REQUIREMENTS = ("aiconfigurator",)
GROUPS = ("serve-tpot", "serve-ttft")
VARIANTS = ("SILICON, its default", "HYBRID")
NOTE = "the rows are its own published sample; current database"
SAMPLED = "aggregated rows"
# Rows asked, by a fixed stride over those that can be.
SAMPLE = 60
LIMIT_S = 1200.0
SYSTEMS = {
    "b200": "b200_sxm", "b300": "b300_sxm", "gb200": "gb200", "gb300": "gb300", "h100-sxm": "h100_sxm",
    "h200-sxm": "h200_sxm", "a100-sxm-80gb": "a100_sxm",
}  # fmt: skip
MODELS = {
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "nvidia/DeepSeek-R1-NVFP4": "deepseek-ai/DeepSeek-R1",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
}


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if case.record is None or "engine" not in case.record:
        return "scored on the serving table only"
    if case.record.get("mode") != "agg":
        return "aggregated serving only"
    return None if case.accelerator in SYSTEMS else "no system of this name"


def order(case: Case) -> tuple[str, ...]:
    """Cases that share its tables follow each other."""
    record = case.record or {}
    return (case.accelerator, str(record.get("engine")), case.model, case.id)


def answer(case: Case, variant: str) -> float:
    """Milliseconds."""
    call = _call(case)
    found = _tried("SILICON", case.accelerator, call)
    if isinstance(found, Exception) and variant == "HYBRID":
        found = _tried("HYBRID", case.accelerator, call)
    if isinstance(found, Exception):
        raise found
    return float(found.ttft if case.metric == "ttft_ms" else found.tpot)


def _call(case: Case) -> tuple[tuple[str, Any], ...]:
    record, setup, workload = case.record or {}, case.setup, case.workload
    ranks, ep = int(setup.get("attention_dp") or 1), case.degree("ep")
    has_experts = case.shape.experts > 1
    values = {
        "model_path": MODELS.get(case.model, case.model),
        "backend_name": record["engine"],
        "isl": workload["input_len"],
        "osl": workload["output_len"],
        "batch_size": max(1, workload["concurrency"] // (ranks * case.degree("dp"))),
        "tp_size": case.degree("tp"),
        "pp_size": case.degree("pp"),
        "attention_dp_size": ranks,
        "moe_tp_size": int(setup.get("expert_tp") or case.degree("tp") * ranks // ep)
        if has_experts
        else None,
        "moe_ep_size": ep if has_experts else None,
        "gemm_quant_mode": record.get("gemm_precision"),
        "moe_quant_mode": record.get("moe_precision") if has_experts else None,
    }
    return tuple(values.items())


@cache
def _tried(mode: str, accelerator: str, call: tuple[tuple[str, Any], ...]) -> Any:
    """Its result, or what it raised: a refusal takes it as long as an answer."""
    from aiconfigurator.cli.api import cli_estimate

    try:
        return cli_estimate(system_name=SYSTEMS[accelerator], database_mode=mode, **dict(call))
    except Exception as error:  # another's code: whatever it raises is its refusal
        return error
