"""A user's own devices, links, machines and prices, from a YAML file, beside the catalogue's.

    accelerators:
      - {id: my-card, like: rtx-4090, memory_gib: 48, note: "modified"}
    offers:
      - {provider: our-lab, instance: box-1, accelerator: my-card, count: 4, price_hour_usd: 1.2,
         as_of: 2026-11-01}

`like` copies a row of the catalogue. What is left out stays unknown; rows pass the same checks as the
catalogue's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from raceline.catalog import integrity
from raceline.catalog import load as files
from raceline.catalog.types import Accelerator, Link, NodeFact, Offer
from raceline.present.errors import InputError

Row = TypeVar("Row", Accelerator, Link, NodeFact, Offer)

_KINDS: dict[str, type[Any]] = {
    "accelerators": Accelerator,
    "links": Link,
    "nodes": NodeFact,
    "offers": Offer,
}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "accelerators": {"kind": "gpu", "vendor": "own"},
    "links": {"kind": "own", "scope": "inter-node"},
    "nodes": {},
    "offers": {
        "instance": "own",
        "count": 1,
        "region": "own",
        "region_family": "global",
        "tier": "on-demand",
        "as_of": "unknown",
    },
}
_MOST_ROWS = 10_000


class OwnCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """What a user adds; an id of the catalogue replaces the catalogue's row."""

    accelerators: dict[str, Accelerator] = {}
    links: dict[str, Link] = {}
    nodes: dict[str, NodeFact] = {}
    offers: tuple[Offer, ...] = ()


def load(path: Path) -> OwnCatalog:
    """The rows of a YAML file. InputError names the line, what is wrong and what was expected."""
    from raceline.present.documents import load_yaml

    try:
        return parse(load_yaml(path), str(path.name))
    except _RowError as error:
        line = _line_of(path, error.place)
        raise InputError(
            error.message.id, field=str(path.name), **{**error.message.params, "line": line}
        ) from None


def parse(data: Any, source: str) -> OwnCatalog:
    """The rows of a mapping as `load` reads it; `source` is the default source of each row."""
    if not isinstance(data, dict):
        raise _RowError((), "catalog.own_not_mapping", kinds=", ".join(_KINDS))
    for key in data:
        if key not in _KINDS:
            raise _RowError((key,), "catalog.own_unknown_kind", given=str(key)[:60], kinds=", ".join(_KINDS))
    accelerators = {row.id: row for row in _rows(data, "accelerators", Accelerator, source)}
    _check(data, "accelerators", accelerators.values(), integrity.check_accelerator)
    links = {row.id: row for row in _rows(data, "links", Link, source)}
    _check(data, "links", links.values(), integrity.check_row)
    nodes = {row.accelerator: row for row in _rows(data, "nodes", NodeFact, source)}
    offers = tuple(_rows(data, "offers", Offer, source))
    known = {**files.accelerators(), **accelerators}
    _check(data, "offers", offers, lambda row: integrity.check_offer(row, known))
    return OwnCatalog(accelerators=accelerators, links=links, nodes=nodes, offers=offers)


class _RowError(InputError):
    """A fault at a place in the file: keys and indexes from the top."""

    def __init__(self, place: tuple[Any, ...], id: str, /, **params: Any) -> None:
        super().__init__(id, **{"line": None, **params})
        self.place = place


def _rows(data: Mapping[str, Any], kind: str, row_type: type[Row], source: str) -> list[Row]:
    rows = data.get(kind) or []
    if not isinstance(rows, list) or len(rows) > _MOST_ROWS:
        raise _RowError((kind,), "catalog.own_not_list", kind=kind, most=_MOST_ROWS)
    found: list[Row] = []
    seen: set[str] = set()
    for index, row in enumerate(rows):
        made = _row(row, kind, row_type, source, (kind, index))
        name = getattr(made, "id", None)
        if name in seen:
            raise _RowError((kind, index), "catalog.own_twice", given=name)
        seen.add(name or "")
        found.append(made)
    return found


def _row(row: Any, kind: str, row_type: type[Row], source: str, place: tuple[Any, ...]) -> Row:
    if not isinstance(row, dict):
        raise _RowError(place, "catalog.own_row_not_mapping", kind=kind)
    known: list[str] = [column.name for column in msgspec.structs.fields(row_type)]
    for field in row:
        if field not in (*known, "like"):
            near = get_close_matches(str(field), known, n=3)
            raise _RowError(
                (*place, field),
                "catalog.own_unknown_field",
                given=str(field)[:60],
                known=", ".join(near or known[:12]),
            )
    filled = {**_DEFAULTS[kind], **_base(row, kind, place), **{key: row[key] for key in row if key != "like"}}
    filled = {key: _plain(value) for key, value in filled.items()}
    filled.setdefault("name", filled.get("id", ""))
    filled.setdefault("source_url", source)
    try:
        return msgspec.convert(filled, row_type)
    except msgspec.ValidationError as error:
        raise _RowError(place, "catalog.own_wrong_value", reason=str(error)) from None


def _base(row: Mapping[str, Any], kind: str, place: tuple[Any, ...]) -> dict[str, Any]:
    """The catalogue's row that `like` names, without its price and its note."""
    name = row.get("like")
    if name is None:
        return {}
    readers: dict[str, Callable[[], Mapping[str, Any]]] = {
        "accelerators": files.accelerators,
        "links": files.links,
    }
    rows = readers[kind]() if kind in readers else {}
    if not isinstance(name, str) or name not in rows:
        near = get_close_matches(str(name), list(rows), n=4)
        raise _RowError(
            (*place, "like"), "catalog.own_unknown_like", given=str(name)[:60], nearest=", ".join(near)
        )
    base = msgspec.structs.asdict(rows[name])
    return {key: value for key, value in base.items() if key not in ("id", "name", "note", "msrp_usd")}


def _plain(value: Any) -> Any:
    """YAML reads 2026-11-01 as a date; rows hold it as text."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def _check(data: Mapping[str, Any], kind: str, rows: Any, check: Any) -> None:
    for index, row in enumerate(rows):
        for problem in check(row):
            field = problem.params.get("field") or problem.params.get("higher")
            place = (kind, index, field) if field in (data[kind][index] or {}) else (kind, index)
            raise _RowError(place, "catalog.own_problem", problem=problem, id=_name_of(row))


def _name_of(row: Any) -> str:
    return getattr(row, "id", None) or f"{row.provider} {row.instance}"


def _line_of(path: Path, place: tuple[Any, ...]) -> int:
    """The line of a place, counted from 1; only called for a file that has been read once already."""
    from ruamel.yaml import YAML

    node = YAML(typ="rt", pure=True).compose(path)
    line = 0
    for step in place:
        if node is None:
            break
        key, node = _child(node, step)
        line = key.start_mark.line if key is not None else line
    return line + 1


def _child(node: Any, step: Any) -> tuple[Any, Any]:
    """The node that shows where a child starts, and the child."""
    if isinstance(step, int) and isinstance(node.value, list) and step < len(node.value):
        return node.value[step], node.value[step]
    if isinstance(node.value, list):
        for pair in node.value:
            if isinstance(pair, tuple) and pair[0].value == step:
                return pair
    return None, None
