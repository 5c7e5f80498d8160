"""Scores of files, ranges, neighbours: what people see of the calibration."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceline import api
from raceline.accuracy.score import score_files
from raceline.estimate import constants
from raceline.estimate.result import Estimate
from raceline.evidence import neighbours, published

EVIDENCE = Path(__file__).parents[2] / "evidence"


def table(path: Path, name: str, ids: list[str], **changes: str) -> Path:
    with (EVIDENCE / name).open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["id"] in ids]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows({**row, **changes} for row in rows)
    return path


def test_a_row_of_one_s_own_is_predicted_by_what_ships(tmp_path: Path) -> None:
    mine = table(tmp_path / "mine.csv", "training_vision.csv", ["tim-0001"], id="mine-1", source="mine")
    (found,) = score_files([mine], api.load_catalogue(), api.read_model).scored
    assert found.fold == "none"
    assert found.low < found.predicted < found.high
    assert found.predicted == found.in_sample


def test_a_bad_figure_changes_the_error_and_not_the_prediction(tmp_path: Path) -> None:
    right = table(tmp_path / "a.csv", "training_vision.csv", ["tim-0001"], id="a", source="mine")
    wrong = table(
        tmp_path / "b.csv",
        "training_vision.csv",
        ["tim-0001"],
        id="b",
        source="mine",
        train_samples_per_s="1",
    )
    scores = [score_files([path], api.load_catalogue(), api.read_model).scored[0] for path in (right, wrong)]
    assert scores[0].predicted == scores[1].predicted
    assert scores[1].error > 50


def test_packed_tables_are_the_tables() -> None:
    for name in published.tables():
        suffix = "yaml" if name == "fit" else "csv"
        assert published._text(name).encode() == (EVIDENCE / f"{name}.{suffix}").read_bytes()


def test_what_ships_is_small() -> None:
    package = Path(constants.__file__).parents[1]
    shipped = [*(package / "evidence" / "data").iterdir(), *(package / "accuracy" / "data").iterdir()]
    shipped.append(package / "estimate" / "data" / "calibration.json")
    assert sum(path.stat().st_size for path in shipped) < 2 * 1024 * 1024


SCENARIOS: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "workload": {"task": "train", "method": "lora"}, "hardware": {"accelerator": "h100-sxm"}},
    {"model": "llama-3.1-8b", "workload": {"task": "infer", "concurrency": 16}, "hardware": {"accelerator": "l40s"}},
    {"model": "resnet50", "workload": {"task": "train"}, "hardware": {"accelerator": "rtx-3090"}},
    {"model": "llama-3.1-8b", "workload": {"task": "train"}, "hardware": {"accelerator": "ascend-910b", "count": 8}},
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_range_never_excludes_its_mid(scenario: dict[str, Any]) -> None:
    found = api.estimate(scenario)
    ranges = [found.memory_gib.total, found.step_time_s]
    if found.latency_range_ms is not None:
        ranges += [found.latency_range_ms.batch, found.latency_range_ms.ttft, found.latency_range_ms.tpot]
    for one in ranges:
        if one is not None:
            assert one.low <= one.mid <= one.high


def test_nearest_runs_are_named_with_their_links() -> None:
    found = api.estimate(SCENARIOS[0])
    assert len(found.evidence) >= 3
    assert all(item.source_url.startswith("http") and item.measured > 0 for item in found.evidence)
    distances = [item.distance for item in found.evidence if item.unit.startswith("tokens")]
    assert distances == sorted(distances)
    assert found.narrows is not None


def test_a_measured_setup_is_its_own_nearest_run() -> None:
    row = next(row for row in published.rows("training_vision") if row.id == "tim-0001")
    assert row.scenario is not None
    found = api.estimate(row.scenario)
    assert found.evidence[0].distance == 0.0
    assert any(item.id == row.id for item in found.evidence)


def test_a_run_that_nothing_is_like_has_a_wider_range_and_says_so() -> None:
    def width(estimate: Estimate) -> float:
        assert estimate.step_time_s is not None
        return estimate.step_time_s.high / estimate.step_time_s.low

    near = api.estimate({**SCENARIOS[2], "setup": {"runtime": "timm"}})
    far = api.estimate({**SCENARIOS[2], "hardware": {"accelerator": "mi355x"}, "setup": {"runtime": "keras"}})
    assert width(far) >= width(near)
    assert far.narrows is not None and far.narrows.id == "estimate.narrow_any"


def test_the_index_names_no_run_of_another_task() -> None:
    known = neighbours.shipped()
    wanted = neighbours.Features(
        task="train", model_class="no such class", generation="", accelerator="", runtime="", numbers="", method="",
        parameters=1.0, length=1.0, batch=1.0, devices=1.0,
    )  # fmt: skip
    assert known.nearest(wanted, ["step_time_s"]) == ()


@settings(max_examples=15)
@given(length=st.integers(64, 8192), more=st.integers(1, 8192))
def test_a_longer_prompt_never_takes_less_time_or_memory(length: int, more: int) -> None:
    def served(tokens: int) -> Estimate:
        return api.estimate(
            {
                "model": "llama-3.1-8b",
                "workload": {"task": "infer", "input_len": tokens, "output_len": 64, "concurrency": 4},
                "hardware": {"accelerator": "h100-sxm", "count": 1},
            }
        )

    short, long = served(length), served(length + more)
    assert long.memory_gib.total.mid >= short.memory_gib.total.mid
    assert (long.latency_ms.ttft or 0) >= (short.latency_ms.ttft or 0)
