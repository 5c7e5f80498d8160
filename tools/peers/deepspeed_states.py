"""DeepSpeed's estimators of the memory that weights, gradients and optimizer states need under ZeRO.

Called as its documentation does, with the parameter counts: `estimate_zero2_model_states_mem_needs` and
`estimate_zero3_model_states_mem_needs` with the row's devices, nodes and offload, other options at their
defaults. They count states only, in mixed precision with Adam.
"""

from __future__ import annotations

from tools.peers.case import Case

NAME = "DeepSpeed estimators"
DISTRIBUTION = "deepspeed"
REQUIREMENTS = ("deepspeed",)
NEEDS_TORCH = True
GROUPS = ("memory-allocated", "memory-device", "fit")
VARIANTS = ("",)
NOTE = "states under ZeRO 2 and 3; no activations"
GIB = 2**30


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if case.workload.get("task") != "train":
        return "training only"
    if not case.is_training_all:
        return "no adapters"
    if case.setup.get("zero_stage") not in (2, 3):
        return "ZeRO 2 and 3 only"
    if any(case.degree(name) > 1 for name in ("tp", "pp", "cp", "ep")):
        return "no model parallel"
    return None


def answer(case: Case, variant: str) -> float:
    """GiB on a device."""
    per_node = min(case.per_node, case.count)
    devices = {"num_gpus_per_node": per_node, "num_nodes": max(1, case.count // per_node)}
    offload = str(case.setup.get("offload") or "none")
    if case.setup["zero_stage"] == 2:
        from deepspeed.runtime.zero.stage_1_and_2 import estimate_zero2_model_states_mem_needs as zero2

        _, device_bytes = zero2(case.shape.parameters, cpu_offload=offload in ("all", "optimizer"), **devices)
        return float(device_bytes / GIB)
    from deepspeed.runtime.zero.stage3 import estimate_zero3_model_states_mem_needs as zero3

    _, device_bytes, _ = zero3(
        case.shape.parameters,
        case.shape.largest_layer_parameters,
        cpu_offload=offload in ("all", "optimizer"),
        cpu_offload_params=offload == "all",
        **devices,
    )
    return float(device_bytes / GIB)
