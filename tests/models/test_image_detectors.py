"""Detectors and segmenters: published sizes, levels of a pyramid, frozen stages, hostile configs."""

from __future__ import annotations

import csv
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
from raceline.models.read import read_model
from raceline.present.errors import InputError

EVIDENCE = Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[2].parent / "shared")) / "evidence"
MASK_RCNN = "mask_rcnn_R_50_FPN_3x"
RESNET50 = 23_454_912  # convolutions alone: 25,557,032 without norms (53,120) and classifier (2,049,000)

# Parameters in millions as their sources state them (batch norm that is frozen has none).
SIZES = {
    "faster_rcnn_R_50_FPN_3x": 41.7, "ssd300-resnet50": 22.9, "ssd-resnet34": 20.0, "ssd-mobilenet-v1": 6.8,
    "yolov8l": 43.7, "yolov5n": 1.87, "yolov5s": 7.2, "yolov5m": 21.2, "yolov5l": 46.5, "yolov5x": 86.7,
    "googlenet": 6.62, "squeezenet1_0": 1.248, "squeezenet1_1": 1.235, "mobilenet_v1": 4.23,
    "nnunet_3d_fullres": 31.2, "maskdino_r50": 52.0, "nanodet-m": 0.95, "yolov4-tiny": 6.06,
}  # fmt: skip


@pytest.mark.parametrize(("name", "millions"), SIZES.items())
def test_detectors_have_their_stated_size(name: str, millions: float) -> None:
    assert count.parameters(read_model(name)) / 1e6 == pytest.approx(millions, rel=0.025)


def test_ssd_needs_the_operations_that_mlperf_states() -> None:
    """433 and 2.47 billion: mlcommons/inference, vision/classification_and_detection."""
    assert count.flops(read_model("ssd-resnet34")) / 1e9 == pytest.approx(433, rel=0.01)
    assert count.flops(read_model("ssd-mobilenet-v1")) / 1e9 == pytest.approx(2.47, rel=0.01)


def test_nanodet_needs_the_operations_of_its_model_zoo() -> None:
    """0.72 billion with norms and activations, which are not counted here: RangiLyu/nanodet."""
    assert count.flops(read_model("nanodet-m")) / 1e9 == pytest.approx(0.72, rel=0.06)


@pytest.mark.parametrize("name", ["nanodet-m", "yolov4-tiny"])
def test_a_small_detector_at_twice_the_side_needs_four_times_the_operations(name: str) -> None:
    small = read_model(name)
    large = read_model(name, image_size=2 * small.image_size)
    assert count.flops(large) == pytest.approx(4 * count.flops(small))


def test_a_whole_brain_volume_has_four_images_and_four_classes() -> None:
    brain, patch = read_model("3d-unet-brats19"), read_model("nnunet_3d_fullres")
    voxels = 224 * 224 * 160 / 128**3
    assert count.flops(brain) == pytest.approx(voxels * count.flops(patch), rel=0.02)


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


def _zoo() -> list[str]:
    """The names of detectron2's models in the collected evidence."""
    path = EVIDENCE / "models.csv"
    if not path.is_file():
        return []
    rows = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    return [row["model"] for row in rows if row["model"].startswith("detectron2-")]


@pytest.mark.skipif(not _zoo(), reason="the folder of evidence is missing")
@pytest.mark.parametrize("name", _zoo())
def test_every_model_of_detectron2_is_bundled(name: str) -> None:
    assert name in names.find(name).aliases
    model = read_model(name)
    assert count.parameters(model) > 0
    assert model.blocks[-1].role == "output"


def _parameters(name: str) -> int:
    return count.parameters(read_model(name))


def _head(boxes: int, channels: int = 256) -> int:
    """A box head: 7 x 7 places to 1024 to 1024, 81 classes and `boxes` boxes."""
    return 49 * channels * 1024 + 1024 + 1024 * 1024 + 1024 + 1025 * (81 + 4 * boxes)


def _proposal_head(channels: int, anchors: int) -> int:
    return channels * channels * 9 + channels + (channels + 1) * 5 * anchors


def test_a_cascade_has_two_more_box_heads_and_one_box_for_all_classes() -> None:
    added = _parameters("cascade_mask_rcnn_R_50_FPN_3x") - _parameters(MASK_RCNN)
    assert added == 3 * _head(1) - _head(80)


def test_a_c4_detector_has_the_last_stage_as_its_box_head() -> None:
    predictor = 2049 * (81 + 320)
    expected = RESNET50 + _proposal_head(1024, 15) + predictor
    assert _parameters("faster_rcnn_R_50_C4_3x") == expected
    masks = 2048 * 256 * 4 + 256 + 257 * 80
    assert _parameters("mask_rcnn_R_50_C4_3x") == expected + masks


def test_a_dilated_detector_has_its_heads_on_the_last_stage() -> None:
    expected = RESNET50 + _proposal_head(2048, 15) + _head(80, 2048)
    assert _parameters("faster_rcnn_R_50_DC5_3x") == expected
    masks = 2048 * 256 * 9 + 3 * 256 * 256 * 9 + 4 * 256 + 256 * 256 * 4 + 256 + 257 * 80
    assert _parameters("mask_rcnn_R_50_DC5_3x") == expected + masks


def test_a_dilated_stage_keeps_the_size_of_the_one_before() -> None:
    blocks = {block.name: block for block in read_model("faster_rcnn_R_50_DC5_3x").blocks}
    assert blocks["proposals"].tensors[0].rows.fixed == 50 * 84


def test_the_last_stage_runs_on_every_crop_of_a_c4_detector() -> None:
    config = dict(names.find("faster_rcnn_R_50_C4_3x").config)
    few, many = (
        {row.name: row.flops for row in count.rows(_build({**config, "proposals": number}))}
        for number in (256, 512)
    )
    assert many["layer4.1"] == 2 * few["layer4.1"] == 2 * 512 * 49 * 2 * (2 * 2048 * 512 + 512 * 512 * 9)
    assert many["layer3.1"] == few["layer3.1"]


def test_keypoint_rcnn_is_torchvisions_without_a_box_for_the_background() -> None:
    """59,137,258: torchvision.models.detection.keypointrcnn_resnet50_fpn, weights COCO_V1."""
    assert _parameters("keypoint_rcnn_R_50_FPN_3x") == 59_137_258 - 4 * 1025


def test_the_two_stages_are_what_fast_rcnn_and_the_proposal_network_are() -> None:
    whole = _parameters("faster_rcnn_R_50_FPN_3x")
    assert _parameters("fast_rcnn_R_50_FPN_1x") == whole - _proposal_head(256, 3)
    assert _parameters("rpn_R_50_FPN_1x") == whole - _head(80)


def test_a_proposal_network_has_no_second_stage_to_note() -> None:
    assert not read_model("rpn_R_50_C4_1x").notes
    assert read_model("fast_rcnn_R_50_FPN_1x").notes == ("models.detector_proposals",)


def test_a_panoptic_detector_adds_seven_convolutions_and_a_classifier() -> None:
    convolutions = 4 * 256 * 128 * 9 + 3 * 128 * 128 * 9 + 7 * 2 * 128
    added = _parameters("panoptic_fpn_R_50_3x") - _parameters(MASK_RCNN)
    assert added == convolutions + 129 * 54


def test_deformable_stages_add_a_convolution_to_offsets() -> None:
    inputs = 4 * 128 + 6 * 256 + 3 * 512
    added = _parameters("mask_rcnn_R_50_FPN_3x_dconv_c3-c5") - _parameters(MASK_RCNN)
    assert added == 18 * (9 * inputs + 4 + 6 + 3)


def test_group_norm_takes_the_place_of_biases_everywhere() -> None:
    box_head = 4 * (256 * 256 * 9 + 512) - (1024 * 1024 + 1024)
    others = (4 + 8) * 256  # mask head and pyramid: two for each channel, not one
    added = _parameters("mask_rcnn_R_50_FPN_3x_gn") - _parameters(MASK_RCNN)
    assert added == 53_120 + box_head + others


def test_batch_norm_of_frozen_stages_has_no_parameters() -> None:
    frozen = 2 * (64 + 3 * (64 + 64 + 256) + 256)
    assert _parameters("mask_rcnn_R_50_FPN_3x_gn") - _parameters("mask_rcnn_R_50_FPN_3x_syncbn") == frozen


@pytest.mark.parametrize(
    ("name", "of_coco", "classes", "per_class"),
    [
        ("mask_rcnn_r_101_fpn_1x", "mask_rcnn_R_101_FPN_3x", 1230, 257 + 5 * 1025),
        ("mask_rcnn_x_101_32x8d_fpn_1x", "mask_rcnn_X_101_32x8d_FPN_3x", 1230, 257 + 5 * 1025),
        ("mask_rcnn_r_50_fpn", MASK_RCNN, 8, 257 + 5 * 1025),
        ("faster_rcnn_r_50_c4", "faster_rcnn_R_50_C4_3x", 20, 5 * 2049),
    ],
)
def test_detectors_of_other_data_sets_have_their_classes(
    name: str, of_coco: str, classes: int, per_class: int
) -> None:
    """LVIS 0.5, Cityscapes and Pascal VOC: a mask, a box and a score for each class."""
    added = _parameters(f"detectron2-{name}") - _parameters(of_coco)
    assert added == (classes - 80) * per_class


@pytest.mark.parametrize(("name", "width", "millions"), [("regnetx", 1360, 22.12), ("regnety", 1088, 20.65)])
def test_a_regnet_backbone_has_the_published_size(name: str, width: int, millions: float) -> None:
    """timm's results: regnetx_040 and regnety_040, which have a classifier beside."""
    rows = count.rows(read_model(f"mask_rcnn_{name}_4gf_dds_FPN_LSJ"))
    own = sum(row.parameters for row in rows if row.name.startswith("st"))
    assert (own + (width + 1) * 1000) / 1e6 == pytest.approx(millions, abs=0.005)


@pytest.mark.parametrize("kind", ["rcnn", "retinanet"])
@pytest.mark.parametrize("neck", ["fpn", "dc5", "c4"])
def test_a_backbone_of_one_stage_is_enough(kind: str, neck: str) -> None:
    backbone = {"depths": [1], "hidden_sizes": [64]}
    config = {"model_type": kind, "neck": neck, "has_masks": True, "has_semantic": True, "backbone": backbone}
    assert count.parameters(_build(config)) > 0


def test_frozen_stages_of_a_detector_are_not_trained() -> None:
    model = read_model(MASK_RCNN)
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
        ({"model_type": "rcnn", "backbone": {"dilations": [1, 2]}}, "models.lists_differ"),
        ({"model_type": "rcnn", "backbone": {"deformable_stages": [5]}}, "models.field_not_integer"),
        ({"model_type": "rcnn", "box_heads": 0}, "models.field_not_integer"),
        ({"model_type": "rcnn", "mask_convs": 10**9}, "models.field_not_integer"),
        ({"model_type": "rcnn", "proposals": "all"}, "models.field_not_integer"),
        ({"model_type": "rcnn", "proposal_convs": 0}, "models.field_not_integer"),
        ({"model_type": "rcnn", "has_boxes": "no"}, "models.field_not_flag"),
        ({"model_type": "rcnn", "neck": 7}, "models.field_not_text"),
        ({"model_type": "rcnn", "head_norm": []}, "models.field_not_text"),
        ({"model_type": "rcnn", "backbone": "resnet50"}, "models.field_not_mapping"),
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
