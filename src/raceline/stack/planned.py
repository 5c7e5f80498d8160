"""What a runtime's packages need on an accelerator, as a request to the solver."""

from __future__ import annotations

from raceline.measure.environment import Environment, Gpu
from raceline.stack.request import StackRequest
from raceline.stack.told import Requirement

# of a framework that has two names: what brings it to a GPU
_ON_NVIDIA = {"onnxruntime": "onnxruntime-gpu"}


def planned(
    packages: tuple[str, ...], name: str, vendor: str, kind: str, capability: str | None, count: int
) -> StackRequest:
    """What a runtime's packages need on an accelerator of the catalogue; the machine around it is free."""
    has_gpu = kind != "cpu"
    wanted = tuple(
        Requirement(_ON_NVIDIA.get(item, item) if vendor == "NVIDIA" and has_gpu else item)
        for item in packages
    )
    gpus: tuple[Gpu, ...] = ()
    if has_gpu:
        known = _known(name) if capability is None else Gpu()
        gpus = (Gpu(name=name, capability=capability or known.capability, gfx=known.gfx, count=count),)
    return StackRequest(
        want=wanted, machine=Environment(os="linux", arch="x86_64", gpus=gpus), has_gpu=has_gpu
    )


def _known(name: str) -> Gpu:
    from raceline.stack.gpus import look_up

    return look_up(name)
