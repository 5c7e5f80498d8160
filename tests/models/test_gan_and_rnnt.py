"""StyleGAN and RNN-T: printed sizes, differences by hand, what fits and what does not."""

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

STYLEGAN2: dict[str, Any] = {"model_type": "stylegan2", "image_size": 64}
STYLEGAN3: dict[str, Any] = {"model_type": "stylegan3", "image_size": 64}
BOTH = pytest.mark.parametrize("config", [STYLEGAN2, STYLEGAN3], ids=["stylegan2", "stylegan3"])


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _sizes(model: Model) -> dict[str, int]:
    """Parameters of each component."""
    sizes: dict[str, int] = {}
    for row in count.rows(model):
        sizes[row.component] = sizes.get(row.component, 0) + row.parameters
    return sizes


# As the networks' own summary prints them (for R: NVlabs/stylegan3, issue 181).
PRINTED = {
    "stylegan2-1024": (30_370_060, 29_012_513),
    "stylegan3-t-1024": (22_313_167, 29_012_513),
    "stylegan3-r-1024": (15_093_151, 29_012_513),
}


@pytest.mark.parametrize(("name", "sizes"), PRINTED.items())
def test_a_gan_has_the_printed_sizes_of_both_networks(name: str, sizes: tuple[int, int]) -> None:
    assert tuple(_sizes(_build(names.find(name).config)).values()) == sizes


def _layers_of_r(side: int) -> list[tuple[str, int]]:
    return [
        (row.name, row.parameters)
        for row in count.rows(_build(names.find(f"stylegan3-r-{side}").config))
        if row.name.startswith("L")
    ]


def test_layers_of_stylegan3_have_the_printed_sizes() -> None:
    """Layers 10 to 14 at 128 pixels, each with its affine layer (NVlabs/stylegan3, issue 40)."""
    printed = [525_312 + 934_800, 467_856 + 623_579, 350_379 + 350_208, 2 * 262_656, 262_656 + 1539]
    assert [size for _, size in _layers_of_r(128)[10:]] == printed


def test_stylegan2_at_eight_pixels_by_hand() -> None:
    """Width 16, style 8, latent 4, two mapping layers: a first block with one layer, a second with two."""
    part = {"channel_base": 10_000, "channel_max": 16}
    generator = {**part, "z_dim": 4, "w_dim": 8, "mapping_layers": 2}
    config = {"model_type": "stylegan2", "image_size": 8, "generator": generator, "discriminator": part}
    affine = 8 * 16 + 16
    layer = affine + 9 * 16 * 16 + 16 + 1
    to_image = affine + 16 * 3 + 3
    mapping = (4 * 8 + 8) + (8 * 8 + 8)
    halving = (3 * 16 + 16) + 2 * (9 * 16 * 16 + 16) + 16 * 16
    judging = (9 * 17 * 16 + 16) + (16 * 16 * 16 + 16) + (16 + 1)
    assert _sizes(_build(config)) == {
        "generator": mapping + 16 * 16 + 3 * layer + 2 * to_image,
        "discriminator": halving + judging,
    }


@BOTH
@given(more=st.integers(1, 50))
def test_more_mapping_layers_add_a_square_each(config: dict[str, Any], more: int) -> None:
    before = _build({**config, "generator": {"mapping_layers": 2}})
    after = _build({**config, "generator": {"mapping_layers": 2 + more}})
    assert count.parameters(after) - count.parameters(before) == more * (512 * 512 + 512)


@BOTH
@given(width=st.integers(1, 2048))
def test_a_wider_latent_adds_to_the_first_mapping_layer_alone(config: dict[str, Any], width: int) -> None:
    before = _build({**config, "generator": {"z_dim": 1}})
    after = _build({**config, "generator": {"z_dim": width}})
    assert count.parameters(after) - count.parameters(before) == (width - 1) * 512


@given(layers=st.integers(15, 60))
def test_more_layers_at_full_width_add_their_own_parameters(layers: int) -> None:
    """At 64 pixels and a width of 512 at most no layer is narrower than 512."""
    before, after = _build(STYLEGAN3), _build({**STYLEGAN3, "generator": {"num_layers": layers}})
    layer = (512 * 512 + 512) + 9 * 512 * 512 + 512
    assert count.parameters(after) - count.parameters(before) == (layers - 14) * layer


@given(power=st.integers(4, 10))
def test_twice_the_side_adds_one_block_to_each_stylegan2_network(power: int) -> None:
    narrow = {"channel_base": 2**24, "channel_max": 8}
    config = {"model_type": "stylegan2", "generator": narrow, "discriminator": narrow}
    small, large = _build(config, 2 ** (power - 1)), _build(config, 2**power)
    affine = 512 * 8 + 8
    block = 2 * (affine + 9 * 8 * 8 + 8 + 1) + (affine + 8 * 3 + 3)
    halving = 2 * (9 * 8 * 8 + 8) + 8 * 8
    assert count.parameters(large) - count.parameters(small) == block + halving


def test_flops_of_the_last_discriminator_block_by_hand() -> None:
    """At 64 pixels, 512 channels: from the image, two 3x3 convolutions (one halves), and the 1x1 skip."""
    row = next(
        row for row in count.rows(_build(STYLEGAN2)) if (row.component, row.name) == ("discriminator", "b64")
    )
    full, half, wide = 64 * 64, 32 * 32, 512
    macs = full * 3 * wide + full * 9 * wide**2 + half * 9 * wide**2 + half * wide**2
    assert row.flops == 2 * macs


@BOTH
def test_the_discriminator_runs_in_training_only(config: dict[str, Any]) -> None:
    runs = {block.component: block.runs_in for block in _build(config).blocks if block.name != "again"}
    assert runs == {"generator": "both", "discriminator": "train"}


@BOTH
def test_a_gan_has_no_positions_that_follow_a_length(config: dict[str, Any]) -> None:
    ops = [op for block in _build(config).blocks for op in block.ops]
    assert not any(op.rows.per_token or op.rows.per_target for op in ops)


@BOTH
def test_a_step_makes_two_images_and_judges_three(config: dict[str, Any]) -> None:
    """The second half of a step keeps nothing beside the first, and learns no weights of its own."""
    rows = count.rows(_build(config))
    for component, passes in (("generator", 2), ("discriminator", 3)):
        own = [row for row in rows if row.component == component]
        once = sum(row.flops for row in own if row.name != "again")
        assert sum(row.flops for row in own) == pytest.approx(passes * once)
    again = [row for row in rows if row.name == "again"]
    assert [(row.parameters, row.saved_bytes) for row in again] == [(0, 0), (0, 0)]


@BOTH
@pytest.mark.parametrize("side", [1, 4, 100, 32_768])
def test_a_side_that_doubling_does_not_reach_is_refused(config: dict[str, Any], side: int) -> None:
    with pytest.raises(InputError):
        _build(config, side)


HOSTILE = [
    {"generator": 3},
    {"discriminator": "wide"},
    {"generator": {"channel_base": 10**12}},
    {"generator": {"channel_max": 0}},
    {"generator": {"mapping_layers": 10**6}},
    {"generator": {"w_dim": float("nan")}},
    {"num_channels": -3},
]


@BOTH
@pytest.mark.parametrize("change", HOSTILE, ids=str)
def test_a_hostile_gan_is_refused(config: dict[str, Any], change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        _build({**config, **change})


@pytest.mark.parametrize(
    "change",
    [
        {"num_layers": 10**6},
        {"num_critical": 14},
        {"first_cutoff": 0},
        {"margin_size": 10**6},
        {"conv_kernel": 99},
    ],
    ids=str,
)
def test_hostile_layers_of_stylegan3_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        _build({**STYLEGAN3, "generator": change})


RNNT: dict[str, Any] = {
    "model_type": "rnn_t", "in_feats": 5, "n_classes": 11, "enc_n_hid": 8, "enc_pre_rnn_layers": 1,
    "enc_stack_time_factor": 2, "enc_post_rnn_layers": 1, "pred_n_hid": 6, "pred_rnn_layers": 1,
    "joint_n_hid": 7, "text_len": 3, "frames": 20,
}  # fmt: skip


def _lstm(given: int, width: int) -> int:
    return 4 * (given * width + width * width + 2 * width)


def test_mlperf_rnnt_by_hand() -> None:
    encoder = _lstm(240, 1024) + _lstm(1024, 1024) + _lstm(2048, 1024) + 2 * _lstm(1024, 1024)
    prediction = 1023 * 512 + 2 * _lstm(512, 512)
    joint = (1024 * 512 + 512) + (512 * 512 + 512) + (512 * 1024 + 1024)
    model = _build(names.find("rnn-t-mlperf").config)
    assert _sizes(model) == {"encoder": encoder, "prediction": prediction, "joint": joint}
    assert count.parameters(model) == 49_006_080


def test_flops_of_an_rnnt_by_hand() -> None:
    """20 frames, 10 stacked ones, 4 pieces with the start symbol, 40 pairs."""
    pre, post = 20 * 4 * (5 * 8 + 8 * 8), 10 * 4 * (16 * 8 + 8 * 8)
    prediction = 4 * 4 * (6 * 6 + 6 * 6)
    joint = 10 * 8 * 7 + 4 * 6 * 7 + 40 * 7 * 11
    assert count.flops(_build(RNNT)) == 2 * (pre + post + prediction + joint)


@pytest.mark.parametrize(
    ("field", "width"), [("enc_pre_rnn_layers", 8), ("enc_post_rnn_layers", 8), ("pred_rnn_layers", 6)]
)
@given(more=st.integers(1, 100))
def test_more_lstm_layers_add_their_own_parameters(field: str, width: int, more: int) -> None:
    before, after = _build(RNNT), _build({**RNNT, field: 1 + more})
    assert count.parameters(after) - count.parameters(before) == more * _lstm(width, width)
    assert after.layers - before.layers == more


@given(features=st.integers(1, 1000), factor=st.integers(1, 16))
def test_features_and_stacked_frames_widen_the_first_layer_of_a_stack_alone(
    features: int, factor: int
) -> None:
    config = {**RNNT, "in_feats": features, "enc_stack_time_factor": factor}
    added = 4 * 8 * (features - 5) + 4 * 8 * 8 * (factor - 2)
    assert count.parameters(_build(config)) - count.parameters(_build(RNNT)) == added


@given(more=st.integers(1, 100_000))
def test_more_classes_of_an_rnnt_add_to_the_table_and_the_joint_network(more: int) -> None:
    before, after = _build(RNNT), _build({**RNNT, "n_classes": 11 + more})
    assert count.parameters(after) - count.parameters(before) == more * (6 + 7 + 1)


@given(text_len=st.integers(1, 500), seq_len=st.integers(1, 3000))
def test_the_joint_network_sees_every_pair(text_len: int, seq_len: int) -> None:
    joint = _build({**RNNT, "text_len": text_len}).blocks[-1].ops[-1]
    assert joint.rows.positions(seq_len) == pytest.approx(seq_len / 2 * (text_len + 1))


def test_what_an_lstm_layer_keeps_by_hand() -> None:
    """Input, states, four gates and the cell in two bytes, and a mask of one byte, for 20 frames."""
    block = _build(RNNT).blocks[0]
    assert count.block_saved_bytes(block, 20, 0) == 20 * (2 * (5 + 8 + 4 * 8 + 8) + 8)


@pytest.mark.parametrize(
    "change",
    [
        {"enc_n_hid": 0},
        {"enc_n_hid": 10**9},
        {"pred_rnn_layers": 10**6},
        {"enc_stack_time_factor": 1.5},
        {"joint_dropout": 2},
        {"n_classes": 1},
        {"text_len": "long"},
        {"frames": -1},
        {"in_feats": True},
    ],
    ids=str,
)
def test_a_hostile_rnnt_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        _build({**RNNT, **change})
