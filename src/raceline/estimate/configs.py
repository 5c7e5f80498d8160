"""Configurations as arrays: the choices that aren't part of a shape, one value per configuration."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RECOMPUTE = ("none", "selective", "full")
SCHEDULES = ("1f1b", "interleaved", "zero-bubble", "gpipe")
OFFLOADS = ("none", "optimizer", "parameters", "all")


@dataclass(frozen=True, slots=True)
class Configs:
    """Arrays of N configurations of a training step. `shape` and `device` are indices.

    `zero_group`: ranks over which states are sharded. Bytes are per element: of a trained weight,
    its gradient, its master copy, its moments, the optimizer's temporary, a frozen weight that is
    quantised or not, an adapter's states in all, and a weight when gathered or cast for compute.
    `casts_weights`: 1 where a compute copy of all weights is held beside them (autocast).
    `bucket`: copies of the gradients held for communication (DDP: 1).
    """

    shape: Ints
    device: Ints
    dp: Floats
    tp: Floats
    pp: Floats
    cp: Floats
    ep: Floats
    zero_stage: Ints
    zero_group: Floats
    accumulation: Floats
    recompute: Ints
    schedule: Ints
    virtual_stages: Floats
    offload: Ints
    flash: Floats
    fused: Floats
    fused_loss: Floats
    in_backward: Floats
    weight_bytes: Floats
    gradient_bytes: Floats
    master_bytes: Floats
    moment_bytes: Floats
    temporary_bytes: Floats
    adapter_bytes: Floats
    frozen_bytes: Floats
    quantised_bytes: Floats
    compute_bytes: Floats
    casts_weights: Floats
    bucket: Floats

    def __len__(self) -> int:
        return len(self.shape)

    @property
    def count(self) -> Floats:
        """Devices used."""
        return self.dp * self.tp * self.pp * self.cp

    def take(self, index: slice | Ints | NDArray[np.bool_]) -> Configs:
        """Some of the configurations, in that order."""
        return replace(self, **{item.name: getattr(self, item.name)[index] for item in fields(self)})
