"""A scenario's hardware as a Device: the accelerator that is meant, its node and its links."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Mapping

import msgspec

from raceline.catalog import constraints, prices
from raceline.catalog.nodes import Node, node_of
from raceline.catalog.resolve import Resolved
from raceline.catalog.types import Accelerator, Link, NodeFact, Offer
from raceline.estimate.devices import Device
from raceline.estimate.scenario import Hardware
from raceline.present.errors import InputError, Message

Resolve = Callable[[str], Resolved]
_MIG = re.compile(r"(\d)g\.(\d+)gb")
MIG_SLICES = 7
DEFAULT_PCIE_GBS = 16.0


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that estimates use, as values; a shell loads them, with the user's own merged in."""

    accelerators: Mapping[str, Accelerator]
    nodes: Mapping[str, NodeFact]
    links: Mapping[str, Link]
    offers: tuple[Offer, ...]
    resolve: Resolve
    today: datetime.date | None = None

    def node(self, accelerator: Accelerator) -> Node:
        """The usual machine of an accelerator."""
        return node_of(accelerator, self.nodes, self.links)

    def price_hour_usd(self, hardware: Hardware, accelerator: Accelerator) -> prices.Price | None:
        """The cheapest current offer for the hardware; of the stated provider where one is stated."""
        provider, _, instance = (hardware.offer or "").partition(":")
        mine = [offer for offer in self.offers if offer.accelerator == accelerator.id]
        if hardware.offer:
            mine = [offer for offer in mine if _is_offer(offer, provider, instance)]
            if not mine:
                known = {o.provider for o in self.offers if o.accelerator == accelerator.id}
                raise InputError(
                    "estimate.offer_unknown",
                    field="hardware.offer",
                    given=hardware.offer,
                    accelerator=accelerator.name,
                    known=", ".join(sorted(known)) or "-",
                )
        if not mine:
            return None
        per_node = {accelerator.id: hardware.per_node or self.node(accelerator).per_node}
        wish = prices.Wish()
        return prices.cheapest(
            mine, accelerator.id, hardware.count, wish, per_node=per_node, today=self.today
        )


def _is_offer(offer: Offer, provider: str, instance: str) -> bool:
    return offer.provider.lower() == provider.lower() and instance in ("", offer.instance)


def device_for(hardware: Hardware, catalogue: Catalogue) -> tuple[Device, tuple[Message, ...]]:
    """The device that the hardware names, and notes on what was taken for it."""
    try:
        resolved = catalogue.resolve(hardware.accelerator)
    except InputError as error:
        raise InputError(
            error.message.id, **{**error.message.params, "field": "hardware.accelerator"}
        ) from None
    accelerator = resolved.accelerator
    device = device_of(accelerator, catalogue, hardware.per_node)
    stated = accelerator.memory_gib or hardware.memory_gib or resolved.usable_gib
    if stated is None or accelerator.memory_bw_gbs is None:
        raise InputError(
            "estimate.device_unknown", field="hardware.accelerator", accelerator=accelerator.name,
            source_url=accelerator.source_url.split(" ")[0],
        )  # fmt: skip
    if hardware.interconnect:
        device = joined_by(device, hardware.interconnect, catalogue)
    if profile := hardware.mig_profile or resolved.mig_profile:
        if found := constraints.check_mig(accelerator, profile, hardware.count):
            raise InputError(found[0].id, **{**found[0].params, "field": "hardware.mig_profile"})
        device = _slice(device, profile)
    if hardware.cores and accelerator.kind == "cpu" and accelerator.sm_count:
        share = min(1.0, hardware.cores / accelerator.sm_count)
        device = msgspec.structs.replace(device, compute_fraction=share)
    if usable := hardware.memory_gib or resolved.usable_gib:
        device = msgspec.structs.replace(device, memory_gib=usable)
    return device, resolved.notes


def device_of(accelerator: Accelerator, catalogue: Catalogue, per_node: int | None = None) -> Device:
    """An accelerator in its usual node. A bridge that is sold apart isn't planned with, nor a link
    that joins fewer cards than the node has."""
    node = catalogue.node(accelerator)
    is_linked = (
        node.intra_gbs > 0 and not node.intra_is_optional and node.link_domain >= min(node.per_node, 4)
    )
    return Device(
        accelerator=accelerator,
        per_node=per_node or max(node.per_node, node.link_domain if node.link_domain > 1 else 1),
        intra_gbs=node.intra_gbs if is_linked else 0.0,
        pair_gbs=node.pair_gbs if is_linked else 0.0,
        intra_fraction=node.intra_fraction if is_linked else None,
        inter_gbs=node.inter_gbs or 1.25,
        pcie_gbs=node.pcie_gbs or DEFAULT_PCIE_GBS,
        has_peer_access=node.has_peer_access,
    )


def joined_by(device: Device, interconnect: str, catalogue: Catalogue) -> Device:
    """The device with this link between its nodes: a port for each device, or its share of the node's."""
    link = catalogue.links.get(interconnect)
    if link is None or link.gbs_per_dir is None or link.scope != "inter-node":
        raise InputError(
            "estimate.link_unknown", field="hardware.interconnect", given=interconnect,
            known=", ".join(name for name, row in catalogue.links.items() if row.scope == "inter-node"),
        )  # fmt: skip
    is_shared = "node" in (link.basis or "") or link.kind == "ethernet"
    return msgspec.structs.replace(device, inter_gbs=link.gbs_per_dir / (device.per_node if is_shared else 1))


def _slice(device: Device, profile: str) -> Device:
    """A MIG slice: its share of compute (sevenths), and of bandwidth by its share of memory."""
    accelerator = device.accelerator
    found = _MIG.fullmatch(profile)
    if found is None or profile not in accelerator.mig_profiles:
        raise InputError(
            "estimate.mig_unknown", field="hardware.mig_profile", given=profile, accelerator=accelerator.name,
            known=", ".join(accelerator.mig_profiles) or "-", source_url=accelerator.source_url.split(" ")[0],
        )  # fmt: skip
    memory_gib = float(found.group(2))
    return msgspec.structs.replace(
        device,
        memory_gib=memory_gib * 0.95,
        compute_fraction=int(found.group(1)) / MIG_SLICES,
        bandwidth_fraction=min(1.0, memory_gib / (accelerator.memory_gib or memory_gib)),
        per_node=1,
        intra_gbs=0.0,
    )
