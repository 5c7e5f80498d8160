"""Published training speed of timm's image models on one card: one record of ``training_vision.csv``."""

from __future__ import annotations

from collections.abc import Mapping

from raceline.evidence import exclusions
from raceline.evidence.rows import Measured, Row
from raceline.evidence.sizes import model_of

COLUMNS = frozenset({
    "id", "source", "source_url", "model", "accelerator", "framework", "precision", "batch", "image_size",
    "train_samples_per_s",
})  # fmt: skip
TABLE = "training_vision"
PRECISIONS = {"amp-fp16": "fp16-mixed", "amp-bf16": "bf16-mixed", "fp16": "fp16-true", "bf16": "bf16-true"}
LAYOUTS = {"yes": True, "no": False}
# timm's own benchmark script: plain SGD, eager blocks, every activation kept
# (https://github.com/huggingface/pytorch-image-models/blob/main/benchmark.py).
RECIPE = {"optimizer": "sgd", "recompute": "none", "attention": "eager"}


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row."""
    unscored = exclusions.named(record["id"]) or _why_unscored(record)
    setup = {
        "runtime": "timm",
        "precision": PRECISIONS.get(record["precision"], record["precision"] or None),
        "micro_batch": int(record["batch"]),
        "global_batch": int(record["batch"]),
        "channels_last": LAYOUTS.get(record.get("channels_last") or ""),
        **RECIPE,
    }
    return Row(
        id=record["id"],
        table=TABLE,
        source=record["source"],
        source_url=record["source_url"],
        year=int(record["year"]) if record.get("year") else None,
        model=record["model"],
        accelerator=record["accelerator"],
        framework="timm",
        note=_note(record),
        scenario=None if unscored else {
            "id": record["id"],
            "model": model_of(record),
            "workload": {"task": "train", "method": "pretrain", "image_size": int(record["image_size"])},
            "hardware": {"accelerator": record["accelerator"], "count": 1},
            "setup": {name: value for name, value in setup.items() if value is not None},
        },
        measured=() if unscored else (
            Measured("samples_per_s_per_device", float(record["train_samples_per_s"])),
        ),
        assumed=tuple(f"{name}={value}" for name, value in RECIPE.items()),
        unscored=unscored,
    )  # fmt: skip


def _note(record: Mapping[str, str]) -> str:
    layout = record.get("channels_last") or ""
    return "; ".join(
        part for part in (record.get("note") or "", f"channels_last {layout}" if layout else "") if part
    )


def _why_unscored(record: Mapping[str, str]) -> str | None:
    if not record.get("train_samples_per_s"):
        return "no_value"
    return None if model_of(record) else "model_unknown"
