"""Scenarios of engines with attention data parallelism and of disaggregated services."""

from __future__ import annotations

from typing import Any

import pytest

from raceline import api
from raceline.estimate.scenario import parse
from raceline.present.errors import InputError

POOLS = {
    "prefill": {"tp": 1, "attention_dp": 4, "ep": 4},
    "decode": {"workers": 2, "tp": 8, "ep": 8, "batch": 8},
}


def served(count: int, **setup: Any) -> dict[str, Any]:
    return {
        "model": "deepseek-ai/DeepSeek-R1",
        "workload": {"task": "infer", "input_len": 1024, "output_len": 128, "concurrency": 16},
        "hardware": {"accelerator": "h200-sxm", "count": count},
        "setup": {"runtime": "tensorrt-llm", "precision": "fp8", **setup},
    }


def test_a_pool_counts_the_devices_of_its_workers() -> None:
    setup = parse(served(20, **POOLS)).setup
    assert setup.prefill and setup.decode
    assert (setup.prefill.devices, setup.decode.devices) == (4, 16)


def test_a_disaggregated_service_is_estimated() -> None:
    assert api.estimate(served(20, **POOLS)).latency_ms.tpot is not None


def test_attention_data_parallelism_is_estimated() -> None:
    assert api.estimate(served(8, tp=1, attention_dp=8, ep=8)).latency_ms.tpot is not None


def test_pools_that_use_other_devices_than_there_are_are_refused() -> None:
    with pytest.raises(InputError) as caught:
        api.estimate(served(24, **POOLS))
    assert caught.value.message.id == "estimate.pools_mismatch"


def test_an_unknown_field_of_a_pool_is_named() -> None:
    with pytest.raises(InputError) as caught:
        parse(served(20, decode={"worker": 2}))
    assert caught.value.message.params["field"] == "setup.decode.worker"
    assert caught.value.message.params["nearest"] == "workers"
