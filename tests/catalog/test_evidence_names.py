"""Every device that the published measurements name leads to a row. Skipped where they are missing."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path

import pytest

from raceline.catalog import resolve

FOLDER = Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[3] / "shared"))
# Names of software images in Megatron-LM's tests, not of devices.
NOT_DEVICES = {"lts", "dev", ""}
# Reports that name no device at all.
NOT_NAMED = {"single GPU"}


def evidence_names() -> set[str]:
    names: set[str] = set()
    for path in sorted((FOLDER / "evidence").glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            names |= {row.get("accelerator", "") for row in csv.DictReader(file)}
    return names - NOT_DEVICES


def test_every_device_of_the_evidence_resolves() -> None:
    if not (FOLDER / "evidence").is_dir():
        pytest.skip("no evidence folder")
    for name in sorted(evidence_names()):
        assert resolve.device(name).id


def test_every_device_of_the_fit_cases_resolves() -> None:
    path = FOLDER / "cases" / "fit.yaml"
    if not path.is_file():
        pytest.skip("no cases folder")
    names = {
        name.strip("'\" ") for name in re.findall(r"^\s*gpu: (.*)$", path.read_text("utf-8"), re.MULTILINE)
    }
    for name in sorted(names - NOT_NAMED):
        assert resolve.accelerator(name).accelerator.id


def test_the_catalogue_agrees_with_the_second_source_where_that_was_found() -> None:
    path = FOLDER / "catalog" / "crosscheck.csv"
    if not path.is_file():
        pytest.skip("no crosscheck file")
    from raceline.catalog import load

    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["agree"] == "yes"]
    for row in rows:
        value = getattr(load.accelerators()[row["id"]], row["field"], None)
        if value is not None and row["other_value"]:
            assert float(value) == pytest.approx(float(row["other_value"]), rel=0.035), row
