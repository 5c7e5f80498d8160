"""Z-Image against diffusers: parameters to the last one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
pytestmark = pytest.mark.filterwarnings("ignore")

from raceline.models import count, names  # noqa: E402
from raceline.models.families import registry  # noqa: E402
from raceline.models.fields import Fields  # noqa: E402

_PLACES = {"axes_dims": [8, 12, 12], "axes_lens": [64, 32, 32]}
INSTANCES: dict[str, dict[str, Any]] = {
    "turbo": names.find("z-image-turbo").config,
    "small": {**_PLACES, "dim": 96, "n_heads": 3, "n_layers": 3, "n_refiner_layers": 1, "cap_feat_dim": 40},
    "unnormed": {**_PLACES, "dim": 64, "n_heads": 2, "n_layers": 1, "in_channels": 4, "qk_norm": False},
    "wide": {**_PLACES, "dim": 512, "n_heads": 16, "n_layers": 2, "n_refiner_layers": 3},
}


@pytest.mark.parametrize("name", INSTANCES)
def test_parameters_are_those_of_diffusers(name: str) -> None:
    values = {"_class_name": "ZImageTransformer2DModel", **INSTANCES[name]}
    with torch.device("meta"):
        theirs = diffusers.ZImageTransformer2DModel.from_config(values)
    wanted = sum(one.numel() for one in theirs.parameters())
    assert count.parameters(registry.build_model(Fields(values))) == wanted
