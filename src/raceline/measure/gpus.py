"""The accelerators of this machine and their drivers: NVML where it is installed, else what /proc and /sys tell."""

from __future__ import annotations

import re
from typing import Any

from raceline.measure.environment import Gpu
from raceline.measure.root import Root

_VERSION = re.compile(r"Kernel Module[^\n]{0,60}?\s(\d{3}(?:\.\d+){1,2})\b")


def nvidia(root: Root) -> dict[str, Any]:
    """Fields `driver`, `driver_cuda` and `gpus` for NVIDIA; empty without a driver."""
    found = _from_nvml() if root.is_real and _has_driver(root) else {}
    if not found:
        found = _from_proc(root)
    if not found and root.is_real and (root.exists("/dev/nvidia0") or root.exists("/dev/dxg")):
        found = _from_smi(root)
    return found


def _has_driver(root: Root) -> bool:
    return any(root.exists(name) for name in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/dxg"))


def _from_nvml() -> dict[str, Any]:
    """By the library nvidia-ml-py, which the extra `gpu` brings."""
    try:
        import pynvml
    except ImportError:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        code = pynvml.nvmlSystemGetCudaDriverVersion_v2()
        gpus: dict[tuple[str, str], int] = {}
        memory: dict[str, float] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            name = _word(pynvml.nvmlDeviceGetName(handle))
            gpus[name, f"{major}.{minor}"] = gpus.get((name, f"{major}.{minor}"), 0) + 1
            memory[name] = pynvml.nvmlDeviceGetMemoryInfo(handle).total / 2**30
        return {
            "driver": _word(pynvml.nvmlSystemGetDriverVersion()),
            "driver_cuda": f"{code // 1000}.{code % 1000 // 10}",
            "gpus": tuple(
                Gpu(name, capability, None, memory[name], count) for (name, capability), count in gpus.items()
            ),
        }
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _word(value: Any) -> str:
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _from_proc(root: Root) -> dict[str, Any]:
    """By the kernel module's files: driver and names; the capability is looked up by name elsewhere."""
    version = root.text("/proc/driver/nvidia/version") or root.text("/sys/module/nvidia/version")
    match = _VERSION.search(version or "") or re.match(r"\s*(\d{3}(?:\.\d+){1,2})", version or "")
    if match is None:
        return {}
    counts: dict[str, int] = {}
    for bus in root.names("/proc/driver/nvidia/gpus"):
        text = root.text(f"/proc/driver/nvidia/gpus/{bus}/information") or ""
        name = re.search(r"Model:\s*(.{1,80})", text)
        if name is not None:
            counts[name[1].strip()] = counts.get(name[1].strip(), 0) + 1
    return {"driver": match[1], "gpus": tuple(Gpu(name, count=count) for name, count in counts.items())}


def _from_smi(root: Root) -> dict[str, Any]:
    """By nvidia-smi, where nothing else tells (WSL)."""
    text = root.output("nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader")
    rows = [[cell.strip() for cell in line.split(",")] for line in (text or "").splitlines()]
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        if len(row) == 3:
            counts[row[0], row[2]] = counts.get((row[0], row[2]), 0) + 1
    if not counts:
        return {}
    gpus = tuple(Gpu(name, capability, count=count) for (name, capability), count in counts.items())
    return {"driver": rows[0][1], "gpus": gpus}


def amd(root: Root) -> dict[str, Any]:
    """Fields `gpus`, `rocm` and `gfx_override` for AMD, by the kernel's topology."""
    counts: dict[str, int] = {}
    for node in root.names("/sys/class/kfd/kfd/topology/nodes"):
        text = root.text(f"/sys/class/kfd/kfd/topology/nodes/{node}/properties") or ""
        match = re.search(r"gfx_target_version\s+(\d+)", text)
        if match is not None and int(match[1]) > 0:
            counts[gfx_of(int(match[1]))] = counts.get(gfx_of(int(match[1])), 0) + 1
    found: dict[str, Any] = {}
    if counts:
        found["gpus"] = tuple(Gpu(None, None, gfx, None, count) for gfx, count in counts.items())
    rocm = re.match(r"\s*(\d+\.\d+)", root.text("/opt/rocm/.info/version") or "")
    if rocm is not None:
        found["rocm"] = rocm[1]
    if override := root.variables.get("HSA_OVERRIDE_GFX_VERSION"):
        found["gfx_override"] = override[:20]
    return found


def gfx_of(code: int) -> str:
    """The target of the kernel's number: 90402 is gfx942, 90010 gfx90a, 110000 gfx1100."""
    major, minor, step = code // 10000, code // 100 % 100, code % 100
    return f"gfx{major}{minor:x}{step:x}"


def others(root: Root) -> dict[str, Any]:
    """Fields `tpu` and `neuron`."""
    found: dict[str, Any] = {}
    names = root.names("/dev")
    if any(re.fullmatch(r"neuron\d+", name) for name in names):
        version = re.search(r"\d+\.\d+[\d.]*", root.text("/sys/module/neuron/version") or "")
        found["neuron"] = version[0] if version else "unknown"
    if any(re.fullmatch(r"accel\d+", name) for name in names) or root.variables.get("TPU_NAME"):
        kind = root.variables.get("TPU_ACCELERATOR_TYPE", "unknown")
        found["tpu"] = kind[:40]
    return found
