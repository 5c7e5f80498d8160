"""What a set needs of the machine: the driver and the C library."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.stack import limits
from raceline.stack.builds import torch_build
from raceline.stack.solver.choices import Candidate
from raceline.stack.versions import cuda_of, parse

USUAL_GLIBC = "2.28"  # what nothing needs to be said of: manylinux_2_28


def driver(cuda: str, torch: Candidate | None, machine: Environment) -> str | None:
    """The lowest driver: that of the CUDA major, that of the GPU's own first branch, and where torch has only PTX for
    the GPU, the one that came with the toolkit that made it."""
    is_windows = limits.is_windows_driver(machine)
    whole = cuda if "." in cuda else f"{cuda}.0"
    floors = [limits.driver_floor(whole, is_windows)]
    for item in machine.gpus:
        if item.capability is None:
            continue
        floors.append(limits.gpu_driver_floor(item.capability))
        if torch is not None and _is_ptx(torch, item.capability, machine):
            floors.append(limits.packaged_driver(cuda_of(torch.label) or whole, is_windows))
    return highest(floors)


def _is_ptx(torch: Candidate, capability: str, machine: Environment) -> bool:
    build = torch_build(torch.version, torch.label, machine)
    compiled = build.compiled if build is not None else None
    return compiled is not None and limits.kernels_for(capability, compiled) == "ptx"


def glibc(found: Iterable[Candidate]) -> str | None:
    """The newest C library that a wheel of the set needs."""
    return highest(item.glibc for item in found)


def highest(versions: Iterable[str | None]) -> str | None:
    """The highest of versions, as it is written."""
    known = [item for item in versions if parse(item) is not None]
    return max(known, key=lambda item: parse(item) or Version("0"), default=None)
