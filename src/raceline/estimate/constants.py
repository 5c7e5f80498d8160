"""The constants that estimates use: efficiency curves and factors, from one data file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from raceline.estimate.calibration import NONE, Calibration, of_constants
from raceline.estimate.spread import NO_SPREAD, Spread

NUMBER_CLASSES = ("32bit", "16bit", "8bit", "4bit")


@dataclass(frozen=True)
class Efficiency:
    """What `data/efficiency.json` holds; factors multiply ideal times unless the name has a unit.

    `matmul_rows` maps (architecture, number class) to (a, m0, n0, k0) where no
    kernels were measured (``data/kernels.json`` has the others), `usable_rows` (tier, memory type) to a
    fraction; ``*`` is any.
    """

    matmul_rows: dict[tuple[str, str], tuple[float, float, float, float]]
    early_rows: dict[str, float]
    usable_rows: dict[tuple[str, str], float]
    stream_rows: dict[tuple[str, str], float]
    host_rows: dict[str, float]
    torus_rows: dict[str, tuple[float, float]]
    power_rows: dict[str, float]
    power_measured_rows: dict[str, float]
    scalars: dict[str, float]
    matmul_sources: dict[tuple[str, str], str]
    scalar_sources: dict[str, str]
    calibration: Calibration = NONE
    spread: Spread = NO_SPREAD

    def __getattr__(self, name: str) -> float:
        try:
            return self.scalars[name]
        except KeyError:
            raise AttributeError(name) from None

    def matmul(self, architecture: str, number_class: str) -> tuple[float, float, float, float] | None:
        """The matmul curve of an architecture whose kernels were not measured; None for the others."""
        return self.matmul_rows.get((architecture, number_class))

    def source_of(self, architecture: str, number_class: str) -> str | None:
        """Where that curve comes from."""
        return self.matmul_sources.get((architecture, number_class))

    def early_attention(self, architecture: str) -> float:
        """Time of a kernel that was written for an older architecture, over a fused kernel's."""
        return self.early_rows.get(architecture, self.early_rows["*"])

    def power(self, families: Sequence[str]) -> float | None:
        """TFLOP/s a watt that matrix units sustain in 16 bits, of the first family that has a figure."""
        return next((self.power_rows[name] for name in families if name in self.power_rows), None)

    def usable(self, tier: str | None, memory_type: str | None) -> float:
        """The share of the labelled memory that a process can have."""
        return _of_memory(self.usable_rows, tier, memory_type)

    def torus(self, architecture: str | None) -> tuple[float, float]:
        """The share of a device's links that one collective uses in a torus, and its start."""
        return self.torus_rows.get(architecture or "", (1.0, 0.0))

    def host(self, tier: str | None) -> float:
        """Time of the processor beside such devices over a data centre's, which has many slow cores."""
        return self.host_rows.get(tier or "", self.host_rows["*"])

    def stream(self, tier: str | None, memory_type: str | None) -> float:
        """The share of the bandwidth that long reads get."""
        return _of_memory(self.stream_rows, tier, memory_type)


def _of_memory(rows: dict[tuple[str, str], float], tier: str | None, memory_type: str | None) -> float:
    kind = memory_type or ""
    for (row_tier, prefix), value in rows.items():
        if row_tier == tier and kind.startswith(prefix):
            return value
    return rows["*", "*"]


@cache
def physics() -> Efficiency:
    """The constants that ship with this version, without what was fitted on measured runs."""
    raw = files("raceline.estimate").joinpath("data/efficiency.json").read_bytes()
    return parse(msgspec.json.decode(raw))


@cache
def load() -> Efficiency:
    """The constants that ship with this version, with the calibration and the ranges fitted on evidence."""
    raw = files("raceline.estimate").joinpath("data/calibration.json").read_bytes()
    fitted = msgspec.json.decode(raw, type=Fitted)
    return replace(
        physics(),
        calibration=of_constants(fitted.constants),
        spread=Spread(fitted.ranges, fitted.widths, fitted.support, verdict=fitted.verdict),
    )


class Fitted(msgspec.Struct, frozen=True, kw_only=True):
    """What `data/calibration.json` holds: log factors by scope and kind, log offsets of the range's ends
    by group, widths by tier, how many measured runs support which setups, and the log offsets of a need between
    which it may or may not fit."""

    schema: str
    as_of: str = ""
    constants: dict[str, dict[str, float]]
    ranges: dict[str, tuple[float, float]] = {}
    widths: tuple[float, ...] = (1.0, 1.0, 1.0)
    support: dict[str, int] = {}
    verdict: tuple[float, float] = Spread.verdict


def parse(data: dict[str, Any]) -> Efficiency:
    """Constants from the mapping that the data file holds."""
    return Efficiency(
        matmul_rows={(row[0], row[1]): tuple(row[2:6]) for row in data["matmul"]["rows"]},
        early_rows={row[0]: row[1] for row in data["early_attention"]["rows"]},
        usable_rows={(row[0], row[1]): row[2] for row in data["usable_memory"]["rows"]},
        power_rows={row[0]: row[1] for row in data["power"]["rows"]},
        power_measured_rows={row[0]: row[1] for row in data["power_measured"]["rows"]},
        stream_rows={(row[0], row[1]): row[2] for row in data["stream"]["rows"]},
        torus_rows={row[0]: (row[1], row[2]) for row in data["torus"]["rows"]},
        host_rows={row[0]: row[1] for row in data["host"]["rows"]},
        scalars={name: value[0] for name, value in data["scalars"].items()},
        matmul_sources={(row[0], row[1]): data["sources"][row[6]] for row in data["matmul"]["rows"]},
        scalar_sources={name: data["sources"][value[1]] for name, value in data["scalars"].items()},
    )
