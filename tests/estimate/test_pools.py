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


def milliseconds(
    count: int, concurrency: int = 64, input_len: int = 1024, **setup: Any
) -> tuple[float, float]:
    scenario = served(count, **setup)
    scenario["workload"] |= {"concurrency": concurrency, "input_len": input_len, "output_len": 512}
    latency = api.estimate(scenario).latency_ms
    assert latency.ttft is not None and latency.tpot is not None
    return latency.ttft, latency.tpot


def test_more_workers_for_prompts_shorten_the_wait() -> None:
    decode = {"workers": 1, "tp": 8, "ep": 8}
    one, two = (
        milliseconds(
            8 * workers + 8, 512, 8192, prefill={"workers": workers, "tp": 8, "ep": 8}, decode=decode
        )[0]
        for workers in (1, 2)
    )
    assert two < 0.7 * one


def test_a_pool_for_prompts_keeps_them_out_of_the_time_of_a_token() -> None:
    pool = {"workers": 1, "tp": 8, "ep": 8}
    assert milliseconds(16, 64, 8192, prefill=pool, decode=pool)[1] < milliseconds(8, 64, 8192, tp=8, ep=8)[1]


def test_pools_that_wait_for_prompts_generate_fewer_at_once() -> None:
    decode = {"workers": 1, "tp": 1, "attention_dp": 8, "ep": 8}
    few, many = (
        milliseconds(
            8 * workers + 8, 2048, 8192, prefill={"workers": workers, "tp": 8, "ep": 8}, decode=decode
        )[1]
        for workers in (1, 16)
    )
    assert few < many


def test_requests_beyond_the_cache_wait() -> None:
    few, many = (milliseconds(8, users, 8192, tp=8, ep=8)[0] for users in (32, 2048))
    assert many > 20 * few


def test_attention_groups_share_a_services_sequences() -> None:
    apart, together = (
        milliseconds(8, 256, tp=1, attention_dp=8, ep=8)[1],
        milliseconds(8, 32, tp=1, attention_dp=1, dp=8)[1],
    )
    assert apart < together


def test_drafts_shorten_the_time_of_a_token() -> None:
    plain, drafted = (
        milliseconds(8, tp=8, ep=8, **more)[1] for more in (dict[str, Any](), {"draft_tokens": 1})
    )
    assert 0.55 * plain < drafted < 0.95 * plain
