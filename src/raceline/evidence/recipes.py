"""How a published table is read, source by source: rules as data, applied to one record's cells."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from raceline.present.documents import load_yaml

Cell = str | int | float | bool
Patterns = str | tuple[str, ...]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule: where all of `when` match, `reads` are the meaning of the source's own words and
    `fills` stand in for what it leaves out. `because` says why."""

    when: dict[str, Patterns]
    reads: dict[str, Cell] = {}
    fills: dict[str, Cell] = {}
    because: str = ""


class Reading(msgspec.Struct, frozen=True):
    """A record's cells after the rules, and the ones that a rule filled in."""

    cells: dict[str, Any]
    assumed: tuple[str, ...]


@cache
def recipes(name: str) -> tuple[Recipe, ...]:
    """The rules of one table."""
    raw = load_yaml(files("raceline.evidence").joinpath(f"data/{name}.yaml").read_bytes())
    return msgspec.convert(raw, tuple[Recipe, ...])


def read(record: Mapping[str, str], table: str) -> Reading:
    """The record's cells under the rules of its table; the first rule that gives a cell wins."""
    cells: dict[str, Any] = {name: value for name, value in record.items() if value not in ("", None)}
    read_already: set[str] = set()
    assumed: list[str] = []
    for rule in _of_source(table, *(record.get(name) or "" for name in _FEW_VALUES)):
        if not all(_matches(record.get(name) or "", patterns) for name, patterns in rule.when.items()):
            continue
        for name, value in rule.reads.items():
            if name not in read_already:
                cells[name] = value
                read_already.add(name)
        for name, value in rule.fills.items():
            if name not in cells:
                cells[name] = value
                assumed.append(f"{name}={value}")
    return Reading(cells, tuple(assumed))


# Columns of few different values, by which the rules are sorted out once.
_FEW_VALUES = ("source", "framework", "precision", "method", "model")


@cache
def _of_source(table: str, *values: str) -> tuple[Recipe, ...]:
    """The rules that these values allow."""
    given = dict(zip(_FEW_VALUES, values, strict=True))
    return tuple(
        rule for rule in recipes(table)
        if all(_matches(value, rule.when[name]) for name, value in given.items() if name in rule.when)
    )  # fmt: skip


def _matches(value: str, patterns: Patterns) -> bool:
    each = (patterns,) if isinstance(patterns, str) else patterns
    return any(fnmatchcase(value, pattern) for pattern in each)
