"""Image models: counted cases to the last parameter, differences by hand, sizes that fit and that do not."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

CASES = (
    Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[2].parent / "shared")) / "cases" / "configs"
)
FAMILIES = {"vit", "clip", "resnet", "yolov8"}


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _rows() -> list[Any]:
    if not (CASES / "params.csv").is_file():
        return []
    rows = []
    for row in csv.DictReader((CASES / "params.csv").read_text(encoding="utf-8").splitlines()):
        config = json.loads((CASES / row["file"]).read_text(encoding="utf-8"))
        if config.get("model_type") in FAMILIES or "architecture" in config:
            rows.append(pytest.param(config, int(row["params_total"]), id=row["model"]))
    return rows


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is missing")
@pytest.mark.parametrize(("config", "parameters"), _rows())
def test_parameters_equal_the_cases(config: dict[str, Any], parameters: int) -> None:
    model = _build(config)
    assert count.parameters(model) == parameters
    assert (model.unit, model.seq_len) == ("image", 0)
    assert model.image_size


RESNET: dict[str, Any] = {"model_type": "resnet", "depths": [2, 2, 2, 2], "num_labels": 10}
BLOCK = (256 * 64 + 64 * 64 * 9 + 64 * 256) + 2 * (64 + 64 + 256)


@given(more=st.integers(1, 50))
def test_more_blocks_in_a_resnet_stage_add_their_own_parameters(more: int) -> None:
    before, after = _build(RESNET), _build({**RESNET, "depths": [2 + more, 2, 2, 2]})
    assert count.parameters(after) - count.parameters(before) == more * BLOCK
    assert after.layers - before.layers == more


@given(more=st.integers(1, 5000))
def test_more_classes_add_to_the_classifier_alone(more: int) -> None:
    before, after = _build(RESNET), _build({**RESNET, "num_labels": 10 + more})
    assert count.parameters(after) - count.parameters(before) == more * (2048 + 1)


def test_twice_the_side_takes_four_times_the_convolution_flops() -> None:
    small, large = _build({"architecture": "resnet18"}, 224), _build({"architecture": "resnet18"}, 448)
    classifier = 2 * 512 * 1000
    assert count.flops(large) - classifier == pytest.approx(4 * (count.flops(small) - classifier))
    assert count.parameters(large) == count.parameters(small)
    assert large.image_size == 448


def test_a_relu_output_is_kept_once_by_the_block_that_reads_it() -> None:
    """Basic block of 64 channels at 56 x 56: input, two convolution outputs and one inner ReLU output."""
    block = next(block for block in _build({"architecture": "resnet18"}).blocks if block.name == "layer1.1")
    assert count.block_saved_bytes(block, 0, 0, precision="bf16") == 4 * 64 * 56 * 56 * 2


VIT: dict[str, Any] = {
    "model_type": "vit", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 128, "image_size": 32, "patch_size": 8, "num_labels": 10,
}  # fmt: skip


@given(more=st.integers(1, 50))
def test_more_layers_of_a_vision_transformer_add_their_own_parameters(more: int) -> None:
    before, after = _build(VIT), _build({**VIT, "num_hidden_layers": 2 + more})
    layer = 4 * (64 * 64 + 64) + 2 * 64 * 128 + 128 + 64 + 4 * 64
    assert count.parameters(after) - count.parameters(before) == more * layer


@given(side=st.integers(5, 40))
def test_a_larger_image_adds_positions_but_no_parameters(side: int) -> None:
    before, after = _build(VIT), _build(VIT, 8 * side)
    assert count.parameters(after) == count.parameters(before)
    assert after.blocks[1].ops[0].rows.fixed == side * side + 1


@given(more=st.integers(1, 100_000))
def test_more_vocabulary_of_clip_adds_to_the_text_table_alone(more: int) -> None:
    before = _build({"model_type": "clip"})
    after = _build({"model_type": "clip", "text_config": {"vocab_size": 49408 + more}})
    assert count.parameters(after) - count.parameters(before) == 512 * more


@pytest.mark.parametrize("config", [VIT, {"model_type": "clip"}], ids=["vit", "clip"])
def test_an_image_smaller_than_a_patch_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        _build(config, 4)
    assert caught.value.message.id == "models.image_too_small"


def test_the_open_clip_name_means_the_model_of_its_size() -> None:
    model = _build(names.find("ViT-B-16-quickgelu CLIP").config)
    assert count.parameters(model) == 149_620_737
    assert model.objective == "contrastive"
