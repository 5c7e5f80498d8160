"""Bundled image models against timm's published parameters, GMACs and activations at each image size."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Attention, Convolution, Matmul, Model, Norm

EVIDENCE = Path(__file__).parents[2] / "evidence"
FILES = ("training_vision.csv", "inference_vision.csv")
HALF_DIGIT = 0.0051  # figures are printed with two decimals
COVERED = 130


def _bundled() -> set[str]:
    lines = (Path(names.__file__).with_name("data") / "image.jsonl").read_text(encoding="utf-8").splitlines()
    models = [json.loads(line) for line in lines]
    return {name for model in models for name in (names.short(model["name"]), *model["aliases"])}


def _rows() -> list[Any]:
    bundled = _bundled()
    found: dict[tuple[str, str], dict[str, str]] = {}
    for name in FILES:
        for row in csv.DictReader((EVIDENCE / name).read_text(encoding="utf-8").splitlines()):
            if row["model"] in bundled:
                found.setdefault((row["model"], row["image_size"]), row)
    return [pytest.param(row, id=f"{name}-{size}") for (name, size), row in sorted(found.items())]


def _is_counted(op: Any, family: str) -> bool:
    """timm's counter has no rule for LSTMs and for convolutions whose padding is "same"."""
    is_same = family == "convmixer" and isinstance(op, Convolution) and op.groups > 1
    return not is_same and not op.name.startswith(("weight_ih", "weight_hh"))


def _gmacs(model: Model) -> float:
    """Multiply-adds as the published figures count them: batch norm with two for each element, group norm
    with five."""
    norms = sum(
        (5 if op.style == "group" else 2) * block.repeat * op.width * op.rows.fixed
        for block in model.blocks
        for op in block.ops
        if isinstance(op, Norm) and op.style != "layer"
    )
    left_out = sum(
        block.repeat * op.count * op.rows.fixed * op.k * op.n
        for block in model.blocks
        for op in block.ops
        if isinstance(op, (Convolution, Matmul)) and not _is_counted(op, model.family)
    )
    return (count.flops(model) / 2 - left_out + norms) / 1e9


def _activations(model: Model) -> float:
    """Million elements that convolutions, matrices and both products of attention put out."""
    total = 0.0
    for block in model.blocks:
        for op in block.ops:
            if not _is_counted(op, model.family):
                continue
            if isinstance(op, (Convolution, Matmul)):
                total += block.repeat * op.n * op.rows.fixed
            elif isinstance(op, Attention):
                width = op.heads * (op.kv_rows.fixed + op.value_dim)
                total += block.repeat * width * op.rows.fixed
    return total / 1e6


ROWS = _rows()


@pytest.mark.parametrize("row", ROWS)
def test_sizes_agree_with_the_published_ones(row: dict[str, str], record_property: Any) -> None:
    model = registry.build_model(Fields(names.find(row["model"]).config), int(row["image_size"]))
    figures = {
        "params_m": (count.parameters(model) / 1e6, 0.0005),
        "gmacs": (_gmacs(model), 0.01),
        "mactivations_m": (_activations(model), 0.003),
    }
    for column, (ours, limit) in figures.items():
        if row[column]:
            record_property(column, ours / float(row[column]) - 1)
            assert ours == pytest.approx(float(row[column]), rel=limit, abs=HALF_DIGIT), column


def test_most_published_sizes_are_covered() -> None:
    assert len(ROWS) >= COVERED
