"""The accelerators of this machine and their drivers: NVML where it is installed, else what /proc and /sys tell."""

from __future__ import annotations

import platform
import re
from typing import Any

from raceline.measure.environment import Gpu
from raceline.measure.root import Root

_TPU = ("TPU_NAME", "TPU_ACCELERATOR_TYPE", "TPU_WORKER_ID")
_VERSION = re.compile(r"Kernel Module[^\n]{0,60}?\s(\d{3}(?:\.\d+){1,2})\b")


def nvidia(root: Root) -> dict[str, Any]:
    """Fields `driver`, `driver_cuda` and `gpus` for NVIDIA; empty without a driver."""
    library = _nvml() if root.is_real and _has_driver(root) else None
    found = from_nvml(library) if library is not None else {}
    if not found:
        found = _from_proc(root)
    if not found and root.is_real and _has_driver(root):
        found = _from_smi(root)
    return found


def _has_driver(root: Root) -> bool:
    names = ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg")
    return platform.system() == "Windows" or any(root.exists(name) for name in names)


def _nvml() -> Any:
    """The module of nvidia-ml-py, which the extra `gpu` brings."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml


def from_nvml(pynvml: Any) -> dict[str, Any]:
    """By NVML; a figure that it doesn't give (memory that CPU and GPU share) is unknown and the rest stands."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        gpus: dict[tuple[str, str], int] = {}
        memory: dict[str, float | None] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
            name = _word(pynvml.nvmlDeviceGetName(handle))
            gpus[name, f"{major}.{minor}"] = gpus.get((name, f"{major}.{minor}"), 0) + 1
            memory[name] = _memory_gib(pynvml, handle)
        return {
            "driver": _word(pynvml.nvmlSystemGetDriverVersion()),
            "driver_cuda": _driver_cuda(pynvml),
            "gpus": tuple(
                Gpu(name, capability, None, memory[name], count) for (name, capability), count in gpus.items()
            ),
        }
    except pynvml.NVMLError:
        return {}
    finally:
        pynvml.nvmlShutdown()


def _memory_gib(pynvml: Any, handle: Any) -> float | None:
    try:
        return float(pynvml.nvmlDeviceGetMemoryInfo(handle).total) / 2**30
    except pynvml.NVMLError:
        return None


def _driver_cuda(pynvml: Any) -> str | None:
    try:
        code = int(pynvml.nvmlSystemGetCudaDriverVersion_v2())
    except pynvml.NVMLError:
        return None
    return f"{code // 1000}.{code % 1000 // 10}"


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
    """By nvidia-smi, where nothing else tells (WSL, Windows); old ones don't know the capability."""
    for query in ("name,driver_version,compute_cap", "name,driver_version"):
        text = root.output("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader")
        if found := from_table(text or ""):
            return found
    return {}


def from_table(text: str) -> dict[str, Any]:
    """Lines of name, driver and, where known, capability, as nvidia-smi prints them."""
    driver = None
    counts: dict[tuple[str, str | None], int] = {}
    for line in text.splitlines()[:1000]:
        name, *rest = (cell.strip() for cell in line.split(","))
        if not rest or not re.fullmatch(r"\d{3}(?:\.\d+){1,2}", rest[0]):
            continue
        capability = rest[1] if len(rest) > 1 and re.fullmatch(r"\d{1,2}\.\d", rest[1]) else None
        counts[name[:80], capability] = counts.get((name[:80], capability), 0) + 1
        driver = driver or rest[0]
    if not counts:
        return {}
    gpus = tuple(Gpu(name, capability, count=count) for (name, capability), count in counts.items())
    return {"driver": driver, "gpus": gpus}


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
    if any(re.fullmatch(r"accel\d+", name) for name in names) or any(map(root.variables.get, _TPU)):
        kind = root.variables.get("TPU_ACCELERATOR_TYPE", "unknown")
        found["tpu"] = kind[:40]
    return found
