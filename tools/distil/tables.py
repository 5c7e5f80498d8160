"""Measured tables of single operations in an unpacked aiconfigurator-core package.

Only the files named in `ALLOWED` are ever opened. The package also holds end-to-end samples: they
would let the model see answers that it is scored on, so every other name is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PACKAGE = "aiconfigurator-core"
ALLOWED = {
    "matmul": "gemm_perf.parquet",
    "experts": "moe_perf.parquet",
    "prefill": "context_attention_perf.parquet",
    "decode": "generation_attention_perf.parquet",
    "latent_prefill": "context_mla_perf.parquet",
    "latent_decode": "generation_mla_perf.parquet",
    "collective": "nccl_perf.parquet",
    "engine_collective": "custom_allreduce_perf.parquet",
}
_METADATA = "METADATA"


class RefusedError(Exception):
    """A file that is no table of single operations."""


@dataclass(frozen=True)
class Source:
    """One table: data/<system>/<topic>/<engine>/<version>/<name>."""

    path: Path
    system: str
    engine: str
    version: str


def check(path: Path) -> Path:
    """The path, if its name is on the list."""
    if path.name not in (*ALLOWED.values(), _METADATA):
        raise RefusedError(
            f"{path.name} is not a table of single operations; allowed: {sorted(ALLOWED.values())}"
        )
    return path


def sources(folder: Path, kind: str) -> Iterator[Source]:
    """The tables of one kind, oldest version first."""
    found = sorted(
        folder.glob(f"**/systems/data/*/*/*/*/{ALLOWED[kind]}"), key=lambda path: age(path.parts[-2])
    )
    for path in found:
        system, _, engine, version = path.parts[-5:-1]
        yield Source(check(path), system, engine, version)


def read(source: Source) -> Any:
    """The rows of one table (a pandas DataFrame)."""
    path = check(source.path)
    import pandas as pd

    return pd.read_parquet(path)


def version_of(folder: Path) -> str:
    """The version that the package's metadata names."""
    path = next(folder.glob("aiconfigurator_core-*.dist-info/METADATA"))
    found = re.search(r"^Version: (\S+)", check(path).read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise RefusedError("the package's metadata names no version")
    return found.group(1)


def age(version: str) -> list[int]:
    """A version's numbers, to be compared."""
    return [int(part) for part in re.findall(r"\d+", version)]
