"""Kin of the vision transformer against transformers: parameters and FLOPs to the last one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
]
sys.path.insert(0, str(Path(__file__).parent))

import text_measure  # noqa: E402

from raceline.models import count  # noqa: E402
from raceline.models.families import registry  # noqa: E402
from raceline.models.fields import Fields  # noqa: E402
from raceline.models.graph import Model  # noqa: E402

BATCH, SIDE = 2, 64
_SMALL = {"image_size": SIDE, "num_labels": 12}
INSTANCES: dict[str, dict[str, Any]] = {
    "pvt": {**_SMALL, "depths": [1, 2, 1, 2]},
    "pvt_v2": {**_SMALL, "depths": [1, 2, 1, 2]},
    "pvt_v2-linear": {**_SMALL, "linear_attention": True},
    "poolformer": {**_SMALL, "depths": [1, 2, 1, 2]},
    "poolformer-plain": {**_SMALL, "use_layer_scale": False, "mlp_ratio": 2.0},
    "mobilevit": _SMALL,
    "mobilevit-odd": {**_SMALL, "patch_size": 3, "expand_ratio": 2.0, "hidden_sizes": [48, 64, 80]},
    "mobilevit-dilated": {**_SMALL, "output_stride": 8, "hidden_dropout_prob": 0.0},
}


def _theirs(name: str, values: dict[str, Any]) -> Any:
    config = transformers.AutoConfig.for_model(name.split("-")[0], **values)
    return transformers.AutoModelForImageClassification.from_config(config, dtype=torch.bfloat16).train()


def _batch() -> dict[str, Any]:
    pixels = torch.randn(BATCH, 3, SIDE, SIDE, dtype=torch.bfloat16)
    return {"pixel_values": pixels, "labels": torch.randint(0, 12, (BATCH,))}


@pytest.mark.parametrize("name", INSTANCES)
def test_parameters_flops_and_saved_bytes_are_those_of_transformers(name: str, record_property: Any) -> None:
    values = INSTANCES[name]
    ours = registry.build_model(Fields({"model_type": name.split("-")[0], **values}), SIDE)
    theirs = _theirs(name, values)
    assert count.parameters(ours) == text_measure.parameters(theirs)
    flops = text_measure.forward_flops(theirs, _batch())
    assert count.flops(ours, BATCH) == pytest.approx(flops, rel=0.01)
    kept, shapes = text_measure.saved(theirs, _batch())
    saved = count.saved_bytes(ours, BATCH, precision="bf16", attention="eager")
    record_property("error", saved / kept - 1)
    assert saved == pytest.approx(kept, rel=0.05), shapes


_TOWER = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
_TEXT = {**_TOWER, "vocab_size": 320}
TOWERS: dict[str, dict[str, Any]] = {
    "vision-text-dual-encoder": {
        "projection_dim": 32,
        "text_config": {"model_type": "roberta", "type_vocab_size": 1, **_TEXT},
        "vision_config": {"model_type": "clip_vision_model", **_TOWER, "patch_size": 8, "image_size": SIDE},
    },
    "vision-text-dual-encoder-vit": {
        "projection_dim": 32,
        "text_config": {"model_type": "bert", **_TEXT},
        "vision_config": {"model_type": "vit", **_TOWER, "patch_size": 8, "image_size": SIDE},
    },
}
_DUAL = "vision-text-dual-encoder"


@pytest.mark.parametrize("name", TOWERS)
def test_two_towers_have_the_parameters_of_transformers(name: str) -> None:
    values = TOWERS[name]
    ours = registry.build_model(Fields({"model_type": _DUAL, **values, "text_length": 48}), SIDE)
    config = transformers.AutoConfig.for_model(_DUAL, **values)
    theirs = transformers.AutoModel.from_config(config, attn_implementation="eager").train()
    assert count.parameters(ours) == text_measure.parameters(theirs)
    batch = {
        "pixel_values": torch.randn(BATCH, 3, SIDE, SIDE),
        "input_ids": torch.randint(3, 300, (BATCH, 48)),
        "return_loss": True,
    }
    assert count.flops(ours, BATCH) == pytest.approx(text_measure.forward_flops(theirs, batch), rel=0.01)


_SHARED = {
    "share_cross_modal_transformer_layers": True, "share_link_tower_layers": False, "hidden_size": 64,
    "num_hidden_layers": 2, "contrastive_hidden_size": 32, "logit_scale_init_value": 2.6592,
    "text_config": {**_TEXT, "type_vocab_size": 1},
    "vision_config": {"hidden_size": 64, "num_hidden_layers": 3, "patch_size": 8, "image_size": SIDE},
}  # fmt: skip
BRIDGES: dict[str, dict[str, Any]] = {
    "shared": _SHARED,
    "own": {**_SHARED, "share_cross_modal_transformer_layers": False, "num_hidden_layers": 3},
}


def _bridged(values: dict[str, Any]) -> tuple[Model, Any]:
    ours = registry.build_model(Fields({"model_type": "bridgetower", **values, "text_length": 48}), SIDE)
    config = transformers.BridgeTowerConfig(**values, attn_implementation="eager")
    return ours, transformers.BridgeTowerForContrastiveLearning(config).train()


@pytest.mark.parametrize("name", BRIDGES)
def test_bridged_towers_have_the_parameters_of_transformers(name: str) -> None:
    ours, theirs = _bridged(BRIDGES[name])
    assert count.parameters(ours) == text_measure.parameters(theirs)


def test_bridged_towers_have_the_flops_of_transformers() -> None:
    """The counter doesn't see the fused attention in which the image tower's three layers end up."""
    ours, theirs = _bridged(_SHARED)
    batch = {
        "pixel_values": torch.randn(BATCH, 3, SIDE, SIDE),
        "input_ids": torch.randint(3, 300, (BATCH, 48)),
        "return_loss": True,
    }
    unseen = BATCH * 3 * 4 * 65 * 65 * 64
    flops = text_measure.forward_flops(theirs, batch) + unseen
    assert count.flops(ours, BATCH) == pytest.approx(flops, rel=0.01)
