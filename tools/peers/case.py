"""What a peer is asked: one published value with the facts that its row states, as plain values.

This module runs in the peers' own environments too, so it needs nothing but Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class Refusal(Exception):
    """A case that turns out to be none that the peer answers."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The size of a model. `ffn`: the width of a feed-forward layer, of one expert where there are
    several. `config`: the model's own configuration file, where raceline ships it."""

    parameters: int
    largest_layer_parameters: int
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn: int | None = None
    vocabulary: int | None = None
    is_gated: bool = False
    experts: int = 1
    experts_per_token: int = 1
    is_decoder: bool = False
    config: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator: datasheet figures, dense rates."""

    memory_gib: float
    memory_gbs: float | None = None
    link_gbs: float | None = None
    tflops_16bit: float | None = None
    tflops_8bit: float | None = None
    tflops_4bit: float | None = None


@dataclass(frozen=True, kw_only=True)
class Case:
    """One measured value. `workload` and `setup` are those of the row's scenario, in the words of
    docs/scenario.md; what isn't in them the row doesn't state. `record`: the row as published, where a
    peer takes facts that a scenario has no words for."""

    id: str
    group: str
    metric: str
    measured: float
    model: str
    shape: Shape
    device: Device
    count: int
    per_node: int
    accelerator: str
    workload: dict[str, Any]
    setup: dict[str, Any]
    record: dict[str, Any] | None = None

    def degree(self, name: str) -> int:
        """A parallel degree; 1 where none is stated."""
        return int(self.setup.get(name) or 1)

    @property
    def is_training_all(self) -> bool:
        """Whether every weight is trained."""
        return self.workload.get("task") == "train" and self.workload.get("method") in (
            None,
            "pretrain",
            "full",
        )

    @property
    def is_unsplit(self) -> bool:
        """Whether each device holds the whole model, so that figures of a model are those of a device."""
        splits = ("tp", "pp", "cp", "ep")
        is_replica = all(self.degree(name) == 1 for name in splits) and not self.setup.get("zero_stage")
        return is_replica and not self.setup.get("offload")


def case_of(values: dict[str, Any]) -> Case:
    """A case from its JSON."""
    shape, device = Shape(**values["shape"]), Device(**values["device"])
    return Case(**{**values, "shape": shape, "device": device})
