"""StyleGAN: printed sizes, differences by hand, sides that fit and that do not."""

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
    runs = {block.component: block.runs_in for block in _build(config).blocks}
    assert runs == {"generator": "both", "discriminator": "train"}


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
