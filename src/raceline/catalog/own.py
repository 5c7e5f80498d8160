"""A user's own devices, links, machines and prices, from a YAML file, beside the catalogue's."""

from __future__ import annotations

import msgspec

from raceline.catalog.types import Accelerator, Link, NodeFact, Offer


class OwnCatalog(msgspec.Struct, frozen=True, kw_only=True):
    """What a user adds; an id of the catalogue replaces the catalogue's row."""

    accelerators: dict[str, Accelerator] = {}
    links: dict[str, Link] = {}
    nodes: dict[str, NodeFact] = {}
    offers: tuple[Offer, ...] = ()
