"""Words of a command as a request to the solver."""

from __future__ import annotations

import msgspec
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Written

from raceline.measure.environment import Distribution, Environment, Gpu
from raceline.present.errors import InputError
from raceline.stack.readers import read_text
from raceline.stack.readers.names import normalised
from raceline.stack.request import Preference, StackRequest
from raceline.stack.told import Requirement, Told
from raceline.stack.versions import minor

NO_GPU = frozenset({"none", "no", "cpu", "0"})
MOST_WANTED = 50


def request_of(
    want: list[str],
    here: Environment,
    *,
    gpu: str | None = None,
    driver: str | None = None,
    python: str | None = None,
    os: str | None = None,
    keep: Told | None = None,
    prefer: Preference = "stable",
) -> StackRequest:
    """The request that the words mean; what they leave out is taken from the machine `here`.

    A named GPU or system makes the driver free unless it is given. Raises InputError at the first word that can't
    be read.
    """
    wanted = tuple(requirement(item) for part in want for item in _parts(part))
    if not wanted:
        raise InputError("stack.nothing_wanted", field="want")
    if len(wanted) > MOST_WANTED:
        raise InputError("stack.too_many_wanted", field="want", limit=MOST_WANTED)
    machine = _machine(here, gpu, driver, os)
    has_gpu = bool(machine.gpus) if gpu is None else gpu.strip().lower() not in NO_GPU
    pythons = _pythons(python)
    if not pythons and os is None and (current := minor(here.python)):
        machine = msgspec.structs.replace(machine, python=None)
        pythons = (current,)
    return StackRequest(
        want=wanted,
        machine=machine,
        pythons=pythons,
        is_python_free=python is None,
        keep=_kept(keep),
        prefer=prefer,
        has_gpu=has_gpu,
    )


def requirement(text: str) -> Requirement:
    """A wanted package: ``torch``, ``torch>=2.6``, ``jax[cuda12]``, ``torch==2.8.0+cu126``."""
    try:
        written = Written(text.strip()[:300])
    except InvalidRequirement:
        raise InputError("stack.wish_unreadable", field="want", given=text[:80]) from None
    bounds, label = str(written.specifier), None
    if "+" in bounds:
        parts = [item.split("+", 1) for item in bounds.split(",")]
        bounds, label = ",".join(item[0] for item in parts), next(item[1] for item in parts if len(item) > 1)
    return Requirement(normalised(written.name), bounds, label, tuple(sorted(written.extras)))


def _parts(text: str) -> list[str]:
    """The wishes of ``torch>=2.6,<2.9,vllm``: a comma before a comparison belongs to the wish before it."""
    found: list[str] = []
    depth = 0
    for piece in text.split(","):
        is_continued = bool(found) and (depth > 0 or piece.lstrip()[:1] in "<>=!~")
        if is_continued:
            found[-1] += f",{piece}"
        elif piece.strip():
            found.append(piece)
        depth += piece.count("[") - piece.count("]")
    return found


def _machine(here: Environment, gpu: str | None, driver: str | None, os: str | None) -> Environment:
    machine = _system(here, os)
    if gpu is not None:
        machine = msgspec.structs.replace(machine, gpus=_gpus(gpu), driver=None, driver_cuda=None)
    elif os is not None:
        machine = msgspec.structs.replace(machine, driver=None, driver_cuda=None)
    if driver is not None:
        told = read_text(f"driver: {driver}\n").environment
        if told.driver is None:
            raise InputError("stack.driver_unreadable", field="driver", given=driver[:40])
        machine = msgspec.structs.replace(machine, driver=told.driver, driver_cuda=None)
    return msgspec.structs.replace(machine, distributions=(), shadows=(), shared_files=(), library_path=())


def _system(here: Environment, os: str | None) -> Environment:
    if os is None:
        return here
    told = read_text(f"OS: {os}\n").environment
    if told.os is None:
        raise InputError("stack.system_unreadable", field="os", given=os[:40])
    return Environment(
        os=told.os, os_name=told.os_name, os_version=told.os_version, arch=told.arch, glibc=told.glibc,
        is_musl=told.is_musl, is_wsl=told.is_wsl, gpus=here.gpus,
    )  # fmt: skip


def _gpus(text: str) -> tuple[Gpu, ...]:
    if text.strip().lower() in NO_GPU:
        return ()
    found = read_text(f"GPU: {text}\n").environment.gpus
    if not found or not (found[0].capability or found[0].gfx or _is_apple(found[0])):
        raise InputError("stack.gpu_unknown", field="gpu", given=text[:60])
    return found


def _is_apple(item: Gpu) -> bool:
    return (item.name or "").lower().removeprefix("apple ")[:1] == "m"


def _pythons(text: str | None) -> tuple[str, ...]:
    found = []
    for item in (text or "").split(","):
        if not item.strip():
            continue
        short = minor(item.strip())
        if short is None or not short.startswith("3."):
            raise InputError("stack.python_unreadable", field="python", given=item.strip()[:40])
        found.append(short)
    return tuple(found)


def _kept(told: Told | None) -> tuple[Distribution, ...]:
    if told is None:
        return ()
    pinned = tuple(found for item in told.requirements if (found := told.installed(item.name)) is not None)
    return (*told.environment.distributions, *pinned)
