"""Image families against transformers and torch: parameters, FLOPs, and what autograd keeps."""

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
_VIT = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128,
    "image_size": SIDE, "patch_size": 8,
}  # fmt: skip
_LABELS = {"num_labels": 12}
_SWIN = {
    "embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4, "image_size": SIDE,
    "drop_path_rate": 0.0,
}  # fmt: skip
INSTANCES: dict[str, dict[str, Any]] = {
    "resnet": {**_LABELS, "depths": [2, 2, 3, 2], "hidden_sizes": [64, 128, 256, 512], "embedding_size": 32},
    "resnet-basic": {**_LABELS, "depths": [2, 2], "hidden_sizes": [32, 64], "embedding_size": 32,
                     "layer_type": "basic"},
    "vit": {**_VIT, **_LABELS},
    "clip": {
        "projection_dim": 32,
        "text_config": {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
                        "intermediate_size": 128, "vocab_size": 320, "max_position_embeddings": 48},
        "vision_config": _VIT,
    },
    "convnext": {**_LABELS, "depths": [2, 3], "hidden_sizes": [32, 64], "num_stages": 2, "drop_path_rate": 0.0},
    "convnextv2": {**_LABELS, "depths": [2, 3], "hidden_sizes": [32, 64], "num_stages": 2,
                   "drop_path_rate": 0.0},
    "regnet": {**_LABELS, "depths": [1, 2], "hidden_sizes": [32, 64], "groups_width": 16, "embedding_size": 16},
    "swin": {**_LABELS, **_SWIN}, "swinv2": {**_LABELS, **_SWIN, "embed_dim": 128},
    "efficientnet": {**_LABELS, "image_size": SIDE, "width_coefficient": 1.0, "depth_coefficient": 1.0,
                     "hidden_dim": 1280, "dropout_rate": 0.0, "drop_connect_rate": 0.0},
}  # fmt: skip


def _theirs(name: str, values: dict[str, Any], attention: str) -> Any:
    config = transformers.AutoConfig.for_model(name.split("-")[0], **values)
    kind = transformers.AutoModel if name == "clip" else transformers.AutoModelForImageClassification
    return kind.from_config(config, attn_implementation=attention, dtype=torch.bfloat16).train()


def _ours(name: str, values: dict[str, Any]) -> Model:
    return registry.build_model(Fields({"model_type": name.split("-")[0], **values}), SIDE)


def _batch(name: str) -> dict[str, Any]:
    pixels = torch.randn(BATCH, 3, SIDE, SIDE, dtype=torch.bfloat16)
    if name == "clip":
        return {"pixel_values": pixels, "input_ids": torch.randint(3, 300, (BATCH, 48)), "return_loss": True}
    return {"pixel_values": pixels, "labels": torch.randint(0, 12, (BATCH,))}


@pytest.mark.parametrize("name", INSTANCES)
def test_parameters_and_flops_equal_those_of_transformers(name: str) -> None:
    values = INSTANCES[name]
    ours, theirs = _ours(name, values), _theirs(name, values, "eager")
    assert count.parameters(ours) == text_measure.parameters(theirs)
    assert count.flops(ours, BATCH) == pytest.approx(
        text_measure.forward_flops(theirs, _batch(name)), rel=0.01
    )


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_saved_bytes_are_those_that_autograd_keeps(name: str, attention: str, record_property: Any) -> None:
    values = INSTANCES[name]
    if attention == "sdpa" and "num_attention_heads" not in str(values):
        pytest.skip("no attention")
    kept, shapes = text_measure.saved(_theirs(name, values, attention), _batch(name))
    kernel = "flash" if attention == "sdpa" else "eager"
    ours = count.saved_bytes(_ours(name, values), BATCH, precision="bf16", attention=kernel)
    record_property("error", ours / kept - 1)
    assert ours == pytest.approx(kept, rel=0.05), shapes


def test_saved_bytes_of_a_resnet_agree_with_the_memory_tracker() -> None:
    """Counted on fake tensors; the tracker sees the logits too, and the statistics of batch norm."""
    from torch._subclasses import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, tracker = _theirs("resnet", INSTANCES["resnet"], "eager"), MemTracker()
        tracker.track_external(model)
        batch = _batch("resnet")
        with tracker:
            output = model(**batch)
            parts = next(iter(tracker.get_tracker_snapshot("current").values()))
        del output
    tracked = sum(size for part, size in parts.items() if str(part).endswith("ACT"))
    ours = count.saved_bytes(_ours("resnet", INSTANCES["resnet"]), BATCH, precision="bf16")
    assert ours == pytest.approx(tracked, rel=0.05)
