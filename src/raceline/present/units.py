"""Numbers as people read them: the one place that scales and rounds. The same in every language."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

DASH = "–"

Scale = tuple[tuple[float, str], ...]

_SECONDS: Scale = ((1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
# Where a larger unit takes over: 90 s stay seconds, 100 h become days.
_SECOND_STARTS = (0.0, 1e-3, 1.0, 120.0, 7200.0, 96 * 3600.0)
_BINARY: Scale = ((1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB"))
_DECIMAL: Scale = ((1.0, "B"), (1e3, "kB"), (1e6, "MB"), (1e9, "GB"), (1e12, "TB"))
_COUNT: Scale = ((1.0, ""), (1e6, "M"), (1e9, "B"), (1e12, "T"))
_METRIC: Scale = (
    (1.0, ""),
    (1e3, "k"),
    (1e6, "M"),
    (1e9, "G"),
    (1e12, "T"),
    (1e15, "P"),
    (1e18, "E"),
    (1e21, "Z"),
)


def plain(value: float, digits: int = 3) -> str:
    """Rounded to `digits` significant ones, thousands grouped, never in exponent form below 10^15."""
    if not math.isfinite(value):
        return DASH if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if value == 0:
        return "0"
    if abs(value) >= 1e15 or abs(value) < 1e-6:
        return f"{value:.{digits - 1}e}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    rounded = float(text.replace(",", ""))
    # 9.996 rounds to 10.00: one decimal too many
    if decimals and abs(rounded) >= 10 ** (digits - decimals):
        text = f"{value:,.{decimals - 1}f}"
    return text


def _scaled(scale: Scale, starts: tuple[float, ...] | None = None) -> Callable[[float], tuple[float, str]]:
    limits = starts or tuple(size for size, _ in scale)

    def choose(value: float) -> tuple[float, str]:
        index = max((i for i, limit in enumerate(limits) if abs(value) >= limit), default=0)
        return scale[index]

    return choose


def _times(
    factor: float, choose: Callable[[float], tuple[float, str]]
) -> Callable[[float], tuple[float, str]]:
    """The scale of a unit that is `factor` base units."""

    def chosen(value: float) -> tuple[float, str]:
        size, name = choose(value * factor)
        return size / factor, name

    return chosen


def _suffixed(
    choose: Callable[[float], tuple[float, str]], suffix: str
) -> Callable[[float], tuple[float, str]]:
    def chosen(value: float) -> tuple[float, str]:
        size, name = choose(value)
        return size, name + suffix

    return chosen


def _one(name: str, size: float = 1.0) -> Callable[[float], tuple[float, str]]:
    return lambda value: (size, name)


_seconds = _scaled(_SECONDS, _SECOND_STARTS)
_bytes = _scaled(_BINARY)
_decimal = _scaled(_DECIMAL)
_metric = _scaled(_METRIC)

UNITS: dict[str, Callable[[float], tuple[float, str]]] = {
    "": _one(""),
    "s": _seconds,
    "ms": _times(1e-3, _seconds),
    "us": _times(1e-6, _seconds),
    "hours": _times(3600.0, _seconds),
    "hour": _times(3600.0, _seconds),
    "days": _one("d"),
    "bytes": _bytes,
    "mib": _times(2.0**20, _bytes),
    "gib": _times(2.0**30, _scaled(_BINARY[:4])),
    "gb": _times(1e9, _scaled(_DECIMAL[:4])),
    "mb": _times(1e6, _decimal),
    "gbs": _one("GB/s"),
    "mbs": _one("MB/s"),
    "bytes_per_s": _suffixed(_decimal, "/s"),
    "flops": _suffixed(_metric, "FLOP"),
    "tflops": _one("TFLOP/s"),
    "count": _scaled(_COUNT),
    "tokens": _scaled(_COUNT),
    "samples": _scaled(_COUNT),
    "parameters": _scaled(_COUNT),
    "per_s": _one("/s"),
    "tokens_per_s": _one("tokens/s"),
    "samples_per_s": _one("samples/s"),
    "images_per_s": _one("images/s"),
    "fraction": _one("%", 0.01),
    "share": _one("%", 0.01),
    "percent": _one("%"),
    "w": _one("W"),
    "kwh": _one("kWh"),
    "usd": _one("$"),
    "usd_per_hour": _one("$/h"),
    "hour_usd": _one("$/h"),
    "x": _one("×"),
}

# Units whose names are also plain words are not read off a parameter's name.
_NOT_SUFFIXES = {"", "x", "w", "tokens", "samples", "parameters", "hour", "count", "share"}
_SUFFIXES = sorted((unit for unit in UNITS if unit not in _NOT_SUFFIXES), key=len, reverse=True)


def quantity(value: float | None, unit: str = "", low: float | None = None, high: float | None = None) -> str:
    """``9.1 h``, ``$8.20``, ``31.2 GiB``, ``8.03 B``; with a range ``9.1 h (8.2–10.4)``."""
    if value is None:
        return DASH
    text = _single(value, unit)
    between = span(low, high, unit, like=value)
    return f"{text} ({between})" if between else text


def span(low: float | None, high: float | None, unit: str, like: float) -> str:
    """``8.2–10.4``: the range in the unit in which `like` is shown; empty where there is none."""
    if low is None or high is None or low == high:
        return ""
    size, name = UNITS[unit](like)
    ends = [_digits(end / size, name) for end in (low, high)]
    return "" if ends[0] == ends[1] else "–".join(ends)


def of_limit(value: float, limit: float, unit: str) -> str:
    """``33.1 / 44 GiB``: what is taken and what there is, in every language."""
    size, name = UNITS[unit](limit)
    return f"{_digits(value / size, name)} / {_single(limit, unit)}"


def _single(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return plain(value)
    size, name = UNITS[unit](value)
    text = _digits(value / size, name)
    if name.startswith("$"):
        return f"-${text[1:]}{name[1:]}" if text.startswith("-") else f"${text}{name[1:]}"
    return f"{text} {name}".rstrip()


def _digits(value: float, name: str) -> str:
    if name.startswith("$"):
        return money(value)
    if name == "%":
        return plain(value, 2) if abs(value) < 99.5 else f"{value:,.0f}"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if name in ("s", "min", "h", "d"):
        return plain(value, 2) if abs(value) < 9.95 else plain(value, 3)
    return plain(value)


def money(value: float) -> str:
    """US dollars without the sign: ``17``, ``8.20``, ``0.042``."""
    if abs(value) >= 9.995 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 0.1 else plain(value, 2)


@lru_cache(maxsize=1024)
def unit_of(name: str) -> str:
    """The unit that a parameter's name carries (``needed_gib`` -> ``gib``); empty for none."""
    return next((unit for unit in _SUFFIXES if name == unit or name.endswith("_" + unit)), "")


def shown(name: str, value: Any) -> str:
    """A message's parameter as text: numbers by the unit in its name, lists joined, None as a dash."""
    if value is None:
        return DASH
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        unit = unit_of(name)
        if not unit and isinstance(value, int):
            # a year, a port or a head count reads better ungrouped
            return str(value) if abs(value) < 10_000 else f"{value:,}"
        return quantity(float(value), unit)
    if isinstance(value, (list, tuple)):
        return ", ".join(shown(name, item) for item in value)
    return str(value)
