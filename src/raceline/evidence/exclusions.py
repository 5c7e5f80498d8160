"""The rules by which a published row can't be scored, and the rows that they name."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from raceline.present.documents import load_yaml


class Exclusion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule, its reason, and the ids of the rows that it names one by one."""

    rule: str
    reason: str
    ids: tuple[str, ...] = ()


@cache
def exclusions() -> dict[str, Exclusion]:
    """The rules by name."""
    raw: Any = load_yaml(files("raceline.evidence").joinpath("data/exclusions.yaml").read_bytes())
    return {item["rule"]: msgspec.convert(item, Exclusion) for item in raw}


@cache
def _named() -> dict[str, str]:
    return {row: item.rule for item in exclusions().values() for row in item.ids}


def named(row: str) -> str | None:
    """The rule that names this row's id, if one does."""
    return _named().get(row)
