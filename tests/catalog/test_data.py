"""Checks of the data itself: a wrong row fails here, not in somebody's plan."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from raceline.catalog import integrity, load, resolve
from raceline.catalog.dates import known_date
from raceline.present.text import render

DATA = Path(load.__file__).parent / "data"
FILES = sorted(DATA.glob("*.csv"))


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_accelerator_passes_the_integrity_rules() -> None:
    problems = {
        item.id: [render(problem) for problem in found]
        for item in load.accelerators().values()
        if (found := integrity.check_accelerator(item))
    }
    assert problems == {}


def test_every_offer_passes_the_integrity_rules() -> None:
    known = load.accelerators()
    problems = [
        (item.provider, found) for item in load.offers() if (found := integrity.check_offer(item, known))
    ]
    assert problems == []


def test_links_and_purchase_and_electricity_prices_pass_the_integrity_rules() -> None:
    items = (*load.links().values(), *load.retail_prices(), *load.electricity())
    assert [(item, found) for item in items if (found := integrity.check_row(item))] == []


@pytest.mark.parametrize("name", ["accelerators.csv", "cpus.csv", "links.csv", "storage.csv"])
def test_ids_are_unique(name: str) -> None:
    assert integrity.duplicates(row["id"] for row in rows(name)) == []


def test_accelerators_and_processors_share_no_id() -> None:
    assert not set(load.accelerators()) & set(load.cpus())


def test_runtime_ids_and_aliases_are_unique() -> None:
    names = [name.lower() for item in load.runtimes().values() for name in (item.id, *item.aliases)]
    assert integrity.duplicates(names) == []


def test_every_runtime_has_a_licence_a_source_and_a_date() -> None:
    items = load.runtimes().values()
    assert [item.id for item in items if not (item.licence and item.source_url.startswith("https://"))] == []
    assert [item.id for item in items if not item.as_of.startswith("20")] == []


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.name not in ("aliases.csv", "preferences.csv")]
)
def test_every_row_has_a_source(path: Path) -> None:
    assert [row for row in rows(path.name) if not row["source_url"].strip()] == []


def test_every_alias_leads_to_a_row_of_its_kind() -> None:
    known = {
        "accelerator": set(load.accelerators()),
        "cpu": set(load.cpus()),
        "link": set(load.links()),
        "storage": set(load.storage()),
    }
    assert [row for row in rows("aliases.csv") if row["id"] not in known[row["kind"]]] == []


def test_every_preference_is_a_candidate_of_its_name() -> None:
    for row in rows("preferences.csv"):
        assert resolve.accelerator(row["written"]).accelerator.id == row["id"], row


def test_nodes_name_known_accelerators_and_links() -> None:
    for name, fact in load.nodes().items():
        assert name.startswith("*") or name in load.accelerators(), name
        for link in (fact.intra_link, fact.inter_link):
            assert link is None or link in load.links(), (name, link)


def test_each_tier_has_a_usual_node() -> None:
    tiers = {item.tier for item in load.accelerators().values() if item.tier}
    assert {f"*{tier}" for tier in tiers} <= set(load.nodes())


def test_retail_prices_name_known_devices() -> None:
    # a whole rack has a price and is no accelerator
    known = {*load.accelerators(), *load.cpus(), "gb200-nvl72-rack"}
    assert [item.device for item in load.retail_prices() if item.device not in known] == []


def test_no_price_is_from_the_future_of_its_file() -> None:
    newest = max(day for item in load.offers() if (day := known_date(item.as_of)))
    assert newest.year < 2100


def test_tensor_rates_of_geforce_cards_follow_their_unit_counts() -> None:
    card = load.accelerators()["rtx-3070"]
    # 46 multiprocessors x 1.725 GHz x 512 FLOP a clock with 32-bit sums
    assert card.fp16_dense_tflops == pytest.approx(46 * 1.725 * 512 / 1000, rel=0.01)
