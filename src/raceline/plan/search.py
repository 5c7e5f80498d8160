"""Evaluating a space: memory and step time of every configuration, in chunks that stay in cache."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from raceline.estimate.configs import RECOMPUTE, Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.layout import Floats, ModelTable
from raceline.estimate.memory import needed_memory
from raceline.estimate.op_time import time_ops
from raceline.estimate.schedule import training_step
from raceline.plan.space import Ints, Space

CHUNK = 8_192


@dataclass(frozen=True, slots=True)
class Searched:
    """Peak bytes and step seconds of every row of a space."""

    space: Space
    memory_bytes: Floats
    step_s: Floats

    @property
    def evaluated(self) -> int:
        """Configurations whose memory and time were computed."""
        return len(self.memory_bytes)


def search(table: ModelTable, space: Space, efficiency: Efficiency) -> Searched:
    """Memory and time of every configuration."""
    total = len(space.configs)
    memory, step = np.empty((2, len(RECOMPUTE), total))
    if not total:
        return Searched(space, memory.ravel(), step.ravel())
    times = time_ops(table, space.shapes, space.devices, efficiency)
    for start in range(0, total, CHUNK):
        part = slice(start, start + CHUNK)
        configs, layouts = _compact(space, part)
        memory[:, part] = needed_memory(table, configs, layouts, space.shapes, times, efficiency)
        step[:, part] = training_step(
            table, configs, layouts, space.shapes, times, space.devices, efficiency
        ).total
    return Searched(space, memory.ravel(), step.ravel())


def _compact(space: Space, part: slice) -> tuple[Configs, Layouts]:
    """A chunk's configurations with only the layouts that they use (layouts stand in order)."""
    configs = space.configs.take(part)
    low, high = int(configs.layout.min()), int(configs.layout.max())
    return replace(configs, layout=configs.layout - low), space.layouts.take(slice(low, high + 1))


def best_per_hardware(searched: Searched, surely_fits: float) -> Ints:
    """For each device and count the row that is fastest among those that need at most the share `surely_fits` of
    the memory."""
    space = searched.space
    limits = (space.devices.memory_bytes[space.layouts.device] * surely_fits)[space.configs.layout]
    by_kind = searched.memory_bytes.reshape(len(RECOMPUTE), -1)
    fits = np.flatnonzero(by_kind <= limits)
    if not len(fits):
        return fits
    at = space.configs.layout[space.columns(fits)]
    hardware = space.layouts.device[at] * 1_000_000 + space.count[at]
    order = np.lexsort((searched.memory_bytes[fits], searched.step_s[fits], hardware))
    _, first = np.unique(hardware[order], return_index=True)
    return np.asarray(fits[order[first]])
