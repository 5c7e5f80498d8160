"""Served language models, as rows."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from raceline import api
from raceline.estimate.result import Estimate
from raceline.evidence.adapters import serving
from raceline.evidence.exclusions import exclusions
from raceline.evidence.rows import Measured
from raceline.models.count import parameters
from raceline.models.read import read_model

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "evidence" / "serving.csv"


def record(**cells: str) -> dict[str, str]:
    plain = {
        "id": "one", "engine": "trtllm", "engine_version": "1.1", "measured_on": "2025-11-02",
        "model": "deepseek-ai/DeepSeek-R1", "accelerator": "b200", "precision": "fp8", "mode": "agg",
        "input_len": "1024", "output_len": "512", "concurrency": "64", "batch": "64", "tp": "8", "pp": "1",
        "attention_dp": "1", "moe_tp": "8", "moe_ep": "1", "ttft_ms": "500", "tpot_ms": "20",
    }  # fmt: skip
    return plain | cells


def pools(**cells: str) -> dict[str, str]:
    plain = {
        "mode": "disagg", "tp": "", "pp": "", "batch": "", "moe_tp": "", "moe_ep": "", "attention_dp": "",
        "prefill_tp": "4", "prefill_pp": "1", "prefill_attention_dp": "1", "prefill_moe_tp": "1", "prefill_moe_ep": "4",
        "decode_tp": "8", "decode_pp": "1", "decode_attention_dp": "1", "decode_moe_tp": "2", "decode_moe_ep": "4",
    }  # fmt: skip
    return record(**(plain | cells))


def setup_of(cells: dict[str, str]) -> dict[str, object]:
    row = serving.adapt(cells)
    assert row.scenario is not None
    return {**row.scenario["setup"], "count": row.scenario["hardware"]["count"]}


def test_a_row_is_a_scenario_with_two_latencies() -> None:
    row = serving.adapt(record())
    assert row.measured == (Measured("ttft_ms", 500.0), Measured("tpot_ms", 20.0))
    assert row.scenario is not None and row.framework == "tensorrt-llm"
    assert row.scenario["workload"]["concurrency"] == 64
    assert setup_of(record())["tp"] == 8 and setup_of(record())["count"] == 8


@pytest.mark.parametrize(
    "cells",
    [
        {"id": "r1_tp8_ep8_924", "tp": "64", "moe_tp": "8", "moe_ep": "8"},
        {"id": "r1_tp8_0_ep8_0_7", "tp": "8", "moe_tp": "1", "moe_ep": "8"},
        {"id": "r1_cfg191", "tp": "64", "moe_tp": "8", "moe_ep": "8"},
        {"id": "r1_cfg9", "engine": "vllm", "tp": "8", "attention_dp": "8", "moe_tp": "1", "moe_ep": "64"},
    ],
)
def test_both_parallelisms_of_eight_devices_are_read_from_every_table(cells: dict[str, str]) -> None:
    setup = setup_of(record(**cells))
    assert (setup["count"], setup["tp"], setup["ep"], setup["expert_tp"]) == (8, 8, 8, 1)


def test_attention_data_parallelism_divides_the_batch() -> None:
    cells = {
        "tp": "1",
        "attention_dp": "64",
        "moe_tp": "8",
        "moe_ep": "8",
        "batch": "1",
        "id": "r1_tp8_ep8_1",
    }
    setup = setup_of(record(**cells))
    assert (setup["count"], setup["tp"], setup["attention_dp"], setup["ep"]) == (8, 1, 8, 8)


def test_a_blank_column_is_read_from_the_batch() -> None:
    setup = setup_of(record(tp="8", attention_dp="", moe_tp="1", moe_ep="8", batch="8", id="r1_tp8_epnone_1"))
    assert (setup["count"], setup["tp"], setup["attention_dp"]) == (8, 1, 8)


def test_experts_over_more_devices_than_tp_tell_of_attention_data_parallelism() -> None:
    cells = {
        "engine": "vllm",
        "tp": "2",
        "attention_dp": "",
        "moe_tp": "4",
        "moe_ep": "1",
        "id": "q_tp2_epnone_1",
    }
    setup = setup_of(record(**cells))
    assert (setup["count"], setup["tp"], setup["attention_dp"], setup["expert_tp"]) == (4, 2, 2, 4)


def test_pools_use_the_devices_of_all_workers() -> None:
    setup = setup_of(pools(prefill_workers="1", prefill_batch="1", decode_workers="4", decode_batch="16",
                           decode_moe_tp="1", decode_moe_ep="8"))  # fmt: skip
    assert setup["count"] == 4 + 4 * 8
    assert setup["decode"] == {
        "workers": 4, "batch": 16, "tp": 8, "pp": 1, "attention_dp": 1, "expert_tp": 1, "ep": 8,
    }  # fmt: skip


def test_pools_without_workers_are_scored_and_doubtful() -> None:
    row = serving.adapt(pools(concurrency="64"))
    assert row.doubtful == "workers" and "decode.workers=4" in row.assumed and row.unscored is None


def test_busy_pools_without_workers_attend_by_data_parallelism() -> None:
    row = serving.adapt(pools(concurrency="1024"))
    assert row.scenario is not None
    assert row.scenario["setup"]["decode"]["attention_dp"] == 8


def test_pools_are_taken_from_another_row_of_the_same_run() -> None:
    full = pools(prefill_workers="2", decode_workers="3", decode_batch="21", id="full")
    again = pools(ttft_ms="500.01", id="again")
    other = pools(ttft_ms="501", id="other")
    found = [serving.adapt(cells) for cells in serving.completed([full, again, other])]
    assert [row.doubtful for row in found] == [None, None, "workers"]
    assert found[1].scenario and found[1].scenario["setup"]["decode"]["workers"] == 3


def test_late_runs_that_no_table_prints_as_plain_are_taken_to_speculate() -> None:
    late = {"measured_on": "2026-02-01", "model": "deepseek-ai/DeepSeek-R1"}
    plain, copy = record(**late), record(**(late | {"model": "deepseek-ai/DeepSeek-V3"}))
    fast = record(**late, tpot_ms="9")
    found = [serving.adapt(cells) for cells in serving.completed([plain, copy, fast])]
    assert [bool(row.scenario and "draft_tokens" in row.scenario["setup"]) for row in found] == [
        False,
        False,
        True,
    ]


def test_drawn_lengths_are_their_mean() -> None:
    row = serving.adapt(record(output_len="1024"))
    assert row.scenario is not None
    assert (row.scenario["workload"]["input_len"], row.scenario["workload"]["output_len"]) == (922, 922)


@pytest.mark.parametrize(
    ("cells", "rule"),
    [
        (record(tp="36", moe_tp="36", id="r1_tp36_ep1_2"), "layout_not_stated"),
        (pools(prefill_tp="28", decode_tp="28", prefill_moe_ep="1"), "layout_not_stated"),
        (pools(prefill_tp="1", decode_tp="1", prefill_moe_ep="1"), "layout_not_stated"),
        (record(concurrency=""), "no_concurrency"),
        (record(ttft_ms="", tpot_ms=""), "no_value"),
    ],
)
def test_rules_name_what_is_missing(cells: dict[str, str], rule: str) -> None:
    assert serving.adapt(cells).unscored == rule and rule in exclusions()


@pytest.mark.parametrize(
    ("model", "family", "billions"),
    [
        ("deepseek-ai/DeepSeek-R1", "mla", 671.0), ("nvidia/DeepSeek-V3.1-NVFP4", "mla", 671.0),
        ("moonshotai/Kimi-K2.5", "mla", 1026.4), ("MiniMaxAI/MiniMax-M2.5", "moe", 228.7),
        ("Qwen/Qwen3.5-397B-A17B", "hybrid", 396.3), ("Qwen/Qwen3-235B-A22B-FP8", "moe", 235.1),
        ("nvidia/Qwen3-32B-NVFP4", "decoder", 32.8), ("nvidia/Llama-3.1-8B-Instruct-FP8", "decoder", 8.0),
    ],
)  # fmt: skip
def test_the_served_models_are_bundled(model: str, family: str, billions: float) -> None:
    found = read_model(model)
    assert found.family == family and parameters(found) / 1e9 == pytest.approx(billions, abs=0.06)


def test_nine_of_ten_rows_are_scored_and_estimated() -> None:
    with TABLE.open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert records[0].keys() >= serving.COLUMNS
    rows = [serving.adapt(item) for item in records]
    assert sum(row.unscored is not None for row in rows) <= 0.1 * len(rows)
    scenarios = [row.scenario for row in rows[::23] if row.scenario is not None]
    failed = [str(found) for found in api.estimate_all(scenarios) if not isinstance(found, Estimate)]
    assert failed == []
