"""Accelerators and their links as arrays, for gathering by configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.catalog.types import Accelerator
from raceline.estimate import kernels
from raceline.estimate.constants import Efficiency
from raceline.estimate.kernels import families

Floats = NDArray[np.float64]
GIB = 2.0**30

FORMATS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4", "int8")
_CLASS_OF = {"fp32": "32bit", "tf32": "32bit", "fp16": "16bit", "bf16": "16bit", "fp8": "8bit",
             "int8": "8bit", "fp4": "4bit"}  # fmt: skip
# The column of a format in the kernels' curves.
CLASS_COLUMN = np.array([kernels.CLASSES.index(_CLASS_OF[name]) for name in FORMATS])
# Attention runs at 16 bits where weights and matmuls have fewer: its caches are widened as they are read.
_ATTENTION_FORMATS = {"fp8": ("bf16", "fp16"), "fp4": ("bf16", "fp16"), "int8": ("bf16", "fp16")}
_RATE_FIELD = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "fp16_dense_tflops", "bf16": "bf16_dense_tflops",
    "fp8": "fp8_dense_tflops", "fp4": "fp4_dense_tflops", "int8": "int8_dense_tops",
}  # fmt: skip


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator in its node. Rates are one direction, per device: `intra_gbs` inside a node
    (0: only over PCIe), `inter_gbs` between nodes. `pair_gbs`: between two devices of a node, where
    a mesh without a switch gives them only a part. `memory_fraction` of a MIG slice likewise
    `compute_fraction`; `usable_gib` overrides the label."""

    accelerator: Accelerator
    per_node: int = 8
    intra_gbs: float = 0.0
    pair_gbs: float = 0.0
    intra_fraction: float | None = None
    inter_gbs: float = 0.0
    pcie_gbs: float = 16.0
    has_peer_access: bool = True
    memory_gib: float | None = None
    compute_fraction: float = 1.0
    bandwidth_fraction: float = 1.0


@dataclass(frozen=True, slots=True)
class Devices:
    """Arrays over D devices; `peak_flops` and `attention_flops` over D x FORMATS (0: not native);
    `link_scale`: what a link whose collectives were not measured reaches over the curve of any;
    `throttled`: peak over what the power limit lets matrix units sustain, where that is less."""

    items: tuple[Device, ...]
    memory_bytes: Floats
    bandwidth_bytes_s: Floats
    streamed_bytes_s: Floats
    peak_flops: Floats
    throttled: Floats
    is_cpu: NDArray[np.bool_]
    attention_flops: Floats
    kernels: kernels.Kernels
    early_attention: Floats
    per_node: Floats
    intra_bytes_s: Floats
    pair_bytes_s: Floats
    link_scale: Floats
    inter_bytes_s: Floats
    pcie_bytes_s: Floats
    power_w: Floats
    host: Floats
    torus_share: Floats
    torus_start_s: Floats
    node_scale: Floats

    def __len__(self) -> int:
        return len(self.items)


def arrange(devices: Sequence[Device], efficiency: Efficiency) -> Devices:
    """Arrays of these devices. PCIe without peer access costs an extra copy through the host."""
    has_link = [device.intra_gbs > 0 for device in devices]
    curves = kernels.arrange([device.accelerator for device in devices], has_link)
    pcie = np.array([device.pcie_gbs for device in devices]) * 1e9
    peer = np.array([1.0 if device.has_peer_access else 0.5 for device in devices])
    intra = np.where(has_link, np.array([device.intra_gbs for device in devices]) * 1e9, pcie * peer)
    pair = np.array([device.pair_gbs for device in devices]) * 1e9
    held_back = np.array([[throttled(device, name, efficiency) for name in FORMATS] for device in devices])
    bandwidth = np.array(
        [(device.accelerator.memory_bw_gbs or 1e-9) * device.bandwidth_fraction * 1e9 for device in devices]
    )
    stream = [
        efficiency.stream(device.accelerator.tier, device.accelerator.memory_type) for device in devices
    ]
    _estimate_unmeasured(curves, devices, efficiency)
    _hold_back(curves.matmul, held_back, _measured_hold(devices, efficiency))
    return Devices(
        items=tuple(devices),
        memory_bytes=np.array([usable_bytes(device, efficiency) for device in devices]),
        bandwidth_bytes_s=bandwidth,
        streamed_bytes_s=bandwidth * np.array(stream),
        peak_flops=np.array([[peak_flops(device, name) for name in FORMATS] for device in devices]),
        is_cpu=np.array([device.accelerator.kind == "cpu" for device in devices]),
        throttled=np.maximum(held_back, [[label_clock(device, efficiency)] for device in devices]),
        attention_flops=np.array(
            [[_attention_flops(device, name) for name in FORMATS] for device in devices]
        ),
        kernels=curves,
        early_attention=np.array(
            [efficiency.early_attention(device.accelerator.architecture or "") for device in devices]
        ),
        per_node=np.array([float(device.per_node) for device in devices]),
        intra_bytes_s=intra,
        pair_bytes_s=np.where(pair > 0, pair, intra),
        link_scale=np.array([_link_scale(device) for device in devices]),
        inter_bytes_s=np.array([device.inter_gbs for device in devices]) * 1e9,
        pcie_bytes_s=pcie,
        power_w=np.array([float(device.accelerator.tdp_w or np.nan) for device in devices]),
        torus_share=np.array([efficiency.torus(device.accelerator.architecture)[0] for device in devices]),
        torus_start_s=np.array([efficiency.torus(device.accelerator.architecture)[1] for device in devices]),
        host=np.array([efficiency.host(device.accelerator.tier) for device in devices]),
        node_scale=np.where(has_link, 1.0, 0.5),
    )


def peak_flops(device: Device, number_format: str) -> float:
    """Dense peak in FLOP/s, 0.0 where the catalogue has no rate. A GPU without a stated 16-bit
    rate runs 16 bits at its fp32 rate (Apple)."""
    rate: float | None = getattr(device.accelerator, _RATE_FIELD[number_format])
    if rate is None and number_format == "fp16" and device.accelerator.kind == "gpu":
        rate = device.accelerator.fp32_tflops
    if rate is None and number_format == "bf16" and device.accelerator.vendor == "Apple":
        rate = device.accelerator.fp32_tflops
    return (rate or 0.0) * 1e12 * device.compute_fraction


def label_clock(device: Device, efficiency: Efficiency) -> float:
    """Time at the clock that a card runs at over that of its label: cards for desktops exceed the boost
    clock that their peak is stated at."""
    return efficiency.desktop_clock if device.accelerator.tier in ("consumer", "workstation") else 1.0


def throttled(device: Device, number_format: str, efficiency: Efficiency) -> float:
    """How far the power limit holds back long matrix work: a card whose peak needs more watts than it
    has runs at a lower clock. 1.0 where the limit doesn't bind or isn't known."""
    width = {"tf32": 0.5, "fp16": 1.0, "bf16": 1.0, "fp8": 2.0, "int8": 2.0}.get(number_format)
    per_watt = efficiency.power(families(device.accelerator))
    if not width or not per_watt or not device.accelerator.tdp_w:
        return 1.0
    sustained = device.accelerator.tdp_w * per_watt * width * 1e12 * device.compute_fraction
    return max(1.0, peak_flops(device, number_format) / sustained)


def usable_bytes(device: Device, efficiency: Efficiency) -> float:
    """Bytes that a process can allocate: what is stated, or the label less what the driver keeps."""
    if device.memory_gib is not None:
        return device.memory_gib * GIB
    label = device.accelerator.memory_gib
    if label is None:
        return 0.0
    return label * GIB * efficiency.usable(device.accelerator.tier, device.accelerator.memory_type)


def _attention_flops(device: Device, number_format: str) -> float:
    """Peak of the format that attention runs in."""
    for name in _ATTENTION_FORMATS.get(number_format, ()):
        if rate := peak_flops(device, name):
            return rate
    return peak_flops(device, number_format)


def _estimate_unmeasured(curves: kernels.Kernels, devices: Sequence[Device], efficiency: Efficiency) -> None:
    """Where no kernels were measured, set the constants of compute that are known otherwise, and the share
    of the bandwidth that such a memory gives."""
    curve, table = curves.matmul, kernels.load()
    for row, device in enumerate(devices):
        accelerator = device.accelerator
        if not table.has("matmul", families(accelerator), "16bit") or accelerator.tier != "datacenter":
            share = efficiency.stream(accelerator.tier, accelerator.memory_type)
            curve.memory[row], curves.decode.memory[row] = share, share
        for column, number_class in enumerate(kernels.CLASSES):
            known = efficiency.matmul(accelerator.architecture or "", number_class)
            if known is not None:
                for array, value in zip((curve.compute, curve.m0, curve.n0, curve.k0), known, strict=True):
                    array[row, column] = value


def _measured_hold(devices: Sequence[Device], efficiency: Efficiency) -> Floats:
    """How far the card on which a device's kernels were measured was held back itself."""
    rows = efficiency.power_measured_rows
    return np.array(
        [
            next((rows[name] for name in families(device.accelerator) if name in rows), 1.0)
            for device in devices
        ]
    )


def _hold_back(curve: kernels.MatmulCurve, held_back: Floats, measured: Floats) -> None:
    """A power limit holds products back as far as it does, whatever the kernels could reach; what it did to
    the card on which they were measured is taken out."""
    for name in ("tf32", "bf16", "fp8", "fp4"):
        column = kernels.CLASSES.index(_CLASS_OF[name])
        limit = held_back[:, FORMATS.index(name)]
        by = measured if name in ("bf16", "fp8") else 1.0
        free = np.maximum(curve.compute[:, column] / by, np.minimum(curve.compute[:, column], 1.0))
        curve.compute[:, column] = np.maximum(free, limit)


def _link_scale(device: Device) -> float:
    """1 where the family's collectives were measured or nothing is known of its link; else the link's
    own part of its rate over that of the curve of any."""
    if device.intra_fraction is None or device.intra_gbs <= 0:
        return 1.0
    table = kernels.load()
    if table.has("collective", kernels.families(device.accelerator), "all_reduce"):
        return 1.0
    return device.intra_fraction / table.values("collective", (), "all_reduce")["rate8"]
