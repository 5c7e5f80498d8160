"""What every row of the catalogue must satisfy, the user's own rows too. Problems are values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import isfinite

from raceline.catalog.types import Accelerator, ElectricityPrice, Link, Offer, RetailPrice
from raceline.present.errors import Message, message

_ID = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")

# Lowest and highest believable value by field: wide enough for a decade of products, narrow enough
# to catch a wrong unit (bytes for GiB, Gb for GB, sparse Pflop for Tflop).
RANGES: dict[str, tuple[float, float]] = {
    "generation_year": (2000, 2035),
    "compute_capability": (1.0, 20.0),
    "memory_gib": (0.1, 4096),
    "memory_bw_gbs": (1, 100_000),
    "fp64_tflops": (0.001, 1_000),
    "fp32_tflops": (0.01, 2_000),
    "tf32_tflops": (0.1, 20_000),
    "fp16_dense_tflops": (0.01, 50_000),
    "bf16_dense_tflops": (0.1, 50_000),
    "fp8_dense_tflops": (0.1, 100_000),
    "fp4_dense_tflops": (0.1, 200_000),
    "int8_dense_tops": (0.1, 100_000),
    "int4_dense_tops": (0.1, 200_000),
    "l2_mib": (0.01, 2_048),
    "tdp_w": (0.5, 30_000),
    "intra_link_gbs_per_dir": (0.1, 10_000),
    "pcie_gen": (1, 8),
    "pcie_lanes": (1, 32),
    "mig_max_instances": (0, 16),
    "max_per_node": (1, 128),
    "msrp_usd": (5, 500_000),
    "gbs_per_dir": (0.01, 10_000),
    "latency_us": (0.01, 100_000),
    "allreduce_fraction": (0.01, 2.0),
    "p2p_gbs_per_dir": (0.1, 10_000),
    "count": (1, 100_000),
    "vcpus": (1, 100_000),
    "ram_gib": (0.1, 10_000_000),
    "price_hour_usd": (0.001, 1_000_000),
    "spot_hour_usd": (0.001, 1_000_000),
    "price_per_accelerator_hour_usd": (0.001, 10_000),
    "price_usd_per_kwh": (0.001, 3.0),
    "price_low": (1, 10_000_000),
    "price_high": (1, 10_000_000),
}

# Pairs of rates of which the first is never the lower one, unless the note says why.
_ORDERED = (
    ("fp16_dense_tflops", "fp32_tflops"),
    ("bf16_dense_tflops", "fp32_tflops"),
    ("fp8_dense_tflops", "bf16_dense_tflops"),
    ("fp4_dense_tflops", "fp8_dense_tflops"),
    ("fp32_tflops", "fp64_tflops"),
)


def check_row(row: Accelerator | Link | Offer | RetailPrice | ElectricityPrice) -> list[Message]:
    """Problems that one row has by itself: numbers out of range, no source, a wrong id."""
    problems = [
        message("catalog.out_of_range", field=field, given=value, lowest=low, highest=high)
        for field, (low, high) in RANGES.items()
        if (value := getattr(row, field, None)) is not None and not (isfinite(value) and low <= value <= high)
    ]
    name = getattr(row, "id", None)
    if name is not None and not _ID.fullmatch(name):
        problems.append(message("catalog.wrong_id", given=name))
    if not row.source_url.strip():
        problems.append(message("catalog.no_source"))
    return problems


def check_accelerator(item: Accelerator) -> list[Message]:
    """A row's own problems and rates that contradict each other (sparse rates, swapped columns)."""
    problems = check_row(item)
    for higher, lower in _ORDERED:
        first, second = getattr(item, higher), getattr(item, lower)
        if first is not None and second is not None and first < second and not _explains(item, higher):
            problems.append(
                message("catalog.rates_out_of_order", higher=higher, lower=lower, first=first, second=second)
            )
    return problems


def check_offer(item: Offer, accelerators: Mapping[str, Accelerator]) -> list[Message]:
    """A row's own problems, a price that is missing or above itself, an accelerator that is not known."""
    problems = check_row(item)
    price, spot = item.price_hour_usd, item.spot_hour_usd
    if item.accelerator not in accelerators:
        problems.append(message("catalog.offer_of_unknown", given=item.accelerator))
    if price is None and spot is None:
        problems.append(message("catalog.offer_without_price"))
    if price is not None and spot is not None and spot > price:
        problems.append(message("catalog.spot_above_price", spot_usd=spot, price_usd=price))
    each = item.price_per_accelerator_hour_usd
    if price is not None and each is not None and abs(each * item.count - price) > 0.002 * price + 0.01:
        problems.append(message("catalog.price_each_wrong", each_usd=each, count=item.count, price_usd=price))
    return problems


def duplicates(ids: Iterable[str]) -> list[str]:
    """Ids that occur more than once."""
    seen: set[str] = set()
    return [name for name in ids if name in seen or seen.add(name)]  # type: ignore[func-returns-value]


def _explains(item: Accelerator, field: str) -> bool:
    notes = f"{item.fp16_accum_note or ''} {item.note or ''}".lower()
    return field.split("_")[0] in notes
