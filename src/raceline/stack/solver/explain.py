"""Why there is no set: the smallest part of the wishes and facts that can't be met, and what comes nearest."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from raceline.present.errors import Message, message
from raceline.stack import limits
from raceline.stack.request import Alternative, Pick, StackRequest
from raceline.stack.result import Action
from raceline.stack.told import Requirement

Solve = Callable[[StackRequest], "tuple[tuple[Pick, ...], str] | None"]
MOST_ALTERNATIVES = 3


class Part(msgspec.Struct, frozen=True):
    """One thing that was asked or found: `without` is the request when it is let go."""

    text: Message
    without: StackRequest


def parts_of(request: StackRequest) -> Iterator[Part]:
    """What can be let go, one at a time: wishes, then facts of the machine."""
    for index, wish in enumerate(request.want):
        rest = (*request.want[:index], *request.want[index + 1 :])
        yield Part(message("stack.part_wish", wish=shown(wish)), msgspec.structs.replace(request, want=rest))
    machine = request.machine
    if machine.driver is not None or machine.driver_cuda is not None:
        free = msgspec.structs.replace(machine, driver=None, driver_cuda=None)
        has = machine.driver or f"CUDA {machine.driver_cuda}"
        yield Part(message("stack.driver", driver=has), msgspec.structs.replace(request, machine=free))
    if any(item.capability or item.gfx for item in machine.gpus):
        free = msgspec.structs.replace(machine, gpus=())
        name = machine.gpus[0].name or machine.gpus[0].capability or machine.gpus[0].gfx or "GPU"
        target = machine.gpus[0].capability or machine.gpus[0].gfx or ""
        yield Part(
            message("stack.part_gpu", gpu=name, target=target), msgspec.structs.replace(request, machine=free)
        )
    if request.pythons and not request.is_python_free:
        free_python = msgspec.structs.replace(request, pythons=(), is_python_free=True)
        yield Part(message("stack.part_python", python=", ".join(request.pythons)), free_python)
    if machine.glibc is not None:
        free = msgspec.structs.replace(machine, glibc=None)
        yield Part(
            message("stack.part_glibc", glibc=machine.glibc), msgspec.structs.replace(request, machine=free)
        )
    if machine.os is not None and machine.os != "linux":
        free = msgspec.structs.replace(machine, os="linux", os_name=None, os_version=None, arch="x86_64")
        yield Part(
            message("stack.part_system", os=machine.os_name or machine.os),
            msgspec.structs.replace(request, machine=free),
        )


def shown(wish: Requirement) -> str:
    """A wish as it was written."""
    extras = f"[{','.join(wish.extras)}]" if wish.extras else ""
    label = f" ({wish.label})" if wish.label else ""
    return f"{wish.name}{extras}{wish.specifier}{label}"


def conflict(request: StackRequest, solve: Solve) -> Message:
    """The minimal conflict as one sentence: letting any one of its parts go leaves a set that works."""
    kept: list[Message] = []
    current = request
    for part in list(parts_of(request)):
        smaller = _same_part(current, part)
        if smaller is None:
            continue
        if solve(smaller) is None and smaller.want:
            current = smaller  # not needed for the conflict
        else:
            kept.append(part.text)
    return message(
        "stack.conflict",
        parts=tuple(kept) or (message("stack.part_wish", wish=", ".join(map(shown, request.want))),),
    )


def _same_part(current: StackRequest, part: Part) -> StackRequest | None:
    """The part's removal applied to a request from which others are gone already."""
    return next((item.without for item in parts_of(current) if item.text == part.text), None)


def nearest(request: StackRequest, solve: Solve) -> Iterator[Alternative]:
    """Sets that work once one thing is changed, the smallest change first."""
    found = 0
    for changes, changed in _changes(request):
        if found >= MOST_ALTERNATIVES:
            return
        solved = solve(changed)
        if solved is None:
            continue
        picks, python = solved
        found += 1
        yield Alternative(tuple(_stated(action, picks, request) for action in changes), picks, python)


def _changes(request: StackRequest) -> Iterator[tuple[tuple[Action, ...], StackRequest]]:
    machine = request.machine
    if machine.driver is not None or machine.driver_cuda is not None:
        free = msgspec.structs.replace(machine, driver=None, driver_cuda=None)
        yield (Action("driver", from_=machine.driver),), msgspec.structs.replace(request, machine=free)
    if request.pythons and not request.is_python_free:
        yield (
            (Action("python", from_=request.pythons[0]),),
            msgspec.structs.replace(request, pythons=(), is_python_free=True),
        )
    for index, wish in enumerate(request.want):
        if wish.specifier or wish.label:
            freed = (
                *request.want[:index],
                Requirement(wish.name, extras=wish.extras),
                *request.want[index + 1 :],
            )
            yield (
                (Action("upgrade", package=wish.name, from_=wish.specifier or wish.label),),
                msgspec.structs.replace(request, want=freed),
            )
    for index, wish in enumerate(request.want):
        if len(request.want) > 1:
            rest = (*request.want[:index], *request.want[index + 1 :])
            yield (Action("remove", package=wish.name),), msgspec.structs.replace(request, want=rest)
    if machine.glibc is not None:
        free = msgspec.structs.replace(machine, glibc=None)
        yield (
            (Action("os_or_glibc", from_=f"glibc {machine.glibc}", to="glibc>=2.28"),),
            msgspec.structs.replace(request, machine=free),
        )
    if machine.os in ("windows", "macos"):
        linux = msgspec.structs.replace(machine, os="linux", os_name=None, os_version=None, arch="x86_64")
        yield (
            (Action("os_or_glibc", from_=machine.os, to="Linux"),),
            msgspec.structs.replace(request, machine=linux),
        )
    if request.has_gpu is not False and machine.os != "macos":
        free = msgspec.structs.replace(machine, gpus=(), driver=None, driver_cuda=None)
        yield (Action("hardware", to="CPU"),), msgspec.structs.replace(request, machine=free, has_gpu=False)


def _stated(action: Action, picks: tuple[Pick, ...], request: StackRequest) -> Action:
    """A change with the value that its set needs."""
    if action.action == "driver":
        torch = next(
            (
                item
                for item in picks
                if item.label and item.label.startswith("cu") and item.label[2:4].isdigit()
            ),
            None,
        )
        whole = torch.label[2:4] if torch is not None and torch.label else "12"
        floor = limits.driver_floor(f"{whole}.0", limits.is_windows_driver(request.machine))
        return msgspec.structs.replace(action, to=f">={floor}")
    if action.package is not None and action.action == "upgrade":
        pick = next((item for item in picks if item.package == action.package), None)
        return msgspec.structs.replace(
            action,
            action="install_build",
            to=f"=={pick.version}" if pick else None,
            build=pick.label if pick else None,
        )
    return action


def with_python(action: Action, python: str) -> Action:
    """A change of Python with the one that was found."""
    return msgspec.structs.replace(action, to=f"=={python}.*") if action.action == "python" else action
