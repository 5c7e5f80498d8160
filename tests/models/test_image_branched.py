"""Image networks with branches inside a block: published sizes, differences by hand, refused fields."""

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


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _size(config: dict[str, Any]) -> int:
    return count.parameters(_build(config))


# Printed by mindcv (shared/evidence/models.csv), in millions. Its counts hold batch norm's running
# statistics too, which are no parameters: up to 2.5 % of the small networks.
PRINTED = {
    "res2net50": 25.76,
    "resnest50": 27.55,
    "skresnet18": 11.97,
    "ghostnet_050": 2.60,
    "rexnet_x09": 4.13,
    "shufflenet_v1_g3_05": 0.73,
    "shufflenet_v2_x0_5": 1.37,
    "repvgg_a1": 14.12,
    "bit_resnet50": 25.55,
    "hrnet_w32": 41.30,
}
# timm's results/results-imagenet.csv, in millions to two places.
TIMM = {
    "res2net50_26w_4s": 25.70,
    "res2net50_26w_6s": 37.05,
    "res2net50_26w_8s": 48.40,
    "res2net50_48w_2s": 25.29,
    "res2net50_14w_8s": 25.06,
    "res2net50d": 25.72,
    "res2net101_26w_4s": 45.21,
    "res2net101d": 45.23,
    "res2next50": 24.67,
    "resnest14d": 10.61,
    "resnest26d": 17.07,
    "resnest50d": 27.48,
    "resnest101e": 48.28,
    "resnest200e": 70.20,
    "resnest269e": 110.93,
    "skresnet18": 11.96,
    "skresnet34": 22.28,
    "skresnext50_32x4d": 27.48,
    "ghostnet_100": 5.18,
    "rexnet_100": 4.80,
    "rexnet_x13": 7.56,
    "rexnet_x15": 9.73,
    "rexnet_x20": 16.37,
    "repvgg_a2": 28.21,
    "repvgg_b0": 15.82,
    "repvgg_b1": 57.42,
    "repvgg_b1g4": 39.97,
    "repvgg_b2": 89.02,
    "repvgg_b2g4": 61.76,
    "repvgg_b3": 123.09,
    "repvgg_b3g4": 83.83,
    "hrnet_w18": 21.30,
    "hrnet_w18_small": 13.19,
    "hrnet_w18_small_v2": 15.60,
    "hrnet_w30": 37.71,
    "hrnet_w32": 41.23,
    "hrnet_w40": 57.56,
    "hrnet_w44": 67.06,
    "hrnet_w48": 77.47,
    "hrnet_w64": 128.06,
}
# torchvision's num_params; for BiT what a TensorFlow port counts.
EXACT = {
    "shufflenet_v2_x0_5": 1_366_792,
    "shufflenet_v2_x1_0": 2_278_604,
    "shufflenet_v2_x1_5": 3_503_624,
    "shufflenet_v2_x2_0": 7_393_996,
    "bit_resnet50": 25_549_352,
    "bit_resnet101": 44_541_480,
    "bit_resnet50x3": 217_319_080,
    "bit_resnet101x3": 387_934_888,
    "bit_resnet152x4": 936_533_224,
}


@pytest.mark.parametrize(("name", "millions"), PRINTED.items())
def test_sizes_are_near_what_mindcv_prints(name: str, millions: float) -> None:
    assert _size(names.find(name).config) / 1e6 == pytest.approx(millions, rel=0.025)


@pytest.mark.parametrize(("name", "millions"), TIMM.items())
def test_sizes_round_to_what_timm_prints(name: str, millions: float) -> None:
    assert round(_size(names.find(name).config) / 1e6, 2) == millions


@pytest.mark.parametrize(("name", "parameters"), EXACT.items())
def test_sizes_equal_the_published_ones(name: str, parameters: int) -> None:
    assert _size(names.find(name).config) == parameters


RES2NET = names.find("res2net50").config


@given(more=st.integers(1, 40))
def test_more_blocks_of_res2net_add_slices_and_two_matrices(more: int) -> None:
    slices = 3 * (26 * 26 * 9 + 2 * 26)
    block = 256 * 104 + 2 * 104 + slices + 104 * 256 + 2 * 256
    assert _size({**RES2NET, "depths": [3 + more, 4, 6, 3]}) - _size(RES2NET) == more * block


@given(scales=st.integers(2, 16))
def test_another_slice_of_res2net_adds_one_convolution_and_wider_matrices(scales: int) -> None:
    one = {**RES2NET, "depths": [1], "hidden_sizes": [256]}
    added = _size({**one, "path_count": scales + 1}) - _size({**one, "path_count": scales})
    assert added == (26 * 26 * 9 + 2 * 26) + 64 * 26 + 2 * 26 + 26 * 256


RESNEST = names.find("resnest50").config


@given(more=st.integers(1, 40))
def test_more_blocks_of_resnest_add_a_split_convolution_and_its_attention(more: int) -> None:
    split = 128 * 32 * 9 + 2 * 128
    attention = 64 * 32 + 32 + 2 * 32 + 32 * 128 + 128
    block = 256 * 64 + 2 * 64 + split + attention + 64 * 256 + 2 * 256
    assert _size({**RESNEST, "depths": [3 + more, 4, 6, 3]}) - _size(RESNEST) == more * block


SKNET = names.find("skresnet18").config


@given(more=st.integers(1, 40))
def test_more_blocks_of_sknet_add_two_half_convolutions_and_their_attention(more: int) -> None:
    paths = 2 * (32 * 64 * 9 + 2 * 64)
    attention = 64 * 16 + 2 * 16 + 16 * 128
    block = paths + attention + 64 * 64 * 9 + 2 * 64
    assert _size({**SKNET, "depths": [2 + more, 2, 2, 2]}) - _size(SKNET) == more * block


def test_an_unknown_kind_of_paths_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        _build({**SKNET, "paths": "sideways"})
    assert caught.value.message.id == "models.block_unknown"


@pytest.mark.parametrize("field", ["path_count", "path_divisor", "path_reduction"])
def test_paths_out_of_bounds_are_refused(field: str) -> None:
    with pytest.raises(InputError):
        _build({**RESNEST, field: 10**9})


GHOST: dict[str, Any] = {
    "model_type": "ghostnet", "kernel_sizes": [3], "expanded_sizes": [48], "hidden_sizes": [16],
    "strides": [1], "num_labels": 10,
}  # fmt: skip


def _longer(more: int) -> dict[str, Any]:
    lists = ("kernel_sizes", "expanded_sizes", "hidden_sizes", "strides")
    return {**GHOST, **{name: GHOST[name] * (1 + more) for name in lists}}


@given(more=st.integers(1, 40))
def test_more_ghost_blocks_add_two_ghost_pairs(more: int) -> None:
    wide = 16 * 24 + 2 * 24 + 24 * 9 + 2 * 24
    narrow = 48 * 8 + 2 * 8 + 8 * 9 + 2 * 8
    assert _size(_longer(more)) - _size(GHOST) == more * (wide + narrow)


def test_a_squeezed_ghost_block_adds_two_small_matrices() -> None:
    assert _size({**GHOST, "squeezed_blocks": [1]}) - _size(GHOST) == 48 * 12 + 12 + 12 * 48 + 48


def test_a_ghost_block_that_strides_adds_two_depthwise_convolutions_and_a_matrix() -> None:
    inner, shortcut = 48 * 9 + 2 * 48, 16 * 9 + 2 * 16 + 16 * 16 + 2 * 16
    assert _size({**GHOST, "strides": [2]}) - _size(GHOST) == inner + shortcut


def test_squeezing_a_ghost_block_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError):
        _build({**GHOST, "squeezed_blocks": [2]})


@given(more=st.integers(1, 5000))
def test_a_wider_head_of_rexnet_adds_a_matrix_norm_and_classifier(more: int) -> None:
    """The last block has 16 + 180 x 15 / 16 = 184.75 channels, rounded."""
    added = _size({"model_type": "rexnet", "head_channels": 1280 + more}) - _size({"model_type": "rexnet"})
    assert added == more * (185 + 2 + 1000)


def test_squeeze_of_rexnet_has_a_norm_inside() -> None:
    """The second of two blocks: 32 -> 16, then 16 x 6 = 96 channels squeezed to 8."""
    one = {"model_type": "rexnet", "depths": [1, 1], "strides": [1, 2]}
    squeeze = 96 * 8 + 8 + 2 * 8 + 8 * 96 + 96
    assert _size({**one, "plain_stages": 1}) - _size(one) == squeeze


@given(more=st.integers(1, 100))
def test_more_blocks_of_shufflenet_v1_add_two_grouped_matrices(more: int) -> None:
    config = names.find("shufflenet_v1_g3_05").config
    block = 120 * 30 // 3 + 2 * 30 + 30 * 9 + 2 * 30 + 30 * 120 // 3 + 2 * 120
    assert _size({**config, "depths": [4 + more, 8, 4]}) - _size(config) == more * block


@given(more=st.integers(1, 100))
def test_more_blocks_of_shufflenet_v2_work_on_half_of_the_channels(more: int) -> None:
    config = names.find("shufflenet_v2_x1_0").config
    block = 58 * 58 + 2 * 58 + 58 * 9 + 2 * 58 + 58 * 58 + 2 * 58
    assert _size({**config, "depths": [4 + more, 8, 4]}) - _size(config) == more * block


@pytest.mark.parametrize("name", ["shufflenet_v1_g3_05", "shufflenet_v2_x0_5"])
def test_stages_of_shufflenet_that_do_not_grow_are_refused(name: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**names.find(name).config, "hidden_sizes": [240, 120, 60]})
    assert caught.value.message.id == "models.field_not_integer"


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("ghostnet_050", "strides", [1, 2]),
        ("ghostnet_050", "kernel_sizes", [0]),
        ("ghostnet_050", "width", float("nan")),
        ("rexnet_x09", "strides", [1, 2]),
        ("rexnet_x09", "depths", [10**9] * 6),
        ("rexnet_x09", "width", 0),
        ("shufflenet_v1_g3_05", "groups", 0),
        ("shufflenet_v2_x0_5", "depths", [0, 1, 1]),
        ("repvgg_a1", "groups", 10**9),
        ("repvgg_a1", "depths", [2, 4]),
        ("bit_resnet50", "layer_type", "bottleneck"),
        ("bit_resnet50", "width_factor", 10**6),
        ("hrnet_w32", "module_counts", [1] * 7),
        ("hrnet_w32", "branch_depth", 10**9),
        ("hrnet_w32", "head_sizes", [32, 64]),
    ],
)
def test_fields_out_of_bounds_are_refused(name: str, field: str, value: Any) -> None:
    with pytest.raises(InputError):
        _build({**names.find(name).config, field: value})


REPVGG = names.find("repvgg_a1").config


@given(more=st.integers(1, 100))
def test_more_blocks_of_repvgg_add_three_branches(more: int) -> None:
    block = 64 * 64 * 9 + 2 * 64 + 64 * 64 + 2 * 64 + 2 * 64
    assert _size({**REPVGG, "depths": [2 + more, 4, 14, 1]}) - _size(REPVGG) == more * block


@given(more=st.integers(1, 100))
def test_more_blocks_of_a_merged_repvgg_add_one_convolution_with_a_bias(more: int) -> None:
    merged = {**REPVGG, "is_merged": True}
    longer = {**merged, "depths": [2 + more, 4, 14, 1]}
    assert _size(longer) - _size(merged) == more * (64 * 64 * 9 + 64)


def test_a_merged_repvgg_has_the_size_that_is_printed_for_inference() -> None:
    """Hailo's model zoo prints 12.79 million for repvgg_a1 (shared/evidence/inference.csv)."""
    assert round(_size({**REPVGG, "is_merged": True}) / 1e6, 2) == 12.79


def test_groups_of_repvgg_apply_to_every_second_convolution() -> None:
    """Counted after the stem: the 2nd and the 4th of four."""
    one = {**REPVGG, "depths": [4], "hidden_sizes": [64]}
    saved = 2 * (64 * 64 * 9 + 64 * 64) * 3 // 4
    assert _size(one) - _size({**one, "groups": 4}) == saved


BIT = names.find("bit_resnet50").config


@given(more=st.integers(1, 100))
def test_more_blocks_of_bit_add_three_convolutions_and_the_norms_before_them(more: int) -> None:
    block = 2 * 256 + 256 * 64 + 2 * 64 + 64 * 64 * 9 + 2 * 64 + 64 * 256
    assert _size({**BIT, "depths": [3 + more, 4, 6, 3]}) - _size(BIT) == more * block


HRNET = names.find("hrnet_w32").config


@given(more=st.integers(1, 20))
def test_more_modules_of_two_branches_add_blocks_and_both_exchanges(more: int) -> None:
    fine, coarse = 2 * (32 * 32 * 9 + 2 * 32), 2 * (64 * 64 * 9 + 2 * 64)
    exchange = 64 * 32 + 2 * 32 + 32 * 64 * 9 + 2 * 64
    module = 4 * (fine + coarse) + exchange
    assert _size({**HRNET, "module_counts": [1 + more, 4, 3]}) - _size(HRNET) == more * module


def test_branches_of_hrnet_are_kept_once_between_modules() -> None:
    """Per branch: input, then of one basic block two convolution outputs and two ReLU outputs; per
    exchange the convolution's output. The sums' ReLU belongs to the next module."""
    model = _build({**HRNET, "module_counts": [2], "branch_depth": 1, "head_sizes": [32, 64]})
    module = next(block for block in model.blocks if block.name == "stage2.1")
    fine, coarse = 32 * 56 * 56, 64 * 28 * 28
    kept = 5 * (fine + coarse) + 32 * 28 * 28 + 64 * 28 * 28
    assert count.block_saved_bytes(module, 0, 0, precision="bf16") == kept * 2


@pytest.mark.parametrize("name", PRINTED)
def test_twice_the_side_changes_the_work_but_no_parameters(name: str) -> None:
    config = names.find(name).config
    small, large = _build(config, 224), _build(config, 448)
    assert count.parameters(small) == count.parameters(large)
    assert 3.5 < count.flops(large) / count.flops(small) < 4.01
