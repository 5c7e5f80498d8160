"""Z-Image: its published size, layers by hand, hostile configs."""

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

SMALL = {
    "_class_name": "ZImageTransformer2DModel", "dim": 24, "n_heads": 3, "n_layers": 2, "n_refiner_layers": 1,
    "cap_feat_dim": 20, "in_channels": 4,
}  # fmt: skip


def _build(image_size: int | None = None, **change: Any) -> Model:
    return registry.build_model(Fields({**SMALL, **change}), image_size)


def _added(**change: Any) -> int:
    return count.parameters(_build(**change)) - count.parameters(_build())


@pytest.mark.parametrize("name", ["z-image-turbo", "Tongyi-MAI/Z-Image-Turbo"])
def test_z_image_has_its_published_size(name: str) -> None:
    model = registry.build_model(Fields(names.find(name).config))
    assert count.parameters(model) == 6_154_908_736
    assert (model.objective, model.notes) == ("denoise", ("models.denoiser_alone",))


def _layer(width: int, head: int) -> int:
    """Four projections, three of the feed-forward network, four norms, one for queries and one for keys."""
    return 4 * width**2 + 3 * width * (width * 8 // 3) + 4 * width + 2 * head


@given(more=st.integers(1, 30))
def test_more_layers_of_z_image_bring_their_own_modulation(more: int) -> None:
    modulation = (24 + 1) * 4 * 24
    assert _added(n_layers=2 + more) == more * (_layer(24, 8) + modulation)
    assert _added(n_refiner_layers=1 + more) == more * (2 * _layer(24, 8) + modulation)


def test_a_wider_text_widens_its_norm_and_its_projection() -> None:
    assert _added(cap_feat_dim=21) == 1 + 24


def test_a_layer_over_the_text_costs_nothing_more_for_a_larger_image() -> None:
    small, large = ({one.name: one for one in _build(side).blocks} for side in (256, 512))
    assert small["text_layer"] == large["text_layer"]
    assert small["image_layer"] != large["image_layer"]


def test_a_pipeline_is_its_denoiser_and_says_so() -> None:
    pipeline = registry.build_model(
        Fields({"_class_name": "ZImagePipeline", "transformer": SMALL, "vae": {}})
    )
    assert count.parameters(pipeline) == count.parameters(_build())
    assert pipeline.notes == ("models.denoiser_alone",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_layers": 10**9}, "models.field_not_integer"),
        ({"n_heads": 7}, "models.heads_not_divisor"),
        ({"all_patch_size": [2, 4]}, "models.block_unknown"),
        ({"all_f_patch_size": [2]}, "models.block_unknown"),
        ({"siglip_feat_dim": 1152}, "models.block_unknown"),
    ],
)
def test_a_wrong_z_image_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build(**change)
    assert caught.value.message.id == message


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-3, 10**6), max_size=4),
)  # fmt: skip


@given(field=st.sampled_from(sorted(SMALL)), value=ANYTHING)
def test_any_value_in_a_field_builds_or_is_refused(field: str, value: Any) -> None:
    try:
        _build(**{field: value})
    except InputError as error:
        assert error.message.id.startswith("models.")
