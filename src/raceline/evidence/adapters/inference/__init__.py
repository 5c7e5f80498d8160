"""Published inference measurements (``inference.csv``), one measured value a record.

What the source leaves out is filled from ``data/inference_words.yaml`` and by the rules here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raceline.catalog import constraints, load
from raceline.evidence import exclusions
from raceline.evidence.adapters.inference import measured, saturation
from raceline.evidence.adapters.inference.reading import WHOLE_VOLUMES, Reading, Unscored, plain_copy
from raceline.evidence.adapters.inference.words import Format, runtime_of, says
from raceline.evidence.rows import Row
from raceline.models import count

COLUMNS = frozenset({"model", "accelerator", "precision", "metric", "value", "unit", "runtime", "batch"})
BITS = {"fp8": 8.0, "int8": 8.0, "nvfp4": 4.5, "fp32": 32.0}
FOUR_BITS = 4.5
SEVEN_SLICES = {40.0: "1g.5gb", 80.0: "1g.10gb"}


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row."""
    known: dict[str, Any] = {
        "id": record.get("id", ""), "table": "inference", "source": record.get("source", ""),
        "source_url": record.get("source_url", ""), "year": _year(record.get("year", "")),
        "model": record["model"], "accelerator": record["accelerator"], "note": record.get("note", ""),
        "framework": runtime_of(record.get("runtime", ""), record.get("framework", "")),
    }  # fmt: skip
    try:
        if rule := exclusions.named(known["id"]) or _rule(record):
            raise Unscored(rule)
        reading = Reading(record)
        scenario = _scenario(reading)
        found = measured.measured(reading, scenario)
    except Unscored as error:
        return Row(**known, unscored=error.rule)
    return Row(**known, scenario={"id": known["id"], **scenario}, measured=(found,),
               assumed=tuple(reading.assumed))  # fmt: skip


def _year(text: str) -> int | None:
    return int(text) if text.isdigit() else None


def _rule(record: Mapping[str, str]) -> str | None:
    """Why the record says too little, whatever its model and device are."""
    note = record.get("note", "")
    if not record["value"] and record.get("fits") != "no":
        return "no_value"
    if says(note, "speculates"):
        return "speculative_decoding"
    if says(note, "reuses_prompts"):
        return "prefix_cache"
    if says(note, "unit_unclear") and "tokens" in record["metric"]:
        return "unit_unclear"
    is_whole = (record["source"], record["model"]) == WHOLE_VOLUMES
    if "mlperf" in record["source"] and "3d-unet" in record["model"] and not is_whole:
        return "windows_unknown"
    if (
        "1g" not in record.get("mig_profile", "")
        and says(note, "shares_device")
        and record["concurrency"] != "1"
    ):
        return "device_shared"
    return None


def _scenario(reading: Reading) -> dict[str, Any]:
    formats = reading.formats()
    if formats[:2] == (None, None) and not _has_room(reading):
        formats = (reading.native("bf16"), "fp8", formats[2])
        reading.assume("weight_precision", "fp8")
    formats = (*formats[:2], formats[2] or _cache_format(reading, formats))
    layout = _layout(reading, _bits(reading, formats))
    setup = {
        "runtime": _runtime(reading),
        "precision": formats[0],
        "weight_precision": formats[1],
        "kv_precision": formats[2],
        "compile": True if _is_compiled(reading) else None,
        "attention": "eager" if _keeps_scores(reading) else None,
        **layout,
    }
    build = _answers if reading.generates else _passes
    return {
        "model": reading.word.model,
        "workload": plain_copy({"task": "infer", **build(reading, formats, layout)}),
        "hardware": plain_copy(_hardware(reading)),
        "setup": plain_copy(setup),
    }


def _cache_format(reading: Reading, formats: Format) -> str | None:
    """The cache's format by the engine's habit: 16 bits in llama.cpp, FP8 beside FP8 and FP4 weights in
    TensorRT-LLM (https://nvidia.github.io/TensorRT-LLM/performance/perf-overview.html)."""
    if reading.runtime == "llama.cpp":
        return "fp16"
    if not reading.runtime.startswith("tensorrt") or formats[1] not in ("fp8", "nvfp4"):
        return None
    reading.assume("kv_precision", "fp8")
    return "fp8"


def _has_room(reading: Reading) -> bool:
    """Whether the model's own weights fit on all devices of the run; where not, a checkpoint in FP8 ran."""
    stored = _bits(reading, (None, None, None))
    memory = (reading.accelerator.memory_gib or 0.0) * 2**30 * reading.count
    return not reading.generates or count.parameters(reading.model) * stored / 8.0 < memory


def _bits(reading: Reading, formats: Format) -> float:
    stored = formats[1] or reading.model.weight_format or formats[0] or "bf16"
    return BITS.get(stored, FOUR_BITS if "4" in stored else 16.0)


def _runtime(reading: Reading) -> str | None:
    """The runtime; with its year behind it where today's release no longer supports the device."""
    row = load.runtimes().get(reading.runtime)
    if row is None or not constraints.check_runtime(reading.accelerator, row, None, "infer"):
        return reading.runtime or None
    return f"{reading.runtime} {reading.record.get('year') or 'before'}"


def _is_compiled(reading: Reading) -> bool:
    return any(text in reading.framework for text in ("torch.compile", "stable-fast"))


def _keeps_scores(reading: Reading) -> bool:
    """PyTorch and TensorFlow before fused attention (PyTorch 2.0, 2023) and without a kernel of their own."""
    year = reading.record.get("year", "")
    return reading.runtime in ("pytorch", "tensorflow", "mxnet") and bool(year) and year < "2023"


def _hardware(reading: Reading) -> dict[str, Any]:
    profile = reading.record.get("mig_profile") or None
    if profile and "seven" in profile:
        profile = SEVEN_SLICES.get(reading.accelerator.memory_gib or 0.0, "1g.10gb")
    return {
        "accelerator": reading.device, "count": reading.count, "mig_profile": profile, "cores": reading.cores,
    }  # fmt: skip


def _layout(reading: Reading, stored: float) -> dict[str, Any]:
    """The cut over devices; `stored`: bits of a weight."""
    if pools := reading.pools():
        return pools
    tp, pp = reading.number("tp") or _least_cut(reading, stored), reading.number("pp") or 1
    if reading.runtime == "neuron":
        tp = max(1, tp // reading.usual.workers)
        if tp < reading.count and tp > 1:
            reading.count = tp
    elif tp > reading.count:
        reading.assume("tp", reading.count)
        tp = reading.count
    if reading.count > 1 and tp == 1 and pp == 1 and _splits_layers(reading):
        pp = reading.count
        reading.assume("pp", pp)
    if reading.count % (tp * pp):
        raise Unscored("inconsistent")
    is_spread = tp * pp > 1 or reading.count > 1
    return {"tp": tp, "pp": pp, "dp": reading.count // (tp * pp)} if is_spread else {}


def _least_cut(reading: Reading, stored: float) -> int:
    """Unstated tensor parallelism: the least that holds the weights of a language model."""
    if reading.count == 1 or not reading.generates or _splits_layers(reading):
        return 1
    tp = saturation.least_cut(reading.model, reading.accelerator, reading.count, stored)
    reading.assume("tp", tp)
    return tp


def _splits_layers(reading: Reading) -> bool:
    return reading.runtime in ("llama.cpp", "exllamav2") and reading.generates


def _passes(reading: Reading, formats: Format, layout: dict[str, Any]) -> dict[str, Any]:
    """Models that answer in one pass: a batch, each worker of a chip with its own."""
    batch = reading.batch()
    if reading.usual.workers > 1 and reading.model.objective != "denoise":
        reading.assume("workers_per_chip", reading.usual.workers)
        batch *= reading.usual.workers
    part: dict[str, Any] = {"seq_len": reading.seq_len(), "image_size": reading.image_size()}
    if reading.model.objective == "denoise" and ":" not in reading.word.model:
        part["components"] = ["unet", "transformer"]
        batch *= _halves(reading)
    elif ":" in reading.word.model and "unet" in reading.word.model:
        batch *= reading.usual.guidance
    return {**part, "concurrency": batch}


def _halves(reading: Reading) -> int:
    """Guidance computes an image twice: with the prompt and without. Distilled models don't."""
    if "flux" in reading.word.model:
        return 1
    if "cogvideo" in reading.word.model:
        return 2
    if reading.usual.guidance > 1:
        reading.assume("guidance", reading.usual.guidance)
    return reading.usual.guidance


def _answers(reading: Reading, formats: Format, layout: dict[str, Any]) -> dict[str, Any]:
    if reading.is_forward_only:
        return {"input_len": reading.number("seq_len"), "output_len": 1, "concurrency": reading.batch()}
    input_len, output_len = reading.lengths()
    replicas = layout.get("dp", 1)
    stated = reading.number("concurrency") or reading.number("batch")
    if reading.prefills_one_by_one:
        concurrency = 1
    elif stated is not None:
        concurrency = max(1, -(-stated // replicas))
    elif reading.is_saturated:
        concurrency = _saturated(reading, formats, layout, input_len + output_len)
        reading.assume("concurrency", concurrency)
    else:
        raise Unscored("batch_unknown")
    return plain_copy({
        "cached_len": reading.depth or None if reading.prefills else None,
        "input_len": input_len, "output_len": output_len, "concurrency": concurrency,
    })  # fmt: skip


def _saturated(reading: Reading, formats: Format, layout: dict[str, Any], length: int) -> int:
    cache = 1.0 if formats[2] == "fp8" else 2.0
    devices = layout.get("tp", 1) * layout.get("pp", 1)
    most = reading.most_sequences
    return saturation.sequences(
        reading.model, reading.accelerator, devices, _bits(reading, formats), cache, length, most
    )
