"""Image models of the timm results tables (``inference_vision.csv``): one model and table a record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raceline.evidence import exclusions
from raceline.evidence.rows import Measured, Row
from raceline.evidence.sizes import model_of

COLUMNS = frozenset({"model", "accelerator", "precision", "batch", "image_size", "infer_samples_per_s"})
PRECISIONS = {
    "amp-fp16": "fp16-mixed",
    "amp-bf16": "bf16-mixed",
    "fp16": "fp16",
    "bf16": "bf16",
    "fp32": "fp32",
}


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row: samples a second on one device."""
    known: dict[str, Any] = {
        "id": record.get("id", ""), "table": "inference_vision", "source": record.get("source", ""),
        "source_url": record.get("source_url", ""), "model": record["model"],
        "accelerator": record["accelerator"], "framework": "pytorch", "note": record.get("note", ""),
    }  # fmt: skip
    if rule := exclusions.named(known["id"]) or _rule(record):
        return Row(**known, unscored=rule)
    rate = Measured("samples_per_s_per_device", float(record["infer_samples_per_s"]))
    return Row(**known, scenario={"id": known["id"], **_scenario(record)}, measured=(rate,))


def _rule(record: Mapping[str, str]) -> str | None:
    if not record["infer_samples_per_s"]:
        return "no_value"
    if record["precision"] not in PRECISIONS:
        return "precision_unknown"
    return None if model_of(record) else "model_unknown"


def _scenario(record: Mapping[str, str]) -> dict[str, Any]:
    setup: dict[str, Any] = {"runtime": "pytorch", "precision": PRECISIONS[record["precision"]]}
    if "torch.compile" in record.get("framework", ""):
        setup["compile"] = True
    if record.get("channels_last") == "yes":
        setup["channels_last"] = True
    return {
        "model": model_of(record),
        "workload": {
            "task": "infer", "image_size": int(record["image_size"]), "concurrency": int(record["batch"]),
        },
        "hardware": {"accelerator": record["accelerator"]},
        "setup": setup,
    }  # fmt: skip
