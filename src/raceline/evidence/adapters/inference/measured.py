"""The measured value of a record in the unit of a `Row`'s metric."""

from __future__ import annotations

from typing import Any

from raceline.evidence.adapters.inference.reading import Reading, Unscored
from raceline.evidence.adapters.inference.words import says
from raceline.evidence.rows import Measured, Metric

SLICES = 7
# A sample of MLPerf's DLRM is a user with 100 to 700 items, 270 on average:
# https://github.com/mlcommons/inference/tree/master/recommendation/dlrm_v2/pytorch
PAIRS_PER_SAMPLE = 270
# num_inference_steps of CogVideoXPipeline, https://huggingface.co/docs/diffusers/api/pipelines/cogvideox
DEFAULT_VIDEO_STEPS = 50


def measured(reading: Reading, scenario: dict[str, Any]) -> Measured:
    """The record's value. Rates are per device of the scenario, latencies of a batch or an answer."""
    if reading.record.get("fits") == "no":
        return Measured("fits", 0.0)
    value = float(reading.record["value"])
    if value <= 0:
        raise Unscored("no_value")
    workload = scenario["workload"]
    if reading.is_forward_only:
        return _segment(reading, value, workload)
    build = _answered if reading.generates else _passed
    return build(reading, value, workload)


def _segment(reading: Reading, value: float, workload: dict[str, Any]) -> Measured:
    if reading.record["metric"] == "throughput_tokens_per_s":
        value = workload["concurrency"] * workload["input_len"] / value * 1000.0
    return Measured("ttft_ms", value)


def _answered(reading: Reading, value: float, workload: dict[str, Any]) -> Measured:
    metric, unit = reading.record["metric"], reading.record["unit"]
    batch = reading.number("batch") or reading.number("concurrency") or 1
    both = workload["input_len"] + workload["output_len"]
    counts_prompt = says(reading.note, "counts_prompt")
    if metric in ("latency_ms", "p99_latency_ms"):
        return _answer(reading, value)
    if metric == "ttft_ms":
        return _first_token(reading, value)
    if metric == "tpot_ms" and "mlperf" in reading.source:
        raise Unscored("batch_unknown")
    if metric == "tpot_ms":
        return Measured("answer_ms", value * both) if counts_prompt else Measured("tpot_ms", value)
    if metric == "decode_tokens_per_s":
        return Measured("tpot_ms", batch * 1000.0 / value)
    if metric == "prefill_tokens_per_s":
        return Measured("ttft_ms", workload["input_len"] * 1000.0 / value)
    if metric not in ("throughput_samples_per_s", "throughput_tokens_per_s"):
        raise Unscored("metric_unknown")
    if metric == "throughput_samples_per_s":
        value *= workload["output_len"]
    elif counts_prompt:
        return Measured("answer_ms", batch * both * 1000.0 / value)
    return Measured("tokens_per_s_per_device", value / (1 if says(unit, "per_device") else _devices(reading)))


def _devices(reading: Reading) -> int:
    return reading.number("count") or 1


def _answer(reading: Reading, value: float) -> Measured:
    if reading.record["metric"] == "p99_latency_ms":
        reading.assume("p99", "mean")
    is_token = says(reading.note, "next_token")
    return Measured("tpot_ms" if is_token else "answer_ms", value)


def _first_token(reading: Reading, value: float) -> Measured:
    if reading.is_saturated:
        raise Unscored("queueing")
    return Measured("ttft_ms", value)


def _passed(reading: Reading, value: float, workload: dict[str, Any]) -> Measured:
    metric, unit = reading.record["metric"], reading.record["unit"]
    if reading.outstanding and metric == "latency_ms":
        # Little's law: clients that wait all the time are served at the rate of those outstanding over their wait
        return _rate("samples_per_s_per_device", reading.outstanding * 1000.0 / value, reading)
    is_rate = reading.outstanding and metric == "throughput_samples_per_s"
    if (reading.number("concurrency") or 1) > 1 and not is_rate:
        raise Unscored("queueing")
    steps = _steps(reading)
    if unit == "denoising steps/s":
        return Measured("batch_ms", 1000.0 / value)
    if metric == "throughput_samples_per_s":
        if says(reading.note, "sums_slices"):
            value /= SLICES
        if reading.model.objective == "rank" and "mlperf" in reading.source:
            value *= PAIRS_PER_SAMPLE
        return _rate("samples_per_s_per_device", value * steps * _halved(workload, reading), reading)
    if metric not in ("latency_ms", "p99_latency_ms"):
        raise Unscored("metric_unknown")
    if metric == "p99_latency_ms":
        reading.assume("p99", "mean")
    if says(unit, "per_image"):
        value *= workload["concurrency"]
    return Measured("batch_ms", value / steps)


def _halved(workload: dict[str, Any], reading: Reading) -> int:
    """Passes of the denoiser count guidance's second half as a sample."""
    is_guided = "components" in workload and reading.usual.guidance > 1
    return reading.usual.guidance if is_guided else 1


def _steps(reading: Reading) -> int:
    """Denoising steps in one figure: the estimate is of one pass of the denoiser."""
    if reading.model.objective != "denoise" or ":" in reading.word.model:
        return 1
    if reading.record["unit"] == "denoising steps/s":
        return 1
    steps = DEFAULT_VIDEO_STEPS if "cogvideo" in reading.word.model else reading.usual.steps
    if steps is None:
        raise Unscored("steps_unknown")
    reading.assume("steps", steps)
    return steps


def _rate(metric: Metric, value: float, reading: Reading) -> Measured:
    return Measured(metric, value / _devices(reading))
