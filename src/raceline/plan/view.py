"""A plan as a view: the answer first, then why, then what to do next."""

from __future__ import annotations

import msgspec

from raceline.estimate.scenario import Scenario, Setup
from raceline.plan.result import Option, Plan, Shortfall
from raceline.present import units
from raceline.present.errors import Message, message
from raceline.present.views import (
    Axis,
    Cell,
    Chart,
    Column,
    Content,
    Group,
    Heading,
    Meter,
    Part,
    Point,
    Quantity,
    Table,
    Text,
    View,
)
from raceline.stack.request import Solution

PARTS_SHOWN = 0.05


def plan_view(plan: Plan) -> View:
    """The screen of `raceline plan`, with the options that were asked for under the picks."""
    items: list[View] = [_heading(plan)]
    if plan.shortfall:
        items.extend(_shortfall(plan.shortfall))
    if plan.picks:
        items.append(_table(plan.picks, plan.task))
        items.append(Group(tuple(line for pick in plan.picks for line in _why(pick))))
        items.append(Group(_facts(plan)))
    if plan.options:
        items.append(Group((_table(plan.options, plan.task),), title=message("plan.options")))
    if plan.stack is not None:
        items.append(Group((Text(_stack(plan.stack)),)))
    items.append(_next(plan))
    return Group(tuple(items))


def _stack(solution: Solution) -> Message:
    """The software of the first pick in one line, or why there is none."""
    if solution.conflict is not None:
        return message("plan.no_stack", reason=solution.conflict)
    wanted = {item.name for item in solution.request.want}
    names = [
        f"{pick.package} {pick.version}{f' ({pick.label})' if pick.label else ''}".strip()
        for pick in solution.picks
        if pick.package in wanted
    ]
    text = ", ".join((f"Python {solution.python}", *names))
    if solution.driver_floor is None:
        return message("plan.stack", packages=text)
    return message("plan.stack_driver", packages=text, floor=solution.driver_floor)


def front_view(plan: Plan, most: int = 20) -> View:
    """The Pareto front as a chart and a table of at most `most` options."""
    is_training = plan.task == "train"
    points = tuple(
        Point(
            label=hardware(option),
            x=_time_axis(option),
            y=option.cost_usd.mid,
            is_pick=_is_pick(option, plan),
        )
        for option in plan.front
        if option.cost_usd
    )
    chart = Chart(
        x=Axis(message("plan.axis_time"), "s" if is_training else "ms", is_log=True),
        y=Axis(message("plan.axis_cost"), "usd" if is_training else "hour_usd", is_log=True),
        points=points,
    )
    return Group(
        (chart, _table(plan.front[:most], plan.task)), title=message("plan.front", count=len(plan.front))
    )


def _time_axis(option: Option) -> float:
    if option.duration_s:
        return option.duration_s.mid
    latency = option.estimate.latency_ms
    return latency.tpot or latency.batch or 1.0


def _is_pick(option: Option, plan: Plan) -> bool:
    return any((pick.accelerator, pick.count) == (option.accelerator, option.count) for pick in plan.picks)


def _heading(plan: Plan) -> Heading:
    parts: list[Part] = [plan.model, "·", message(f"plan.method_{plan.method or plan.task}")]
    for name, value in plan.amount.items():
        is_whole = float(value) < 1e6 and name not in ("tokens", "samples")
        shown = f"{value:,g}" if is_whole else units.quantity(float(value), "count")
        parts += ["·", message(f"plan.amount_{name}", amount=shown)]
    return Heading(tuple(parts), aside=(Quantity(plan.parameters, "count"), message("plan.parameters")))


def hardware(option: Option) -> str:
    """``2 × L40S 48 GB``: a name that is the same in every language."""
    name = option.accelerator_name.removeprefix("GeForce ").removeprefix("Instinct ").removeprefix("Tesla ")
    return f"{option.count:,} × {name}"


def settings(scenario: Scenario) -> str:
    """The settings that matter, in the field's short words: ``dp 8, zero 3, mb 4``."""
    return ", ".join(_settings(scenario.setup, scenario))


def _settings(setup: Setup, scenario: Scenario) -> list[str]:
    words = [
        f"{name} {value}"
        for name in ("dp", "tp", "pp", "cp", "ep")
        if (value := getattr(setup, name)) is not None and value > 1
    ]
    if setup.zero_stage:
        words.append(f"zero {setup.zero_stage}")
    if scenario.workload.task == "train":
        words.append(f"mb {setup.micro_batch}")
        if setup.recompute and setup.recompute != "none":
            words.append(f"recompute {setup.recompute}")
        if setup.offload and setup.offload != "none":
            words.append(f"offload {setup.offload}")
    else:
        words.append(f"batch {scenario.workload.concurrency}")
    words.append(setup.weight_precision or setup.precision or "")
    return [word for word in words if word]


def _table(options: tuple[Option, ...], task: str) -> Table:
    is_training = task == "train"
    last = message("plan.column_cost") if is_training else message("plan.column_price")
    has_names = any(option.name for option in options)
    columns = (
        *((Column(message("plan.column_pick")),) if has_names else ()),
        Column(message("plan.column_hardware")),
        Column(message("plan.column_settings")),
        Column(message("plan.column_memory"), can_wrap=False),
        Column(message("plan.column_time") if is_training else message("plan.column_latency"), align="right"),
        Column(last, align="right"),
    )
    rows = tuple(_row(option, is_training)[0 if has_names else 1 :] for option in options)
    return Table(columns, rows)


def _row(option: Option, is_training: bool) -> tuple[Cell, ...]:
    name: Content = (
        tuple(message(f"plan.name_{name}") for name in option.name.split("+")) if option.name else ""
    )
    memory = option.estimate.memory_gib
    latency = option.estimate.latency_ms
    time = option.duration_s
    shown: Quantity
    if time:
        shown = Quantity(time.mid, "s", time.low, time.high)
    else:
        shown = Quantity(latency.tpot or latency.batch, "ms")
    cost = option.cost_usd
    money = Quantity(cost.mid if cost else None, "usd" if is_training else "hour_usd")
    return (
        name,
        hardware(option),
        settings(option.scenario),
        Meter(memory.total.mid, memory.limit),
        shown,
        money,
    )


def _why(option: Option) -> list[View]:
    """Why a pick won, why the runner-up lost, what bounds it and what may go wrong."""
    names = tuple(message(f"plan.name_{name}") for name in option.name.split("+"))
    lines: list[View] = [Text((*names, message("plan.why", pick=hardware(option)), *option.reasons))]
    lines.append(Text((*_bound(option), *option.runner_up), indent=2))
    if option.price_hour_usd is not None:
        place = ", ".join(part for part in (option.provider, option.region) if part and part != "global")
        price = message(
            "plan.offer", place=place, price_hour_usd=option.price_hour_usd, as_of=option.price_as_of
        )
        lines.append(Text(price, indent=2))
    lines.extend(Text(risk, tone="warning", indent=2) for risk in option.risks)
    return lines


def _bound(option: Option) -> tuple[Message, ...]:
    parts, step = option.estimate.time_parts_s, option.estimate.step_time_s
    if parts is None or step is None or step.mid <= 0:
        return ()
    shares = {name: value / step.mid for name, value in msgspec.structs.asdict(parts).items()}
    (first, share), (second, other) = sorted(shares.items(), key=lambda item: -item[1])[:2]
    bound = message("plan.bound_by", part=first, share_fraction=share)
    found = [bound]
    if other >= PARTS_SHOWN:
        found.append(message("plan.then", part=second, share_fraction=other))
    if option.estimate.mfu is not None:
        found.append(message("plan.utilisation", mfu_fraction=option.estimate.mfu))
    return tuple(found)


def _facts(plan: Plan) -> tuple[View, ...]:
    assumed = ", ".join(f"{name}={_shown(value)}" for name, value in plan.assumed.items())
    lines: list[View] = [Text(message("plan.assumed", settings=assumed))] if assumed else []
    lines.extend(Text(note) for note in plan.notes)
    lines.append(Text(message("plan.searched", evaluated_count=plan.evaluated, pruned_count=plan.pruned)))
    return tuple(lines)


def _shown(value: object) -> str:
    return (
        f"{value:,.0f}"
        if isinstance(value, float) and value >= 1000
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )


def _shortfall(missing: Shortfall) -> list[View]:
    lines: list[View] = [Text(missing.reason, tone="bad")]
    if missing.estimate is not None:
        memory = missing.estimate.memory_gib
        names = (
            "parameters",
            "gradients",
            "optimizer",
            "activations",
            "logits",
            "kv_cache",
            "workspace",
            "reserved",
        )
        parts = [(name, getattr(memory, name) or 0.0) for name in names]
        largest = sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])[:4]
        listed = [
            message(
                "plan.part_of_memory" if index < len(largest) - 1 else "plan.last_part",
                part=name,
                part_gib=size,
            )
            for index, (name, size) in enumerate(largest)
        ]
        needs = message("plan.needs", needed_gib=memory.total.mid, limit_gib=memory.limit)
        lines.append(Text((needs, *listed), indent=2))
    if missing.closest:
        lines.append(Text(message("plan.closest"), indent=2))
        unnamed = tuple(msgspec.structs.replace(option, name="") for option in missing.closest)
        lines.append(_table(unnamed, "train" if unnamed[0].duration_s else "infer"))
    return lines


def _next(plan: Plan) -> View:
    commands = [*plan.commands]
    if plan.stack is not None and plan.picks:
        words = ",".join(item.name for item in plan.stack.request.want)
        machine = plan.stack.request.machine
        gpu = f' --gpu "{machine.gpus[0].name}"' if machine.gpus else " --gpu none"
        commands.append(message("plan.next_stack", command=f"raceline stack solve --want {words}{gpu}"))
    rows = tuple((str(item.params["command"]), item) for item in commands)
    columns = (Column(message("plan.next"), can_wrap=False), Column(""))
    return Table(columns, rows)
