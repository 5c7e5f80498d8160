"""Transformers that begin with windows or convolutions: printed sizes by name, differences by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Attention, Model
from raceline.present.errors import InputError

# Sizes in millions: MindCV's where it prints one, else those of the papers, some to one decimal only.
PRINTED = {
    "volo_d1": 26.63, "volo_d2": 58.68, "volo_d3": 86.33, "volo_d4": 192.96, "volo_d5": 295.46,
    "visformer_tiny": 10.33, "visformer_small": 40.22, "visformer_tiny_v2": 9.4, "visformer_small_v2": 23.6,
}  # fmt: skip


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _added(before: dict[str, Any], **change: Any) -> int:
    return count.parameters(_build({**before, **change})) - count.parameters(_build(before))


@pytest.mark.parametrize("name", PRINTED)
def test_a_name_has_its_printed_size(name: str, record_property: Any) -> None:
    model = _build(names.find(name).config)
    error = count.parameters(model) / 1e6 / PRINTED[name] - 1
    record_property("error", error)
    assert abs(error) < 0.005
    assert (model.unit, model.objective, model.architecture) == ("image", "classify", name)


VOLO = {"model_type": "volo", "hidden_sizes": [32, 64, 64], "depths": [1, 1, 1],
        "num_attention_heads": [2, 4, 4], "mlp_ratios": [3, 3, 3], "post_layers": 1}  # fmt: skip


def _feed(width: int) -> int:
    """The feed-forward network at three times the width, and the norms of both halves of a layer."""
    return 2 * 3 * width * width + 4 * width + 4 * width


@given(more=st.integers(1, 50))
def test_more_outlook_layers_add_values_and_window_weights(more: int) -> None:
    outlook = 32 * 32 + (32 + 1) * 3**4 * 2 + (32 * 32 + 32)
    assert _added(VOLO, depths=[1 + more, 1, 1]) == more * (outlook + _feed(32))


@given(more=st.integers(1, 50))
def test_more_plain_and_class_layers_of_volo_have_no_bias_on_what_they_compare(more: int) -> None:
    layer = 4 * 64 * 64 + 64 + _feed(64)
    assert _added(VOLO, depths=[1, 1 + more, 1]) == more * layer
    assert _added(VOLO, post_layers=1 + more) == more * layer


def test_a_window_of_volo_does_the_work_of_its_weights() -> None:
    before, after = (count.flops(_build({**VOLO, "depths": [depth, 1, 1]})) for depth in (1, 2))
    places, windows = 28 * 28, 14 * 14
    dense = places * (2 * 32 * 32 + 2 * 3 * 32 * 32) + windows * 32 * 81 * 2
    assert after - before == pytest.approx(2 * (dense + windows * 81 * 32), rel=0.03)


def test_the_second_classifier_of_volo_reads_all_tokens_but_the_first() -> None:
    plain = {**VOLO, "has_token_classifier": False}
    assert _added(plain, has_token_classifier=True) == 64 * 1000 + 1000
    more = count.flops(_build(VOLO)) - count.flops(_build(plain))
    assert more == pytest.approx(2 * 14 * 14 * 64 * 1000, rel=0.01)


def test_positions_of_volo_belong_to_its_own_image_size() -> None:
    assert count.parameters(_build(VOLO)) == count.parameters(_build(VOLO, 448))
    assert _added(VOLO, image_size=448) == (28**2 - 14**2) * 64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": [1, 1]}, "models.lists_differ"),
        ({"depths": [1, 1, 10**9]}, "models.field_not_integer"),
        ({"hidden_sizes": [32, 64, 128]}, "models.field_not_integer"),
        ({"num_attention_heads": [3, 4, 4]}, "models.heads_not_divisor"),
        ({"patch_size": 1}, "models.field_not_integer"),
        ({"image_size": 8}, "models.image_too_small"),
    ],
)
def test_a_wrong_volo_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**VOLO, **change})
    assert caught.value.message.id == message


VISFORMER = {"model_type": "visformer", "hidden_sizes": [16, 32], "depths": [1, 1], "patch_sizes": [4, 2],
             "num_attention_heads": [1, 4], "convolution_stages": 1, "groups": 8, "mlp_ratio": 4.0}  # fmt: skip


@given(more=st.integers(1, 50))
def test_more_layers_of_visformer_are_convolutions_first_and_attention_then(more: int) -> None:
    grouped = 16 * 32 + 32 * (32 // 8) * 9 + 32 * 16 + 2 * 16
    assert _added(VISFORMER, depths=[1 + more, 1]) == more * grouped
    attention = 4 * 32 * 32 + 2 * 32 * 128 + 2 * 2 * 32
    assert _added(VISFORMER, depths=[1, 1 + more]) == more * attention


def test_a_stage_of_visformer_without_heads_has_no_attention() -> None:
    blocks = {one.name: one for one in _build(VISFORMER).blocks}
    has = {name: any(isinstance(op, Attention) for op in blocks[name].ops) for name in ("stage0", "stage1")}
    assert has == {"stage0": False, "stage1": True}


def test_positions_of_visformer_belong_to_its_own_image_size() -> None:
    assert count.parameters(_build(VISFORMER)) == count.parameters(_build(VISFORMER, 448))
    assert _added(VISFORMER, image_size=448) == 3 * (28**2 * 16 + 14**2 * 32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depths": [1]}, "models.lists_differ"),
        ({"depths": [1, 10**9]}, "models.field_not_integer"),
        ({"groups": 5}, "models.block_unknown"),
        ({"num_attention_heads": [1, 5]}, "models.heads_not_divisor"),
        ({"mlp_ratio": float("nan")}, "models.field_not_number"),
        ({"image_size": 6}, "models.image_too_small"),
    ],
)
def test_a_wrong_visformer_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**VISFORMER, **change})
    assert caught.value.message.id == message


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-3, 10**6), max_size=4), st.lists(st.integers(1, 64), min_size=3, max_size=3),
)  # fmt: skip


@pytest.mark.parametrize("config", [VOLO, VISFORMER], ids=["volo", "visformer"])
@given(data=st.data())
def test_any_value_in_a_field_builds_or_is_refused(config: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(config)))
    try:
        _build({**config, field: data.draw(ANYTHING)})
    except InputError as error:
        assert error.message.id.startswith("models.")
