"""The nearest sets that work once something is changed: the driver, the Python, a wish, the machine."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator

import msgspec
from packaging.version import Version

from raceline.measure.environment import Gpu
from raceline.stack import facts
from raceline.stack.request import Alternative, Pick, Solution, StackRequest
from raceline.stack.result import Action
from raceline.stack.told import Requirement
from raceline.stack.versions import at_least, major, parse

Solve = Callable[[StackRequest], Solution | None]
Change = tuple[Action, StackRequest]
MOST_ALTERNATIVES = 4
_MOST_PAIRS = 24


def nearest(request: StackRequest, core: StackRequest, solve: Solve) -> Iterator[Alternative]:
    """Sets that work once one thing is changed, the smallest change first; where none does, two things. Only a change
    of what is in the conflict's core can help."""
    found = 0
    for action, changed in changes(request, core):
        if found >= MOST_ALTERNATIVES:
            return
        solved = least_driver(changed, solve) if action.action == "driver" else solve(changed)
        if solved is not None:
            found += 1
            yield _alternative((action,), solved)
    is_gpu = core.has_gpu is False or bool(core.machine.gpus)
    if not found and is_gpu and (hardware := _hardware(request, solve)) is not None:
        found += 1
        yield hardware
    if not found:
        yield from itertools.islice(_pairs(request, core, solve), 2)


def least_driver(request: StackRequest, solve: Solve) -> Solution | None:
    """The set that asks least of a driver that can be raised."""
    found = (solve(msgspec.structs.replace(request, cuda_major=major)) for major in _majors())
    return min(filter(None, found), key=lambda item: parse(item.driver_floor) or Version("0"), default=None)


@functools.cache
def _majors() -> tuple[int, ...]:
    return tuple(sorted({major(row["cuda"]) or 0 for row in facts.table("cuda_driver")}))


def _pairs(request: StackRequest, core: StackRequest, solve: Solve) -> Iterator[Alternative]:
    tried = 0
    for first, changed in changes(request, core):
        for second, both in changes(changed, changed):
            tried += 1
            if tried > _MOST_PAIRS:
                return
            solved = solve(both)
            if solved is not None:
                yield _alternative((first, second), solved)


def _alternative(actions: tuple[Action, ...], solved: Solution) -> Alternative:
    stated = tuple(_stated(action, solved) for action in actions)
    return Alternative(stated, solved.picks, solved.python or "")


def changes(request: StackRequest, core: StackRequest) -> Iterator[Change]:
    """Everything in a core that can be changed alone, the least trouble first."""
    machine = request.machine
    if core.machine.driver is not None or core.machine.driver_cuda is not None:
        free = msgspec.structs.replace(machine, driver=None, driver_cuda=None)
        yield Action("driver", from_=machine.driver), msgspec.structs.replace(request, machine=free)
    pythons = request.pythons or ((machine.python,) if machine.python else ())
    if pythons and not core.is_python_free:
        free = msgspec.structs.replace(machine, python=None)
        yield (
            Action("python", from_=pythons[0]),
            msgspec.structs.replace(request, machine=free, pythons=(), is_python_free=True),
        )
    yield from _of_wishes(request, core)
    yield from _of_machine(request, core)


def _of_wishes(request: StackRequest, core: StackRequest) -> Iterator[Change]:
    want = request.want
    for index, wish in enumerate(want):
        if wish in core.want and (wish.specifier or wish.label or wish.extras):
            freed = (*want[:index], Requirement(wish.name), *want[index + 1 :])
            action = Action("install_build", package=wish.name, from_=wish.specifier or wish.label)
            yield action, msgspec.structs.replace(request, want=freed)
    for index, wish in enumerate(want):
        if wish in core.want and len(want) > 1:
            rest = (*want[:index], *want[index + 1 :])
            yield Action("remove", package=wish.name), msgspec.structs.replace(request, want=rest)


def _of_machine(request: StackRequest, core: StackRequest) -> Iterator[Change]:
    machine = request.machine
    if core.machine.glibc is not None:
        free = msgspec.structs.replace(machine, glibc=None)
        action = Action("os_or_glibc", from_=f"glibc {machine.glibc}", to="glibc")
        yield action, msgspec.structs.replace(request, machine=free)
    if core.machine.os in ("windows", "macos"):
        linux = msgspec.structs.replace(
            machine, os="linux", os_name=None, os_version=None, arch="x86_64", is_wsl=machine.os == "windows"
        )
        to = "WSL2" if machine.os == "windows" else "Linux"
        yield Action("os_or_glibc", from_=machine.os, to=to), msgspec.structs.replace(request, machine=linux)
    if request.has_gpu is not False and machine.os != "macos":
        free = msgspec.structs.replace(machine, gpus=(), driver=None, driver_cuda=None)
        yield (
            Action("hardware", to="CPU"),
            msgspec.structs.replace(request, machine=free, has_gpu=False),
        )


def capability_that_works(request: StackRequest, solve: Solve) -> str | None:
    """The nearest compute capability for which there is a set, the newer ones first."""
    has = next((item.capability for item in request.machine.gpus if item.capability), None)
    if has is None:
        return None
    rows = [row for row in facts.table("cuda_arch") if row["compute_capability"][-1:].isdigit()]
    known = [row["compute_capability"] for row in rows if not row["last_cuda"]]
    newer = [item for item in known if at_least(item, has) and item != has]
    older = [row["compute_capability"] for row in rows if not at_least(row["compute_capability"], has)]
    for capability in (*newer, *reversed(older)):
        if solve(_with_gpu(request, capability)) is not None:
            return capability
    return None


def _with_gpu(request: StackRequest, capability: str) -> StackRequest:
    machine = msgspec.structs.replace(request.machine, gpus=(Gpu(capability=capability),))
    return msgspec.structs.replace(request, machine=machine)


def _hardware(request: StackRequest, solve: Solve) -> Alternative | None:
    """Another GPU: of another capability, or one at all."""
    if request.has_gpu is False:
        solved = solve(msgspec.structs.replace(request, has_gpu=True))
        return None if solved is None else _alternative((Action("hardware", to="NVIDIA GPU"),), solved)
    works = capability_that_works(request, solve)
    solved = solve(_with_gpu(request, works)) if works is not None else None
    if solved is None or works is None:
        return None
    has = next((item.capability for item in request.machine.gpus if item.capability), None)
    sign = ">=" if at_least(works, has) else "<="
    return _alternative(
        (Action("hardware", from_=request.machine.gpus[0].name, to=f"{sign}{works}"),), solved
    )


def _stated(action: Action, solved: Solution) -> Action:
    """A change with the value that its set needs."""
    if action.action == "driver":
        return msgspec.structs.replace(action, to=f">={solved.driver_floor}" if solved.driver_floor else None)
    if action.action == "python":
        return msgspec.structs.replace(action, to=f"=={solved.python}.*")
    if action.action == "os_or_glibc" and action.to == "glibc":
        floor = solved.glibc_floor
        return msgspec.structs.replace(action, to=f"glibc>={floor}" if floor else None)
    if action.action == "install_build":
        pick: Pick | None = next((item for item in solved.picks if item.package == action.package), None)
        if pick is not None and pick.version:
            return msgspec.structs.replace(action, to=f"=={pick.version}", build=pick.label)
    return action
