"""Published training runs: one record of ``training.csv`` as a row.

Which words a source uses and what it leaves out stands in ``data/training_recipes.yaml``; this module
turns the cells that result into a scenario and into what was measured.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from raceline.evidence import exclusions, rates
from raceline.evidence.recipes import read
from raceline.evidence.rows import Measured, Metric, Row
from raceline.models import names
from raceline.models.readers import clip

COLUMNS = frozenset({
    "id", "source", "source_url", "model", "accelerator", "count", "framework", "precision", "method",
    "micro_batch", "global_batch", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "step_time_s",
    "peak_mem_gib",
})  # fmt: skip
TABLE = "training"
MEMORY: dict[str, Metric] = {
    "allocated": "memory_allocated_gib", "reserved": "memory_reserved_gib", "device": "memory_device_gib",
}  # fmt: skip
# What a note says in a fixed form: the cell that it gives, and where the number stands.
NOTED = {
    "virtual_stages": re.compile(r"\b(?:VP|interleave)=(\d+)"),
    "accumulation": re.compile(
        r"(?:\bGA[= ]|accumulation |grad_accum[= ]|accumulation_steps |micro_num )(\d+)"
    ),
    "lora_rank": re.compile(r"\brank ?(\d+)"),
    "zero_group": re.compile(r"zero1(?:=| group )(\d+)"),
    "slices": re.compile(r"^(\d+)x (?:v\d|A3)"),
    "device_mib": re.compile(r"nvidia-smi reserved ([\d.]+) MiB"),
    "at_load_gib": re.compile(r"memory_before_training ([\d.]+)"),
    "longest_sample": re.compile(r"max_seq_length (\d+), real lengths"),
    "sample_tokens": re.compile(r"real lengths ~([\d.]+)"),
}
FAILED = re.compile(r"\bOOM\b|NO RESULT|out of memory")
COUNTS = (
    "count", "gpus_per_node", "dp", "tp", "pp", "cp", "ep", "micro_batch", "global_batch", "seq_len", "image_size",
    "zero_stage", "virtual_stages", "accumulation", "lora_rank", "zero_group", "slices", "mean_length", "per_node",
    "cores_per_chip", "longest_sample", "output_len", "layers", "hidden", "heads", "ffn", "vocab",
    "loaders", "frames",
)  # fmt: skip
RATES = (
    "peak_mem_gib", "tokens_per_s_per_gpu", "samples_per_s_per_gpu", "step_time_s", "model_tflops_per_gpu",
    "mfu", "time_to_train_min", "device_mib", "sample_tokens", "at_load_gib", "sample_cpu_s",
)  # fmt: skip
ATTENTION = {"flash2": "flash", "flash3": "flash", "flash4": "flash", "sdpa-flash2": "flash", "flash-2": "flash",
             "flash-2 ring": "flash", "xformers": "flash", "none": "eager"}  # fmt: skip
# The bundled configurations' words for a shape.
SHAPE_KEYS = {
    "layers": ("n_layer", "num_hidden_layers"), "hidden": ("n_embd", "hidden_size"),
    "heads": ("n_head", "num_attention_heads"), "vocab": ("vocab_size",),
}  # fmt: skip
# Settings that decide a run and are not filled by a rule: the estimate chooses them, and the row says so.
OPEN = ("precision", "micro_batch", "recompute")
TENSOR_PARALLEL_IN_SUBMISSIONS = 4
PIPELINE_IN_SUBMISSIONS = 8
# GPUs of 80 GB that hold one copy of GPT-3's states; where fewer would, a micro batch has two samples.
STATES_OF_GPT3 = 32


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row."""
    reading = read(record, "training_recipes")
    cells = _typed({**_noted(record.get("note") or ""), **reading.cells})
    assumed = list(reading.assumed)
    _lay_out(cells, assumed)
    _lengths(cells)
    measured = _measured(cells, record.get("note") or "")
    unscored = exclusions.named(record["id"]) or _why_unscored(cells, measured)
    scenario = None if unscored else _scenario(cells)
    if scenario and not _has_failed(record):
        assumed += [f"{name}=open" for name in OPEN if scenario["setup"].get(name) is None]
    return Row(
        id=record["id"],
        table=TABLE,
        source=record.get("source") or "",
        source_url=record.get("source_url") or "",
        year=int(record["year"]) if record.get("year") else None,
        model=record.get("model") or "",
        accelerator=record.get("accelerator") or "",
        framework=str(cells.get("family") or record.get("framework") or ""),
        note=record.get("note") or "",
        scenario=scenario,
        measured=() if unscored else measured,
        assumed=(*assumed, *_method_note(record, cells)),
        unscored=unscored,
        doubtful=cells.get("doubtful") or None,
    )


def _noted(note: str) -> dict[str, str]:
    found = {name: pattern.search(note) for name, pattern in NOTED.items()}
    return {name: match.group(1) for name, match in found.items() if match}


def _typed(cells: dict[str, Any]) -> dict[str, Any]:
    for name in COUNTS:
        if name in cells:
            cells[name] = int(float(cells[name]))
    for name in RATES:
        if name in cells:
            cells[name] = float(cells[name])
    return cells


def _method_note(record: Mapping[str, str], cells: dict[str, Any]) -> tuple[str, ...]:
    given = record.get("method") or ""
    return (f"method={cells['method']} for {given}",) if given and given != cells.get("method") else ()


def _has_failed(record: Mapping[str, str]) -> bool:
    return bool(FAILED.search(record.get("note") or ""))


def _lay_out(cells: dict[str, Any], assumed: list[str]) -> None:
    """Degrees, micro batch and global batch that follow from those that are printed."""
    cores = cells.get("cores_per_chip", 1)
    if cores > 1:
        _cores_to_chips(cells, cores)
    if str(cells.get("source", "")).startswith("MLCommons"):
        _submission(cells, assumed)
    if cells.get("model_by_shape") or cells.get("family") == "maxtext":
        cells.update({**_bundled_shape(str(cells["model"])), **cells})
    if cells.get("family") == "maxtext":
        _even_heads(cells, assumed)
    inner = math.prod(cells.get(name, 1) for name in ("tp", "pp", "cp"))
    count = cells.get("count", 1)
    if "dp" not in cells and count % inner == 0:
        cells["dp"] = count // inner
    if cells.get("per_chip_batch") and "micro_batch" in cells:
        cells["micro_batch"] *= inner
    if cells.get("slices", 1) > 1:
        cells["zero_group"] = max(1, count // cells["slices"] // inner)
    if cells.get("pp", 1) > 1 and "layers" in cells:
        most = cells["layers"] // cells["pp"]
        if cells.get("virtual_stages", 1) > most:
            cells["virtual_stages"] = most
            assumed.append(f"virtual_stages={most}")
    ranks, micro = cells.get("dp", 1), cells.get("micro_batch")
    if micro and "global_batch" not in cells:
        cells["global_batch"] = micro * ranks * cells.get("accumulation", 1)


def _bundled_shape(model: str) -> dict[str, int]:
    """Layers, width, heads and vocabulary of the bundled model of that name."""
    config = names.find(model).config
    return {
        cell: config[key]
        for cell, keys in SHAPE_KEYS.items()
        for key in keys
        if isinstance(config.get(key), int)
    }


def _even_heads(cells: dict[str, Any], assumed: list[str]) -> None:
    """XLA pads heads that don't divide by the tensor parallelism; the largest one that divides stands in."""
    tensor = cells.get("tp", 1)
    if cells.get("heads", 0) % tensor:
        cells["tp"] = math.gcd(cells["heads"], tensor)
        if "dp" in cells:
            cells["dp"] *= tensor // cells["tp"]
        assumed.append(f"tp={cells['tp']}")


def _cores_to_chips(cells: dict[str, Any], cores: int) -> None:
    """Degrees counted in cores as degrees counted in chips."""
    if cells.get("tp", 1) % cores == 0:
        cells["tp"] //= cores
    elif cells.get("dp", 1) % cores == 0:
        cells["dp"] //= cores
        cells["micro_batch"] = cells.get("micro_batch", 1) * cores


def _submission(cells: dict[str, Any], assumed: list[str]) -> None:
    """Ranks and micro batch of an MLCommons run, from its batch, accumulation and devices. A model that
    is split has one sample in a micro batch; the split is tensor parallel up to 4, then pipelined."""
    count, batch, steps = cells.get("count", 1), cells.get("global_batch"), cells.get("accumulation", 1)
    if not batch:
        return
    is_language = str(cells["model"]).startswith(("gpt3", "llama"))
    ranks = batch // steps if is_language and batch // steps <= count else count
    if str(cells["model"]).startswith("gpt3") and ranks % 2 == 0 and count // ranks < STATES_OF_GPT3:
        ranks //= 2
    if not ranks or batch % (ranks * steps) or count % ranks:
        return
    cells["dp"], cells["micro_batch"] = ranks, batch // (ranks * steps)
    split = count // ranks
    tensor = math.gcd(split, TENSOR_PARALLEL_IN_SUBMISSIONS)
    rest = split // tensor
    pipeline = 1 if cells.get("method") == "lora" else math.gcd(rest, PIPELINE_IN_SUBMISSIONS)
    cells["tp"], cells["pp"], cells["cp"] = tensor, pipeline, rest // pipeline
    assumed += [f"{name}={cells[name]}" for name in ("dp", "tp", "pp", "cp", "micro_batch")]


def _lengths(cells: dict[str, Any]) -> None:
    """The length of a sample: printed, a mean that the rule states, or tokens over samples."""
    tokens, samples = cells.get("tokens_per_s_per_gpu"), cells.get("samples_per_s_per_gpu")
    if "mean_length" in cells:
        cells["seq_len"] = cells["mean_length"]
    elif "sample_tokens" in cells:
        cells["seq_len"] = round(cells["sample_tokens"])
    elif "seq_len" not in cells and tokens and samples:
        cells["seq_len"] = max(1, round(tokens / samples))


def _measured(cells: dict[str, Any], note: str) -> tuple[Measured, ...]:
    if FAILED.search(note) and not any(cells.get(name) for name in ("step_time_s", "tokens_per_s_per_gpu")):
        return (Measured("fits", 0.0),) if "peak_mem_gib" not in cells else _memory(cells)
    return (*_speed(cells), *_memory(cells))


def _speed(cells: dict[str, Any]) -> tuple[Measured, ...]:
    metrics: dict[str, Metric] = {
        "tokens_per_s_per_gpu": "tokens_per_s_per_device", "samples_per_s_per_gpu": "samples_per_s_per_device",
        "step_time_s": "step_time_s",
    }  # fmt: skip
    for name, metric in metrics.items():
        if cells.get(name):
            return (Measured(metric, cells[name]),)
    tflops, convention = cells.get("model_tflops_per_gpu"), cells.get("flops")
    if tflops and convention and "seq_len" in cells:
        rate = rates.tokens_per_s(tflops, cells["model"], cells["seq_len"], convention)
        return (Measured("tokens_per_s_per_device", rate),)
    return ()


def _memory(cells: dict[str, Any]) -> tuple[Measured, ...]:
    found = []
    kind = cells.get("memory")
    # A peak that was there before the first step is that of loading.
    is_of_training = cells.get("peak_mem_gib") != cells.get("at_load_gib", -1.0)
    if "peak_mem_gib" in cells and kind in MEMORY and is_of_training:
        found.append(Measured(MEMORY[kind], cells["peak_mem_gib"]))
    if "device_mib" in cells and kind in MEMORY:
        found.append(Measured("memory_device_gib", cells["device_mib"] / 1024))
    return (*found, Measured("fits", 1.0)) if found or not is_of_training else ()


def _why_unscored(cells: dict[str, Any], measured: tuple[Measured, ...]) -> str | None:
    """The rule by which a row can't be scored, from what it prints and not from how large it is."""
    if "unscored" in cells:
        return str(cells["unscored"])
    if not measured:
        if cells.get("model_tflops_per_gpu") or cells.get("mfu"):
            return "no_batch" if "flops" in cells else "convention_unknown"
        return "time_to_train_only" if cells.get("time_to_train_min") else "no_value"
    inner = math.prod(cells.get(name, 1) for name in ("dp", "tp", "pp", "cp"))
    if inner != cells.get("count", 1):
        return "mapping_unknown"
    if (cells.get("dp", 1) * cells.get("cp", 1) * cells.get("tp", 1)) % cells.get("ep", 1):
        return "mapping_unknown"
    return None


def _scenario(cells: dict[str, Any]) -> dict[str, Any]:
    batch, ranks = cells.get("global_batch"), cells.get("dp", 1)
    micro = cells.get("micro_batch")
    if batch and batch % ((micro or 1) * ranks):
        batch = None
    components = cells.get("components")
    workload = {
        "task": "train",
        "method": cells.get("method") or "pretrain",
        **{
            name: cells.get(name)
            for name in ("seq_len", "longest_sample", "output_len", "image_size", "sample_cpu_s")
        },
        "components": components.split(",") if components else None,
    }
    return {
        "id": cells["id"],
        "model": _model(cells),
        "workload": _given(workload),
        "hardware": _given(_hardware(cells)),
        "setup": _given(_setup(cells, micro, batch)),
    }


def _model(cells: dict[str, Any]) -> str:
    """The model's name; with the frames of a clip; where a source varies one name's heads, its printed shape."""
    if "frames" in cells:
        return clip.reference(str(cells["model"]), cells["frames"])
    options = {"layers": "num-layers", "hidden": "hidden-size", "heads": "num-attention-heads",
             "ffn": "ffn-hidden-size", "seq_len": "seq-length", "vocab": "vocab-size"}  # fmt: skip
    if not cells.get("model_by_shape") or not {"layers", "hidden", "heads"} <= cells.keys():
        return str(cells["model"])
    shape = {option: cells[name] for name, option in options.items() if name in cells}
    return "megatron:" + json.dumps(shape, separators=(",", ":"))


def _given(part: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}


def _hardware(cells: dict[str, Any]) -> dict[str, Any]:
    count = cells.get("count", 1)
    per_node = cells.get("per_node") or cells.get("gpus_per_node")
    return {
        "accelerator": cells["accelerator"],
        "count": count,
        "per_node": min(per_node, count) if per_node else None,
        "interconnect": cells.get("link") if count > (per_node or 8) else None,
    }


def _setup(cells: dict[str, Any], micro: int | None, batch: int | None) -> dict[str, Any]:
    virtual = cells.get("virtual_stages", 1) if cells.get("pp", 1) > 1 else 1
    trains_all = cells.get("method") in ("pretrain", "full")
    attention = cells.get("attention")
    compiled = cells.get("compiled")
    setup = {name: cells.get(name) for name in (
        "runtime", "precision", "optimizer", "dp", "tp", "pp", "cp", "ep", "sequence_parallel", "zero_stage",
        "recompute", "experts", "channels_last", "runtime_version", "fused_loss", "offload", "optimizer_in_backward",
        "loaders",
    )}  # fmt: skip
    return {
        **setup,
        "weight_precision": None if trains_all else cells.get("weight_precision"),
        "virtual_stages": virtual if virtual > 1 else None,
        "schedule": "interleaved" if virtual > 1 else cells.get("schedule"),
        "zero_group": cells.get("zero_group") if cells.get("zero_stage", 3) else None,
        "micro_batch": micro,
        "global_batch": batch,
        "attention": ATTENTION.get(attention, attention) if attention else None,
        "compile": compiled != "no" if compiled else cells.get("compile"),
        "lora_rank": None if trains_all else cells.get("lora_rank"),
        "lora_targets": None if trains_all else cells.get("lora_targets"),
    }
