"""What an estimate stands on: the facts of the device and the constants, each with its source."""

from __future__ import annotations

from raceline.catalog.types import Accelerator
from raceline.estimate import kernels
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Device, peak_flops, usable_bytes
from raceline.estimate.result import Fact

GIB = 2.0**30
CONSTANTS = (
    "memory",
    "training",
    "convolution",
    "eager_traffic",
    "fused_traffic",
    "allocator_slack",
    "overlap_rest",
)
_CLASS = {"fp32": "32bit", "tf32": "32bit", "fp8": "8bit", "int8": "8bit", "fp4": "4bit"}


def basis(device: Device, number_format: str, efficiency: Efficiency) -> tuple[Fact, ...]:
    """Facts and constants in the order in which people ask for them."""
    accelerator = device.accelerator
    source = accelerator.source_url.split(" ")[0]
    facts = [
        Fact("peak", peak_flops(device, number_format) / 1e12, "tflops", source),
        Fact("bandwidth", (accelerator.memory_bw_gbs or 0.0) * device.bandwidth_fraction, "gbs", source),
        Fact("usable_memory", usable_bytes(device, efficiency) / GIB, "gib", source),
    ]
    if device.intra_gbs:
        facts.append(Fact("link_inside_node", device.intra_gbs, "gbs", source))
    facts.append(Fact("link_between_nodes", device.inter_gbs, "gbs", source))
    kind = _CLASS.get(number_format, "16bit")
    facts += _matmul_facts(accelerator, kind, efficiency)
    facts += [Fact(name, efficiency.scalars[name], "", efficiency.scalar_sources[name]) for name in CONSTANTS]
    return tuple(facts)


def _matmul_facts(accelerator: Accelerator, kind: str, efficiency: Efficiency) -> list[Fact]:
    architecture = accelerator.architecture or ""
    known, table = efficiency.matmul(architecture, kind), kernels.load()
    row = table.values("matmul", kernels.families(accelerator), kind)
    curve = known or (row["compute"], row["m0"], row["n0"], row["k0"])
    about = efficiency.source_of(architecture, kind) or table.package["url"]
    return [
        Fact(f"matmul_{name}", value, "", about)
        for name, value in zip(("a", "m0", "n0", "k0"), curve, strict=True)
    ]
