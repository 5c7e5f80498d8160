"""Visformer (arXiv:2104.12533): stages of grouped convolutions, then attention, with batch norm everywhere.

Fields: `stem_channels`; `hidden_sizes`, `depths`, `patch_sizes` and `num_attention_heads` for each stage;
`convolution_stages`: how many of them come first, without attention, and the `groups` of their 3 x 3
convolutions; `mlp_ratio` of the others (the first are twice as wide inside). Each stage adds positions.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import with_positions
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    patches_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.families.layers import AttentionNames, Heads, attention
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

_NAMES = AttentionNames(out="proj", fused="qkv")
_STEM_STEP = 2


class _Stage(NamedTuple):
    """Sizes of one stage. `heads` 0: convolutions only. `entries`: of the position table."""

    width: int
    depth: int
    patch: int
    heads: int
    inner: int
    groups: int
    entries: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier on the mean of the last stage."""
    own = image_size_of(fields, None, 224)
    side = image_size_of(fields, image_size, own)
    stages, drawing = _stages(fields, own), Drawing()
    stem = fields.integer("stem_channels", default=16, maximum=65_536)
    x = drawing.block(
        "stem",
        pixels(side, fields.integer("num_channels", default=3, maximum=64)),
        lambda given: drawing.conv_norm_act(given, stem, 7, _STEM_STEP),
        role="input",
    )
    for index, stage in enumerate(stages):
        x = drawing.block(
            f"patches{index}",
            x,
            lambda given, now=stage: _patches(drawing, given, now),  # type: ignore[misc]
        )
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, now=stage: _layer(drawing, given, now),  # type: ignore[misc]
            repeat=stage.depth,
        )
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(drawing.global_pool(drawing.norm(given)), classes),
        role="output",
    )
    layers = sum(stage.depth for stage in stages)
    return image_model(fields, "visformer", drawing.blocks, side, hidden=x.channels, layers=layers)


def _stages(fields: Fields, own: int) -> list[_Stage]:
    lists = {
        "hidden_sizes": whole_numbers(fields, "hidden_sizes", [96, 192, 384], 65_536),
        "depths": whole_numbers(fields, "depths", [7, 4, 4], 10_000),
        "patch_sizes": whole_numbers(fields, "patch_sizes", [4, 2, 2], 1024),
        "num_attention_heads": whole_numbers(fields, "num_attention_heads", [3, 3, 3], 4096),
    }
    same_length(**lists)
    plain = fields.integer("convolution_stages", default=1, minimum=0, maximum=256)
    ratio = fields.number("mlp_ratio", default=4.0, minimum=0.01, maximum=1024)
    groups = fields.integer("groups", default=8, maximum=4096)
    places, stages = -(-own // _STEM_STEP), []
    for index, (width, depth, patch, heads) in enumerate(zip(*lists.values(), strict=True)):
        places = patches_of(places, patch)
        is_plain = index < plain
        inner = 2 * width if is_plain else max(1, int(width * ratio))
        if is_plain and inner % groups:
            known = ", ".join(str(each) for each in range(1, 65) if inner % each == 0)
            raise InputError(
                "models.block_unknown", field=fields.where + "groups", given=str(groups), known=known
            )
        if not is_plain and width % heads:
            field = f"{fields.where}num_attention_heads.{index}"
            raise InputError("models.heads_not_divisor", field=field, heads=heads, hidden=width)
        stages.append(_Stage(width, depth, patch, 0 if is_plain else heads, inner, groups, places**2))
    return stages


def _patches(drawing: Drawing, given: Feature, stage: _Stage) -> Feature:
    y = drawing.norm(drawing.conv(given, stage.width, stage.patch, stage.patch, padding=0, bias=True))
    return with_positions(drawing, y, stage.entries)


def _layer(drawing: Drawing, given: Feature, stage: _Stage) -> Feature:
    """Attention where the stage has heads, then pointwise convolutions, around a grouped one where not."""
    if stage.heads:
        given = drawing.add(_attend(drawing, drawing.norm(given), stage.heads), given)
    y = drawing.act(drawing.conv(drawing.norm(given), stage.inner), "gelu")
    if not stage.heads:
        y = drawing.act(drawing.conv(y, stage.inner, 3, groups=stage.groups), "gelu")
    return drawing.add(drawing.conv(y, stage.width), given)


def _attend(drawing: Drawing, given: Feature, heads: int) -> Feature:
    """Attention of all places to all, without biases."""
    shape = Heads(
        query=heads, kv=heads, dim=given.channels // heads, causal=False, rotary=False, score_upcast=False
    )
    drawing.part(attention(given.name, given.channels, shape, rows=given.rows, names=_NAMES))
    return given._replace(name="attention_out", kept=False)
