"""Which group a measured value is scored in: by what was run, never by how well it is predicted."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import msgspec

from raceline.estimate import groups
from raceline.estimate.calibration import Keys
from raceline.evidence.rows import Metric, Row

_OWN_GROUP = {
    "training_vision": "vision-train",
    "inference_vision": "vision-infer",
    "megatron_ci": "train-tiny",
}

# Serving runs of the one large table, and those of the others.
_SERVED = {"tpot_ms": "serve-tpot", "ttft_ms": "serve-ttft"}
_ELSEWHERE = {"serve-tpot": "load-tpot", "serve-ttft": "load-ttft"}


class Bar(msgspec.Struct, frozen=True):
    """A group and what its error should be at most; None where no bar is set. `peer`: what the
    best other tool reaches; `fold`: what the bar leaves out, where it names one (an unseen family)."""

    group: str
    median: float | None
    p90: float | None
    peer: str | None
    fold: str | None = None


@cache
def bars() -> tuple[Bar, ...]:
    """The groups in the order in which they are shown."""
    raw = files("raceline.accuracy").joinpath("data/bars.json").read_bytes()
    return msgspec.json.decode(raw, type=tuple[Bar, ...])


def group_of(row: Row, keys: Keys, metric: Metric) -> str:
    """The group of one measured value: that of an estimate like it, but for the tables that are
    scored apart."""
    if metric == "fits":
        return "fit"
    if metric in ("memory_allocated_gib", "memory_last_allocated_gib", "memory_reserved_gib"):
        return groups.MEMORY_ALLOCATED
    if metric == "memory_device_gib":
        return groups.MEMORY_DEVICE
    if row.table in _OWN_GROUP:
        return _OWN_GROUP[row.table]
    if keys.task == "train":
        return groups.training_group(keys)
    at_once = (row.scenario or {}).get("workload", {}).get("concurrency") or 1
    if row.table == "serving":
        return _SERVED[metric]
    group = groups.inference_group(keys, metric, at_once)
    return _ELSEWHERE.get(group, group)


def family_of(model: str) -> str:
    """The family in a model's name: its first word (llama, resnet, convnext)."""
    name = model.rsplit("/", 1)[-1].lower()
    words = [word for word in re.split(r"[^a-z]+", name) if len(word) > 1]
    return words[0] if words else name
