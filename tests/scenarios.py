"""Scenarios, a catalogue and readers that the estimate and plan tests share."""

from __future__ import annotations

import copy
import datetime
from functools import cache
from typing import Any

import numpy as np

from raceline.catalog import load, resolve
from raceline.estimate import constants
from raceline.estimate.calibration import unscaled
from raceline.estimate.devices import Device, Devices, arrange
from raceline.estimate.hardware import Catalogue
from raceline.estimate.op_time import Shapes
from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_one
from raceline.models import names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model

ONE = np.ones(1)
TODAY = datetime.date(2026, 12, 1)

DESIGN_EXAMPLE: dict[str, Any] = {
    "id": "any-string",
    "model": "meta-llama/Llama-3.1-8B",
    "workload": {
        "task": "train", "method": "full", "seq_len": 8192, "longest_sample": None, "image_size": None,
        "tokens": 1.0e9, "samples": None, "input_len": None, "output_len": None, "concurrency": None,
    },
    "hardware": {
        "accelerator": "h100-sxm", "count": 8, "per_node": 8, "interconnect": None, "mig_profile": None,
        "host_memory_gib": None, "disk_gib": None, "offer": None,
    },
    "setup": {
        "framework": "pytorch", "runtime": "pytorch-fsdp2", "runtime_version": None, "precision": "bf16",
        "weight_precision": None, "kv_precision": None, "optimizer": "adamw", "dp": 8, "tp": 1, "pp": 1, "cp": 1,
        "ep": 1, "sequence_parallel": False, "schedule": "1f1b", "virtual_stages": 1, "zero_stage": 3,
        "micro_batch": 1, "global_batch": 8, "recompute": "selective", "attention": "flash", "fused_loss": False,
        "compile": True, "offload": "none", "lora_rank": None, "lora_targets": None, "max_sequences": None,
        "kv_memory_fraction": None,
    },
}  # fmt: skip


@cache
def catalogue() -> Catalogue:
    """The shipped catalogue on a fixed day."""
    return Catalogue(
        accelerators=load.accelerators(),
        nodes=load.nodes(),
        links=load.links(),
        offers=load.offers(),
        resolve=resolve.accelerator_or_processor,
        today=TODAY,
    )


@cache
def read(reference: str, image_size: int | None = None) -> Model:
    """A bundled model."""
    config = names.find(reference).config
    build = registry.find(config.get("model_type") or config.get("architecture") or config["_class_name"])
    assert build is not None
    return build(Fields(config), image_size)


def changed(**parts: dict[str, Any]) -> dict[str, Any]:
    """DESIGN's example with other settings: ``changed(setup={"micro_batch": 2})``."""
    scenario = copy.deepcopy(DESIGN_EXAMPLE)
    for part, values in parts.items():
        scenario[part].update(values)
    return scenario


def estimate(scenario: dict[str, Any]) -> Estimate:
    """The estimate of a scenario with the shipped catalogue."""
    return estimate_one(scenario, catalogue(), read)


def devices(*names_: str) -> Devices:
    """Bare devices of the catalogue, without a network."""
    return arrange([Device(accelerator=load.accelerators()[name]) for name in names_], constants.load())


def shapes(seq_len: float, **other: float) -> Shapes:
    """One shape of a batch of 1 in bf16 on the first device; `other` replaces columns."""
    zeros = (
        "target_len", "new_targets", "decoding", "sequence_parallel", "fused", "channels_last", "mixed", "early",
        "expert_kernels", "weight_s",
    )  # fmt: skip
    ones = ("batch", "new_fixed", "tp", "cp", "ep", "expert_tp", "expert_share", "flash", "slowdown")
    two_bytes = ("activation_bytes", "weight_bytes", "plain_weight_bytes", "cache_bytes")
    values = {
        **dict.fromkeys(zeros, 0.0),
        **dict.fromkeys(ones, 1.0),
        **dict.fromkeys(two_bytes, 2.0),
        "seq_len": seq_len,
        "new_tokens": seq_len,
    }
    columns = {name: value * ONE for name, value in {**values, **other}.items()}
    return Shapes(device=np.zeros(1, dtype=np.int64), precision=np.full(1, 3), scale=unscaled(1), **columns)


def close(left: float, right: float, within: float = 1e-9) -> bool:
    """Whether two figures agree within a relative tolerance."""
    return bool(np.isclose(left, right, rtol=within, atol=0.0))
