"""What limits a kernel that multiplies one vector with a matrix, beside the memory's bandwidth.

Weights stream through the multiprocessors, which have so many bytes on the way at once: a device with
much bandwidth a multiprocessor isn't filled (A100, H100). Weights in narrow formats are widened on the
way, which processors and GPUs without matrix units spend their arithmetic on.
"""

from __future__ import annotations

from raceline.catalog.types import Accelerator, ServingHabits
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import bytes_per_element
from raceline.estimate.devices import Device, peak_flops

# Share of the arithmetic's width below which weights count as narrow.
NARROW, NARROWEST_PLAIN = 0.75, 1.2
# Bytes of a weight below which a processor multiplies integers.
NARROW_ON_PROCESSOR = 1.5
_WIDTHS = {"fp32": 4.0, "tf32": 4.0, "fp8": 1.0, "int8": 1.0, "fp4": 0.5}
# Kinds of quantised weights by the start of their name, for what a processor needs to widen them.
_CODEBOOKS = {"iq2": "widen_processor_iq2", "iq3": "widen_processor_iq3"}


def weight_seconds(device: Device, habits: ServingHabits, weights: str, number_format: str,
                   efficiency: Efficiency) -> float:  # fmt: skip
    """Seconds a weight that a multiplication with one vector takes at least; 0.0: bandwidth alone counts.
    `number_format`: what they are multiplied in."""
    stored, widens = bytes_per_element(weights), is_widened(weights, number_format)
    kind, vector = device.accelerator.kind, peak_flops(device, "fp32")
    if kind == "cpu" or has_vector_units_alone(device.accelerator):
        return widening_flops(kind, weights, efficiency) / vector if widens and vector > 0 else 0.0
    most = habits.narrow_bytes_a_cycle if widens else habits.bytes_a_cycle
    cycles = cycles_a_second(device)
    return stored / (most * cycles) if most > 0 and cycles > 0 else 0.0


def is_widened(weights: str, number_format: str) -> bool:
    """Whether weights are stored narrower than what they are multiplied in."""
    return bytes_per_element(weights) < NARROW * _WIDTHS.get(number_format, 2.0)


def multiplied_in(weights: str | None, number_format: str, device: Device) -> str:
    """The rate that weights are multiplied at: processors bring the other side of narrow ones to int8 too
    (https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/ggml-cpu/quants.c,
    https://docs.openvino.ai/2025/openvino-workflow-generative/inference-with-optimum-intel.html)."""
    is_narrow = weights is not None and bytes_per_element(weights) < NARROW_ON_PROCESSOR
    is_processor = device.accelerator.kind == "cpu"
    return "int8" if is_narrow and is_processor and peak_flops(device, "int8") > 0 else number_format


def narrow_kernels(weights: str, number_format: str, is_fused: bool, efficiency: Efficiency) -> float:
    """Kernels that libraries of quantised layers launch beside each matmul in an eager framework: outliers
    apart and scales for int8 (https://arxiv.org/abs/2208.07339), the input narrowed for fp8, the whole matrix
    widened for nf4; layouts of GPTQ and AWQ have kernels that do it all."""
    stored = bytes_per_element(weights)
    if is_fused or stored > NARROWEST_PLAIN or weights.startswith(("gptq", "awq")):
        return 0.0
    if number_format == "int8":
        return efficiency.eager_int8_kernels
    if number_format == "fp8":
        return efficiency.eager_fp8_kernels
    return efficiency.eager_4bit_kernels if stored < NARROW else 0.0


def widening_flops(kind: str, weights: str, efficiency: Efficiency) -> float:
    """FLOPs of the vector units a weight that is stored in a narrow format."""
    if kind != "cpu":
        return efficiency.widen_vector_units if bytes_per_element(weights) < 1.0 else 0.0
    name = _CODEBOOKS.get(weights[:3], "widen_processor")
    return float(getattr(efficiency, name))


def slowdown(device: Device, habits: ServingHabits) -> float:
    """Time of an engine's matrix products over a vendor's at the rate that sums in fp32."""
    is_halved = "half rate" in (device.accelerator.fp16_accum_note or "")
    return habits.matmul_scale * (0.5 if habits.accumulates_half and is_halved else 1.0)


def has_vector_units_alone(accelerator: Accelerator) -> bool:
    """A GPU without matrix units and without products of packed integers (Apple's before M5)."""
    no_rates = accelerator.fp16_dense_tflops is None and accelerator.int8_dense_tops is None
    return accelerator.kind == "gpu" and no_rates and accelerator.vendor == "Apple"


def cycles_a_second(device: Device) -> float:
    """Multiprocessors times their clock, for NVIDIA devices whose catalogue row has both sides of it."""
    accelerator = device.accelerator
    cores, units, rate = accelerator.cuda_cores, accelerator.sm_count, accelerator.fp32_tflops
    if accelerator.vendor != "NVIDIA" or not (cores and units and rate):
        return 0.0
    return units * rate * 1e12 / (2.0 * cores) * device.compute_fraction
