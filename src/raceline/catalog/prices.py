"""What accelerators cost to rent: the cheapest current offer for each accelerator and count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.catalog.dates import STALE_AFTER_DAYS, Age, age_of, known_date
from raceline.catalog.types import Offer
from raceline.present.errors import InputError, Message, message

REGION_FAMILIES = ("us", "eu", "asia", "cn", "me", "global")

# Order of preference before price. An offer that suits less is taken only where none suits better.
_OTHER_TIER, _MANY_MACHINES, _UNDATED = 4, 2, 1

# A machine this many times larger than what is needed is no better than many small ones.
_MOST_WASTE = 16


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """Which offers count. `region` is a family (``us``) or one region (``us-east-1``); `spot` takes
    the interruptible price where there is one; `provider` names one."""

    region: str | None = None
    spot: bool = False
    provider: str | None = None


ANY_WISH = Wish()


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """The price of `count` accelerators an hour, as `instances` whole instances of one offer."""

    offer_index: int
    offer: Offer
    instances: int
    price_hour_usd: float
    is_spot: bool
    notes: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Arrays of (accelerator, count): price an hour in USD (NaN: no offer), the offer's place in
    `offers` (-1: none), how many instances of it, and its rank (0 suits best)."""

    accelerators: tuple[str, ...]
    counts: tuple[int, ...]
    offers: tuple[Offer, ...]
    price_hour_usd: NDArray[np.float64]
    offer_index: NDArray[np.intp]
    instances: NDArray[np.intp]
    rank: NDArray[np.intp]
    is_spot: bool

    def price(self, accelerator: str, count: int) -> Price | None:
        """One cell as a value; KeyError where the table was not made for it."""
        if accelerator not in self.accelerators or count not in self.counts:
            raise KeyError((accelerator, count))
        cell = self.accelerators.index(accelerator), self.counts.index(count)
        index = int(self.offer_index[cell])
        if index < 0:
            return None
        return Price(
            offer_index=index,
            offer=self.offers[index],
            instances=int(self.instances[cell]),
            price_hour_usd=float(self.price_hour_usd[cell]),
            is_spot=self.is_spot,
            notes=_notes(self.offers[index], int(self.rank[cell]), int(self.instances[cell])),
        )


def price_table(
    offers: Sequence[Offer],
    accelerators: Sequence[str],
    counts: Sequence[int],
    wish: Wish = ANY_WISH,
    *,
    per_node: dict[str, int] | None = None,
    today: date | None = None,
) -> PriceTable:
    """The cheapest current offer for every accelerator and count.

    An instance is rented whole: 3 accelerators on 8-GPU machines cost one machine, 12 cost two.
    Offers "per GPU" can be taken in any number up to a node (`per_node`, 8 where not given).
    Preferred, in this order: on-demand (with `wish.spot`, a spot price), one node or whole nodes
    over many small machines, a known date not older than a year, then the lowest price.
    `today` defaults to the newest date among the offers.
    """
    rows = tuple(offers)
    kept = _select(rows, wish)
    shape = (len(accelerators), len(counts))
    table = PriceTable(
        accelerators=tuple(accelerators),
        counts=tuple(counts),
        offers=rows,
        price_hour_usd=np.full(shape, np.nan),
        offer_index=np.full(shape, -1, dtype=np.intp),
        instances=np.zeros(shape, dtype=np.intp),
        rank=np.zeros(shape, dtype=np.intp),
        is_spot=wish.spot,
    )
    place = {name: index for index, name in enumerate(accelerators)}
    kept = [index for index in kept if rows[index].accelerator in place]
    if kept and counts:
        _fill(table, np.array(kept, dtype=np.intp), place, per_node or {}, today or newest(rows))
    return table


def cheapest(
    offers: Sequence[Offer],
    accelerator: str,
    count: int,
    wish: Wish = ANY_WISH,
    *,
    per_node: dict[str, int] | None = None,
    today: date | None = None,
) -> Price | None:
    """The cheapest current offer of one accelerator, None where there is none."""
    return price_table(offers, (accelerator,), (count,), wish, per_node=per_node, today=today).price(
        accelerator, count
    )


def newest(offers: Sequence[Offer]) -> date:
    """The newest known date among offers; the first day of the calendar where none is known."""
    return max((day for offer in offers if (day := known_date(offer.as_of))), default=date.min)


def price_age(offers: Sequence[Offer], today: date) -> Age:
    """How old the oldest of the prices that mattered is."""
    return age_of((offer.as_of for offer in offers), today)


def age_message(age: Age) -> Message:
    """The one line that an answer shows on the age of its prices."""
    if age.oldest_days is None:
        return message("catalog.price_age_unknown", unknown_count=age.unknown_count)
    if age.unknown_count:
        return message("catalog.price_age_partly_known", **msgspec.structs.asdict(age))
    return message("catalog.price_age", oldest_as_of=age.oldest_as_of, oldest_days=age.oldest_days)


def region_matches(offer: Offer, region: str) -> bool:
    """Whether an offer can be had in a region. Offers that name no region count everywhere but in
    mainland China, where foreign providers mostly have no machines."""
    if region in REGION_FAMILIES:
        return offer.region_family == region or (offer.region_family == "global" and region != "cn")
    return offer.region == region


def is_per_accelerator(offer: Offer) -> bool:
    """Whether the price is for each accelerator of a machine rather than for a whole machine."""
    return offer.count == 1 and "per " in offer.instance


def _select(offers: tuple[Offer, ...], wish: Wish) -> list[int]:
    if wish.region is not None and wish.region not in REGION_FAMILIES:
        regions = {offer.region for offer in offers}
        if wish.region not in regions:
            raise InputError(
                "catalog.unknown_region",
                field="region",
                given=wish.region,
                families=", ".join(REGION_FAMILIES),
                regions=", ".join(sorted(regions)[:12]),
            )
    return [index for index in _not_superseded(offers) if _wanted(offers[index], wish)]


def _wanted(offer: Offer, wish: Wish) -> bool:
    if (offer.spot_hour_usd if wish.spot else offer.price_hour_usd) is None:
        return False
    if wish.provider is not None and offer.provider.lower() != wish.provider.lower():
        return False
    return wish.region is None or region_matches(offer, wish.region)


def _not_superseded(offers: tuple[Offer, ...]) -> list[int]:
    """Leave out what the same provider has priced again at a later known date."""
    latest: dict[tuple[object, ...], str] = {}
    for offer in offers:
        if known_date(offer.as_of):
            key = _same_thing(offer)
            latest[key] = max(latest.get(key, ""), offer.as_of)
    return [index for index, offer in enumerate(offers) if offer.as_of >= latest.get(_same_thing(offer), "")]


def _same_thing(offer: Offer) -> tuple[object, ...]:
    instance = "" if is_per_accelerator(offer) else offer.instance
    return offer.provider, offer.accelerator, offer.count, instance, offer.region, offer.tier


def _fill(
    table: PriceTable,
    kept: NDArray[np.intp],
    place: dict[str, int],
    per_node: dict[str, int],
    today: date,
) -> None:
    rows = [table.offers[index] for index in kept]
    counts = np.array(table.counts)[None, :]
    size = np.array([offer.count for offer in rows])[:, None]
    node = np.array([per_node.get(offer.accelerator, 8) for offer in rows])[:, None]
    flexible = np.array([is_per_accelerator(offer) for offer in rows])[:, None]
    hourly = np.array([(o.spot_hour_usd if table.is_spot else o.price_hour_usd) or 0.0 for o in rows])[
        :, None
    ]
    instances = -(-counts // size)
    fits_one = (size >= counts) & (size <= _MOST_WASTE * counts)
    # slices of a TPU pod are joined by its own links, however many hosts they span
    in_pod = np.array([offer.interconnect == "ICI" for offer in rows])[:, None]
    whole = (
        fits_one
        | (flexible & (counts <= node))
        | ((size >= node) & (size <= counts))
        | in_pod & (size <= counts)
    )
    fixed = np.array([_tier_rank(offer, table.is_spot) + _date_rank(offer, today) for offer in rows])[:, None]
    rank = np.where(whole, 0, _MANY_MACHINES) + fixed
    price = instances * hourly
    which = np.array([place[offer.accelerator] for offer in rows])
    for column in range(counts.shape[1]):
        order = np.lexsort((price[:, column], rank[:, column], which))
        found, first = np.unique(which[order], return_index=True)
        best = order[first]
        table.price_hour_usd[found, column] = price[best, column]
        table.offer_index[found, column] = kept[best]
        table.instances[found, column] = instances[best, column]
        table.rank[found, column] = rank[best, column]


def _tier_rank(offer: Offer, is_spot: bool) -> int:
    return 0 if is_spot or offer.tier == "on-demand" else _OTHER_TIER


def _date_rank(offer: Offer, today: date) -> int:
    day = known_date(offer.as_of)
    return _UNDATED if day is None or (today - day).days > STALE_AFTER_DAYS else 0


def _notes(offer: Offer, rank: int, instances: int) -> tuple[Message, ...]:
    notes = []
    if rank & _OTHER_TIER:
        notes.append(message("catalog.price_not_on_demand", provider=offer.provider, tier=offer.tier))
    if rank & _MANY_MACHINES and instances > 1:
        notes.append(message("catalog.price_of_small_machines", instance=offer.instance, count=offer.count))
    if rank & _UNDATED:
        notes.append(message("catalog.price_old_or_undated", provider=offer.provider, as_of=offer.as_of))
    return tuple(notes)
