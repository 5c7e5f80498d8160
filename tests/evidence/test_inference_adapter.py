"""Published inference runs as scenarios: hand-checked rows of each kind, and that all parse and run."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from raceline import api
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import parse
from raceline.evidence.adapters import inference, inference_vision
from raceline.evidence.exclusions import exclusions
from raceline.evidence.rows import Measured, Row

TABLES = Path(__file__).parents[2] / "evidence"
ADAPTERS = {"inference": inference, "inference_vision": inference_vision}
# No facts: shapes that aren't bundled, and devices whose rates no data sheet states.
NO_FACTS = {"model_unknown", "device_unknown"}
STRIDE = 41


def _records(table: str) -> list[dict[str, str]]:
    return list(csv.DictReader((TABLES / f"{table}.csv").read_text(encoding="utf-8").splitlines()))


@pytest.fixture(scope="module")
def rows() -> dict[str, list[Row]]:
    return {name: [adapter.adapt(record) for record in _records(name)] for name, adapter in ADAPTERS.items()}


def _adapt(**cells: str) -> Row:
    blank = dict.fromkeys(_records("inference")[0], "")
    return inference.adapt({**blank, "count": "1", "fits": "yes", **cells})


@pytest.mark.parametrize("table", ADAPTERS)
def test_the_columns_identify_the_table(table: str) -> None:
    assert set(_records(table)[0]) >= ADAPTERS[table].COLUMNS


@pytest.mark.parametrize("table", ADAPTERS)
def test_every_row_is_a_scenario_or_names_a_rule(rows: dict[str, list[Row]], table: str) -> None:
    for row in rows[table]:
        assert (row.scenario is None) == (row.unscored in exclusions())
        if row.scenario is not None:
            assert parse(row.scenario).id == row.id
            assert all(item.value >= 0 for item in row.measured)


def test_missing_settings_leave_few_rows_unscored(rows: dict[str, list[Row]]) -> None:
    found = Counter(row.unscored for row in rows["inference"])
    total = len(rows["inference"])
    assert sum(count for rule, count in found.items() if rule and rule not in NO_FACTS) / total <= 0.065
    assert sum(count for rule, count in found.items() if rule) / total <= 0.19


def test_a_sample_of_the_rows_is_estimated(rows: dict[str, list[Row]]) -> None:
    scored = [row for table in rows.values() for row in table if row.scenario][::STRIDE]
    scenarios = [row.scenario for row in scored if row.scenario]
    found = estimate_many(scenarios, api.load_catalogue(), cache(api.read_model))
    assert [item for item in found if isinstance(item, Exception)] == []


def test_rules_never_look_at_the_value() -> None:
    record = {name: cell for name, cell in _records("inference")[0].items() if name != "value"}
    first, second = (inference.adapt({**record, "value": value}) for value in ("1", "1000000"))
    assert (first.scenario, first.assumed, first.unscored) == (
        second.scenario,
        second.assumed,
        second.unscored,
    )


def test_llama_bench_decoding_is_time_per_token_from_an_empty_cache() -> None:
    row = _adapt(
        model="llama-3-8b", accelerator="rtx-4090", runtime="llama.cpp", precision="q4_k_m", batch="1",
        concurrency="1", input_len="0", output_len="128", metric="decode_tokens_per_s", value="125", unit="tokens/s",
    )  # fmt: skip
    assert row.measured == (Measured("tpot_ms", 8.0),)
    assert row.scenario is not None
    assert row.scenario["workload"] == {"task": "infer", "input_len": 1, "output_len": 128, "concurrency": 1}
    assert row.scenario["setup"] == {
        "runtime": "llama.cpp", "weight_precision": "q4_k_m", "kv_precision": "fp16",
    }  # fmt: skip


def test_llama_bench_splits_layers_over_several_gpus() -> None:
    row = _adapt(
        model="llama-3-70b", accelerator="rtx-4090", count="4", runtime="llama.cpp", precision="q4_k_m", batch="1",
        input_len="1024", output_len="0", metric="prefill_tokens_per_s", value="512", unit="tokens/s",
    )  # fmt: skip
    assert row.measured == (Measured("ttft_ms", 2000.0),)
    assert row.scenario is not None
    assert (row.scenario["setup"]["pp"], row.scenario["setup"]["dp"]) == (4, 1)
    assert "pp=4" in row.assumed


def test_rates_of_several_devices_are_divided_unless_the_unit_says_so() -> None:
    cells = {
        "model": "llama-2-70b", "accelerator": "h100-sxm", "count": "4", "tp": "4", "pp": "1", "batch": "64",
        "runtime": "tensorrt-llm", "precision": "fp8", "input_len": "128", "output_len": "128", "value": "8000",
        "metric": "throughput_tokens_per_s",
    }  # fmt: skip
    assert _adapt(**cells, unit="tokens/s").measured == (Measured("tokens_per_s_per_device", 2000.0),)
    assert _adapt(**cells, unit="tokens/s per GPU").measured == (Measured("tokens_per_s_per_device", 8000.0),)


def test_a_rate_that_counts_the_prompt_is_the_time_of_an_answer() -> None:
    row = _adapt(
        model="qwen3-8b", accelerator="h20-96gb", runtime="sglang", precision="bf16", batch="1", concurrency="1",
        input_len="6144", output_len="2048", metric="throughput_tokens_per_s", value="8192", unit="tokens/s",
        note="(prompt + generated tokens) / time, batch 1",
    )  # fmt: skip
    assert row.measured == (Measured("answer_ms", 1000.0),)


def test_the_sum_of_seven_slices_is_of_one_slice() -> None:
    row = _adapt(
        model="bert-base-uncased", accelerator="a100-sxm-80gb", mig_profile="1g (seven instances)", seq_len="384",
        runtime="fastertransformer-padding-removed", precision="fp16", batch="32", unit="samples/s", value="700",
        metric="throughput_samples_per_s",
        note="EFF-FT: padding removed, mean length is half of seq_len; sum over the seven MIG instances",
    )  # fmt: skip
    assert row.measured == (Measured("samples_per_s_per_device", 100.0),)
    assert row.scenario is not None
    assert row.scenario["hardware"]["mig_profile"] == "1g.10gb"
    assert row.scenario["workload"]["seq_len"] == 192


def test_milliseconds_an_image_are_of_the_batch() -> None:
    row = _adapt(
        model="yolov5s", accelerator="v100-sxm2-16gb", framework="pytorch", precision="fp16", batch="32",
        image_size="640", metric="latency_ms", value="2", unit="ms per image", year="2022",
    )  # fmt: skip
    assert row.measured == (Measured("batch_ms", 64.0),)


def test_a_denoised_image_is_scored_by_its_passes() -> None:
    row = _adapt(
        source="mlperf-inference-v4.1", model="stable-diffusion-xl-base-1.0", accelerator="h100-sxm", count="8",
        runtime="tensorrt", precision="fp8", image_size="1024", metric="throughput_samples_per_s", value="16",
        unit="samples/s",
    )  # fmt: skip
    # 16 images a second on 8 devices, 20 steps of two passes each
    assert row.measured == (Measured("samples_per_s_per_device", 80.0),)
    assert row.scenario is not None
    assert row.scenario["workload"]["components"] == ["unet", "transformer"]
    assert {"steps=20", "batch=8"} <= set(row.assumed)


def test_workers_of_a_chip_run_their_batches_together() -> None:
    row = _adapt(
        source="aws-neuron-inf2", model="bert-base-cased", accelerator="aws-inferentia2", runtime="neuron 2.18.0",
        precision="fp32/matmult-bf16", batch="4", seq_len="128", metric="latency_ms", value="3", unit="ms",
    )  # fmt: skip
    assert row.measured == (Measured("batch_ms", 3.0),)
    assert row.scenario is not None
    assert row.scenario["workload"]["concurrency"] == 8
    assert row.scenario["setup"]["weight_precision"] == "fp32"


def test_a_run_out_of_memory_is_a_fact_on_fitting() -> None:
    row = _adapt(
        model="llama-3-70b", accelerator="rtx-4090", runtime="llama.cpp", precision="f16", batch="1", input_len="0",
        output_len="128", metric="decode_tokens_per_s", unit="tokens/s", fits="no",
    )  # fmt: skip
    assert row.measured == (Measured("fits", 0.0),)


def test_pools_of_a_disaggregated_service_are_stated() -> None:
    row = _adapt(
        model="gpt-oss-120b", accelerator="h200-sxm", count="8", tp="2", runtime="sglang", concurrency="128",
        input_len="2048", output_len="128", metric="tpot_ms", value="10", unit="ms",
        note="1P3D, prefill and decode workers of 2 GPUs each; 500 random requests, mean output 67 tokens",
    )  # fmt: skip
    assert row.scenario is not None
    assert row.scenario["setup"]["decode"] == {"workers": 3, "tp": 2}
    assert row.scenario["workload"]["output_len"] == 67


def test_a_prompt_on_a_filled_cache_states_what_is_cached() -> None:
    row = _adapt(
        model="qwen3-8b", accelerator="rtx-4090", runtime="llama.cpp", precision="q4_k_m", batch="1", concurrency="1",
        input_len="2048", output_len="0", metric="prefill_tokens_per_s", value="1024", unit="tokens/s",
        note="llama-bench pp 2048 at depth 16384 (tokens already in the context)",
    )  # fmt: skip
    assert row.measured == (Measured("ttft_ms", 2000.0),)
    assert row.scenario is not None
    lengths = {name: row.scenario["workload"][name] for name in ("cached_len", "input_len")}
    assert lengths == {"cached_len": 16384, "input_len": 2048}


SERVED = {
    "source": "nvidia-dle-triton-tft", "model": "tft-traffic", "accelerator": "a30", "precision": "fp16", "batch": "16",
    "concurrency": "8", "runtime": "triton", "framework": "Triton, NVIDIA TensorRT",
    "note": "line 963; perf_analyzer, online; Online: NVIDIA A30; 2 instance(s); GPU: NVIDIA A30",
}  # fmt: skip


@pytest.mark.parametrize(
    ("metric", "value"), {"throughput_samples_per_s": "16000", "latency_ms": "8"}.items()
)
def test_clients_that_wait_for_answers_state_a_rate_of_merged_requests(metric: str, value: str) -> None:
    """8 clients x 16 samples on two instances; 128 samples that wait for 8 ms are 16,000 a second."""
    row = _adapt(**SERVED, metric=metric, value=value)
    assert row.measured == (Measured("samples_per_s_per_device", 16000.0),)
    assert row.scenario is not None
    assert row.scenario["workload"]["concurrency"] == 64


def test_no_pass_has_more_samples_than_the_server_merges() -> None:
    row = _adapt(**{**SERVED, "concurrency": "256"}, metric="throughput_samples_per_s", value="16000")
    assert row.scenario is not None
    assert row.scenario["workload"]["concurrency"] == 1024


def test_the_slowest_of_merged_requests_are_not_scored() -> None:
    assert _adapt(**SERVED, metric="p99_latency_ms", value="8").unscored == "queueing"


def test_mlperf_read_whole_volumes_up_to_round_1_1() -> None:
    cells = {
        "model": "3d-unet-kits19", "accelerator": "a30", "runtime": "tensorrt", "precision": "int8", "batch": "1",
        "metric": "latency_ms", "value": "42", "unit": "ms",
    }  # fmt: skip
    row = _adapt(source="mlperf-inference-v1.1", **cells)
    assert row.scenario is not None
    assert row.scenario["model"] == "3d-unet-brats19"
    assert _adapt(source="mlperf-inference-v2.0", **cells).unscored == "windows_unknown"


UNSCORED: dict[str, Mapping[str, str]] = {
    "speculative_decoding": {"note": "options speculative-algorithm"},
    "prefix_cache": {"note": "options enable-prefix-caching"},
    "queueing": {"note": "1000 requests sent at once, so requests queue", "metric": "ttft_ms"},
    "model_unknown": {"model": "no-such-model-1b"},
    "batch_unknown": {"batch": ""},
    "no_value": {"value": ""},
}


@pytest.mark.parametrize("rule", UNSCORED)
def test_a_row_that_says_too_little_names_its_rule(rule: str) -> None:
    cells = {
        "model": "qwen3-8b", "accelerator": "h100-sxm", "runtime": "vllm", "precision": "bf16", "batch": "8",
        "input_len": "128", "output_len": "128", "metric": "tpot_ms", "value": "10", "unit": "ms",
    }  # fmt: skip
    assert _adapt(**{**cells, **UNSCORED[rule]}).unscored == rule


def test_an_image_model_of_timm_is_a_rate_on_one_device() -> None:
    record = next(item for item in _records("inference_vision") if item["model"] == "resnet50")
    row = inference_vision.adapt({**record, "framework": "pytorch 2.4.0 cu124 torch.compile"})
    assert row.scenario is not None
    assert row.scenario["setup"]["compile"] is True
    assert row.scenario["workload"]["concurrency"] == int(record["batch"])
    assert row.measured == (Measured("samples_per_s_per_device", float(record["infer_samples_per_s"])),)
