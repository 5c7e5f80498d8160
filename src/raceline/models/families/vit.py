"""Vision transformers: ViT, DeiT and BEiT from transformers' config fields, with a few of timm's.

Beside ViTConfig's fields: `fused_qkv`, `pooling` (token, or mean with its own norm), `has_class_token`,
`has_positions`, `class_position` (false: the class token has none), `layer_scale`,
`relative_positions` and `key_bias` (BEiT), `pre_norm` (CLIP's norm before the layers),
`distilled`, `has_classifier`.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families.encoder import plain_layers
from raceline.models.families.images import classes_of, image_model, image_size_of, patches_of
from raceline.models.families.layers import Part, block, elementwise, join, linear, norm, tensor
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, AnyOp, Attention, Block, Convolution, Extent, Matmul, Model, fixed

_BEIT = {
    "has_positions": False, "layer_scale": True, "relative_positions": True, "key_bias": False,
    "pooling": "mean",
}  # fmt: skip


class _Size(NamedTuple):
    """Widths and positions. `own`: patches that the position table was made for."""

    hidden: int
    patch: int
    patches: int
    own: int
    tokens: int

    @property
    def rows(self) -> Extent:
        return fixed(self.patches + self.tokens)


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier on patches."""
    if fields.text("model_type", default="") == "beit":
        fields = Fields({**_BEIT, **fields.values}, fields.where)
    side = image_size_of(fields, image_size, 224)
    patch = fields.integer("patch_size", default=16, maximum=1024)
    size = _Size(
        hidden=fields.integer("hidden_size", default=768),
        patch=patch,
        patches=patches_of(side, patch) ** 2,
        own=patches_of(image_size_of(fields, None, 224), patch) ** 2,
        tokens=int(fields.flag("has_class_token", default=True)) + int(fields.flag("distilled")),
    )
    layers = fields.integer("num_hidden_layers", default=12, maximum=10_000)
    blocks = [_embedding(fields, size), _body(fields, size, layers), _output(fields, size)]
    return image_model(fields, "vit", blocks, side, hidden=size.hidden)


def _embedding(fields: Fields, size: _Size) -> Block:
    k = fields.integer("num_channels", default=3, maximum=64) * size.patch**2
    patches = fixed(size.patches)
    is_clip = fields.flag("pre_norm")
    projection = Convolution(
        name="patch_embedding",
        rows=patches,
        k=k,
        n=size.hidden,
        bias=not is_clip,
        input_elements=float(k),
        keeps_for_weight=("pixels",),
    )
    places = size.own + (size.tokens if fields.flag("class_position", default=True) else 0)
    learned = size.hidden * (places * fields.flag("has_positions", default=True) + size.tokens)
    return block(
        "embedding",
        tensor("pixels", k, patches),
        Part((projection,)),
        elementwise("positions", size.hidden, size.hidden, rows=size.rows, parameters=learned),
        join(
            tensor("embedded", size.hidden, size.rows),
            norm("norm_pre", "embedded", "first", size.hidden, rows=size.rows),
        )
        if is_clip
        else None,
        role="input",
    )


def _body(fields: Fields, size: _Size, layers: int) -> Block:
    heads = fields.integer("num_attention_heads", default=12, maximum=4096)
    inner = fields.integer("intermediate_size", default=4 * size.hidden)
    body = plain_layers(
        size.hidden,
        inner,
        heads,
        layers,
        size.rows,
        activation=fields.text("hidden_act", default="gelu"),
        dropped=fields.number("hidden_dropout_prob", default=0.0, maximum=1.0),
        fused=fields.flag("fused_qkv"),
        bias=True,
    )
    is_biased = fields.flag("relative_positions")
    ops = [_adjusted(op, fields, is_biased) for op in body.ops]
    if is_biased:
        side = round(size.own**0.5)
        table = ((2 * side - 1) ** 2 + 3) * heads
        ops += elementwise("relative_positions", 0, heads, rows=size.rows, parameters=table).ops
    if fields.flag("layer_scale"):
        ops += _layer_scale(size).ops
    return msgspec.structs.replace(body, ops=tuple(ops))


def _adjusted(op: AnyOp, fields: Fields, is_biased: bool) -> AnyOp:
    """Without `qkv_bias` none of q, k and v has one; without `key_bias` only k lacks it. Eager attention of
    transformers takes the softmax in fp32, timm's in the activations' type."""
    if isinstance(op, Attention):
        upcast = not fields.flag("fused_qkv")
        return msgspec.structs.replace(op, has_bias=is_biased, score_upcast=upcast)
    bare = {"k_proj"} if not fields.flag("key_bias", default=True) else set()
    if not fields.flag("qkv_bias", default=True):
        bare = {"q_proj", "k_proj", "v_proj", "qkv"}
    if isinstance(op, Matmul) and op.name in bare:
        return msgspec.structs.replace(op, bias=False)
    return op


def _layer_scale(size: _Size) -> Part:
    """A learned factor for each channel of both residual branches."""
    width = 2 * size.hidden
    return elementwise(
        "layer_scale",
        2.0 * width,
        width,
        keeps_for_weight=("attention_out", "mlp_out"),
        rows=size.rows,
        parameters=width,
    )


def _output(fields: Fields, size: _Size) -> Block:
    classes = classes_of(fields)
    is_mean = fields.text("pooling", default="token") == "mean"
    at = SAMPLE if is_mean else size.rows
    heads = (2 if fields.flag("distilled") else 1) if fields.flag("has_classifier", default=True) else 0
    return block(
        "output",
        elementwise("pooling", size.hidden * size.rows.fixed, size.hidden, rows=SAMPLE) if is_mean else None,
        tensor("last", size.hidden, at),
        norm("final_norm", "last", "normed", size.hidden, rows=at),
        # one token is taken out as a view: the classifier keeps what the norm wrote
        *[
            linear(f"classifier{index or ''}", "normed", size.hidden, classes, rows=SAMPLE, bias=True,
                   quantisable=False)
            for index in range(heads)
        ],
        loss(classes, SAMPLE),
        role="output",
    )  # fmt: skip
