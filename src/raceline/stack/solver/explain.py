"""Why there is no set: the smallest part of the wishes and facts that can't be met, each with what it would need."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

import msgspec

from raceline.measure.environment import Environment
from raceline.present.errors import Message, message
from raceline.stack import facts, limits
from raceline.stack.request import Solution, StackRequest
from raceline.stack.result import Fact
from raceline.stack.solver.alternatives import capability_that_works, least_driver, nearest
from raceline.stack.solver.choices import CUDA, ONNXRUNTIME, PYTHON, RUNTIME, USUAL, Candidate, Need
from raceline.stack.solver.resolve import opposed, search
from raceline.stack.told import Requirement

__all__ = ["Conflict", "Part", "conflict", "core", "nearest", "parts_of"]

Solve = Callable[[StackRequest], Solution | None]


class Part(msgspec.Struct, frozen=True):
    """One thing that was asked or found: `without` is the request when it is let go."""

    text: Message
    without: StackRequest


class Conflict(msgspec.Struct, frozen=True):
    """A minimal conflict as a sentence, why its parts do not go together, and the facts. `reduced` is the request with
    all let go that it does not need."""

    text: Message
    reduced: StackRequest
    because: tuple[Message, ...] = ()
    facts: tuple[Fact, ...] = ()


def parts_of(request: StackRequest) -> Iterator[Part]:
    """What can be let go, one at a time: wishes, then facts of the machine. That there is a GPU at all stays."""
    if request.has_gpu is None:
        has_gpu = bool(request.machine.gpus or request.machine.driver)
        request = msgspec.structs.replace(request, has_gpu=has_gpu)
    for index, wish in enumerate(request.want):
        rest = (*request.want[:index], *request.want[index + 1 :])
        yield Part(message("stack.part_wish", wish=shown(wish)), msgspec.structs.replace(request, want=rest))
    machine = request.machine
    if machine.driver is not None or machine.driver_cuda is not None:
        has = machine.driver or f"CUDA {machine.driver_cuda}"
        yield Part(message("stack.driver", driver=has), _on(request, driver=None, driver_cuda=None))
    if any(item.capability or item.gfx for item in machine.gpus):
        name = machine.gpus[0].name or machine.gpus[0].capability or machine.gpus[0].gfx or "GPU"
        target = machine.gpus[0].capability or machine.gpus[0].gfx or ""
        yield Part(message("stack.part_gpu", gpu=name, target=target), _on(request, gpus=()))
    if request.has_gpu is False and machine.os != "macos":
        yield Part(message("stack.part_no_gpu"), msgspec.structs.replace(request, has_gpu=True))
    pythons = request.pythons or ((machine.python,) if machine.python else ())
    if pythons and not request.is_python_free:
        free = msgspec.structs.replace(_on(request, python=None), pythons=(), is_python_free=True)
        yield Part(message("stack.part_python", python=", ".join(pythons)), free)
    if machine.glibc is not None:
        yield Part(message("stack.part_glibc", glibc=machine.glibc), _on(request, glibc=None))
    if machine.os is not None and machine.os != "linux":
        system = " ".join(filter(None, (machine.os_name or machine.os, machine.os_version)))
        linux = _on(request, os="linux", os_name=None, os_version=None, arch="x86_64")
        yield Part(message("stack.part_system", os=system), linux)
    elif machine.arch not in (None, "x86_64"):
        yield Part(message("stack.part_arch", arch=machine.arch), _on(request, arch="x86_64"))


def _on(request: StackRequest, **changes: object) -> StackRequest:
    machine: Environment = msgspec.structs.replace(request.machine, **changes)
    return msgspec.structs.replace(request, machine=machine)


def shown(wish: Requirement) -> str:
    """A wish as it was written."""
    extras = f"[{','.join(wish.extras)}]" if wish.extras else ""
    label = f" ({wish.label})" if wish.label else ""
    return f"{wish.name}{extras}{wish.specifier}{label}"


def core(request: StackRequest, solve: Solve) -> tuple[StackRequest, tuple[Part, ...]]:
    """The request with all let go that the conflict does not need, and its parts: letting any one of them go leaves
    a set that works."""
    current = request
    for text in [part.text for part in parts_of(request)]:
        part = next((item for item in parts_of(current) if item.text == text), None)
        if part is not None and part.without.want and solve(part.without) is None:
            current = part.without
    kept = tuple(
        part for part in parts_of(current) if not part.without.want or solve(part.without) is not None
    )
    return current, kept


def conflict(request: StackRequest, solve: Solve) -> Conflict:
    """The minimal conflict as one sentence, with what each fact of the machine stands against."""
    reduced, parts = core(request, solve)
    because: list[Message] = []
    stands: list[Fact] = []
    for part in parts:
        find = least_driver if part.text.id == "stack.driver" else _solve_with
        found = find(part.without, solve) if part.without.want else None
        said = _against(part, found, reduced, solve) if found is not None else None
        if said is not None:
            because.append(said[0])
            stands.extend(said[1])
    for text, fact in _between(reduced) if len(reduced.want) > 1 else ():
        because.append(text)
        stands.extend(fact)
    texts = tuple(part.text for part in parts)
    return Conflict(
        message("stack.conflict", parts=texts), reduced, tuple(because), tuple(dict.fromkeys(stands))
    )


def _solve_with(request: StackRequest, solve: Solve) -> Solution | None:
    return solve(request)


def _against(
    part: Part, found: Solution, reduced: StackRequest, solve: Solve
) -> tuple[Message, tuple[Fact, ...]] | None:
    """What a set would need where one fact of the machine is let go."""
    machine, set_of = reduced.machine, _set(found)
    stands = tuple(fact for pick in found.picks[:2] for fact in pick.facts)
    match part.text.id:
        case "stack.driver" if found.driver_floor is not None:
            needs = {"picks": set_of, "cuda": found.cuda or "", "floor": found.driver_floor}
            has = machine.driver or f"CUDA {machine.driver_cuda}"
            return message("stack.because_driver", has=has, **needs), (
                facts.rule_fact("driver-cuda-major"),
                *stands,
            )
        case "stack.part_gpu":
            return _against_gpu(reduced, set_of, stands, solve)
        case "stack.part_python":
            has = part.text.params["python"]
            return message("stack.because_python", picks=set_of, needed=found.python or "", has=has), (
                facts.rule_fact("python-wheel-window"), *stands,
            )  # fmt: skip
        case "stack.part_glibc" if found.glibc_floor is not None:
            needed, has = found.glibc_floor, machine.glibc or ""
            return message("stack.because_glibc", picks=set_of, needed=needed, has=has), (
                facts.rule_fact("manylinux-glibc"), *stands,
            )  # fmt: skip
        case "stack.part_system" | "stack.part_arch" | "stack.part_no_gpu":
            return message(part.text.id.replace("part_", "because_"), picks=set_of), stands
    return None


def _against_gpu(
    reduced: StackRequest, picks: str, stands: tuple[Fact, ...], solve: Solve
) -> tuple[Message, tuple[Fact, ...]] | None:
    gpu = reduced.machine.gpus[0]
    rows = tuple(
        facts.fact("cuda_arch", row) for row in (limits.architecture_row(gpu.capability or ""),) if row
    )
    if gpu.capability is None:
        return message("stack.because_gfx", picks=picks, has=gpu.gfx or ""), (facts.rule_fact("rocm-gfx"),)
    works = capability_that_works(reduced, solve)
    if works is None:
        return None
    text = message("stack.because_gpu", picks=picks, needed=works, has=gpu.capability)
    return text, (facts.rule_fact("arch-not-in-wheel"), *rows, *stands)


def _set(found: Solution) -> str:
    return ", ".join(
        f"{pick.package} {pick.version}{f' ({pick.label})' if pick.label else ''}".strip()
        for pick in found.picks
    )


def _between(reduced: StackRequest) -> Iterator[tuple[Message, tuple[Fact, ...]]]:
    """What two wishes need of one thing that can't be had together, by the sets that each has alone. The second is
    brought as near to the first as it can be: to its Python and its CUDA major."""
    alone = [msgspec.structs.replace(reduced, want=(wish,)) for wish in reduced.want]
    sets = [search(item) for item in alone]
    for one, other in itertools.permutations(range(len(alone)), 2):
        first = sets[one]
        second = _near(alone[other], first, sets[other]) if first is not None else None
        pairs = opposed(first, second, reduced) if first is not None and second is not None else []
        if pairs:
            for owner, need in pairs[0]:
                yield _need_text(owner, need), owner.facts
            return


def _near(
    request: StackRequest, first: Mapping[str, Candidate] | None, usual: Mapping[str, Candidate] | None
) -> Mapping[str, Candidate] | None:
    if first is None:
        return usual
    python = (first[PYTHON].version,)
    major = int(first[CUDA].version) if CUDA in first else None
    for changes in ({"pythons": python, "cuda_major": major}, {"pythons": python}):
        found = search(msgspec.structs.replace(request, is_python_free=False, **changes))
        if found is not None and (major is None or CUDA in (usual or {})):
            return found
    return usual


def _need_text(owner: Candidate, need: Need) -> Message:
    label = f" ({owner.label})" if owner.label else ""
    name = f"{owner.package} {owner.version}{label}"
    if need.of == owner.package:
        return message("stack.because_is", package=name)
    if need.of == ONNXRUNTIME:
        return message("stack.because_flavour", package=name)
    of = "CUDA" if need.of in (CUDA, RUNTIME) else need.of
    wanted = [need.bounds, " / ".join(need.versions), *(item for item in need.labels if item != USUAL)]
    return message("stack.because_needs", package=name, of=of, what=" ".join(filter(None, wanted)))
