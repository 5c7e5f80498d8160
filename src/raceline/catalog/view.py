"""The catalogue's rows as views: lists that fit 80 columns, and one row in full with its sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from raceline.catalog.types import (
    Accelerator,
    Cpu,
    ElectricityPrice,
    Link,
    Offer,
    RetailPrice,
    Runtime,
    Storage,
)
from raceline.present.errors import Message, message
from raceline.present.views import Cell, Column, Content, Group, Heading, Quantity, Table, Text, View

# Columns of a list: the label's id, how wide figures stand, and the cell of a row.
Cells = tuple[tuple[str, str, Callable[[Any], Cell]], ...]

_SOURCES_SHOWN = 6


def _number(field: str, unit: str = "") -> Callable[[Any], Cell]:
    return lambda row: Quantity(getattr(row, field), unit)


def _text(field: str, longest: int = 60) -> Callable[[Any], Cell]:
    return lambda row: _short(getattr(row, field), longest)


_LISTS: dict[type, Cells] = {
    Accelerator: (
        ("id", "left", _text("id")),
        ("memory_gib", "right", _number("memory_gib")),
        ("memory_bw_gbs", "right", _number("memory_bw_gbs")),
        ("rate_16bit", "right", lambda row: Quantity(row.bf16_dense_tflops or row.fp16_dense_tflops)),
        ("intra_link", "left", lambda row: _short(row.intra_link or "", 16)),
        ("generation_year", "right", lambda row: str(row.generation_year or "")),
    ),
    Cpu: (
        ("id", "left", _text("id")),
        ("cores", "right", _number("cores")),
        ("base_ghz", "right", _number("base_ghz")),
        ("bw_gbs", "right", _number("bw_gbs")),
        ("tdp_w", "right", _number("tdp_w")),
        ("generation_year", "right", lambda row: str(row.generation_year or "")),
    ),
    Link: (
        ("id", "left", _text("id")),
        ("kind", "left", _text("kind")),
        ("gbs_per_dir", "right", _number("gbs_per_dir")),
        ("scope", "left", _text("scope", 18)),
        ("allreduce_fraction", "right", _number("allreduce_fraction")),
    ),
    Storage: (
        ("id", "left", _text("id")),
        ("kind", "left", _text("kind")),
        ("seq_read_mbs", "right", _number("seq_read_mbs")),
        ("seq_write_mbs", "right", _number("seq_write_mbs")),
        ("rand_read_iops", "right", _number("rand_read_iops")),
    ),
    Offer: (
        ("provider", "left", _text("provider", 14)),
        ("instance", "left", _text("instance", 18)),
        ("accelerator", "left", _text("accelerator", 16)),
        ("count", "right", _number("count")),
        ("price_hour_usd", "right", _number("price_hour_usd", "usd")),
        ("spot_hour_usd", "right", _number("spot_hour_usd", "usd")),
        ("as_of", "left", _text("as_of")),
    ),
    RetailPrice: (
        ("device", "left", _text("device")),
        ("price_kind", "left", _text("kind")),
        ("price_low", "right", _number("price_low", "usd")),
        ("price_high", "right", _number("price_high", "usd")),
        ("condition", "left", _text("condition", 12)),
        ("as_of", "left", _text("as_of")),
    ),
    ElectricityPrice: (
        ("region", "left", _text("region")),
        ("sector", "left", _text("sector", 30)),
        ("price_usd_per_kwh", "right", _number("price_usd_per_kwh")),
        ("as_of", "left", _text("as_of")),
    ),
    Runtime: (
        ("id", "left", _text("id")),
        ("tasks", "left", lambda row: ", ".join(row.tasks)),
        ("vendors", "left", lambda row: _short(", ".join(row.vendors), 38)),
    ),
}


def overview(counts: dict[str, int]) -> View:
    """How many rows of each kind there are, and how to see them."""
    rows = tuple((kind, count) for kind, count in counts.items())
    columns = (Column(_label("kind_of_row")), Column(_label("rows"), align="right"))
    return Group(
        (Heading(message("catalog.overview")), Table(columns, rows), Text(message("catalog.overview_next")))
    )


def list_view(rows: Sequence[Any], row_type: type) -> View:
    """A table of rows with the figures that choose between them."""
    shape = _LISTS[row_type]
    columns = tuple(
        Column(_label(name), align="right" if side == "right" else "left", can_wrap=name != "id")
        for name, side, _ in shape
    )
    return Table(columns, tuple(tuple(cell(row) for _, _, cell in shape) for row in rows))


def detail_view(
    row: Any,
    *,
    offers: Sequence[Offer] = (),
    retail: Sequence[RetailPrice] = (),
    notes: Iterable[Message] = (),
) -> View:
    """One row in full: every known field, its sources, and prices where there are any."""
    items: list[View] = [Heading(str(getattr(row, "name", row.id)))]
    items += [Text(note, tone="note") for note in notes]
    known = tuple((_label(name), _shown(value)) for name, value in _known_fields(row))
    items.append(Table((Column(""), Column("")), known, has_header=False))
    if getattr(row, "note", None):
        items.append(Text((_label("note"), row.note), tone="note"))
    items.append(Heading(_label("sources"), level=2))
    items += [Text(source, indent=2) for source in sources_of(row)[:_SOURCES_SHOWN]]
    if offers:
        items += [Heading(_label("offers"), level=2), list_view(offers, Offer)]
    if retail:
        items += [Heading(_label("retail"), level=2), list_view(retail, RetailPrice)]
    return Group(tuple(items))


def sources_of(row: Any) -> tuple[str, ...]:
    """Where a row's facts were read, each address once, with the date where one is known."""
    dated = f" ({row.as_of})" if getattr(row, "as_of", None) else ""
    own = [f"{part.strip()}{dated}" for part in row.source_url.split(" ; ")]
    return tuple(dict.fromkeys([*own, *getattr(row, "sources", {}).values()]))


def _known_fields(row: Any) -> Iterable[tuple[str, Any]]:
    hidden = {"name", "note", "source_url", "sources"}
    for field in msgspec.structs.fields(row):
        value = getattr(row, field.name)
        if field.name not in hidden and value is not None and value not in ((), {}, ""):
            yield field.name, value


def _shown(value: Any) -> Cell:
    if isinstance(value, bool):
        return _label("yes" if value else "no")
    if isinstance(value, int) and 1900 < value < 2100:
        return str(value)
    if isinstance(value, (int, float)):
        return f"{value:g}" if abs(value) < 10 else Quantity(float(value))
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value)
    if isinstance(value, msgspec.Struct):
        return _shown(msgspec.structs.asdict(value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {_flat(item)}" for name, item in value.items())
    return str(value)


def _flat(value: Any) -> str:
    return " / ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _label(name: str) -> Message:
    return message(f"catalog.field_{name}")


def _short(text: Any, longest: int) -> Content:
    words = "" if text is None else str(text)
    return words if len(words) <= longest else words[: longest - 1] + "…"
