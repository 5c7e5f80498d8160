"""PoolFormer: layers that mix positions by pooling alone, from transformers' config fields (arXiv:2111.11418)."""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.fields import Fields
from raceline.models.graph import Model


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of four stages of pooling layers."""
    side = image_size_of(fields, image_size, 224)
    widths = whole_numbers(fields, "hidden_sizes", [64, 128, 320, 512], 65_536)
    depths = whole_numbers(fields, "depths", [2, 2, 6, 2], 10_000)
    patches = whole_numbers(fields, "patch_sizes", [7, 3, 3, 3], 1024)
    steps = whole_numbers(fields, "strides", [4, 2, 2, 2], 1024)
    paddings = whole_numbers(fields, "padding", [2, 1, 1, 1], 1024)
    same_length(hidden_sizes=widths, depths=depths, patch_sizes=patches, strides=steps, padding=paddings)
    drawing = Drawing()
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        x = drawing.block(
            f"patches{index}",
            x,
            lambda given, at=index, wide=width: drawing.conv(  # type: ignore[misc]
                given, wide, patches[at], steps[at], padding=paddings[at], bias=True
            ),
            role="body" if index else "input",
        )
        x = drawing.block(f"stage{index}", x, lambda given: _layer(drawing, given, fields), repeat=depth)
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(drawing.global_pool(_norm(drawing, given)), classes),
        role="output",
    )
    return image_model(fields, "poolformer", drawing.blocks, side, hidden=x.channels, layers=sum(depths))


def _norm(drawing: Drawing, given: Feature) -> Feature:
    return drawing.norm(given, "group", groups=1)


def _layer(drawing: Drawing, given: Feature, fields: Fields) -> Feature:
    """Pooling less its input, then two pointwise convolutions; both branches may have a learned scale."""
    has_scale = fields.flag("use_layer_scale", default=True)
    inner = int(given.channels * fields.number("mlp_ratio", default=4.0, minimum=0.01, maximum=1024))
    normed = _norm(drawing, given)
    pooled = drawing.pool(normed, fields.integer("pool_size", default=3, maximum=1024), 1, kind="mean")
    y = drawing.add(pooled, normed)
    middle = drawing.add(drawing.scale(y) if has_scale else y, given)
    y = drawing.conv(_norm(drawing, middle), max(1, inner), bias=True)
    y = drawing.conv(drawing.act(y, fields.text("hidden_act", default="gelu")), given.channels, bias=True)
    return drawing.add(drawing.scale(y) if has_scale else y, middle)
