"""ConViT (arXiv:2103.10697): attention that starts as a convolution and learns to look further.

Fields as ViT's, and `local_layers`: the first ones, where a gate in each head mixes attention with a softmax
over distances. The class token comes in after them.
"""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import (
    attend,
    feed_forward,
    first_token,
    pre_norm_layer,
    with_positions,
    with_tokens,
)
from raceline.models.families.images import classes_of, image_model, image_size_of, patches_of, pixels
from raceline.models.families.layers import elementwise, linear, tensor
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed

_DISTANCES = 3


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of gated layers on patches, then plain layers with a class token."""
    side = image_size_of(fields, image_size, 224)
    width = fields.integer("hidden_size", default=192, maximum=65_536)
    layers = fields.integer("num_hidden_layers", default=12, maximum=10_000)
    local = min(layers, fields.integer("local_layers", default=10, minimum=0, maximum=10_000))
    drawing = Drawing()
    x = _draw_patches(drawing, fields, side, width)
    if local:
        x = drawing.block("local_layer", x, lambda given: _layer(drawing, given, fields, True), repeat=local)
    x = drawing.block("token", x, lambda given: with_tokens(drawing, given))
    if layers > local:
        x = drawing.block(
            "layer", x, lambda given: _layer(drawing, given, fields, False), repeat=layers - local
        )
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(first_token(drawing.layer_norm(given)), classes),
        role="output",
    )
    return image_model(fields, "convit", drawing.blocks, side, hidden=width, layers=layers)


def _draw_patches(drawing: Drawing, fields: Fields, side: int, width: int) -> Feature:
    patch = fields.integer("patch_size", default=16, maximum=1024)
    own = patches_of(image_size_of(fields, None, 224), patch)

    def make(given: Feature) -> Feature:
        y = drawing.conv(given, width, patch, patch, padding=0, bias=True)
        return with_positions(drawing, y, own**2)

    channels = fields.integer("num_channels", default=3, maximum=64)
    return drawing.block("patches", pixels(side, channels), make, role="input")


def _layer(drawing: Drawing, given: Feature, fields: Fields, is_local: bool) -> Feature:
    heads = fields.integer("num_attention_heads", default=4, maximum=4096)
    inner = given.channels * fields.integer("mlp_ratio", default=4, maximum=1024)
    bias = fields.flag("qkv_bias")

    def mix(normed: Feature) -> Feature:
        if is_local:
            pairs = fixed(normed.rows.fixed**2)
            drawing.part(tensor("distances", _DISTANCES, pairs))
            drawing.part(
                linear("pos_proj", "distances", _DISTANCES, heads, rows=pairs, bias=True, quantisable=False)
            )
            drawing.part(elementwise("gates", 0, heads, rows=normed.rows, parameters=heads))
        copies = 2.0 if is_local else 1.0
        return attend(drawing, normed, heads, bias=bias, has_bias=is_local, score_copies=copies)

    return pre_norm_layer(drawing, given, mix, lambda normed: feed_forward(drawing, normed, inner))
