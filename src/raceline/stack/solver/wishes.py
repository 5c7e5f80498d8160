"""A request as what the solver works on: the target of the builds, and the wishes as needs."""

from __future__ import annotations

import functools

import msgspec

from raceline.stack.builds import torch_builds
from raceline.stack.request import StackRequest
from raceline.stack.solver.choices import Need, Target, Vendor
from raceline.stack.solver.frameworks import JAX_LABELS
from raceline.stack.told import Requirement

# not the newest first: most packages have wheels for the first of these
_PYTHONS = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9", "3.8", "3.7", "3.15", "3.6")
_LABELS = {"jax": JAX_LABELS, "tensorflow": ("and-cuda",)}
_WITH_TORCH = frozenset({"torchvision", "torchaudio", "xformers", "torchao", "vllm", "sglang"})


def target_of(request: StackRequest) -> Target:
    """What candidates are made for: a GPU where one is named or nothing speaks against it."""
    machine = request.machine
    if machine.os is None:
        machine = msgspec.structs.replace(machine, os="linux", arch=machine.arch or "x86_64")
    pythons = request.pythons or ((machine.python,) if machine.python else ())
    if not pythons or request.is_python_free:
        pythons = (*pythons, *(item for item in _PYTHONS if item not in pythons))
    labels = tuple(dict.fromkeys(label for wish in request.want for label in _labels(wish)))
    machine = msgspec.structs.replace(machine, python=None, distributions=())
    return Target(machine, _vendor(request, labels), pythons, labels)


def _vendor(request: StackRequest, labels: tuple[str, ...]) -> Vendor:
    """Whose GPUs are used; of none that is named, the one that an asked build is for, else NVIDIA's."""
    machine = request.machine
    has_gpu = request.has_gpu if request.has_gpu is not None else bool(machine.gpus or machine.driver)
    if machine.os == "macos":
        return "apple" if has_gpu else "none"
    if not has_gpu:
        return "none"
    if any(item.gfx for item in machine.gpus):
        return "amd"
    is_rocm = any(label.startswith("rocm") for label in labels)
    return "amd" if is_rocm and not any(item.capability for item in machine.gpus) else "nvidia"


def wishes_of(request: StackRequest) -> tuple[Need, ...]:
    """The wishes as needs: an extra or a build that was asked for is one of the labels, and the build of a package
    that goes with torch is a wish on torch."""
    needs = []
    for wish in request.want:
        name = "onnxruntime-gpu" if wish.name == "onnxruntime" and "gpu" in wish.extras else wish.name
        labels = _labels(wish)
        if name in _WITH_TORCH:
            needs.append(Need(name, wish.specifier))
            if labels:
                needs.append(Need("torch", labels=labels))
        else:
            needs.append(Need(name, wish.specifier, labels))
    return tuple(needs)


def _labels(wish: Requirement) -> tuple[str, ...]:
    """The labels that a wish admits: ``cu13`` every build of CUDA 13, an extra itself."""
    found = [item for item in wish.extras if item in _LABELS.get(wish.name, ())]
    if wish.name == "jax" and "cuda" in wish.extras:
        found.append("cuda12")
    if wish.label is None:
        return tuple(found)
    if wish.name == "torch" or wish.name in _WITH_TORCH:
        known = torch_labels()
        found += (
            [wish.label] if wish.label in known else [item for item in known if item.startswith(wish.label)]
        )
        return tuple(found) or (wish.label,)
    return (*found, wish.label) if wish.name in ("jax", "tensorflow", "onnxruntime-gpu", "tensorrt") else ()


@functools.cache
def torch_labels() -> tuple[str, ...]:
    """Every build that torch has had."""
    return tuple(dict.fromkeys(item.label for item in torch_builds() if item.label))
