"""A published measurement as a row: what was run, as a scenario, and what was measured."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Metric = Literal[
    "tokens_per_s_per_device",  # training or serving, all devices of the run counted
    "samples_per_s_per_device",
    "step_time_s",  # one optimizer step, or one decode step
    "batch_ms",  # one forward pass of a batch
    "ttft_ms",
    "tpot_ms",
    "answer_ms",  # prompt and all tokens of one batch of answers
    "memory_allocated_gib",  # the peak that the framework's allocator handed out
    "memory_last_allocated_gib",  # the same on a device of the last pipeline stage
    "memory_reserved_gib",  # what the allocator took from the device
    "memory_device_gib",  # what the driver's tool shows: with context and fragments
    "fits",  # 1 it ran, 0 it was out of memory
]


class Measured(msgspec.Struct, frozen=True):
    """One measured value, in the unit that the metric's name says."""

    metric: Metric
    value: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table. `scenario` is the mapping that `estimate` takes, None where `unscored`
    names the rule (in ``data/exclusions.yaml``) by which the row can't be scored. `assumed` lists
    the settings that the source leaves out and the adapter filled in. `framework` is the row's
    framework family, as `--by framework` shows it; `doubtful` names a caution that stands in the
    row and does not take it out of the score."""

    id: str
    table: str
    source: str
    source_url: str
    year: int | None = None
    model: str = ""
    accelerator: str = ""
    framework: str = ""
    note: str = ""
    scenario: dict[str, Any] | None = None
    measured: tuple[Measured, ...] = ()
    assumed: tuple[str, ...] = ()
    unscored: str | None = None
    doubtful: str | None = None
