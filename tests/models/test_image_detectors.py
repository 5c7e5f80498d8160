"""Detectors and segmenters: published sizes, levels of a pyramid, frozen stages, hostile configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.models.read import read_model
from raceline.present.errors import InputError

# Parameters in millions as their sources state them (batch norm that is frozen has none).
SIZES = {
    "faster_rcnn_R_50_FPN_3x": 41.7, "ssd300-resnet50": 22.9, "ssd-resnet34": 20.0, "ssd-mobilenet-v1": 6.8,
    "yolov8l": 43.7, "yolov5n": 1.87, "yolov5s": 7.2, "yolov5m": 21.2, "yolov5l": 46.5, "yolov5x": 86.7,
    "googlenet": 6.62, "squeezenet1_0": 1.248, "squeezenet1_1": 1.235, "mobilenet_v1": 4.23,
    "nnunet_3d_fullres": 31.2, "maskdino_r50": 52.0,
}  # fmt: skip


@pytest.mark.parametrize(("name", "millions"), SIZES.items())
def test_detectors_have_their_stated_size(name: str, millions: float) -> None:
    assert count.parameters(read_model(name)) / 1e6 == pytest.approx(millions, rel=0.025)


def test_ssd_needs_the_operations_that_mlperf_states() -> None:
    """433 and 2.47 billion: mlcommons/inference, vision/classification_and_detection."""
    assert count.flops(read_model("ssd-resnet34")) / 1e9 == pytest.approx(433, rel=0.01)
    assert count.flops(read_model("ssd-mobilenet-v1")) / 1e9 == pytest.approx(2.47, rel=0.01)


@pytest.mark.parametrize(
    ("scale", "billions"), {"n": 8.7, "s": 28.6, "m": 78.9, "l": 165.2, "x": 257.8}.items()
)
def test_yolov8_needs_the_operations_of_its_model_card(scale: str, billions: float) -> None:
    assert count.flops(read_model(f"yolov8{scale}")) / 1e9 == pytest.approx(billions, rel=0.006)


@pytest.mark.parametrize(
    ("scale", "parameters"),
    {"n": 2624080, "s": 9458752, "m": 20114688, "l": 25372160, "x": 56966176}.items(),
)
def test_yolo11_has_the_parameters_of_its_model_file(scale: str, parameters: int) -> None:
    assert count.parameters(read_model(f"yolo11{scale}")) == parameters


def test_frozen_stages_of_a_detector_are_not_trained() -> None:
    model = read_model("mask_rcnn_R_50_FPN_3x")
    frozen = {block.name for block in model.blocks if not block.trained}
    assert frozen == {"stem", "layer1.0", "layer1.1"}


def test_an_image_size_is_the_short_side_of_a_detector() -> None:
    model = read_model("faster_rcnn_R_50_FPN_3x", image_size=640)
    assert model.image_size == 640
    assert model.blocks[0].tensors[0].rows.fixed == 640 * 1088


def test_proposal_heads_of_all_levels_share_their_weights() -> None:
    blocks = [block for block in read_model("faster_rcnn_R_50_FPN_3x").blocks if "proposals" in block.name]
    sizes = [
        row.parameters for row in count.rows(Model(name="", family="", architecture="", blocks=tuple(blocks)))
    ]
    assert sizes == [256 * 256 * 9 + 256 + 256 * 15 + 15, 0, 0, 0, 0]


@given(classes=st.integers(1, 400))
def test_more_classes_of_yolo_add_to_the_last_convolutions(classes: int) -> None:
    """The class branch is as wide as the first level (256) while there are no more classes than that."""
    config = dict(names.find("yolov8l").config)
    before, after = ({**config, "nc": number} for number in (classes, classes + 1))
    added = count.parameters(_build(after)) - count.parameters(_build(before))
    assert added == 3 * (256 + 1)


def test_twice_the_patch_takes_eight_times_the_work_of_a_volume() -> None:
    small, large = read_model("unet3d", image_size=64), read_model("unet3d", image_size=128)
    assert count.flops(large) == pytest.approx(8 * count.flops(small))


def _build(config: dict[str, Any]) -> Model:
    return registry.build_model(Fields(config))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "resnet", "depths": [1, 2]}, "models.lists_differ"),
        ({"model_type": "resnet", "depths": ["a", 2, 3, 4]}, "models.field_not_integer"),
        ({"model_type": "resnet", "image_size": 0}, "models.field_not_integer"),
        ({"model_type": "mbconv", "stages": [[["ir", 1, 3, 0, 6, 24]]]}, "models.stage_wrong"),
        ({"model_type": "mbconv", "stages": [["ir"]]}, "models.stage_wrong"),
        ({"model_type": "mbconv", "stages": [7]}, "models.stage_wrong"),
        ({"model_type": "branches", "blocks": [[1, [["conv", 0]]]]}, "models.step_wrong"),
        ({"model_type": "branches", "blocks": [[1, [["split", []]]]]}, "models.step_wrong"),
        ({"model_type": "branches", "blocks": [[1, [["run", "x"]]]]}, "models.step_wrong"),
        ({"model_type": "branches", "blocks": "conv"}, "models.field_not_list"),
        ({"model_type": "ssd", "extras": [[1, 2]]}, "models.field_not_list"),
        ({"model_type": "ssd", "anchors": [4], "image_size": 1200}, "models.lists_differ"),
        ({"model_type": "plain_unet", "patch": [8, 8, 8, 8]}, "models.lists_differ"),
        ({"model_type": "swin", "depths": [2, 2]}, "models.lists_differ"),
        ({"model_type": "convnext", "image_size": 8}, "models.image_too_small"),
        ({"model_type": "vgg", "image_size": 8}, "models.image_too_small"),
        ({"architecture": "no_such_network"}, "models.unknown_architecture"),
    ],
)  # fmt: skip
def test_wrong_configs_are_refused_with_a_name(config: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build(config)
    assert caught.value.message.id == message
