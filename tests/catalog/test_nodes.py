from __future__ import annotations

import msgspec
import pytest

from raceline.catalog import load, nodes, prices
from raceline.catalog.nodes import Node


def node(name: str) -> Node:
    return nodes.node_of(load.accelerators()[name], load.nodes(), load.links())


@pytest.mark.parametrize("name", load.accelerators())
def test_every_accelerator_has_a_node_with_a_source(name: str) -> None:
    found = node(name)
    assert found.per_node >= 1
    assert found.source_url


def test_eight_h100_share_nvlink_and_a_port_each() -> None:
    found = node("h100-sxm")
    assert (found.per_node, found.intra_gbs, found.inter_gbs, found.is_assumed) == (8, 450, 50, False)


def test_a_rack_joins_72_over_nvlink() -> None:
    assert (node("gb200").per_node, node("gb200").link_domain) == (4, 72)


def test_a_mesh_gives_two_devices_a_part() -> None:
    assert (node("mi300x").intra_gbs, node("mi300x").pair_gbs) == (448, 64)


def test_a_bridge_joins_two_and_is_sold_apart() -> None:
    assert (node("rtx-3090").link_domain, node("rtx-3090").intra_is_optional) == (2, True)


def test_geforce_has_no_peer_access_since_the_40_series() -> None:
    assert not node("rtx-4090").has_peer_access
    assert not node("rtx-5090").has_peer_access
    assert node("l40s").has_peer_access


def test_fewer_lanes_carry_less() -> None:
    assert node("rtx-4060").pcie_gbs == pytest.approx(31 / 2)


def test_a_planning_value_says_so() -> None:
    found = node("l4")
    assert found.is_assumed
    assert [note.id for note in found.notes] == ["catalog.node_assumed"]


def test_an_offer_s_own_network_comes_first() -> None:
    offer = next(item for item in load.offers() if item.instance == "p4d.24xlarge")
    found = nodes.node_of(load.accelerators()[offer.accelerator], load.nodes(), load.links(), offer)
    assert found.inter_gbs == pytest.approx(400 / 8 / 8)


@pytest.mark.parametrize(
    ("text", "gbs"),
    [
        ("EFA 3200 Gb/s", 50.0),
        ("InfiniBand 8 x 400 Gb/s", 50.0),
        ("Ethernet 100 Gb/s", 1.5625),
        ("ICI", None),
        (None, None),
    ],
)
def test_a_stated_interconnect_is_read(text: str | None, gbs: float | None) -> None:
    offer = msgspec.structs.replace(load.offers()[0], interconnect=text, count=8)
    assert nodes.offer_gbs_per_accelerator(offer) == gbs


def test_prices_accept_node_sizes() -> None:
    assert prices.cheapest(load.offers(), "t4", 4, per_node={"t4": 4}) is not None
