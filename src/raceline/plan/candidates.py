"""Which accelerators and counts a plan looks at, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raceline.catalog import constraints, load, prices
from raceline.catalog.types import Accelerator
from raceline.estimate.choose import usual_engine
from raceline.estimate.devices import Device, peak_flops
from raceline.estimate.hardware import Catalogue, device_of, joined_by
from raceline.plan.request import PlanRequest
from raceline.plan.wishes import between_nodes
from raceline.present.errors import Message

COUNTS = (1, 2, 4, 8)
BIG_COUNTS = (16, 32, 64, 128, 256, 512, 1024)
SHORTEST_JOB_S = 1800.0
HONEST_UTILISATION = 0.4
# States need about this many times the devices that would just hold them.
ROOM_FOR_STATES = 4.0
# Tiers that nobody joins to clusters.
ONE_MACHINE = ("consumer", "edge", "mobile")


@dataclass(frozen=True, slots=True)
class Candidates:
    """Devices, pairs of (device index, count) to look at, and the prices of all of them."""

    devices: tuple[Device, ...]
    pairs: tuple[tuple[int, int], ...]
    table: prices.PriceTable
    notes: tuple[Message, ...]

    def price(self, device: int, count: int) -> prices.Price | None:
        """The cheapest current offer of a pair."""
        return self.table.price(self.devices[device].accelerator.id, count)


def candidates(
    request: PlanRequest, catalogue: Catalogue, flops: float, least_bytes: float = 0.0
) -> Candidates:
    """The accelerators that can be had for this task (or the one asked for), in counts that make
    sense: none so large that the job of `flops` would be over in minutes, unless the states
    (`least_bytes`) need them."""
    accelerators, notes = _accelerators(request, catalogue)
    devices = tuple(device_of(accelerator, catalogue) for accelerator in accelerators)
    if link := between_nodes(request.interconnect):
        devices = tuple(joined_by(device, link, catalogue) for device in devices)
    counts = _counts(request)
    table = prices.price_table(
        catalogue.offers, [a.id for a in accelerators], counts,
        prices.Wish(region=request.region, spot=request.spot),
        per_node={device.accelerator.id: device.per_node for device in devices}, today=catalogue.today,
    )  # fmt: skip
    is_named = request.on is not None
    pairs = tuple(
        (index, count)
        for index, device in enumerate(devices)
        for place, count in enumerate(counts)
        if (is_named or np.isfinite(table.price_hour_usd[index, place]))
        and _is_sensible(device, count, flops, least_bytes, request)
    )
    return Candidates(devices, pairs, table, notes)


def written(accelerator: Accelerator) -> str:
    """What a scenario calls it: its id, with the memory where that isn't the catalogue's."""
    row = load.accelerators().get(accelerator.id)
    is_sized = accelerator.kind == "cpu" if row is None else row.memory_gib != accelerator.memory_gib
    return f"{accelerator.id} {accelerator.memory_gib:g}GB" if is_sized else accelerator.id


def _accelerators(
    request: PlanRequest, catalogue: Catalogue
) -> tuple[Sequence[Accelerator], tuple[Message, ...]]:
    if request.on:
        resolved = catalogue.resolve(request.on)
        return [resolved.accelerator], resolved.notes
    offered = {offer.accelerator for offer in catalogue.offers}
    is_training = request.task == "train"
    found = [
        accelerator
        for accelerator in catalogue.accelerators.values()
        if accelerator.id in offered
        and accelerator.memory_gib
        and accelerator.memory_bw_gbs
        and (not is_training or accelerator.training_capable == "yes")
        and _has_16_bits(accelerator)
    ]
    return [item for item in found if _runs(item, request)], ()


def _runs(accelerator: Accelerator, request: PlanRequest) -> bool:
    """Whether the runtime that was asked for (or the usual engine, to serve) has a backend for it."""
    name = request.runtime or (usual_engine(request.model) if request.task == "infer" else None)
    runtime = load.runtimes().get(name or "")
    return runtime is None or not constraints.check_runtime(
        accelerator, runtime, request.precision, request.task
    )


def _has_16_bits(accelerator: Accelerator) -> bool:
    device = Device(accelerator=accelerator)
    return peak_flops(device, "bf16") > 0 or peak_flops(device, "fp16") > 0


def _counts(request: PlanRequest) -> tuple[int, ...]:
    if request.on_count:
        return (request.on_count,)
    return tuple(count for count in (*COUNTS, *BIG_COUNTS) if count <= request.most_devices)


def _is_sensible(device: Device, count: int, flops: float, least_bytes: float, request: PlanRequest) -> bool:
    """Whole nodes beyond one node, and a job that lasts or can't be held by fewer."""
    if request.on_count:
        return True
    if count > device.per_node and (count % device.per_node or device.accelerator.tier in ONE_MACHINE):
        return False
    if request.task != "train" or count == 1:
        return True
    held_by = least_bytes / ((device.accelerator.memory_gib or 1.0) * 2.0**30)
    if count <= ROOM_FOR_STATES * held_by:
        return True
    rate = max(peak_flops(device, "bf16"), peak_flops(device, "fp16")) * HONEST_UTILISATION
    return bool(flops / (rate * count) >= SHORTEST_JOB_S)
