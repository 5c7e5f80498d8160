"""Kin of the vision transformer: printed sizes by name, and differences by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

# Sizes in millions as MindCV prints them (and as the papers do for those that it has none of).
PRINTED = {
    "pvt_tiny": 13.23, "pvt_small": 24.49, "pvt_medium": 44.21, "pvt_large": 61.36,
    "pvt_v2_b0": 3.67, "pvt_v2_b1": 14.01, "pvt_v2_b2": 25.35, "pvt_v2_b2_li": 22.6, "pvt_v2_b3": 45.24,
    "pvt_v2_b4": 62.56, "pvt_v2_b5": 82.0,
    "poolformer_s12": 11.92, "poolformer_s24": 21.39, "poolformer_s36": 30.86, "poolformer_m36": 56.17,
    "poolformer_m48": 73.47,
    "mobilevit_xx_small": 1.27, "mobilevit_x_small": 2.32, "mobilevit_small": 5.59,
    "pit_ti": 4.85, "pit_xs": 10.61, "pit_s": 23.46, "pit_b": 73.76,
    "convit_tiny": 5.71, "convit_tiny_plus": 9.97, "convit_small": 27.78, "convit_small_plus": 48.98,
    "convit_base": 86.54, "convit_base_plus": 153.13,
    "crossvit_9": 8.55, "crossvit_15": 27.27, "crossvit_18": 43.27,
    "coat_tiny": 5.50, "coat_mini": 10.34, "coat_small": 21.7, "coat_lite_tiny": 5.72, "coat_lite_mini": 11.01,
    "coat_lite_small": 19.84, "coat_lite_medium": 44.57,
    "cmt_small": 26.09,
}  # fmt: skip


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _added(before: dict[str, Any], after: dict[str, Any]) -> int:
    return count.parameters(_build(after)) - count.parameters(_build(before))


def _layer(width: int, inner: int) -> int:
    """Parameters of a layer with biases everywhere: two norms, four projections, two of the feed-forward."""
    return 4 * width + 4 * (width * width + width) + 2 * width * inner + inner + width


@pytest.mark.parametrize("name", PRINTED)
def test_a_name_has_its_printed_size(name: str, record_property: Any) -> None:
    model = _build(names.find(name).config)
    error = count.parameters(model) / 1e6 / PRINTED[name] - 1
    record_property("error", error)
    assert abs(error) < 0.025
    assert (model.unit, model.objective, model.architecture) == ("image", "classify", name)


PVT = {"model_type": "pvt", "depths": [1, 1, 1, 1]}
PVT2 = {"model_type": "pvt_v2", "depths": [1, 1, 1, 1]}


@given(more=st.integers(1, 50))
def test_more_layers_of_a_pyramid_add_their_own_parameters(more: int) -> None:
    last = _added(PVT, {**PVT, "depths": [1, 1, 1, 1 + more]})
    assert last == more * _layer(512, 2048)
    reduced = 128 * 128 * 16 + 128 + 2 * 128
    second = _added(PVT, {**PVT, "depths": [1, 1 + more, 1, 1]})
    assert second == more * (_layer(128, 1024) + reduced)


@given(more=st.integers(1, 50))
def test_the_second_pyramid_has_a_depthwise_convolution_in_each_layer(more: int) -> None:
    added = _added(PVT2, {**PVT2, "depths": [1, 1, 1, 1 + more]})
    assert added == more * (_layer(256, 1024) + 1024 * 9 + 1024)


@given(side=st.integers(1, 20))
def test_the_tables_of_a_pyramid_belong_to_its_own_image_size(side: int) -> None:
    before, after = _build(PVT), _build(PVT, 32 * side)
    assert count.parameters(before) == count.parameters(after)
    own = _added(PVT, {**PVT, "image_size": 448})
    assert own == 3 * (56**2 * 64 + 28**2 * 128 + 14**2 * 320 + 7**2 * 512)


def test_a_pyramid_reads_its_size_from_a_mapping() -> None:
    assert _build({**PVT2, "image_size": {"height": 160, "width": 160}}).image_size == 160


POOL = {"model_type": "poolformer", "depths": [1, 1, 1, 1]}


@given(more=st.integers(1, 50))
def test_a_pooling_layer_has_no_attention_to_pay_for(more: int) -> None:
    added = _added(POOL, {**POOL, "depths": [1, 1, 1 + more, 1]})
    assert added == more * (2 * 320 * 1280 + 1280 + 320 + 4 * 320 + 2 * 320)


MOBILE = {"model_type": "mobilevit", "stage_layers": [1, 1, 1]}


@given(more=st.integers(1, 50), patch=st.integers(1, 4))
def test_layers_between_convolutions_add_their_own_parameters(more: int, patch: int) -> None:
    before = {**MOBILE, "patch_size": patch}
    added = _added(before, {**before, "stage_layers": [1, 1 + more, 1]})
    assert added == more * _layer(192, 384)


def test_a_mobile_network_without_all_its_widths_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        _build({**MOBILE, "neck_hidden_sizes": [16, 32]})
    assert caught.value.message.id == "models.lists_differ"


PIT = {"model_type": "pit", "depths": [1, 1, 1]}


@given(more=st.integers(1, 50), heads=st.integers(1, 12))
def test_more_layers_of_a_pooling_transformer_add_their_own_parameters(more: int, heads: int) -> None:
    before = {**PIT, "num_attention_heads": [2, heads, 8]}
    assert _added(before, {**before, "depths": [1, 1 + more, 1]}) == more * _layer(32 * heads, 128 * heads)


def test_a_distilled_pooling_transformer_has_a_second_token_and_classifier() -> None:
    assert _added(PIT, {**PIT, "distilled": True}) == 64 + 256 * 1000 + 1000


CONVIT = {"model_type": "convit", "num_hidden_layers": 12}


@given(local=st.integers(0, 11), more=st.integers(1, 50))
def test_gates_and_distances_cost_five_numbers_a_head(local: int, more: int) -> None:
    before = {**CONVIT, "num_hidden_layers": 100, "local_layers": local}
    assert _added(before, {**before, "local_layers": local + more}) == more * 5 * 4
    deeper = _added(before, {**before, "num_hidden_layers": 100 + more})
    assert deeper == more * (_layer(192, 768) - 3 * 192)


CROSS = {"model_type": "crossvit", "depths": [1, 1]}


@given(more=st.integers(1, 50))
def test_each_branch_pays_for_its_own_layers_in_every_stage(more: int) -> None:
    assert _added(CROSS, {**CROSS, "depths": [1 + more, 1]}) == 3 * more * _layer(128, 384)
    assert _added(CROSS, {**CROSS, "depths": [1, 1 + more]}) == 3 * more * _layer(256, 768)


@given(more=st.integers(1, 10))
def test_an_exchange_costs_a_norm_and_attention_in_the_other_width(more: int) -> None:
    added = _added(CROSS, {**CROSS, "exchanges": 1 + more})
    assert added == 3 * more * sum(2 * width + 4 * (width * width + width) for width in (128, 256))


CMT = {"model_type": "cmt", "depths": [1, 1, 1, 1]}


@given(more=st.integers(1, 50))
def test_convolutions_around_attention_are_counted_in_each_layer(more: int) -> None:
    depthwise, norms = 10 * (512 + 2048), 2 * (2 * 2048 + 512)
    added = _added(CMT, {**CMT, "depths": [1, 1, 1, 1 + more]})
    assert added == more * (_layer(512, 2048) + depthwise + norms)


COAT = {"model_type": "coat", "depths": [1, 1, 1, 1]}


@given(more=st.integers(1, 50))
def test_layers_of_a_stage_share_the_convolutions_for_positions(more: int) -> None:
    assert _added(COAT, {**COAT, "depths": [1, 1 + more, 1, 1]}) == more * _layer(152, 608)


@given(more=st.integers(1, 50))
def test_parallel_stages_share_their_feed_forward_network(more: int) -> None:
    own = 3 * (4 * 152 + 4 * (152 * 152 + 152))
    assert _added(COAT, {**COAT, "parallel_depth": 6 + more}) == more * (own + 2 * 152 * 608 + 608 + 152)


def test_parallel_stages_of_unlike_widths_are_refused() -> None:
    with pytest.raises(InputError):
        _build({**COAT, "hidden_sizes": [64, 128, 256, 320]})


def test_clip_roberta_is_both_towers_and_two_projections() -> None:
    model = _build(names.find("clip-roberta").config)
    roberta = 768 * (50265 + 514 + 1 + 2) + 12 * _layer(768, 3072) + 768 * 768 + 768
    images = 768 * (3072 + 50 + 1 + 4) + 12 * _layer(768, 3072)
    assert count.parameters(model) == roberta + images + 2 * 768 * 512 + 1
    assert (model.objective, model.unit, model.layers) == ("contrastive", "image", 24)


_TOWER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
DUAL = {
    "model_type": "vision-text-dual-encoder",
    "text_config": {"model_type": "bert", **_TOWER},
    "vision_config": {"model_type": "vit", **_TOWER},
}


@given(length=st.integers(1, 512))
def test_longer_texts_take_more_work_and_no_parameters(length: int) -> None:
    short, long = _build({**DUAL, "text_length": length}), _build({**DUAL, "text_length": length + 1})
    assert count.parameters(short) == count.parameters(long)
    assert count.flops(short) < count.flops(long)


def test_a_text_tower_of_another_kind_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        _build({**DUAL, "text_config": {"model_type": "vit"}})
    assert caught.value.message.id == "models.unknown_architecture"


def test_bridgetower_large_has_its_stated_size() -> None:
    model = _build(names.find("bridgetower-large").config)
    assert count.parameters(model) == pytest.approx(0.87e9, rel=0.025)
    assert (model.objective, model.image_size, model.layers) == ("contrastive", 294, 60)


BRIDGE = {
    "model_type": "bridgetower", "hidden_size": 64, "num_hidden_layers": 2,
    "text_config": _TOWER, "vision_config": {"hidden_size": 64, "num_hidden_layers": 2},
}  # fmt: skip


@given(more=st.integers(1, 50))
def test_more_cross_modal_layers_add_two_layers_and_two_norms_each(more: int) -> None:
    cross = _layer(64, 128) + 4 * (64 * 64 + 64) + 2 * 64
    assert _added(BRIDGE, {**BRIDGE, "num_hidden_layers": 2 + more}) == more * 2 * (cross + 2 * 64)
    own = {**BRIDGE, "share_cross_modal_transformer_layers": False}
    added = _added(own, {**own, "num_hidden_layers": 2 + more})
    assert added == more * 2 * (cross + 2 * 64 + 64 * 64 + 64)


STAGED = [PVT, PVT2, POOL, PIT, CROSS, CMT, COAT]


WRONG: list[dict[str, Any]] = [
    {"depths": [1] * 7}, {"depths": [10**9, 1, 1, 1]}, {"num_channels": -1}, {"num_attention_heads": "64"},
    {"num_attention_heads": [0, 1, 1, 1]},
]  # fmt: skip
REFUSED = [
    (config, wrong)
    for config in STAGED
    for wrong in WRONG
    if config is not POOL or "num_attention_heads" not in wrong
]


@pytest.mark.parametrize(("config", "wrong"), REFUSED)
def test_a_config_of_wrong_shape_is_refused(config: dict[str, Any], wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        _build({**config, **wrong})


@pytest.mark.parametrize("config", [*STAGED, MOBILE, CONVIT, DUAL, BRIDGE], ids=lambda it: it["model_type"])
def test_an_image_of_more_than_the_largest_size_is_refused(config: dict[str, Any]) -> None:
    own = {"vision_config": {**_TOWER, "image_size": 10**6}} if "vision_config" in config else {}
    with pytest.raises(InputError):
        _build({**config, "image_size": 10**6, **own})
