"""A processor as the device that a model runs on: its cores, and the memory of its machine."""

from __future__ import annotations

from raceline.catalog.types import Accelerator, AcceleratorTier, Cpu

# Memory of a usual machine by tier, in GiB, where nobody says what is built in: planning values.
USUAL_MEMORY_GIB = {"edge": 8.0, "mobile": 16.0, "consumer": 32.0, "workstation": 128.0}
SERVER_MEMORY_GIB = 256.0
_TIERS: dict[str, AcceleratorTier] = {
    "edge": "edge",
    "mobile": "mobile",
    "consumer": "consumer",
    "workstation": "workstation",
}


def as_accelerator(cpu: Cpu, memory_gib: float | None = None) -> Accelerator:
    """The processor in the terms of an accelerator. 16-bit numbers are computed at the fp32 rate, bf16
    at that of the matrix units (AMX) where there are any; `memory_gib` is the usual size where none is
    stated."""
    tier = cpu.tier or ""
    return Accelerator(
        id=cpu.id,
        vendor=cpu.vendor,
        name=cpu.name,
        kind="cpu",
        architecture=cpu.architecture,
        generation_year=cpu.generation_year,
        memory_gib=memory_gib or USUAL_MEMORY_GIB.get(tier, SERVER_MEMORY_GIB),
        memory_type=cpu.memory_type,
        memory_bw_gbs=cpu.bw_gbs,
        fp32_tflops=cpu.fp32_tflops_est,
        fp16_dense_tflops=cpu.fp32_tflops_est,
        bf16_dense_tflops=cpu.amx_bf16_tflops_est or cpu.fp32_tflops_est,
        tdp_w=cpu.tdp_w,
        pcie_gen=cpu.pcie_gen,
        pcie_lanes=cpu.pcie_lanes,
        max_per_node=1,
        tier=_TIERS.get(tier, "datacenter"),
        training_capable="limited",
        source_url=cpu.source_url,
        note=cpu.note,
    )
