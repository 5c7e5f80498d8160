"""The image towers of vision-language models: patches, layers, and the projector into the text width."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from raceline.models.families.encoder import plain_layers
from raceline.models.families.layers import Part, block, elementwise, join, linear, mlp, norm, tensor
from raceline.models.fields import Fields
from raceline.models.graph import Block, Convolution, Extent, fixed

COMPONENT = "vision_tower"


class Tower(NamedTuple):
    """An image tower: its blocks, and the width and the number of positions that it hands on."""

    blocks: tuple[Block, ...]
    width: int
    positions: float


def _patches(fields: Fields, image_size: int | None, default: int) -> tuple[int, int]:
    """Patches a side at the image size in use, and at the size that the position table was made for."""
    patch = fields.integer("patch_size", default=14, maximum=1024)
    own = fields.integer("image_size", default=default, maximum=16384)
    return max(1, (image_size or own) // patch), max(1, own // patch)


def _stem(width: int, k: int, rows: Extent, bias: bool, *more: Part | None) -> Block:
    """The patch projection (a convolution whose stride is its kernel) and the position table."""
    patches = Convolution(
        name="patch_embedding",
        rows=rows,
        k=k,
        n=width,
        bias=bias,
        input_elements=k,
        keeps_for_weight=("pixels",),
    )
    return block(
        "vision.embedding",
        tensor("pixels", k, rows),
        Part((patches,)),
        *more,
        role="input",
        component=COMPONENT,
    )


def _table(name: str, entries: int, width: int, rows: Extent) -> Part:
    """A learned table that is added as it stands."""
    return elementwise(name, width, width, rows=rows, parameters=entries * width)


def clip_tower(fields: Fields, image_size: int | None) -> Tower:
    """CLIP's: a class token, norms before and after the layers."""
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    side, own = _patches(fields, image_size, 224)
    rows = fixed(side * side + 1)
    k = 3 * fields.integer("patch_size", default=14, maximum=1024) ** 2
    stem = _stem(
        hidden,
        k,
        fixed(side * side),
        False,
        _table("positions", own * own + 1, hidden, rows),
        _table("class_token", 1, hidden, fixed(1)),
        tensor("embedded", hidden, rows),
        norm("pre_layrnorm", "embedded", "first", hidden, rows=rows),
    )
    body = plain_layers(
        hidden,
        fields.integer("intermediate_size"),
        fields.integer("num_attention_heads"),
        layers,
        rows,
        activation=fields.text("hidden_act", default="quick_gelu"),
        component=COMPONENT,
        name="vision.layer",
    )
    final = block(
        "vision.final",
        tensor("class_out", hidden, fixed(1)),
        norm("post_layernorm", "class_out", "pooled", hidden, rows=fixed(1)),
        role="input",
        component=COMPONENT,
    )
    return Tower((stem, body, final), hidden, side * side)


def siglip_tower(fields: Fields, image_size: int | None, has_head: bool = True) -> Tower:
    """SigLIP's: biased patches, no class token, and a pooling head with a learned query."""
    hidden, inner = fields.integer("hidden_size"), fields.integer("intermediate_size")
    layers = fields.integer("num_hidden_layers", maximum=10_000)
    side, own = _patches(fields, image_size, 224)
    rows = fixed(side * side)
    k = 3 * fields.integer("patch_size", default=14, maximum=1024) ** 2
    body = plain_layers(
        hidden,
        inner,
        fields.integer("num_attention_heads"),
        layers,
        rows,
        activation="gelu_pytorch_tanh",
        component=COMPONENT,
        name="vision.layer",
    )
    one = fixed(1)
    head = (
        join(
            linear("head.in_proj", "out", hidden, 2 * hidden, rows=rows, bias=True),
            linear("head.q_proj", "probe", hidden, hidden, rows=one, bias=True),
            linear("head.out_proj", "pooled", hidden, hidden, rows=one, bias=True),
            elementwise("head.probe", 0, 0, rows=one, parameters=hidden),
            tensor("attended", hidden, one),
            norm("head.layernorm", "attended", "head_input", hidden, rows=one),
            mlp(
                "head_input",
                hidden,
                inner,
                activation_kind="gelu_pytorch_tanh",
                gated=False,
                bias=True,
                rows=one,
            ),
        )
        if has_head and fields.flag("vision_use_head", default=True)
        else None
    )
    final = block(
        "vision.final",
        tensor("last", hidden, rows),
        norm("post_layernorm", "last", "out", hidden, rows=rows),
        head,
        role="input",
        component=COMPONENT,
    )
    stem = _stem(hidden, k, rows, True, _table("positions", own * own, hidden, rows))
    return Tower((stem, body, final), hidden, side * side)


def qwen_tower(fields: Fields, image_size: int | None) -> Tower:
    """Qwen2-VL's and Qwen2.5-VL's: patches over two frames, fused q k v, and a merger of 2 x 2 patches.
    Windowed layers of Qwen2.5-VL see 112 pixels square."""
    is_25 = (
        fields.values.get("fullatt_block_indexes") is not None
        or fields.values.get("out_hidden_size") is not None
    )
    hidden = fields.integer("hidden_size" if is_25 else "embed_dim", default=1280)
    out = fields.integer("out_hidden_size" if is_25 else "hidden_size")
    depth = fields.integer("depth", default=32, maximum=10_000)
    patch, merge = (
        fields.integer("patch_size", "spatial_patch_size", default=14),
        fields.integer("spatial_merge_size", default=2),
    )
    side = max(merge, (image_size or 448) // patch)
    rows, heads = fixed(side * side), fields.integer("num_heads", default=16)
    inner = fields.integer("intermediate_size", default=None) if is_25 else None
    inner = inner or int(hidden * fields.number("mlp_ratio", default=4.0))
    k = 3 * fields.integer("temporal_patch_size", default=2) * patch * patch
    kind, gated = ("rms", True) if is_25 else ("layer", False)
    whole = len(fields.items("fullatt_block_indexes", default=[])) if is_25 else depth
    window = (fields.integer("window_size", default=112) // patch) ** 2 if is_25 else None
    bodies = [
        plain_layers(
            hidden,
            inner,
            heads,
            count,
            rows,
            activation="silu" if gated else "quick_gelu",
            gated=gated,
            norm_kind=kind,
            fused=True,
            component=COMPONENT,
            rotary=True,
            window=at,
            name="vision.layer" + (f".window{at}" if at else ""),
        )
        for count, at in ((whole, None), (depth - whole, window))
        if count
    ]
    wide, few = merge * merge * hidden, fixed(side * side / merge**2)
    merger = block(
        "vision.merger",
        tensor("last", hidden, rows),
        norm("ln_q", "last", "normed", hidden, kind=kind, rows=rows),
        tensor("merged", wide, few),
        mlp("merged", wide, wide, activation_kind="gelu", gated=False, bias=True, rows=few, out_width=out),
        role="input",
        component=COMPONENT,
    )
    return Tower((_stem(hidden, k, rows, False), *bodies, merger), out, side * side / merge**2)


def intern_tower(fields: Fields, image_size: int | None) -> Tower:
    """InternViT: a class token, a learned scale on each residual branch."""
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    size = fields.values.get("image_size")
    patch = fields.values.get("patch_size")
    values = {
        **fields.values,
        "image_size": size[0] if isinstance(size, list) else size,
        "patch_size": patch[0] if isinstance(patch, list) else patch,
    }
    fields = Fields(values, fields.where)
    side, own = _patches(fields, image_size, 448)
    rows = fixed(side * side + 1)
    body = plain_layers(
        hidden,
        fields.integer("intermediate_size"),
        fields.integer("num_attention_heads"),
        layers,
        rows,
        component=COMPONENT,
        name="vision.layer",
    )
    scale = elementwise(
        "layer_scale",
        4.0 * hidden,
        2.0 * hidden,
        keeps_for_weight=("attention_out", "mlp_out"),
        rows=rows,
        parameters=2 * hidden,
    )
    k = 3 * fields.integer("patch_size", default=14, maximum=1024) ** 2
    stem = _stem(
        hidden,
        k,
        fixed(side * side),
        True,
        _table("positions", own * own + 1, hidden, rows),
        _table("class_token", 1, hidden, fixed(1)),
    )
    return Tower((stem, msgspec.structs.replace(body, ops=body.ops + scale.ops)), hidden, side * side)


def llama4_tower(fields: Fields, image_size: int | None) -> Tower:
    """Llama 4's: biased layers, then patches of 2 x 2 folded and a two-layer adapter."""
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    side, own = _patches(fields, image_size, 336)
    rows = fixed(side * side + 1)
    ratio = fields.number("pixel_shuffle_ratio", default=0.5)
    folded, few = round(hidden / ratio**2), fixed(side * side * ratio**2)
    middle, out = (
        fields.integer("projector_input_dim", default=4096),
        fields.integer("projector_output_dim", default=4096),
    )
    k = 3 * fields.integer("patch_size", default=14, maximum=1024) ** 2
    body = plain_layers(
        hidden,
        fields.integer("intermediate_size"),
        fields.integer("num_attention_heads"),
        layers,
        rows,
        component=COMPONENT,
        name="vision.layer",
        rotary=True,
    )
    stem = _stem(
        hidden,
        k,
        fixed(side * side),
        False,
        _table("positions", own * own + 1, hidden, rows),
        _table("class_token", 1, hidden, fixed(1)),
        tensor("embedded", hidden, rows),
        norm("layernorm_pre", "embedded", "first", hidden, rows=rows),
    )
    adapter = block(
        "vision.adapter",
        tensor("last", hidden, rows),
        norm("layernorm_post", "last", "out", hidden, rows=rows),
        tensor("folded", folded, few),
        linear("adapter.fc1", "folded", folded, middle, rows=few, out="a"),
        elementwise("adapter.gelu", middle, middle, keeps=("a",), rows=few),
        tensor("b", middle, few),
        linear("adapter.fc2", "b", middle, out, rows=few, out="c"),
        elementwise("adapter.gelu2", out, out, keeps=("c",), rows=few),
        role="input",
        component=COMPONENT,
    )
    return Tower((stem, body, adapter), out, side * side * ratio**2)


def mllama_tower(fields: Fields, image_size: int | None) -> Tower:
    """Llama 3.2's: up to four tiles, plain and gated (global) layers; the outputs of five layers are
    joined to the last. Position tables are stated for tiles and aspect ratios."""
    hidden, inner = (
        fields.integer("hidden_size", default=1280),
        fields.integer("intermediate_size", default=5120),
    )
    tiles = fields.integer("max_num_tiles", default=4, maximum=64)
    side, own = _patches(fields, image_size, 448)
    per_tile, table = side * side + 1, own * own + 1
    rows = fixed(tiles * (math.ceil(per_tile / 8) * 8))
    ratios = fields.integer("max_aspect_ratio_id", default=tiles * 2) + 1
    layers, whole = (
        fields.integer("num_hidden_layers", default=32),
        fields.integer("num_global_layers", default=8),
    )
    heads = fields.integer("attention_heads", "num_attention_heads", default=16)
    bodies = [
        plain_layers(hidden, inner, heads, count, rows, component=COMPONENT, name=f"vision.{name}", bias=True)
        for name, count in (("layer", layers), ("global_layer", whole))
    ]
    # attention has no biases here, the feed-forward network has
    bodies = [
        msgspec.structs.replace(
            body,
            ops=tuple(
                msgspec.structs.replace(op, bias=False)
                if op.name in ("q_proj", "k_proj", "v_proj", "out_proj")
                else op
                for op in body.ops
            ),
        )
        for body in bodies
    ]
    k = 3 * fields.integer("patch_size", default=14, maximum=1024) ** 2
    positions = elementwise(
        "positions",
        hidden,
        hidden,
        rows=rows,
        parameters=hidden * (table + ratios * tiles * table + 2 * ratios * tiles + 1) + 3 + 2 * whole,
    )
    final = block(
        "vision.final",
        tensor("last", hidden, rows),
        norm("layernorm_post", "last", "out", hidden, rows=rows),
        role="input",
        component=COMPONENT,
    )
    pre = norm("layernorm_pre", "embedded", "first", hidden, rows=rows)
    stem = _stem(
        hidden, k, fixed(tiles * side * side), False, positions, tensor("embedded", hidden, rows), pre
    )
    return Tower((stem, *bodies, final), fields.integer("vision_output_dim", default=7680), rows.fixed)


TowerMaker = Callable[[Fields, "int | None"], Tower]


def idefics_tower(fields: Fields, image_size: int | None) -> Tower:
    """Idefics' SigLIP: no pooling head."""
    return siglip_tower(fields, image_size, has_head=False)
