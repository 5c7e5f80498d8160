"""Pooling vision transformers (arXiv:2103.16302): class tokens beside an image that a convolution halves.

Fields: `head_dim` of all stages, `num_attention_heads` and `depths` for each stage, `patch_size` and `stride` of
the overlapping patches, `mlp_ratio`, `distilled` (a second token and classifier).
"""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature, strided
from raceline.models.families.drawn_layers import (
    as_image,
    attend,
    feed_forward,
    first_token,
    pre_norm_layer,
    with_positions,
    with_tokens,
)
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

_STEP = 2


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of stages whose widths are their heads' widths put together."""
    side = image_size_of(fields, image_size, 224)
    depths = whole_numbers(fields, "depths", [2, 6, 4], 10_000)
    heads = whole_numbers(fields, "num_attention_heads", [2, 4, 8], 4096)
    same_length(depths=depths, num_attention_heads=heads)
    head_dim = fields.integer("head_dim", default=32, maximum=4096)
    ratio = fields.integer("mlp_ratio", default=4, maximum=1024)
    tokens = 2 if fields.flag("distilled") else 1
    drawing = Drawing()
    x, inside = _draw_patches(drawing, fields, side, head_dim * heads[0], tokens)
    for index, (depth, count) in enumerate(zip(depths, heads, strict=True)):
        if index:
            x, inside = _draw_pool(drawing, x, index, inside, head_dim * count, tokens)
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, at=count: _layer(drawing, given, at, ratio),  # type: ignore[misc]
            repeat=depth,
        )
    classes = classes_of(fields)

    def output(given: Feature) -> Feature:
        normed = drawing.layer_norm(first_token(given)._replace(size=(tokens,)))
        if tokens > 1:
            drawing.linear(first_token(normed), classes, name="classifier1", quantisable=False)
        return drawing.classify(first_token(normed), classes)

    drawing.block("output", x, output, role="output")
    return image_model(fields, "pit", drawing.blocks, side, hidden=x.channels, layers=sum(depths))


def _draw_patches(
    drawing: Drawing, fields: Fields, side: int, width: int, tokens: int
) -> tuple[Feature, int]:
    """Overlapping patches, a table of positions made for the config's own image size, and class tokens."""
    patch = fields.integer("patch_size", default=16, maximum=1024)
    stride = fields.integer("stride", default=8, maximum=1024)
    own = strided(image_size_of(fields, None, 224), patch, stride, 0, 1, False)
    inside = strided(side, patch, stride, 0, 1, False)

    def make(given: Feature) -> Feature:
        y = drawing.conv(given, width, patch, stride, padding=0, bias=True)
        return with_tokens(drawing, with_positions(drawing, y, own**2), tokens)

    channels = fields.integer("num_channels", default=3, maximum=64)
    return drawing.block("patches", pixels(side, channels), make, role="input"), inside


def _draw_pool(
    drawing: Drawing, x: Feature, index: int, inside: int, width: int, tokens: int
) -> tuple[Feature, int]:
    """A depthwise convolution halves the image and a matrix widens the class tokens."""

    def make(given: Feature) -> Feature:
        image = as_image(given, inside)
        y = drawing.conv(image, width, _STEP + 1, _STEP, groups=given.channels, bias=True)
        drawing.linear(first_token(given)._replace(size=(tokens,)), width, name="token_projection")
        return with_tokens(drawing, y, tokens, learned=False)

    return drawing.block(f"pool{index}", x, make), strided(inside, _STEP + 1, _STEP, None, 1, False)


def _layer(drawing: Drawing, given: Feature, heads: int, ratio: int) -> Feature:
    return pre_norm_layer(
        drawing,
        given,
        lambda normed: attend(drawing, normed, heads),
        lambda normed: feed_forward(drawing, normed, normed.channels * ratio),
    )
