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

# Products of packed 8-bit integers over the rate of fp32 by what the architecture has: VNNI of AVX-512 and
# AVX, dot products and matrix products of ARMv8.4 and later, sums of pairs in AVX2 and NEON before them.
# https://www.intel.com/content/www/us/en/developer/articles/guide/deep-learning-with-avx512-and-dl-boost.html
_PAIRS_ALONE = ("Zen 2", "Zen 3", "Broadwell", "Skylake", "Coffee Lake", "Haswell")
_DOT_PRODUCTS, _PAIRS, _NONE = 4.0, 2.0, 1.0
_OLD_ARM = ("Cortex-A72", "Cortex-A73", "Cortex-A53", "ARM1176", "LoongArch")
# AMX multiplies 8-bit integers at twice the rate of bf16, and ARMv8.2 computes in fp16 at twice that of fp32.
AMX_INT8, ARM_HALF = 2.0, 2.0
_X86 = ("Intel", "AMD")


def _int8_tops(cpu: Cpu) -> float | None:
    if cpu.amx_bf16_tflops_est:
        return cpu.amx_bf16_tflops_est * AMX_INT8
    if cpu.fp32_tflops_est is None:
        return None
    architecture = cpu.architecture or ""
    has_pairs_alone = architecture in _PAIRS_ALONE
    factor = _NONE if architecture.startswith(_OLD_ARM) else _PAIRS if has_pairs_alone else _DOT_PRODUCTS
    return cpu.fp32_tflops_est * factor


def _half_tflops(cpu: Cpu) -> float | None:
    is_arm = cpu.vendor not in _X86 and not (cpu.architecture or "").startswith(_OLD_ARM)
    return cpu.fp32_tflops_est * (ARM_HALF if is_arm else 1.0) if cpu.fp32_tflops_est else None


def as_accelerator(cpu: Cpu, memory_gib: float | None = None) -> Accelerator:
    """The processor in the terms of an accelerator. Rates of narrow numbers are those of its vector units
    (fp16 at the rate of fp32 on x86), of the matrix units (AMX) where there are any; `memory_gib` is the usual
    size where none is stated."""
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
        fp16_dense_tflops=_half_tflops(cpu),
        bf16_dense_tflops=cpu.amx_bf16_tflops_est or cpu.fp32_tflops_est,
        int8_dense_tops=_int8_tops(cpu),
        sm_count=cpu.cores,
        tdp_w=cpu.tdp_w,
        pcie_gen=cpu.pcie_gen,
        pcie_lanes=cpu.pcie_lanes,
        max_per_node=1,
        tier=_TIERS.get(tier, "datacenter"),
        training_capable="limited",
        source_url=cpu.source_url,
        note=cpu.note,
    )
