"""What `estimate` answers: one Estimate per scenario, as DESIGN's machine interface prints it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from raceline.present.errors import Message

Fits = Literal["yes", "tight", "no"]


class Range(msgspec.Struct, frozen=True):
    """A figure with the bounds that it lies in."""

    low: float
    mid: float
    high: float


class MemoryParts(msgspec.Struct, frozen=True, kw_only=True):
    """GiB on the fullest device at its peak. `total` is a range; the parts add up to its mid. `needed` is what
    must be there: less than the total where an allocator can give back what it caches."""

    total: Range
    needed: float
    limit: float
    parameters: float
    gradients: float | None
    optimizer: float | None
    activations: float
    logits: float
    kv_cache: float | None
    workspace: float
    reserved: float


class TimeParts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one step (training), decode step or batch (inference); they add up to its mid."""

    compute: float
    memory_bound: float
    communication_exposed: float
    pipeline_bubble: float
    optimizer: float
    input: float
    host: float


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of one device."""

    tokens_per_s_per_device: float | None
    samples_per_s_per_device: float | None


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds: of a batch, to the first token, per output token."""

    batch: float | None
    ttft: float | None
    tpot: float | None


class LatencyRanges(msgspec.Struct, frozen=True, kw_only=True):
    """The latencies in milliseconds with their bounds."""

    batch: Range | None
    ttft: Range | None
    tpot: Range | None


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A measured run near this one."""

    id: str
    metric: str
    measured: float
    unit: str
    distance: float
    source_url: str


class Fact(msgspec.Struct, frozen=True):
    """A fact or a constant that an estimate stands on, with its source."""

    name: str
    value: float
    unit: str
    source: str


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one scenario. None stands where a figure has no meaning for the task."""

    id: str
    fits: Fits
    memory_gib: MemoryParts
    host_memory_gib: float | None
    disk_gib: float | None
    step_time_s: Range | None
    time_parts_s: TimeParts | None
    throughput: Throughput
    latency_ms: Latency
    mfu: float | None
    tflops_per_device: float | None
    bound_by: str | None
    duration_s: Range | None
    cost_usd: Range | None
    energy_kwh: float | None
    latency_range_ms: LatencyRanges | None = None
    price_usd_per_hour: float | None = None
    cost_usd_per_million_tokens: Range | None = None
    chosen: dict[str, Any]
    evidence: tuple[Neighbour, ...] = ()
    narrows: Message | None = None
    warnings: tuple[Message, ...] = ()
    basis: tuple[Fact, ...] = ()
    schema: str = "raceline.estimate/1"


SCHEMA = "raceline.estimate/1"
