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
}
# timm's results/results-imagenet.csv, in millions to two places.
TIMM = {
    "res2net50_26w_4s": 25.70,
    "res2net101_26w_4s": 45.21,
    "resnest14d": 10.61,
    "resnest26d": 17.07,
    "resnest50d": 27.48,
    "resnest101e": 48.28,
    "resnest200e": 70.20,
    "resnest269e": 110.93,
    "skresnet18": 11.96,
    "skresnet34": 22.28,
    "skresnet50": 25.80,
    "skresnext50_32x4d": 27.48,
}


@pytest.mark.parametrize(("name", "millions"), PRINTED.items())
def test_sizes_are_near_what_mindcv_prints(name: str, millions: float) -> None:
    assert _size(names.find(name).config) / 1e6 == pytest.approx(millions, rel=0.025)


@pytest.mark.parametrize(("name", "millions"), TIMM.items())
def test_sizes_round_to_what_timm_prints(name: str, millions: float) -> None:
    assert round(_size(names.find(name).config) / 1e6, 2) == millions


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
