"""Published reports of what fitted: the adapter's rules."""

from __future__ import annotations

from typing import Any

import pytest

from raceline.evidence.fit_cases import scenario_of
from raceline.present.errors import InputError


def report(**workload: Any) -> dict[str, Any]:
    base = {
        "kind": "train",
        "task": "lora",
        "model": "llama-2-7b",
        "framework": "transformers",
        "precision": "bf16",
    }
    return {
        "id": "one", "as_of": "2023-06", "source_url": "https://example.org", "workload": {**base, **workload},
        "hardware": {"gpu": "A100-40GB", "gpus": 2}, "outcome": {"fits": True},
    }  # fmt: skip


def test_full_sharding_is_stage_three() -> None:
    assert scenario_of(report(fsdp="full_shard")).scenario["setup"]["zero_stage"] == 3


def test_accumulation_multiplies_the_global_batch() -> None:
    setup = scenario_of(report(micro_batch=2, grad_accum=8, data_parallel="ddp")).scenario["setup"]
    assert setup["global_batch"] == 2 * 2 * 8


def test_what_is_not_stated_is_listed_as_assumed() -> None:
    assumed = scenario_of(report()).assumed
    assert "seq_len=512" in assumed and "micro_batch=1" in assumed and "attention=eager" in assumed


def test_attention_is_fused_in_reports_since_2024() -> None:
    later = {**report(), "as_of": "2024-05"}
    assert scenario_of(later).scenario["setup"]["attention"] == "flash"


def test_a_word_that_no_rule_knows_is_refused() -> None:
    with pytest.raises(InputError):
        scenario_of(report(optimizer="adamax-9000"))
