"""Whether a machine is ready for what a request needs: its hardware, its packages, its driver."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import msgspec

from raceline.measure.environment import Gpu
from raceline.present.errors import Message, message
from raceline.stack.age import assumed_builds, old_tables, unknown_versions
from raceline.stack.check import Report, check
from raceline.stack.limits import driver_starts
from raceline.stack.request import Pick, Solution, StackRequest
from raceline.stack.result import Action, Finding
from raceline.stack.solver import solve
from raceline.stack.told import Requirement, Told


def judged(told: Told, today: datetime.date, request: StackRequest | None = None) -> Report:
    """The check of a stack, with what could not be judged, how old the facts are, and what it lacks for a request."""
    report = check(told)
    findings = report.findings
    if request is not None:
        solution = solve(with_machine(request, told))
        lacks = sorted(
            unready(told, request, solution), key=lambda item: (item.verdict == "fine", item.blocks)
        )
        findings = (
            *(item for item in lacks if item.verdict != "fine"),
            *findings,
            *(item for item in lacks if item.verdict == "fine"),
        )
    proposals = tuple(dict.fromkeys(fix for item in findings if item.verdict != "fine" for fix in item.fixes))
    worst = min(
        (item.verdict for item in findings), key=("will_fail", "may_fail", "fine").index, default=None
    )
    return msgspec.structs.replace(
        report,
        findings=findings,
        proposals=proposals,
        verdict=worst,
        unknown=(*assumed_builds(told), *unknown_versions(told)),
        notes=_notes(told, today),
        ready_for=None if request is None else ", ".join(item.name for item in request.want),
    )


def _notes(told: Told, today: datetime.date) -> tuple[Message, ...]:
    read = tuple(
        message("stack.read_as", kind=item.kind, lines=item.lines)
        for item in told.sources
        if item.kind != "machine"
    )
    unread = (message("stack.unread", lines=told.unread_lines),) if told.unread_lines else ()
    return (*read, *unread, *_untold(told), *old_tables(today))


def _untold(told: Told) -> tuple[Message, ...]:
    """What a text leaves open that verdicts on its packages would rest on."""
    machine = told.environment
    if not (machine.distributions or told.requirements) or any(
        item.kind == "machine" for item in told.sources
    ):
        return ()
    missing = [
        message(f"stack.untold_{name}")
        for name, is_told in (
            ("driver", machine.driver or machine.driver_cuda or machine.os == "macos"),
            ("gpu", machine.gpus or machine.tpu or machine.neuron),
            ("python", machine.python),
            ("system", machine.os),
        )
        if not is_told
    ]
    return (message("stack.untold", items=tuple(missing)),) if missing else ()


def unready(told: Told, request: StackRequest, solution: Solution) -> Iterator[Finding]:
    """What the machine lacks for the request, of which `solution` is a set that works on it."""
    yield from _hardware(told, request)
    if solution.conflict is not None:
        yield Finding("requirement_conflict", "will_fail", solution.conflict, "plan", blocks=20)
        return
    if solution.cuda is not None:
        starts = driver_starts(told.environment, solution.cuda)
        if starts.holds is False:
            fix = (Action("driver", from_=starts.has, to=f">={starts.needed}"),)
            text = message("stack.plan_driver", needed=starts.needed or "", has=starts.has or "")
            yield Finding(
                "driver_too_old", "will_fail", text, "plan", blocks=10, fixes=(fix,), facts=starts.facts
            )
    missing = tuple(pick for pick in solution.picks if not _is_there(told, request.want, pick))
    if missing:
        names = ", ".join(pick.package for pick in missing)
        steps = tuple(_install(pick) for pick in missing)
        text = message("stack.plan_packages_missing", packages=names)
        yield Finding(
            "not_installed", "will_fail", text, "plan", blocks=60, packages=tuple(pick.package for pick in missing),
            fixes=(steps,), facts=tuple(item for pick in missing for item in pick.facts[:1]),
        )  # fmt: skip


def with_machine(request: StackRequest, told: Told) -> StackRequest:
    """The request on the machine that was told of: its system, driver and Python around the GPUs of the request."""
    here = told.environment
    gpus = here.gpus or request.machine.gpus
    machine = msgspec.structs.replace(here, gpus=gpus, distributions=(), shadows=(), shared_files=())
    return msgspec.structs.replace(request, machine=machine, keep=here.distributions, prefer="least-change")


def _hardware(told: Told, request: StackRequest) -> Iterator[Finding]:
    for wanted in request.machine.gpus:
        alike = [item for item in told.environment.gpus if _is_alike(item, wanted)]
        found = sum(item.count for item in alike)
        if found >= wanted.count:
            text = message("stack.plan_hardware_there", count=wanted.count, name=wanted.name or "GPU")
            yield Finding("plan_hardware", "fine", text, "plan", blocks=5)
            continue
        text = message(
            "stack.plan_hardware_missing", count=wanted.count, name=wanted.name or "GPU", found=found
        )
        fix = (Action("hardware", to=f"{wanted.count} x {wanted.name or wanted.capability or 'GPU'}"),)
        yield Finding("plan_hardware", "will_fail", text, "plan", blocks=5, fixes=(fix,))


def _is_alike(item: Gpu, wanted: Gpu) -> bool:
    if item.name and wanted.name and _name(item.name) != _name(wanted.name):
        ours, theirs = set(_name(item.name).split()), set(_name(wanted.name).split())
        return ours <= theirs or theirs <= ours
    if item.capability and wanted.capability:
        return item.capability == wanted.capability
    return bool(item.name and wanted.name)


def _name(text: str) -> str:
    words = text.lower().replace("-", " ").split()
    return " ".join(
        word for word in words if word not in ("nvidia", "amd", "geforce", "tesla", "instinct", "gpu")
    )


def _is_there(told: Told, wanted: tuple[Requirement, ...], pick: Pick) -> bool:
    is_wanted = any(item.name == pick.package for item in wanted)
    return not is_wanted or told.environment.distribution(pick.package) is not None


def _install(pick: Pick) -> Action:
    index = f" --index-url {pick.index_url}" if pick.index_url else ""
    wanted = f"{pick.package}=={pick.version}" if pick.version else pick.package
    return Action(
        "install_build",
        package=pick.package,
        to=f"=={pick.version}" if pick.version else None,
        build=pick.label if pick.index_url else None,
        command=f"pip install {wanted}{index}",
    )
