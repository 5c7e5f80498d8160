"""What may go wrong with an option, as a number that ranks and as reasons that people read."""

from __future__ import annotations

import math

from raceline.catalog.prices import Price
from raceline.estimate.devices import Device
from raceline.estimate.result import Estimate
from raceline.estimate.scenario import Scenario
from raceline.present.errors import Message, message

# Weights are judgements: they order options that are alike in time and money, nothing more.
FULL_MEMORY, NEARLY_FULL_MEMORY = 0.2, 0.05
MORE_DEVICES = 0.03
OFFLOADED, SPOT, OTHER_TIER, MANY_NODES, EIGHT_BITS = 0.1, 0.2, 0.15, 0.1, 0.1


def risks(
    scenario: Scenario, estimate: Estimate, device: Device, price: Price | None
) -> tuple[float, tuple[Message, ...]]:
    """The sum of an option's risks (at most 1) and what they are."""
    found: list[tuple[float, Message]] = []
    memory = estimate.memory_gib
    share = memory.total.mid / memory.limit if memory.limit else 1.0
    if share > 0.93:
        found.append((FULL_MEMORY, message("plan.risk_memory", share_fraction=share)))
    elif share > 0.85:
        found.append((NEARLY_FULL_MEMORY, message("plan.risk_memory", share_fraction=share)))
    if scenario.setup.offload not in (None, "none"):
        found.append((OFFLOADED, message("plan.risk_offload", needed_gib=estimate.host_memory_gib)))
    together = scenario.hardware.count
    if scenario.workload.task == "infer":
        together = (scenario.setup.tp or 1) * (scenario.setup.pp or 1)
    if together > 1:
        weight = MORE_DEVICES * math.log2(together)
        found.append((weight, message("plan.risk_devices", count=together)))
    if together > device.per_node:
        nodes = together // device.per_node
        found.append((MANY_NODES, message("plan.risk_nodes", nodes=nodes)))
    if scenario.workload.task == "train" and scenario.setup.precision in ("fp8", "mxfp8", "nvfp4"):
        found.append((EIGHT_BITS, message("plan.risk_precision", precision=scenario.setup.precision)))
    if price and price.is_spot:
        found.append((SPOT, message("plan.risk_spot")))
    if price and price.offer.tier in ("marketplace", "community"):
        found.append(
            (OTHER_TIER, message("plan.risk_tier", provider=price.offer.provider, tier=price.offer.tier))
        )
    return min(1.0, sum(weight for weight, _ in found)), tuple(reason for _, reason in found)
