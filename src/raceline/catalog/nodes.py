"""What a machine around an accelerator looks like: how many, and the links inside and outside."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from raceline.catalog.types import Accelerator, Link, NodeFact, Offer
from raceline.present.errors import Message, message

# PCIe generations to links.csv ids at 16 lanes; fewer lanes carry their share of it.
_PCIE = {3: "pcie3-x16", 4: "pcie4-x16", 5: "pcie5-x16", 6: "pcie6-x16"}
_PORTS = re.compile(r"(?:(\d+)\s*x\s*)?(\d+(?:\.\d+)?)\s*Gb/s")


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine with `per_node` accelerators; all rates one direction, per accelerator, 10^9 bytes/s.

    `link_domain` accelerators reach each other over `intra_link` (a bridge joins 2, a rack 72; 1:
    none). `intra_is_optional`: the bridge is sold apart, so plan with PCIe unless it was asked for.
    `pair_gbs` is what two of them share where the mesh has no switch, else the same as `intra_gbs`.
    `intra_fraction` is the measured part of `intra_gbs` that a large all-reduce reaches.
    `inter_gbs` is None for one machine alone; `is_assumed`: a planning value, not a known node.
    """

    accelerator: str
    per_node: int
    link_domain: int = 1
    intra_link: str | None = None
    intra_gbs: float = 0.0
    pair_gbs: float = 0.0
    intra_fraction: float | None = None
    intra_latency_us: float | None = None
    intra_is_optional: bool = False
    pcie_link: str | None = None
    pcie_gbs: float | None = None
    has_peer_access: bool = True
    inter_link: str | None = None
    inter_gbs: float | None = None
    inter_fraction: float | None = None
    is_assumed: bool = False
    source_url: str
    notes: tuple[Message, ...] = ()


def node_of(
    accelerator: Accelerator,
    facts: Mapping[str, NodeFact],
    links: Mapping[str, Link],
    offer: Offer | None = None,
) -> Node:
    """The usual node of an accelerator; an offer's own interconnect and size come first."""
    fact = facts.get(accelerator.id)
    usual = facts.get(f"*{accelerator.tier or 'datacenter'}", facts["*datacenter"])
    per_node = _first(fact.per_node if fact else None, accelerator.max_per_node, usual.per_node, 1)
    intra = _intra(accelerator, fact, links)
    inter_link = (fact and fact.inter_link) or usual.inter_link
    inter = links.get(inter_link or "")
    stated = offer_gbs_per_accelerator(offer) if offer is not None else None
    is_assumed = stated is None and (fact is None or fact.inter_gbs_per_accelerator is None)
    return Node(
        accelerator=accelerator.id,
        per_node=offer.count if offer is not None and offer.count > 1 else per_node,
        link_domain=_domain(accelerator, fact, per_node),
        intra_link=(intra.id if intra else accelerator.intra_link) if _has_link(accelerator) else None,
        intra_gbs=accelerator.intra_link_gbs_per_dir or (intra and intra.gbs_per_dir) or 0.0,
        pair_gbs=(intra and intra.p2p_gbs_per_dir) or accelerator.intra_link_gbs_per_dir or 0.0,
        intra_fraction=intra.allreduce_fraction if intra else None,
        intra_latency_us=intra.latency_us if intra else None,
        intra_is_optional=bool(fact and fact.intra_is_optional == "yes"),
        pcie_link=_PCIE.get(accelerator.pcie_gen or 0),
        pcie_gbs=pcie_gbs(accelerator, links),
        has_peer_access=has_peer_access(accelerator, fact),
        inter_link=inter_link,
        inter_gbs=stated or _inter_gbs(fact, inter, per_node),
        inter_fraction=inter.allreduce_fraction if inter else None,
        is_assumed=is_assumed,
        source_url=offer.source_url if stated and offer else (fact or usual).source_url,
        notes=_notes(accelerator, per_node, inter_link) if is_assumed else (),
    )


def pcie_gbs(accelerator: Accelerator, links: Mapping[str, Link]) -> float | None:
    """Rate of the accelerator's PCIe slot in 10^9 bytes a second, one direction; None where unknown."""
    link = links.get(_PCIE.get(accelerator.pcie_gen or 0, ""))
    if link is None or link.gbs_per_dir is None:
        return None
    return link.gbs_per_dir * (accelerator.pcie_lanes or 16) / 16


def has_peer_access(accelerator: Accelerator, fact: NodeFact | None) -> bool:
    """Whether the stock driver lets two cards read each other's memory over PCIe. GeForce cards lost
    it with the 40 series: https://allanchan339.github.io/bug-fixes/2025/05/21/4090-P2P.html"""
    if fact is not None and fact.has_peer_access is not None:
        return fact.has_peer_access == "yes"
    is_geforce = accelerator.vendor == "NVIDIA" and accelerator.tier == "consumer"
    return not (is_geforce and (accelerator.compute_capability or 0.0) >= 8.9)


def offer_gbs_per_accelerator(offer: Offer) -> float | None:
    """Rate between machines that an offer states (``EFA 3200 Gb/s``, ``InfiniBand 8 x 400 Gb/s``),
    in 10^9 bytes a second for each of its accelerators; None where it states none."""
    found = _PORTS.search(offer.interconnect or "")
    if found is None:
        return None
    return int(found[1] or 1) * float(found[2]) / 8 / offer.count


def _intra(accelerator: Accelerator, fact: NodeFact | None, links: Mapping[str, Link]) -> Link | None:
    return links.get((fact and fact.intra_link) or "") if _has_link(accelerator) else None


def _has_link(accelerator: Accelerator) -> bool:
    return accelerator.intra_link not in (None, "none", "ethernet")


def _domain(accelerator: Accelerator, fact: NodeFact | None, per_node: int) -> int:
    if not _has_link(accelerator):
        return 1
    return (fact and fact.link_domain) or per_node


def _inter_gbs(fact: NodeFact | None, inter: Link | None, per_node: int) -> float | None:
    if fact is not None and fact.inter_gbs_per_accelerator is not None:
        return fact.inter_gbs_per_accelerator
    return inter.gbs_per_dir / per_node if inter and inter.gbs_per_dir else None


def _notes(accelerator: Accelerator, per_node: int, inter_link: str | None) -> tuple[Message, ...]:
    return (
        message(
            "catalog.node_assumed", accelerator=accelerator.id, per_node=per_node, link=inter_link or "-"
        ),
    )


def _first(*values: int | None) -> int:
    return next(value for value in values if value)
