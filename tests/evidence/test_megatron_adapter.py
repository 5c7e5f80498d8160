"""Megatron-LM's functional tests, as rows."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from raceline import api
from raceline.estimate.result import Estimate
from raceline.evidence.adapters import megatron_ci
from raceline.evidence.exclusions import exclusions
from raceline.evidence.rows import Measured
from raceline.models.read import read_model

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "evidence" / "megatron_ci.csv"
ARGUMENTS = {
    "bf16": True, "global-batch-size": 32, "hidden-size": 512, "micro-batch-size": 4, "num-attention-heads": 8,
    "num-layers": 12, "pipeline-model-parallel-size": 2, "seq-length": 1024, "tensor-model-parallel-size": 2,
    "transformer-impl": "transformer_engine",
}  # fmt: skip


def record(
    family: str = "gpt", case: str = "gpt3_mcore", count: str = "8", runner: str = "a100_2nd", **args: Any
) -> dict[str, str]:
    return {
        "id": "one", "family": family, "case": case, "accelerator": runner, "environment": "dev", "count": count,
        "step_time_s": "0.2", "peak_allocated_gib": "1.5",
        "args": json.dumps(ARGUMENTS | {name.replace("_", "-"): value for name, value in args.items()}),
    }  # fmt: skip


def test_the_launch_is_the_setup() -> None:
    row = megatron_ci.adapt(record(use_distributed_optimizer=True, attention_backend="unfused"))
    assert row.scenario is not None and row.accelerator == "a100-sxm-80gb"
    setup = row.scenario["setup"]
    assert (setup["dp"], setup["tp"], setup["pp"], setup["zero_stage"]) == (2, 2, 2, 1)
    assert setup["attention"] == "eager" and row.doubtful is None
    assert row.measured == (Measured("memory_last_allocated_gib", 1.5), Measured("step_time_s", 0.2))
    assert row.note == "last_pipeline_rank"


def test_the_model_is_its_arguments_with_the_tokenizer_of_the_recipe() -> None:
    row = megatron_ci.adapt(record())
    assert row.scenario is not None and "vocab-size=50257" in row.assumed
    assert read_model(row.scenario["model"]).vocabulary == 50432


def test_rows_with_the_same_model_have_the_same_reference() -> None:
    first, second = (megatron_ci.adapt(record(micro_batch_size=size)) for size in (2, 4))
    assert first.scenario and second.scenario and first.scenario["model"] == second.scenario["model"]


def test_chunks_of_layers_are_virtual_stages() -> None:
    row = megatron_ci.adapt(record(num_layers_per_virtual_pipeline_stage=1))
    assert row.scenario is not None and row.scenario["setup"]["virtual_stages"] == 6


def test_a_count_below_one_copy_of_the_model_counts_nodes() -> None:
    row = megatron_ci.adapt(record(count="1"))
    assert row.scenario is not None and row.scenario["hardware"]["count"] == 8 and row.doubtful == "count"


def test_a_release_without_its_count_is_not_scored() -> None:
    assert megatron_ci.adapt(record(case="bert_release_sm", count="")).unscored == "count_not_stated"


def test_a_vision_tower_is_not_described() -> None:
    assert megatron_ci.adapt(record("mimo")).unscored == "model_not_described"


def test_nine_of_ten_rows_are_scored_and_estimated() -> None:
    with TABLE.open(encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert records[0].keys() >= megatron_ci.COLUMNS
    rows = [megatron_ci.adapt(item) for item in records]
    assert sum(row.unscored is not None for row in rows) <= 0.1 * len(rows)
    assert {row.unscored for row in rows} - {None} <= exclusions().keys()
    scenarios = [row.scenario for row in rows[::4] if row.scenario is not None]
    failed = [str(found) for found in api.estimate_all(scenarios) if not isinstance(found, Estimate)]
    assert failed == []
