"""Recommenders: tables by rows and width, networks by hand, what a lookup costs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Embedding, Model
from raceline.present.errors import InputError

DLRM: dict[str, Any] = {
    "model_type": "dlrm", "table_rows": [100, 50, 100], "embedding_dim": 16, "num_dense_features": 4,
    "bottom_mlp": [32, 16], "top_mlp": [8, 1],
}  # fmt: skip
BOTTOM = (4 * 32 + 32) + (32 * 16 + 16)
WIDE_DEEP: dict[str, Any] = {
    "model_type": "wide_deep", "table_rows": [100, 50], "embedding_dim": 16, "num_dense_features": 4,
    "mlp": [8, 1],
}  # fmt: skip
TWO_TOWER: dict[str, Any] = {
    "model_type": "two_tower", "user": {"table_rows": [1000, 20]}, "embedding_dim": 16, "mlp": [32, 8],
    "item": {"table_rows": [500], "num_dense_features": 3},
}  # fmt: skip


def _build(config: dict[str, Any]) -> Model:
    return registry.build_model(Fields(config))


def _parameters(config: dict[str, Any]) -> int:
    return count.parameters(_build(config))


def _tables(model: Model) -> list[Embedding]:
    return [op for block in model.blocks for op in block.ops if isinstance(op, Embedding)]


def test_dlrm_has_its_tables_and_networks() -> None:
    """Three tables and the dense vector make six pairs, joined with the dense vector of 16."""
    assert _parameters(DLRM) == 250 * 16 + BOTTOM + (22 * 8 + 8) + (8 + 1)


def test_cross_layers_of_low_rank_have_two_matrices_and_a_bias() -> None:
    crossed, rank = 4 * 16, 6
    config = {**DLRM, "interaction": "dcn", "cross_layers": 2, "cross_rank": rank}
    cross = 2 * (2 * crossed * rank + crossed)
    assert _parameters(config) == 250 * 16 + BOTTOM + cross + (crossed * 8 + 8) + (8 + 1)


def test_wide_and_deep_adds_a_weight_for_each_row_and_dense_feature() -> None:
    deep = 150 * 16 + ((2 * 16 + 4) * 8 + 8) + (8 + 1)
    assert _parameters(WIDE_DEEP) == deep + 150 + 4 + 1


def test_two_towers_have_tables_and_networks_of_their_own() -> None:
    networks = [(given * 32 + 32) + (32 * 8 + 8) for given in (2 * 16, 16 + 3)]
    assert _parameters(TWO_TOWER) == 1520 * 16 + sum(networks)
    assert {block.component for block in _build(TWO_TOWER).blocks} == {"user", "item", ""}


@given(more=st.integers(1, 10**9))
def test_more_rows_add_the_width_of_a_table_each(more: int) -> None:
    after = {**DLRM, "table_rows": [100 + more, 50, 100]}
    assert _parameters(after) - _parameters(DLRM) == 16 * more
    assert count.flops(_build(after)) == count.flops(_build(DLRM))


@given(lookups=st.lists(st.integers(1, 200), min_size=3, max_size=3))
def test_lookups_change_what_is_read_and_no_parameters(lookups: list[int]) -> None:
    model = _build({**DLRM, "lookups": lookups})
    assert count.parameters(model) == _parameters(DLRM)
    assert sum(op.count * op.lookups for op in _tables(model)) == sum(lookups)


def test_equal_tables_are_one_row_of_the_graph() -> None:
    assert [(op.entries, op.count) for op in _tables(_build(DLRM))] == [(100, 2), (50, 1)]


@pytest.mark.parametrize("config", [DLRM, WIDE_DEEP, TWO_TOWER], ids=lambda config: config["model_type"])
def test_tables_are_sharded_over_devices_and_samples_are_counted(config: dict[str, Any]) -> None:
    model = _build(config)
    assert all(op.sharded_table for op in _tables(model))
    assert (model.unit, model.objective, model.seq_len) == ("sample", "rank", 0)


def test_the_bundled_dlrm_of_mlperf_is_nearly_all_tables() -> None:
    model = _build(names.find("dlrm-dcnv2-mlperf").config)
    tables = sum(op.count * op.entries * op.width for op in _tables(model))
    assert tables == 204_184_588 * 128
    assert count.parameters(model) - tables == 16_044_545
    assert sum(op.count * op.lookups for op in _tables(model)) == 214


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"table_rows": []}, "models.lists_differ"),
        ({"lookups": [1, 2]}, "models.lists_differ"),
        ({"table_rows": [10, -1, 3]}, "models.field_not_integer"),
        ({"table_rows": "many"}, "models.field_not_list"),
        ({"table_rows": [1] * 1000}, "models.field_not_list"),
        ({"interaction": "sum"}, "models.block_unknown"),
    ],
)
def test_a_wrong_recommender_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**DLRM, **change})
    assert caught.value.message.id == message


@given(
    field=st.sampled_from(["table_rows", "lookups", "embedding_dim", "bottom_mlp", "top_mlp", "interaction"]),
    value=st.one_of(
        st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=4)
    ),
)
def test_any_value_in_a_field_builds_or_is_refused(field: str, value: Any) -> None:
    try:
        _build({**DLRM, field: value})
    except InputError as error:
        assert error.message.id.startswith("models.")
