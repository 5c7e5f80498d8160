"""An estimate as views: the answer on one screen, and the calculation behind it."""

from __future__ import annotations

import msgspec

from raceline.estimate.result import Estimate
from raceline.estimate.scenario import Scenario
from raceline.present.errors import message
from raceline.present.text import word
from raceline.present.views import (
    Bar,
    BarPart,
    Bars,
    Cell,
    Column,
    Group,
    Heading,
    Meter,
    Quantity,
    Table,
    Text,
    View,
)

MEMORY = (
    "parameters",
    "gradients",
    "optimizer",
    "activations",
    "logits",
    "kv_cache",
    "workspace",
    "reserved",
)
TIME = ("compute", "memory_bound", "communication_exposed", "pipeline_bubble", "optimizer", "input", "host")


def estimate_view(estimate: Estimate, title: str = "") -> View:
    """The screen of `raceline estimate`; `title` stands where the scenario has no id."""
    memory = estimate.memory_gib
    rows: list[tuple[Cell, ...]] = [
        (message("estimate.label_memory"), Meter(memory.total.mid, memory.limit)),
        (
            message("estimate.label_range"),
            Quantity(memory.total.mid, "gib", memory.total.low, memory.total.high),
        ),
    ]
    rows.extend(_figures(estimate))
    items: list[View] = [
        Heading(estimate.id or title or "-", aside=message(f"estimate.fits_{estimate.fits}")),
        Table((Column(""), Column("")), tuple(rows), has_header=False),
        memory_bars(estimate),
    ]
    if estimate.time_parts_s is not None:
        items.append(time_bars(estimate))
    if estimate.chosen:
        chosen = ", ".join(f"{name}={value}" for name, value in estimate.chosen.items())
        items.append(Text(message("estimate.chosen", settings=chosen)))
    items.append(Text(message("estimate.mfu_convention")))
    if estimate.evidence:
        items.append(_neighbours_table(estimate))
    if estimate.narrows is not None:
        items.append(Text(estimate.narrows))
    items.extend(Text(warning, tone="warning") for warning in estimate.warnings)
    return Group(tuple(items))


def _neighbours_table(estimate: Estimate) -> View:
    """The nearest measured runs."""
    columns = (
        Column(message("estimate.column_measured"), align="right", can_wrap=False),
        Column(message("estimate.column_distance"), align="right"),
        Column(message("estimate.column_source")),
    )
    rows: list[tuple[Cell, ...]] = [
        (f"{item.measured:,.5g} {item.unit}", f"{item.distance:.2f}", f"{item.id} {item.source_url}")
        for item in estimate.evidence
    ]
    return Table(columns, tuple(rows), caption=message("estimate.nearest_runs"))


def _figures(estimate: Estimate) -> list[tuple[Cell, ...]]:
    step, ranges, rate = estimate.step_time_s, estimate.latency_range_ms, estimate.throughput
    figures: list[tuple[str, Quantity | None]] = [
        ("step", Quantity(step.mid, "s", step.low, step.high) if step else None),
        ("batch", _span(ranges.batch, "ms") if ranges else None),
        ("ttft", _span(ranges.ttft, "ms") if ranges else None),
        ("tpot", _span(ranges.tpot, "ms") if ranges else None),
        (
            "tokens",
            Quantity(rate.tokens_per_s_per_device, "tokens_per_s") if rate.tokens_per_s_per_device else None,
        ),
        (
            "samples",
            Quantity(rate.samples_per_s_per_device, "samples_per_s")
            if rate.samples_per_s_per_device
            else None,
        ),
        ("mfu", Quantity(estimate.mfu, "fraction") if estimate.mfu else None),
        ("duration", _span(estimate.duration_s, "s")),
        ("cost", _span(estimate.cost_usd, "usd")),
        (
            "price",
            Quantity(estimate.price_usd_per_hour, "usd_per_hour") if estimate.price_usd_per_hour else None,
        ),
        ("token_cost", _span(estimate.cost_usd_per_million_tokens, "usd")),
        ("energy", Quantity(estimate.energy_kwh, "kwh") if estimate.energy_kwh else None),
        ("host_memory", Quantity(estimate.host_memory_gib, "gib")),
        ("disk", Quantity(estimate.disk_gib, "gib")),
    ]
    rows: list[tuple[Cell, ...]] = [
        (message(f"estimate.label_{name}"), figure) for name, figure in figures if figure
    ]
    if estimate.bound_by:
        rows.append((message("estimate.label_bound"), word(estimate.bound_by)))
    return rows


def _span(value: object, unit: str) -> Quantity | None:
    if value is None:
        return None
    low, mid, high = msgspec.structs.astuple(value)  # type: ignore[arg-type]
    return Quantity(mid, unit, low, high)


def memory_bars(estimate: Estimate) -> View:
    """Memory by part against the limit."""
    memory = estimate.memory_gib
    parts = tuple(
        BarPart(name, word(name), value) for name in MEMORY if (value := getattr(memory, name) or 0.0) > 0
    )
    return Bars((Bar(message("estimate.label_memory"), parts, memory.limit),), "gib")


def time_bars(estimate: Estimate) -> View:
    """Step time by part."""
    times = estimate.time_parts_s
    parts = tuple(
        BarPart(name, word(name), value) for name in TIME if (value := float(getattr(times, name))) > 0
    )
    return Bars((Bar(message("estimate.label_step"), parts),), "s")


def explain_view(estimate: Estimate, scenario: Scenario | None = None) -> View:
    """Every part of the figures, with its share, and the settings that they stand on."""
    memory, times, step = estimate.memory_gib, estimate.time_parts_s, estimate.step_time_s
    rows: list[tuple[Cell, ...]] = [
        (word(name), Quantity(value, "gib"), Quantity(value / memory.total.mid, "fraction"))
        for name in MEMORY
        if (value := getattr(memory, name)) is not None
    ]
    columns = (
        Column(message("estimate.column_part")),
        Column(message("estimate.column_amount"), align="right"),
        Column(message("estimate.column_share"), align="right"),
    )
    items: list[View] = [Table(columns, tuple(rows), caption=message("estimate.label_memory"))]
    if times is not None and step is not None:
        time_rows: list[tuple[Cell, ...]] = [
            (word(name), Quantity(value, "s"), Quantity(value / step.mid, "fraction"))
            for name in TIME
            if (value := float(getattr(times, name))) >= 0
        ]
        items.append(Table(columns, tuple(time_rows), caption=message("estimate.label_step")))
    is_training = memory.gradients is not None
    items.append(_basis_table(estimate))
    items.append(Text(message("estimate.how_matmul")))
    items.append(Text(message("estimate.how_memory" if is_training else "estimate.how_cache")))
    items.append(Text(message("estimate.how_step" if is_training else "estimate.how_decode")))
    if scenario is not None:
        items.append(_setup_table(scenario))
    items.append(Text(message("estimate.mfu_convention")))
    return Group(tuple(items))


def _basis_table(estimate: Estimate) -> View:
    """Facts and constants with their sources."""
    columns = (
        Column(message("estimate.column_fact"), can_wrap=False),
        Column(message("estimate.column_amount"), align="right", can_wrap=False),
        Column(message("estimate.column_source")),
    )
    rows: list[tuple[Cell, ...]] = [
        (message(f"estimate.fact_{fact.name}"), Quantity(fact.value, fact.unit), fact.source)
        for fact in estimate.basis
    ]
    return Table(columns, tuple(rows), caption=message("estimate.stands_on"))


def _setup_table(scenario: Scenario) -> View:
    given = {**msgspec.structs.asdict(scenario.workload), **msgspec.structs.asdict(scenario.setup)}
    words = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
    return Text(message("estimate.settings", settings=words))
