"""A check and a solution as views: the answer first, then why, then what to do."""

from __future__ import annotations

from collections.abc import Iterable

from raceline.measure.environment import Environment, Gpu
from raceline.present.errors import Message, message
from raceline.present.views import Column, Content, Group, Heading, Table, Text, Tone, View
from raceline.stack.check import Report
from raceline.stack.request import Alternative, Pick, Solution
from raceline.stack.result import Action, Fact, Finding, Fix

_TONES: dict[str, Tone] = {"will_fail": "bad", "may_fail": "warning", "fine": "good"}
_FIXES_SHOWN = 2


def report_view(report: Report) -> View:
    """The screen of `raceline stack check`."""
    items: list[View] = [Heading(headline(report.told.environment))]
    if report.notes:
        items.append(Group(tuple(Text(item, tone="note") for item in report.notes)))
    found = {
        verdict: [item for item in report.findings if item.verdict == verdict]
        for verdict in ("will_fail", "may_fail", "fine")
    }
    for verdict in ("will_fail", "may_fail"):
        items.extend(Group(tuple(_finding(item))) for item in found[verdict])
    fine = tuple(Text(item.text, tone="good") for item in found["fine"] if item.cause != "end_of_line")
    if fine:
        items.append(Group(fine))
    if not report.findings:
        items.append(Text(message("stack.nothing_to_judge")))
    elif not found["will_fail"] and not found["may_fail"]:
        items.append(Text(message("stack.nothing_wrong", count=len(report.findings))))
    if report.end_of_line:
        items.append(Text(report.end_of_line))
    if report.unknown:
        items.append(Group(tuple(Text(item, tone="note") for item in report.unknown)))
    return Group(tuple(items))


def headline(machine: Environment) -> Content:
    """``ubuntu 22.04 · driver 535.183 (CUDA 12.2) · Tesla V100 (7.0) · Python 3.11``; what is unknown is left out."""
    parts: list[Message | str] = []
    system = " ".join(filter(None, (machine.os_name or machine.os, machine.os_version)))
    if system:
        parts.append(system + (" (WSL2)" if machine.is_wsl else ""))
    if machine.glibc:
        parts.append(f"glibc {machine.glibc}")
    if machine.driver and machine.driver_cuda:
        parts.append(message("stack.driver_and_cuda", driver=machine.driver, cuda=machine.driver_cuda))
    elif machine.driver:
        parts.append(message("stack.driver", driver=machine.driver))
    elif machine.driver_cuda:
        parts.append(message("stack.driver_of_cuda", cuda=machine.driver_cuda))
    parts.extend(_gpu(item) for item in machine.gpus)
    if machine.container:
        parts.append(machine.container)
    if machine.python:
        parts.append(f"Python {machine.python}")
    if not parts:
        return message("stack.machine_unknown")
    return tuple(_between(parts))


def _gpu(item: Gpu) -> str:
    target = item.capability or item.gfx
    name = item.name or "GPU"
    count = f"{item.count} × " if item.count > 1 else ""
    return f"{count}{name} ({target})" if target and target not in name else f"{count}{name}"


def _between(parts: list[Message | str]) -> Iterable[Message | str]:
    for index, part in enumerate(parts):
        if index:
            yield "·"
        yield part


def _finding(item: Finding) -> Iterable[Text]:
    yield Text((message(f"stack.{item.verdict}"), item.text), tone=_TONES[item.verdict])
    for number, fix in enumerate(item.fixes[:_FIXES_SHOWN]):
        yield from _fix(fix, number)
    yield from (Text(_source(fact), tone="note", indent=3) for fact in item.facts[:2])


def _fix(fix: Fix, number: int) -> Iterable[Text]:
    label = message("stack.fix" if number == 0 else "stack.or")
    yield Text((label, action_text(fix[0])), indent=3)
    yield from (Text((message("stack.and"), action_text(action)), indent=3) for action in fix[1:])
    for command in dict.fromkeys(action.command for action in fix if action.command):
        yield Text(f"$ {command}", indent=7)


# ways that are no packages, by their name in a fix
_WAYS = {
    "rebuild the engine": "engine",
    "one environment per framework": "environments",
    "one resolver run over all requirements": "resolver",
    "link the nvidia/*/lib files next to the package": "link",
    "fp16": "half",
}


def action_text(action: Action) -> Message:
    """A step of a fix in words."""
    if action.action == "other" and action.name in _WAYS:
        return message(f"stack.way_{_WAYS[action.name]}")
    return message(
        f"stack.action_{action.action}",
        package=action.package or action.name or "",
        name=action.name or action.package or "",
        bounds=_bounds(action),
    )


def _bounds(action: Action) -> str:
    to = (action.to or "").removeprefix("==")
    return f"{to} ({action.build})" if to and action.build else to or action.build or ""


def _source(fact: Fact) -> Content:
    address = fact.source_url.split()[0] if fact.source_url else ""
    return message("stack.source", table=fact.table, row=fact.row, as_of=fact.as_of, url=address)


def solution_view(solution: Solution) -> View:
    """The screen of `raceline stack solve`."""
    items: list[View] = []
    if solution.conflict is not None:
        items.append(Heading(message("stack.no_set")))
        items.append(Text(solution.conflict, tone="bad"))
        items.append(Group(tuple(_because(solution))))
        if solution.nearest:
            items.append(Text(message("stack.nearest")))
        items.append(Group(tuple(line for item in solution.nearest for line in _alternative(item))))
    else:
        items.append(Heading(_set_headline(solution)))
        items.append(_picks(solution.picks))
        if solution.rest:
            items.append(Text(message("stack.rest", count=len(solution.rest)), tone="note"))
    if solution.notes:
        items.append(Group(tuple(Text(item, tone="note") for item in solution.notes)))
    return Group(tuple(items))


def _because(solution: Solution) -> Iterable[Text]:
    yield from (Text((message("stack.because"), item), indent=3) for item in solution.because)
    yield from (Text(_source(fact), tone="note", indent=3) for fact in solution.conflict_facts[:2])


def _set_headline(solution: Solution) -> Content:
    parts: list[Message | str] = [f"Python {solution.python}"] if solution.python else []
    if solution.cuda:
        parts.append(f"CUDA {solution.cuda}")
    if solution.driver_floor:
        parts.append(message("stack.needs_driver", floor=solution.driver_floor))
    return tuple(_between(parts)) if parts else message("stack.set")


def _picks(picks: tuple[Pick, ...]) -> Table:
    columns = (
        Column(message("stack.column_package"), can_wrap=False),
        Column(message("stack.column_version"), can_wrap=False),
        Column(message("stack.column_why")),
    )
    rows = tuple((_name(pick), shown(pick), message("stack.list", items=pick.reasons)) for pick in picks)
    return Table(columns, rows)


def _name(pick: Pick) -> str:
    return f"{pick.package}[{','.join(pick.extras)}]" if pick.extras else pick.package


def shown(pick: Pick) -> str:
    """A pick's version with its build where that is another than the default: ``2.8.0+cu126``."""
    return f"{pick.version}+{pick.label}" if pick.label and pick.index_url else pick.version


def _alternative(item: Alternative) -> Iterable[Text]:
    changes = message("stack.list", items=tuple(action_text(action) for action in item.changes))
    picks = ", ".join(f"{_name(pick)} {shown(pick)}" for pick in item.picks)
    yield Text(changes if item.changes else message("stack.no_change"), indent=3)
    yield Text(f"Python {item.python}: {picks}", indent=6, tone="note")
