"""How old a row is. `as_of` is as precise as its source: a day, a month, or only a year."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date

import msgspec

STALE_AFTER_DAYS = 365


class Age(msgspec.Struct, frozen=True):
    """Age of the oldest row that mattered. `oldest_days` is None where no row has a known date;
    `unknown_count` rows have none."""

    oldest_as_of: str | None
    oldest_days: int | None
    unknown_count: int


def known_date(as_of: str) -> date | None:
    """The day that a row was true, None for a bare year or ``launch``. A month counts from its
    first day, a quarter is not precise enough: an age must not be understated."""
    parts = as_of.split("-")
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    try:
        return date(int(parts[0]), int(parts[1]), int(parts[2]) if len(parts) > 2 else 1)
    except ValueError:
        return None


def age_of(as_of_values: Iterable[str], today: date) -> Age:
    """Age in days, on `today`, of the oldest of these dates."""
    values = tuple(as_of_values)
    dated = sorted((day, text) for text in values if (day := known_date(text)))
    if not dated:
        return Age(None, None, len(values))
    day, text = dated[0]
    return Age(text, max(0, (today - day).days), len(values) - len(dated))
