"""Time of single kernels and collectives: curves whose constants were fitted to measured tables.

``data/kernels.json`` holds the constants by family (an architecture; with ``/12`` behind it one
major compute capability of that), with the tables they come from and how far the fit is off.
`arrange` gathers them for an array of devices; the formulas below take those arrays, or one row of
them, and work in seconds, bytes and FLOP/s.

Two bounds meet as the root of the sum of their squares: near the ridge a kernel is slower than
either of them. With the power left free the fits were no better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.catalog.types import Accelerator

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CLASSES = ("32bit", "16bit", "8bit", "4bit", "weight_only")
COLLECTIVES = ("all_reduce", "engine_all_reduce", "all_gather", "reduce_scatter", "all_to_all")
# Below about this length of a side, kernels take narrower tiles and pad less: the curves level off.
SMALL_SIDE = 64.0
# The shortest side that was measured: what a shorter one costs is not known, so it costs no more.
LEAST_SIDE = 256.0
TILE_ROWS = 128.0
ANY, PCIE = "*", "PCIe"
# The largest group inside one node that was measured.
MEASURED_GROUP = 8.0


@dataclass(frozen=True, slots=True)
class MatmulCurve:
    """A matrix product of M x K and K x N. `compute`: time over 2MNK / peak with all sides long;
    `m0`, `n0`, `k0`: what short sides add; `memory`: the share of the bandwidth that weights and
    activations get, `narrow`: what a short N takes of it; `floor_s`: start to end without work;
    `input_bytes` an element of M x K and `input_floor_s`: what bringing the input to a narrow format
    takes where no kernel before it does that."""

    compute: Floats
    m0: Floats
    n0: Floats
    k0: Floats
    memory: Floats
    narrow: Floats
    floor_s: Floats
    input_bytes: Floats
    input_floor_s: Floats


@dataclass(frozen=True, slots=True)
class ExpertCurve:
    """The products of a mixture of experts. As `MatmulCurve`, with the floor of both products and
    their routing; `spread`: how fast visits reach further experts (1: visits are independent);
    `skew`: by how much the fullest of n expert-parallel ranks exceeds the mean, times ln n."""

    compute: Floats
    m0: Floats
    n0: Floats
    memory: Floats
    narrow: Floats
    floor_s: Floats
    visit_s: Floats
    spread: Floats
    skew: Floats


@dataclass(frozen=True, slots=True)
class PrefillCurve:
    """Fused attention of many queries. `queries0`, `head0`, `tiles0`: what short sequences, narrow
    heads and few tiles of 128 queries add to `compute`; `memory`: of q, k, v and the output."""

    compute: Floats
    queries0: Floats
    head0: Floats
    tiles0: Floats
    memory: Floats
    floor_s: Floats


@dataclass(frozen=True, slots=True)
class DecodeCurve:
    """Attention of one query a sequence over a cache. `keys0` and `caches0`: what a short cache and
    few caches (sequences x key heads) take of the bandwidth; `row_s`: of each query head."""

    compute: Floats
    memory: Floats
    keys0: Floats
    caches0: Floats
    floor_s: Floats
    row_s: Floats


@dataclass(frozen=True, slots=True)
class CollectiveCurve:
    """One collective inside a node. `first_s` + `each_s` x devices without bytes; `rate2`, `rate4`,
    `rate8`: the share of a device's links that groups of that size get; `ramp_s`: what messages
    beyond `ramp_bytes` wait until the pipeline is full."""

    first_s: Floats
    each_s: Floats
    rate2: Floats
    rate4: Floats
    rate8: Floats
    ramp_s: Floats
    ramp_bytes: Floats


@dataclass(frozen=True, slots=True)
class Kernels:
    """Curves of D devices: matmuls and experts over D x CLASSES, collectives over D x COLLECTIVES."""

    matmul: MatmulCurve
    experts: ExpertCurve
    prefill: PrefillCurve
    latent_prefill: PrefillCurve
    decode: DecodeCurve
    latent_decode: DecodeCurve
    collective: CollectiveCurve


Curve = TypeVar("Curve", MatmulCurve, ExpertCurve, PrefillCurve, DecodeCurve, CollectiveCurve)

_CURVES: dict[str, type[Any]] = {
    "matmul": MatmulCurve, "experts": ExpertCurve, "prefill": PrefillCurve, "latent_prefill": PrefillCurve,
    "decode": DecodeCurve, "latent_decode": DecodeCurve, "collective": CollectiveCurve,
}  # fmt: skip
_COLUMNS: dict[str, tuple[str, ...]] = {"matmul": CLASSES, "experts": CLASSES, "collective": COLLECTIVES}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fitted curve. `error`: median and 90th percentile of |predicted / measured - 1| over
    `points`; `engines`: measured over predicted, median, of each engine's own kernels."""

    family: str
    column: str
    values: dict[str, float]
    points: int = 0
    error: tuple[float, float] | None = None
    engines: dict[str, float] = {}


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """What the data file holds: where the measurements come from (`read`: engines and versions by
    system) and rows by kind of curve."""

    schema: str
    as_of: str
    package: dict[str, str]
    read: dict[str, str]
    method: str
    curves: dict[str, tuple[Row, ...]]

    def values(self, kind: str, families: Sequence[str], column: str) -> dict[str, float]:
        """The constants of the first of these families that has them; ``*`` stands last."""
        wanted = _stand_in(kind, column)
        rows = {row.family: row.values for row in self.curves[kind] if row.column == wanted}
        return next(rows[family] for family in (*families, ANY) if family in rows)

    def has(self, kind: str, families: Sequence[str], column: str) -> bool:
        """Whether one of these families was measured itself."""
        return any(row.family in families for row in self.curves[kind] if row.column == column)


def _stand_in(kind: str, column: str) -> str:
    """The column that holds for one without tables: fp32 and tf32 kernels are built as those for 16
    bits, and products that widen their weights multiply at 16 bits."""
    if column == "32bit" or (kind, column) == ("matmul", "weight_only"):
        return "16bit"
    return column


@cache
def load() -> Table:
    """The curves that ship with this version."""
    raw = files("raceline.estimate").joinpath("data/kernels.json").read_bytes()
    return msgspec.json.decode(raw, type=Table)


def families(accelerator: Accelerator) -> tuple[str, ...]:
    """The families whose curves an accelerator may take, the closest first."""
    architecture, capability = accelerator.architecture or ANY, accelerator.compute_capability
    if capability is None:
        return (architecture,)
    return f"{architecture}/{int(capability)}", architecture


def arrange(
    accelerators: Sequence[Accelerator], has_link: Sequence[bool], table: Table | None = None
) -> Kernels:
    """Curves of these accelerators; one without a link of its own talks over PCIe."""
    table = table or load()
    own = [families(item) for item in accelerators]
    linked = [names if link else (PCIE,) for names, link in zip(own, has_link, strict=True)]
    curves = {
        kind: _gather(table, kind, linked if kind == "collective" else own, _CURVES[kind]) for kind in _CURVES
    }
    return Kernels(**curves)


def _gather(table: Table, kind: str, names: Sequence[tuple[str, ...]], curve: type[Any]) -> Any:
    columns = _COLUMNS.get(kind)
    found = [[table.values(kind, device, column) for column in columns or (ANY,)] for device in names]
    constants = {
        item.name: np.array([[values[item.name] for values in row] for row in found], float)
        for item in fields(curve)
    }
    return curve(**(constants if columns else {name: array[:, 0] for name, array in constants.items()}))


def take(curve: Curve, at: Any) -> Curve:
    """The constants at an index, as columns beside a row of ops."""
    picked = {item.name: getattr(curve, item.name)[at][..., None] for item in fields(curve)}
    return type(curve)(**picked)


def row_of(curve: Curve, at: Any) -> Curve:
    """The constants at an index."""
    return type(curve)(**{item.name: getattr(curve, item.name)[at] for item in fields(curve)})


def curve_of(kind: str, values: Mapping[str, float]) -> Any:
    """A curve of one row's constants, as the fit and the tests use it."""
    curve = _CURVES[kind]
    return curve(**{item.name: np.float64(values[item.name]) for item in fields(curve)})


def together(compute_s: Floats, memory_s: Floats) -> Floats:
    """Seconds of a kernel that two bounds hold up."""
    return np.sqrt(compute_s * compute_s + memory_s * memory_s)


def matmul_bounds(
    curve: MatmulCurve, m: Floats, n: Floats, k: Floats, flop_s: Floats, moved: Floats, bandwidth: Floats
) -> tuple[Floats, Floats]:
    """Seconds of compute and of memory of products of M x K and K x N that move `moved` bytes.

    2MNK / peak x compute (1 + m0/(M + 64))(1 + n0/(N + 64))(1 + k0/(K + 64)) and bytes / (bandwidth
    x memory) x (1 + narrow / N). Fitted for sides of 256 and more and any M.
    """
    sides = (1.0 + curve.n0 / (n + SMALL_SIDE)) * (1.0 + curve.k0 / (k + SMALL_SIDE))
    compute = 2.0 * m * n * k / flop_s * curve.compute * (1.0 + curve.m0 / (m + SMALL_SIDE)) * sides
    return compute, moved / (bandwidth * curve.memory) * (1.0 + curve.narrow / np.maximum(n, LEAST_SIDE))


def matmul_seconds(
    curve: MatmulCurve, m: Floats, n: Floats, k: Floats, flop_s: Floats, moved: Floats, bandwidth: Floats
) -> Floats:
    """Seconds of one product, launch included."""
    return together(*matmul_bounds(curve, m, n, k, flop_s, moved, bandwidth)) + curve.floor_s


def input_seconds(curve: MatmulCurve, m: Floats, k: Floats, bandwidth: Floats) -> Floats:
    """Seconds to bring an input of M x K to a narrow format in a pass of its own."""
    return m * k * curve.input_bytes / bandwidth + curve.input_floor_s


def experts_hit(curve: ExpertCurve, experts: Floats, visits: Floats) -> Floats:
    """Of `experts` on a rank, how many get at least one of `visits` tokens, in the mean."""
    hit = experts * -np.expm1(-visits * curve.spread / experts)
    return np.clip(hit, np.minimum(visits, 1.0), experts)


def fullest_visits(curve: ExpertCurve, visits: Floats, ranks: Floats) -> Floats:
    """Visits of the fullest expert-parallel rank where they follow a power law, from the mean."""
    return visits * (1.0 + curve.skew * np.log(ranks))


def expert_bounds(
    curve: ExpertCurve, visits: Floats, hit: Floats, n: Floats, k: Floats, flop_s: Floats, moved: Floats,
    bandwidth: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Seconds of compute and of memory of one product in each of `hit` experts, for all visits."""
    m = visits / hit
    sides = (1.0 + curve.m0 / (m + SMALL_SIDE)) * (1.0 + curve.n0 / (n + SMALL_SIDE))
    compute = 2.0 * visits * n * k / flop_s * curve.compute * sides
    return compute, moved / (bandwidth * curve.memory) * (1.0 + curve.narrow / np.maximum(n, LEAST_SIDE))


def gated_expert_seconds(
    curve: ExpertCurve, visits: Floats, experts: Floats, hidden: Floats, inner: Floats, flop_s: Floats,
    weight_bytes: Floats, bandwidth: Floats,
) -> Floats:  # fmt: skip
    """Seconds of gated experts on one rank: up and gate in one product, down, and their routing."""
    hit = experts_hit(curve, experts, visits)
    total = curve.floor_s + curve.visit_s * visits
    for n, k in ((2.0 * inner, hidden), (inner, hidden)):
        moved = hit * n * k * weight_bytes + visits * (n + k) * 2.0
        total = total + together(*expert_bounds(curve, visits, hit, n, k, flop_s, moved, bandwidth))
    return total


def prefill_bounds(
    curve: PrefillCurve, flops: Floats, rows: Floats, queries: Floats, head_dim: Floats, flop_s: Floats,
    moved: Floats, bandwidth: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Seconds of compute and of memory of fused attention: `rows` is sequences x heads x queries,
    `flops` counts only the pairs that the mask leaves, `moved` the bytes of q, k, v and output."""
    short = (1.0 + curve.queries0 / queries) * (1.0 + curve.tiles0 * TILE_ROWS / rows)
    compute = flops / flop_s * curve.compute * short * (1.0 + curve.head0 / head_dim)
    return compute, moved / (bandwidth * curve.memory)


def decode_bounds(
    curve: DecodeCurve, flops: Floats, caches: Floats, keys: Floats, flop_s: Floats, cache_bytes: Floats,
    bandwidth: Floats,
) -> tuple[Floats, Floats]:  # fmt: skip
    """Seconds of compute and of memory of one new query a sequence, over `keys` cached positions."""
    short = (1.0 + curve.keys0 / keys) * (1.0 + curve.caches0 / caches)
    return flops / flop_s * curve.compute, cache_bytes / (bandwidth * curve.memory) * short


def moved_share(operation: str, size: Floats) -> Floats:
    """What of a payload crosses each device's links: 2 (n - 1)/n of a sum, (n - 1)/n else."""
    share = (size - 1.0) / size
    return 2.0 * share if operation in ("all_reduce", "engine_all_reduce") else share


def link_rate(curve: CollectiveCurve, size: Floats) -> Floats:
    """The share of the links' rate that a group of `size` devices gets, between the measured ones."""
    doublings = np.log2(np.maximum(size, 2.0))
    low = curve.rate2 + (curve.rate4 - curve.rate2) * np.clip(doublings - 1.0, 0.0, 1.0)
    return low + (curve.rate8 - curve.rate4) * np.clip(doublings - 2.0, 0.0, 1.0)


def start_seconds(curve: CollectiveCurve, size: Floats) -> Floats:
    """Seconds without bytes: by device inside a node, by doubling beyond."""
    beyond = np.log2(np.maximum(size / MEASURED_GROUP, 1.0))
    return curve.first_s + curve.each_s * (np.minimum(size, MEASURED_GROUP) + 2.0 * beyond)


def ramp_seconds(curve: CollectiveCurve, payload: Floats) -> Floats:
    """Seconds that larger messages wait until the pipeline is full."""
    return curve.ramp_s * payload / (payload + curve.ramp_bytes)


def collective_seconds(
    curve: CollectiveCurve, operation: str, payload: Floats, size: Floats, link_bytes_s: Floats
) -> Floats:
    """Seconds of one collective of `payload` bytes (the whole) over `size` devices of a node."""
    crossing = moved_share(operation, size) * payload / (link_bytes_s * link_rate(curve, size))
    total = start_seconds(curve, size) + crossing + ramp_seconds(curve, payload)
    return np.where(size > 1.0, total, 0.0)
