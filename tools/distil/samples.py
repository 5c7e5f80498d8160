"""Rows of the measured tables by kind, column and family, cleaned of what the formulas don't mean."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from problems import CLASS_OF, LARGEST_PARALLEL, WEIGHT_BYTES, Sample
from tables import age, read, sources

from raceline.catalog.load import accelerators
from raceline.catalog.types import Accelerator

SYSTEMS = {
    "a100_sxm": "a100-sxm-80gb", "h100_sxm": "h100-sxm", "h200_sxm": "h200-sxm", "l40s": "l40s", "b200_sxm": "b200",
    "gb200": "gb200", "b300_sxm": "b300", "gb300": "gb300", "rtx_pro_6000_server": "rtx-pro-6000-server",
    "b60": "arc-pro-b60-24gb",
}  # fmt: skip
FAMILIES = {
    "Ampere": ("a100_sxm",), "Hopper": ("h100_sxm", "h200_sxm"), "Ada Lovelace": ("l40s",),
    "Blackwell": ("b200_sxm", "gb200"), "Blackwell/12": ("rtx_pro_6000_server",),
    "Blackwell Ultra": ("b300_sxm", "gb300"), "Xe2-HPG": ("b60",),
    "*": ("a100_sxm", "h100_sxm", "l40s", "b200_sxm", "b300_sxm"),
}  # fmt: skip
LINKED = {
    "Ampere": ("a100_sxm",), "Hopper": ("h100_sxm", "h200_sxm"), "Blackwell": ("b200_sxm", "gb200"),
    "Blackwell Ultra": ("b300_sxm", "gb300"), "PCIe": ("l40s", "rtx_pro_6000_server"),
    "*": ("a100_sxm", "h100_sxm", "b200_sxm"),
}  # fmt: skip
# Kind, engine, number format, systems (none: all). The first are timed with the host's work in them,
# 60-100 us whatever the size; the second reads its weights at a quarter of the bandwidth.
UNUSABLE: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("matmul", "vllm", "fp8_block", ()),
    ("experts", "vllm", "fp8", ("h100_sxm", "h200_sxm")),
)
# Their latent kernel on Hopper scatters by 30 % about any curve of this form.
LATENT_ENGINES = ("trtllm",)
# (hidden, inner) of models whose experts have no gate: two products, not three.
UNGATED = ((2688, 1856), (2048, 5120), (8192, 5120), (1024, 2688))
_RATE = {
    "16bit": "bf16_dense_tflops",
    "8bit": "fp8_dense_tflops",
    "4bit": "fp4_dense_tflops",
    "weight_only": "bf16_dense_tflops",
}
_DTYPE = {"matmul": "gemm_dtype", "experts": "moe_dtype"}
_POINTS = 2000
_OPERATIONS = {"alltoall": "all_to_all"}
SEED = 7


def samples(folder: Path, kind: str) -> Iterator[tuple[str, Sample]]:
    """Family and sample of every curve of one kind that the tables can carry."""
    rows = _rows(folder, kind)
    for family, systems in (LINKED if kind == "collective" else FAMILIES).items():
        own = rows[rows.system.isin(systems)]
        for column in sorted(own.column.unique()):
            part = own[own.column == column].dropna(subset=_needed(kind))
            if len(part) >= 50:
                yield family, Sample(kind, column, _even(part))


def _needed(kind: str) -> list[str]:
    return ["link_bytes_s"] if kind == "collective" else ["flop_s", "bandwidth"]


def _even(part: Any) -> Any:
    """As many points of each system and engine, so that no larger table outweighs another."""
    groups = part.groupby(["system", "engine"], group_keys=False)
    most = max(_POINTS // max(groups.ngroups, 1), 300)
    picked = [group.sample(min(len(group), most), random_state=SEED) for _, group in groups]
    return pd.concat(picked, ignore_index=True)


def _rows(folder: Path, kind: str) -> Any:
    """All rows of a kind: of each system, engine and number format the newest version."""
    tables = [_clean(kind, source, read(source)) for source in sources(folder, kind)]
    if kind == "collective":
        tables += [_engine_collectives(s, read(s)) for s in sources(folder, "engine_collective")]
    rows = pd.concat(tables, ignore_index=True)
    keys = ["system", "engine", "column", "format"]
    newest = rows.groupby(keys)["age"].transform("max")
    rows = rows[(rows.age == newest) & (rows.latency > 0)]
    return rows.drop(columns="age")


def _clean(kind: str, source: Any, rows: Any) -> Any:
    rows = rows.copy()
    rows["system"], rows["engine"] = source.system, source.engine
    rows["age"] = _rank(source.version)
    rows = _CLEAN[kind](rows)
    rows = rows[~rows.format.isin(_unusable(kind, source))]
    device = _device(source.system)
    rows["bandwidth"] = (device.memory_bw_gbs or float("nan")) * 1e9
    rows["link_bytes_s"] = _link(device) * 1e9
    names = rows.column if kind in _DTYPE else pd.Series("16bit", index=rows.index)
    rows["flop_s"] = [_peak(device, name, text) for name, text in zip(names, rows.format, strict=True)]
    return rows


def _unusable(kind: str, source: Any) -> set[str]:
    return {
        number_format
        for of, engine, number_format, systems in UNUSABLE
        if (of, engine) == (kind, source.engine) and source.system in (systems or (source.system,))
    }


def _matmul(rows: Any) -> Any:
    """Sides of 256 and more: shorter ones are launches. Products that widen narrow weights are left
    out: what was measured are kernels that engines no longer take."""
    formats = [name for name, column in CLASS_OF.items() if column != "weight_only"]
    rows = rows[(rows.n >= 256) & (rows.k >= 256) & (rows.m <= 32768) & rows.gemm_dtype.isin(formats)]
    return _formats(rows, "gemm_dtype")


def _experts(rows: Any) -> Any:
    """Gated experts with uneven visits. Shapes that any engine ran without a gate are left out."""
    rows = rows[rows.moe_dtype.isin(CLASS_OF) & (rows.distribution == "power_law_1.01")]
    rows = rows[(rows.moe_ep_size <= LARGEST_PARALLEL) & (rows.num_tokens <= 65536)]
    shapes = pd.Series(list(zip(rows.hidden_size, rows.inter_size, strict=True)), index=rows.index)
    has_gate = ~rows.kernel_source.astype(str).str.contains("nongated") & ~shapes.isin(UNGATED)
    return _formats(rows[has_gate], "moe_dtype")


def _formats(rows: Any, name: str) -> Any:
    return rows.assign(
        format=rows[name], column=rows[name].map(CLASS_OF), weight_bytes=rows[name].map(WEIGHT_BYTES)
    )


def _attention(rows: Any) -> Any:
    """Whole causal attention at 16 bits; the cache may be narrower."""
    if "window_size" in rows:
        rows = rows[rows.window_size == 0]
    rows = (
        rows[(rows.attn_dtype == "bfloat16") & (rows.isl + rows.step > 1)] if "attn_dtype" in rows else rows
    )
    head = rows.head_dim if "head_dim" in rows else 128
    heads = rows.num_key_value_heads.where(rows.num_key_value_heads > 0, rows.num_heads)
    rows = rows.assign(head_dim=head, kv_heads=heads, column="*", format=rows.kv_cache_dtype)
    rows = rows.assign(cache_bytes=rows.kv_cache_dtype.map({"bfloat16": 2.0, "float16": 2.0, "fp8": 1.0}))
    return rows[rows.head_dim.isin([64, 128, 256]) & (rows.num_heads <= 16 * heads)]


def _prefill(rows: Any) -> Any:
    rows = _attention(rows)
    return rows[(rows.isl >= 16) & (rows.cache_bytes == 2.0)]


def _latent(rows: Any) -> Any:
    rows = rows[rows.engine.isin(LATENT_ENGINES) & (rows.mla_dtype == "bfloat16")]
    width = rows.kv_cache_dtype.map({"bfloat16": 2.0, "fp8": 1.0})
    return rows.assign(column="*", format=rows.kv_cache_dtype, cache_bytes=width)


def _latent_prefill(rows: Any) -> Any:
    rows = _latent(rows)
    return rows[(rows.isl >= 16) & (rows.cache_bytes == 2.0)]


def _collectives(rows: Any) -> Any:
    rows = rows[(rows.nccl_dtype == "half") & rows.num_gpus.isin([2, 4, 8])]
    operation = rows.op_name.replace(_OPERATIONS)
    return rows.assign(column=operation, format="half", engine="nccl")


def _engine_collectives(source: Any, rows: Any) -> Any:
    """All-reduce as engines run it while decoding: inside a captured graph."""
    if "backend" in rows:
        rows = rows[~rows.backend.astype(str).str.contains("eager")]
    rows = rows[rows.num_gpus.isin([2, 4, 8])]
    rows = rows.assign(column="engine_all_reduce", format="half", system=source.system, engine=source.engine)
    return rows.assign(age=_rank(source.version), link_bytes_s=_link(_device(source.system)) * 1e9)


def _rank(version: str) -> float:
    return float(sum(part * 1000.0 ** (3 - place) for place, part in enumerate(age(version)[:4])))


@cache
def _device(system: str) -> Accelerator:
    return accelerators()[SYSTEMS[system]]


def _link(device: Accelerator) -> float:
    """GB/s of all links of one device in one direction; PCIe 4 has 2 a lane, PCIe 5 twice that."""
    if device.intra_link_gbs_per_dir:
        return device.intra_link_gbs_per_dir
    return (device.pcie_lanes or 16) * {3: 1.0, 4: 2.0, 5: 4.0, 6: 8.0}[device.pcie_gen or 4]


def _peak(device: Accelerator, column: str, number_format: str) -> float:
    rate = device.int8_dense_tops if number_format == "sq" else getattr(device, _RATE[column])
    return float("nan") if rate is None else rate * 1e12


_CLEAN = {
    "matmul": _matmul, "experts": _experts, "prefill": _prefill, "decode": _attention, "collective": _collectives,
    "latent_prefill": _latent_prefill, "latent_decode": _latent,
}  # fmt: skip
