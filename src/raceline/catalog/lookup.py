"""What is asked of the catalogue: all rows of a kind, or one by the name that a person writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from raceline.catalog import load, resolve, view
from raceline.catalog.own import OwnCatalog
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
from raceline.present.errors import InputError, Message, message
from raceline.present.views import Group, Text, View

_OFFERS_SHOWN = 8


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What was found: `data` for programs, and the rows that its view shows."""

    data: Any
    shown: View

    def view(self) -> View:
        """The rows as tables."""
        return self.shown


def overview(own: OwnCatalog | None = None) -> Found:
    """How many rows of each kind there are."""
    counts = {kind: len(_rows(kind, own)) for kind in _ROW_TYPES}
    return Found(data=counts, shown=view.overview(counts))


def look_up(kind: str, name: str | None = None, own: OwnCatalog | None = None) -> Found:
    """All rows of a kind, or those that `name` means; InputError with the nearest where there is none."""
    if name is None:
        rows = _rows(kind, own)
        return Found(data=rows, shown=view.list_view(rows, _ROW_TYPES[kind]))
    return _FINDERS.get(kind, _by_text)(kind, name, own)


def _accelerator(kind: str, name: str, own: OwnCatalog | None) -> Found:
    found = resolve.find_accelerator(name, own)
    if isinstance(found, resolve.Ambiguous):
        several = message("catalog.several_accelerators", given=name, count=len(found.candidates))
        table = view.list_view(found.candidates, Accelerator)
        return Found(data=found.candidates, shown=Group((Text(several), table)))
    item = found.accelerator
    offers = sorted(
        (row for row in _rows("offers", own) if row.accelerator == item.id),
        key=lambda row: (row.price_hour_usd or row.spot_hour_usd or 0.0) / row.count,
    )
    retail = [row for row in load.retail_prices() if row.device == item.id]
    shown = view.detail_view(item, offers=offers[:_OFFERS_SHOWN], retail=retail, notes=found.notes)
    return Found(data=item, shown=shown)


def _named(find: Callable[[str], Any]) -> Callable[[str, str, OwnCatalog | None], Found]:
    def finder(kind: str, name: str, own: OwnCatalog | None) -> Found:
        row = find(name)
        return Found(data=row, shown=view.detail_view(row))

    return finder


def _link(kind: str, name: str, own: OwnCatalog | None) -> Found:
    row = resolve.link(name, own)
    return Found(data=row, shown=view.detail_view(row))


def _cpu(kind: str, name: str, own: OwnCatalog | None) -> Found:
    row = resolve.cpu(name)
    retail = [price for price in load.retail_prices() if price.device == row.id]
    return Found(data=row, shown=view.detail_view(row, retail=retail))


def _prices(kind: str, name: str, own: OwnCatalog | None) -> Found:
    """Prices of an accelerator, or of a provider."""
    rows = _rows(kind, own)
    mine = [row for row in rows if name.lower() in (_provider(row), _device(row))]
    notes: tuple[Message, ...] = ()
    if not mine:
        meant = resolve.accelerator(name, own)
        mine, notes = [row for row in rows if _device(row) == meant.accelerator.id], meant.notes
    if not mine:
        raise InputError("catalog.no_price", field="NAME", given=name, kind=kind)
    mine.sort(key=lambda row: row.as_of, reverse=True)
    items = (*(Text(note, tone="note") for note in notes), view.list_view(mine, _ROW_TYPES[kind]))
    sources = tuple(dict.fromkeys(source for row in mine for source in view.sources_of(row)))
    return Found(data=tuple(mine), shown=Group((*items, *(Text(text, indent=2) for text in sources[:6]))))


def _by_text(kind: str, name: str, own: OwnCatalog | None) -> Found:
    rows = tuple(row for row in load.electricity() if row.region.lower() == name.lower())
    if not rows:
        raise InputError("catalog.no_price", field="NAME", given=name, kind=kind)
    shown = Group((view.list_view(rows, ElectricityPrice), *(Text(row.source_url, indent=2) for row in rows)))
    return Found(data=rows, shown=shown)


def _provider(row: Any) -> str:
    return str(getattr(row, "provider", "")).lower()


def _device(row: Any) -> str:
    return str(getattr(row, "accelerator", None) or getattr(row, "device", ""))


def _rows(kind: str, own: OwnCatalog | None) -> tuple[Any, ...]:
    mine: Mapping[str, Any] = {}
    if own is not None:
        mine = own.accelerators if kind == "accelerators" else own.links if kind == "links" else {}
    loaded: Any = _LOADERS[kind]()
    if isinstance(loaded, dict):
        return tuple({**loaded, **mine}.values())
    return (*loaded, *(own.offers if own and kind == "offers" else ()))


_ROW_TYPES: dict[str, type] = {
    "accelerators": Accelerator,
    "cpus": Cpu,
    "links": Link,
    "storage": Storage,
    "offers": Offer,
    "retail": RetailPrice,
    "electricity": ElectricityPrice,
    "runtimes": Runtime,
}
_LOADERS: dict[str, Callable[[], Mapping[str, Any] | Sequence[Any]]] = {
    "accelerators": load.accelerators,
    "cpus": load.cpus,
    "links": load.links,
    "storage": load.storage,
    "offers": load.offers,
    "retail": load.retail_prices,
    "electricity": load.electricity,
    "runtimes": load.runtimes,
}
_FINDERS: dict[str, Callable[[str, str, OwnCatalog | None], Found]] = {
    "accelerators": _accelerator,
    "cpus": _cpu,
    "links": _link,
    "storage": _named(resolve.storage),
    "offers": _prices,
    "retail": _prices,
    "runtimes": _named(resolve.runtime),
}
