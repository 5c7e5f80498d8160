"""Distil the measured kernel tables of aiconfigurator-core into data/kernels.json.

    pip download --no-deps aiconfigurator-core && unzip aiconfigurator_core-*.whl -d package
    python tools/distil package [KIND ...]

Needs the extra `calibrate`. Prints the error of every fit.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from fitting import Limits, error, fit
from problems import INPUT_LIMITS, LIMITS, Sample
from samples import samples
from tables import ALLOWED, PACKAGE, age, sources, version_of

TARGET = Path(__file__).parents[2] / "src" / "raceline" / "estimate" / "data" / "kernels.json"
_METHOD = (
    "Least squares on logarithms (soft L1 at 10 %) of the formulas in estimate/kernels.py; as many points of each"
    " system and engine, newest version of each. Peaks, bandwidths and links are those of the catalogue."
    " error: median and 90th percentile of |predicted / measured - 1|; engines: measured / predicted, median."
)


def distil(folder: Path, kinds: Sequence[str]) -> dict[str, Any]:
    """The table: these kinds of curves anew, the others as they stand."""
    curves = json.loads(TARGET.read_text(encoding="utf-8"))["curves"] if TARGET.exists() else {}
    curves |= {kind: _rows(folder, kind) for kind in kinds}
    package = {
        "name": PACKAGE,
        "version": version_of(folder),
        "licence": "Apache-2.0",
        "copyright": "NVIDIA CORPORATION & AFFILIATES",
        "url": f"https://pypi.org/project/{PACKAGE}/",
    }
    return {
        "schema": "raceline.kernels/1", "as_of": date.today().isoformat(), "package": package,
        "read": _read(folder), "method": _METHOD, "curves": curves,
    }  # fmt: skip


def _rows(folder: Path, kind: str) -> list[dict[str, Any]]:
    """16 bits first: what its kernels do without a quantised input holds for the narrower formats."""
    rows: list[dict[str, Any]] = []
    plain: dict[str, dict[str, float]] = {}
    for family, sample in samples(folder, kind):
        limits, fixed = dict(LIMITS[kind]), {}
        if kind == "matmul" and sample.column == "16bit":
            fixed = dict.fromkeys(INPUT_LIMITS, 0.0)
        elif kind == "matmul":
            fixed = {name: plain[family][name] for name in ("n0", "floor_s")}
            limits = {name: limit for name, limit in limits.items() if name not in fixed} | INPUT_LIMITS
        rows.append(_row(family, sample, limits, fixed))
        plain.setdefault(family, rows[-1]["values"])
    return sorted(rows, key=lambda row: (row["family"] == "*", row["family"], row["column"]))


def _row(family: str, sample: Sample, limits: Limits, fixed: dict[str, float]) -> dict[str, Any]:
    measured = sample.measured()
    values = fit(limits, sample.predict, measured, fixed)
    predicted = sample.predict(values)
    engine = np.asarray(sample.rows.engine.astype(str))
    ratios = {
        name: round(float(np.median((measured / predicted)[engine == name])), 3) for name in np.unique(engine)
    }
    found = error(predicted, measured)
    name = f"{sample.kind:15s} {family:16s} {sample.column:18s}"
    print(f"{name} {len(measured):6d} points  {found[0]:.3f} / {found[1]:.3f}  {ratios}")
    return {
        "family": family, "column": sample.column, "values": values, "points": len(measured), "error": found,
        "engines": ratios,
    }  # fmt: skip


def _read(folder: Path) -> dict[str, str]:
    """By system: the engines and their newest versions among the tables."""
    newest: dict[tuple[str, str], str] = {}
    for kind in ALLOWED:
        for source in sources(folder, kind):
            key = source.system, source.engine
            newest[key] = max(newest.get(key, ""), source.version, key=age)
    systems = sorted({system for system, _ in newest})
    return {
        system: ", ".join(
            f"{engine} {version}" for (of, engine), version in sorted(newest.items()) if of == system
        )
        for system in systems
    }


def write(table: dict[str, Any], path: Path) -> None:
    """One curve a line, so that a change shows which."""
    head = {name: value for name, value in table.items() if name != "curves"}
    kinds = [
        f'    "{kind}": [\n' + ",\n".join(f"      {json.dumps(row)}" for row in rows) + "\n    ]"
        for kind, rows in table["curves"].items()
    ]
    lines = [f"  {json.dumps(name)}: {json.dumps(value)}," for name, value in head.items()]
    text = "{\n" + "\n".join(lines) + '\n  "curves": {\n' + ",\n".join(kinds) + "\n  }\n}\n"
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(distil(Path(sys.argv[1]), sys.argv[2:] or list(LIMITS)), TARGET)
