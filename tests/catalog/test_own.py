from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceline.catalog import own
from raceline.present.errors import InputError

CARD = {"id": "my-card", "like": "rtx-4090", "memory_gib": 48}
PRICE = {
    "provider": "lab",
    "accelerator": "my-card",
    "count": 4,
    "price_hour_usd": 1.2,
    "as_of": "2026-11-01",
}


def refused(data: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        own.parse(data, "own.yaml")
    return caught.value


def test_a_card_like_another_keeps_what_is_not_said() -> None:
    card = own.parse({"accelerators": [CARD]}, "own.yaml").accelerators["my-card"]
    assert (card.memory_gib, card.memory_bw_gbs, card.msrp_usd) == (48, 1008, None)


def test_a_new_card_knows_only_what_was_written() -> None:
    card = own.parse({"accelerators": [{"id": "new", "memory_gib": 10}]}, "own.yaml").accelerators["new"]
    assert (card.bf16_dense_tflops, card.source_url) == (None, "own.yaml")


def test_a_price_for_an_own_card_is_accepted() -> None:
    assert own.parse({"accelerators": [CARD], "offers": [PRICE]}, "own.yaml").offers[0].price_hour_usd == 1.2


def test_own_links_and_machines_are_read() -> None:
    found = own.parse(
        {
            "links": [{"id": "lab-net", "gbs_per_dir": 25}],
            "nodes": [{"accelerator": "rtx-4090", "per_node": 2, "inter_link": "lab-net"}],
        },
        "own.yaml",
    )
    assert (found.links["lab-net"].gbs_per_dir, found.nodes["rtx-4090"].per_node) == (25, 2)


def test_nothing_is_an_empty_catalogue() -> None:
    assert own.parse({}, "own.yaml") == own.OwnCatalog()


FAULTS: dict[str, tuple[Any, str]] = {
    "a list instead of a mapping": ([], "own_not_mapping"),
    "an unknown kind": ({"gpus": []}, "own_unknown_kind"),
    "a mapping instead of a list": ({"links": {"id": 1}}, "own_not_list"),
    "a row that is a word": ({"links": ["x"]}, "own_row_not_mapping"),
    "an unknown field": ({"links": [{"id": "x", "gbs": 1}]}, "own_unknown_field"),
    "a word where a number belongs": (
        {"accelerators": [{"id": "x", "memory_gib": "big"}]},
        "own_wrong_value",
    ),
    "a missing id": ({"accelerators": [{"memory_gib": 1}]}, "own_wrong_value"),
    "an unknown row to copy": ({"accelerators": [{"id": "x", "like": "rtx-4091"}]}, "own_unknown_like"),
    "an id twice": ({"accelerators": [CARD, CARD]}, "own_twice"),
    "a negative size": ({"accelerators": [{"id": "x", "memory_gib": -1}]}, "own_problem"),
    "bytes instead of GiB": ({"accelerators": [{"id": "x", "memory_gib": 25769803776}]}, "own_problem"),
    "fp8 slower than bf16": (
        {"accelerators": [{"id": "x", "bf16_dense_tflops": 10, "fp8_dense_tflops": 5}]},
        "own_problem",
    ),
    "a price of an unknown card": ({"offers": [{**PRICE, "accelerator": "nothing"}]}, "own_problem"),
    "a spot price above on-demand": (
        {"accelerators": [CARD], "offers": [{**PRICE, "spot_hour_usd": 9.0}]},
        "own_problem",
    ),
    "no price": ({"accelerators": [CARD], "offers": [{**PRICE, "price_hour_usd": None}]}, "own_problem"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str) -> None:
    data, reason = FAULTS[fault]
    assert refused(data).message.id == f"catalog.{reason}"


def test_a_fault_in_a_file_tells_its_line(tmp_path: Path) -> None:
    pytest.importorskip("raceline.present.documents")
    path = tmp_path / "own.yaml"
    path.write_text("accelerators:\n  - id: good\n    memory_gib: 8\n  - id: bad\n    memory_gib: -8\n")
    with pytest.raises(InputError) as caught:
        own.load(path)
    assert caught.value.message.params["line"] == 5


def test_a_file_is_read(tmp_path: Path) -> None:
    pytest.importorskip("raceline.present.documents")
    path = tmp_path / "own.yaml"
    path.write_text("accelerators:\n  - {id: my-card, like: rtx-4090, memory_gib: 48}\n")
    assert own.load(path).accelerators["my-card"].memory_gib == 48
