"""The catalogue's files as typed values. Each file is read once, when it is first asked for."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from raceline.catalog.types import (
    Accelerator,
    Cpu,
    ElectricityPrice,
    Link,
    NodeFact,
    Offer,
    PrecisionRule,
    RetailPrice,
    Runtime,
    Storage,
)

Row = TypeVar("Row", bound=msgspec.Struct)
Named = TypeVar("Named", Accelerator, Cpu, Link, Storage, Runtime)

DATA = Path(__file__).parent / "data"

# Cells of these columns hold several values, separated by semicolons.
LIST_COLUMNS = frozenset({"mig_profiles", "frameworks_supported", "verified_fields", "architectures"})


@cache
def accelerators() -> dict[str, Accelerator]:
    """All accelerators by id."""
    return _by_id(_rows("accelerators.csv", Accelerator))


@cache
def cpus() -> dict[str, Cpu]:
    """All processors by id."""
    return _by_id(_rows("cpus.csv", Cpu))


@cache
def links() -> dict[str, Link]:
    """All links and fabrics by id."""
    return _by_id(_rows("links.csv", Link))


@cache
def storage() -> dict[str, Storage]:
    """All kinds of storage by id."""
    return _by_id(_rows("storage.csv", Storage))


@cache
def nodes() -> dict[str, NodeFact]:
    """The usual machine of each accelerator by its id, and of each tier by ``*tier``."""
    return {row.accelerator: row for row in _rows("nodes.csv", NodeFact)}


@cache
def precision_rules() -> tuple[PrecisionRule, ...]:
    """What each vendor's devices need for a precision."""
    return _rows("precision_rules.csv", PrecisionRule)


@cache
def offers() -> tuple[Offer, ...]:
    """All rental prices, in file order: an offer is named by its place here."""
    return _rows("offers.csv", Offer)


@cache
def retail_prices() -> tuple[RetailPrice, ...]:
    """All purchase prices, of accelerators and processors."""
    return _rows("retail_prices.csv", RetailPrice)


@cache
def electricity() -> tuple[ElectricityPrice, ...]:
    """All electricity prices."""
    return _rows("electricity.csv", ElectricityPrice)


@cache
def runtimes() -> dict[str, Runtime]:
    """All frameworks, engines and servers by id."""
    return _by_id(msgspec.json.decode(_read("runtimes.json"), type=tuple[Runtime, ...]))


@cache
def aliases(kind: str = "accelerator") -> dict[str, str]:
    """Other names, in lower case with hyphens, to the ids of a kind (accelerator, cpu, link, storage)."""
    return {row["alias"]: row["id"] for row in _cells("aliases.csv") if row["kind"] == kind}


@cache
def preferences() -> dict[str, str]:
    """The usual meaning of a name that several accelerators share, to an id."""
    return {row["written"]: row["id"] for row in _cells("preferences.csv")}


def from_cells(cells: Mapping[str, str], row_type: type[Row]) -> Row:
    """One row from its texts by column; an empty cell is left out. Raises msgspec.ValidationError."""
    return msgspec.convert(_filled(cells), row_type, strict=False)


def _rows(name: str, row_type: type[Row]) -> tuple[Row, ...]:
    cells = [_filled(row) for row in _cells(name)]
    return msgspec.convert(cells, tuple[row_type, ...], strict=False)  # type: ignore[valid-type]


def _cells(name: str) -> Iterable[dict[str, str]]:
    return csv.DictReader(_read(name).decode().splitlines())


def _filled(cells: Mapping[str, str]) -> dict[str, object]:
    return {
        column: text.split(";") if column in LIST_COLUMNS else text for column, text in cells.items() if text
    }


def _read(name: str) -> bytes:
    return (DATA / name).read_bytes()


def _by_id(rows: Iterable[Named]) -> dict[str, Named]:
    return {row.id: row for row in rows}
