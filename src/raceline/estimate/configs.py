"""Configurations as arrays: indices into shapes and layouts, and what varies beyond them.

A layout is how states are cut and held: it decides state memory, communication and the update.
Few layouts and few shapes make many configurations, so their terms are computed once and gathered.
"""

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
class Layouts:
    """Arrays of K layouts. `device` is an index into Devices.

    `zero_group`: ranks over which states are sharded. Bytes are per element: of a trained weight,
    its gradient, its master copy, its moments, the optimizer's temporary, an adapter's states in
    all, a frozen weight plain or quantised, and a weight when gathered or cast for compute.
    `casts_weights`: 1 where a compute copy of all weights is held beside them (autocast).
    `expert_kernels`: kernels for each expert that a device holds, beside those for all of them.
    `logit_bytes`: what the logits and the loss hold, per logit.
    `bucket`: copies of the gradients held for communication (DDP: 1) or in 16 bits. `buffered`: 1 where they lie in
    one buffer that is held all the time (Megatron).
    `keeps_gathered`: 1 where ZeRO-3 keeps frozen layers whole through the backward pass; `host_scale`: the
    host's time over that of one process a device with a present-day version.
    `scale`: K x KINDS, the calibration's factors.
    """

    device: Ints
    dp: Floats
    tp: Floats
    pp: Floats
    cp: Floats
    ep: Floats
    zero_stage: Ints
    zero_group: Floats
    schedule: Ints
    virtual_stages: Floats
    offload: Ints
    fused: Floats
    expert_kernels: Floats
    logit_bytes: Floats
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
    buffered: Floats
    keeps_gathered: Floats
    host_scale: Floats
    scale: Floats

    def __len__(self) -> int:
        return len(self.device)

    @property
    def count(self) -> Floats:
        """Devices used."""
        return self.dp * self.tp * self.pp * self.cp

    def take(self, index: slice | Ints | NDArray[np.bool_]) -> Layouts:
        """Some of the layouts, in that order."""
        return replace(self, **{item.name: getattr(self, item.name)[index] for item in fields(self)})


@dataclass(frozen=True, slots=True)
class Configs:
    """Arrays of N configurations of a training step: which shape, which layout, how many micro
    batches in a step (`accumulation`), and what is recomputed (index of RECOMPUTE).

    A search gives `recompute` as a column (3 x 1): every configuration under each kind, R x N results, and
    what doesn't depend on recompute is computed once."""

    shape: Ints
    layout: Ints
    accumulation: Floats
    recompute: Ints

    def __len__(self) -> int:
        return len(self.shape)

    def take(self, index: slice | Ints | NDArray[np.bool_]) -> Configs:
        """Some of the configurations, in that order."""
        recompute = self.recompute[index] if self.recompute.ndim == 1 else self.recompute
        return Configs(self.shape[index], self.layout[index], self.accumulation[index], recompute)
