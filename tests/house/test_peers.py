"""Other estimators on the same rows: the stored results, and how answers are summed up."""

from __future__ import annotations

import datetime
import importlib
import sys
from pathlib import Path

import msgspec
import pytest

from raceline.accuracy.groups import bars

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tools.peers.__main__ import PEERS  # noqa: E402
from tools.peers.case import Case, Device, Shape  # noqa: E402
from tools.peers.gather import GROUPS  # noqa: E402
from tools.peers.score import PeerResult, result  # noqa: E402

RESULTS = msgspec.json.decode((ROOT / "docs/results/peers.json").read_bytes(), type=list[PeerResult])


def case(name: str, group: str, metric: str, measured: float) -> Case:
    shape, device = Shape(parameters=10, largest_layer_parameters=1), Device(memory_gib=80.0)
    return Case(
        id=name, group=group, metric=metric, measured=measured, model="m", shape=shape, device=device, count=1,
        per_node=1, accelerator="h100-sxm", workload={}, setup={},
    )  # fmt: skip


def summed(group: str, cases: list[Case], answers: dict[str, float], refusals: dict[str, str]) -> PeerResult:
    return result("peer", "1.0", "note", "2026-12-01", group, cases, answers, refusals)


@pytest.mark.parametrize("one", RESULTS, ids=lambda one: f"{one.peer}-{one.group}")
def test_a_stored_result_is_whole(one):
    assert one.peer and one.version and one.note
    assert datetime.date.fromisoformat(one.date)
    assert 0 <= one.answered <= one.rows
    figures = (one.median, one.mean, one.p90, one.bias)
    assert all(figure is None for figure in figures) == (one.group == "fit" or not one.answered)
    assert (one.right is None) == (one.group != "fit" or not one.answered)


def test_stored_groups_are_groups_of_the_score():
    assert {one.group for one in RESULTS} <= {*(bar.group for bar in bars()), "fit"}


def test_a_result_stands_once_for_each_peer_and_group():
    assert len({(one.peer, one.group) for one in RESULTS}) == len(RESULTS)


def test_every_peer_has_a_stored_result():
    names = {importlib.import_module(f"tools.peers.{name}").NAME for name in PEERS}
    assert names == {one.peer.partition(" (")[0] for one in RESULTS}


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_names_groups_that_are_gathered(name):
    assert set(importlib.import_module(f"tools.peers.{name}").GROUPS) <= set(GROUPS)


def test_totals_count_only_what_was_answered():
    cases = [case(name, "train-moe", "step_time_s", 2.0) for name in "abc"]
    answers = {"a:step_time_s": 1.0, "b:step_time_s": 5.0, "c:step_time_s": float("nan")}
    one = summed("train-moe", cases, answers, {})
    assert (one.rows, one.answered, one.median, one.mean, one.bias) == (3, 2, 1.0, 1.0, 0.5)


def test_what_is_not_answered_is_said_with_its_count():
    cases = [case(name, "train-moe", "step_time_s", 2.0) for name in "ab"]
    one = summed("train-moe", cases, {}, dict.fromkeys(("a:step_time_s", "b:step_time_s"), "no adapters"))
    assert one.median is None and "no adapters (2)" in one.note


def test_a_verdict_is_right_where_the_need_is_on_the_side_that_happened():
    cases = [case("ran", "fit", "fits", 1.0), case("failed", "fit", "fits", 0.0)]
    one = summed("fit", cases, {"ran:fits": 79.0, "failed:fits": 40.0}, {})
    assert (one.answered, one.right, one.median) == (2, 0.5, None)
