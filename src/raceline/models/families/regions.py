"""The second stage of a detector: heads on crops of the proposals that were sampled.

Layers and defaults as in detectron2 (modeling/roi_heads/). The stage is drawn with as many `proposals` as
training takes of each image, a quarter of them for masks and keypoints. `box_heads` > 1 is a cascade
(arXiv:1712.00726), which refines every box that often; `is_class_agnostic` has one box for all classes.
`box_convs`, `box_layers` and `mask_convs` count layers, `head_norm` follows their convolutions.
"""

from __future__ import annotations

import msgspec

from raceline.models.families import resnet
from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import fixed

_BOX_SIDE, _MASK_SIDE = 7, 14
_WIDTH, _BOX_WIDTH = 256, 1024
_KEYPOINTS, _KEYPOINT_CONVS, _KEYPOINT_WIDTH = 17, 8, 512


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """What the heads of a second stage are made of."""

    classes: int
    proposals: int
    samples: int
    box_heads: int
    box_convs: int
    box_layers: int
    box_outputs: int
    mask_convs: int
    norm: str
    has_masks: bool
    has_keypoints: bool


def heads_of(fields: Fields) -> Heads:
    """The heads that a config describes."""
    classes = classes_of(fields, 80)
    proposals = fields.integer("proposals", default=512, maximum=100_000)
    return Heads(
        classes=classes,
        proposals=proposals,
        samples=max(1, proposals // 4),
        box_heads=fields.integer("box_heads", default=1, maximum=16),
        box_convs=fields.integer("box_convs", default=0, minimum=0, maximum=64),
        box_layers=fields.integer("box_layers", default=2, minimum=0, maximum=64),
        box_outputs=4 if fields.flag("is_class_agnostic") else 4 * classes,
        mask_convs=fields.integer("mask_convs", default=4, minimum=0, maximum=64),
        norm=fields.text("head_norm", default="none"),
        has_masks=fields.flag("has_masks"),
        has_keypoints=fields.flag("has_keypoints"),
    )


def draw(drawing: Drawing, level: Feature, fields: Fields) -> None:
    """Heads that crop a feature (the largest of a pyramid stands for all) each for itself."""
    heads = heads_of(fields)

    def masks(given: Feature) -> Feature:
        return _masks(drawing, _crops(drawing, given, heads.samples, _MASK_SIDE), heads, heads.mask_convs)

    def keypoints(given: Feature) -> Feature:
        return _keypoints(drawing, _crops(drawing, given, heads.samples, _MASK_SIDE), heads)

    def boxes(given: Feature) -> Feature:
        return _boxes(drawing, _crops(drawing, given, heads.proposals, _BOX_SIDE), heads)

    if heads.has_masks:
        drawing.block("masks", level, masks, owns_input=False)
    if heads.has_keypoints:
        drawing.block("keypoints", level, keypoints, owns_input=False)
    for index in range(heads.box_heads):
        name = f"boxes{index + 1}" if heads.box_heads > 1 else "boxes"
        drawing.block(name, level, boxes, role="output", owns_input=False)


def draw_on_last_stage(drawing: Drawing, level: Feature, fields: Fields, spec: Fields) -> None:
    """The backbone's last stage on every crop; boxes from its mean, masks from all of it."""
    heads = heads_of(fields)

    def crop(given: Feature) -> Feature:
        return _crops(drawing, given, heads.proposals, _MASK_SIDE)

    def masks(given: Feature) -> Feature:
        height, width = given.size
        chosen = drawing.resize(given, (max(1, height * heads.samples // heads.proposals), width))
        return _masks(drawing, chosen, heads, 0)

    def boxes(given: Feature) -> Feature:
        return _predict(drawing, drawing.resize(given, (heads.proposals, 1)), heads)

    crops = drawing.block("crops", level, crop, owns_input=False)
    last = resnet.last_stage(drawing, spec, crops)
    if heads.has_masks:
        drawing.block("masks", last, masks)
    drawing.block("boxes", last, boxes, role="output", owns_input=not heads.has_masks)


def _crops(drawing: Drawing, given: Feature, count: int, side: int) -> Feature:
    """Square crops, one below the other."""
    return drawing.resize(given, (count * side, side))


def _convolved(drawing: Drawing, y: Feature, depth: int, norm: str, width: int = _WIDTH) -> Feature:
    for _ in range(depth):
        y = drawing.act(drawing.normed(drawing.conv(y, width, 3, bias=norm == "none"), norm))
    return y


def _boxes(drawing: Drawing, crops: Feature, heads: Heads) -> Feature:
    y = _convolved(drawing, crops, heads.box_convs, heads.norm)
    y = y._replace(channels=y.channels * _BOX_SIDE**2, size=(heads.proposals, 1))
    for _ in range(heads.box_layers):
        y = drawing.act(drawing.linear(y, _BOX_WIDTH))
    return _predict(drawing, y, heads)


def _predict(drawing: Drawing, y: Feature, heads: Heads) -> Feature:
    """A box and the classes, one more for what is none."""
    out = drawing.linear(y, heads.box_outputs)
    drawing.linear(y, heads.classes + 1)
    drawing.part(loss(heads.classes + 1, fixed(heads.proposals)))
    return out


def _masks(drawing: Drawing, crops: Feature, heads: Heads, depth: int) -> Feature:
    """Twice the size of the crops, a mask for each class."""
    y = _convolved(drawing, crops, depth, heads.norm)
    return drawing.conv(drawing.act(drawing.upconv(y, _WIDTH)), heads.classes, bias=True)


def _keypoints(drawing: Drawing, crops: Feature, heads: Heads) -> Feature:
    """Four times the size of the crops; each keypoint chooses one of the places."""
    y = _convolved(drawing, crops, _KEYPOINT_CONVS, "none", _KEYPOINT_WIDTH)
    y = drawing.upconv(y, _KEYPOINTS, kernel=4)
    y = drawing.resize(y, tuple(2 * side for side in y.size))
    drawing.part(loss((4 * _MASK_SIDE) ** 2, fixed(_KEYPOINTS * heads.samples)))
    return y
