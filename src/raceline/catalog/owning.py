"""What owned hardware costs: purchase price, electricity, and the two as a price an hour."""

from __future__ import annotations

from collections.abc import Sequence

from raceline.catalog.dates import known_date
from raceline.catalog.types import ElectricityPrice, RetailPrice

HOURS_A_YEAR = 8766.0


def purchase_price(prices: Sequence[RetailPrice], device: str) -> RetailPrice | None:
    """What one pays today: the newest street price of a new card, else of any, else the list price."""

    def preference(row: RetailPrice) -> tuple[bool, bool, str]:
        return row.kind == "street", row.condition == "new", row.as_of if known_date(row.as_of) else ""

    return max((row for row in prices if row.device == device), key=preference, default=None)


def electricity_price(prices: Sequence[ElectricityPrice], region: str) -> ElectricityPrice | None:
    """The price in a country (ISO code, any case), else the world average."""
    rows = {row.region: row for row in reversed(prices) if row.price_usd_per_kwh is not None}
    return rows.get(region.upper()) or rows.get("world")


def owned_price_hour_usd(
    purchase_usd: float,
    power_w: float,
    electricity_usd_per_kwh: float,
    *,
    life_years: float,
    busy_fraction: float,
    overhead: float,
) -> float:
    """Price of one busy hour in USD: straight-line depreciation over the hours that it is used, plus
    power at the plug. `overhead` multiplies power for cooling and supply (1.1-1.6)."""
    depreciation = purchase_usd / (life_years * HOURS_A_YEAR * busy_fraction)
    return depreciation + power_w / 1000.0 * overhead * electricity_usd_per_kwh
