"""Video diffusion transformers: CogVideoX (arXiv:2408.06072) and Wan 2.1 (arXiv:2503.20314), in diffusers' fields.

A video is `num_frames` of `height` x `width` pixels, or a square of the workload's image size. A latent
has one place for eight pixels a side and one frame for four (after the first); a patch takes 2 x 2 places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from raceline.models.families.conditioning import (
    PIXELS_PER_LATENT,
    STEP_WIDTH,
    embedded,
    notes,
    shared,
    squared_error,
    text_tokens,
)
from raceline.models.families.convnet import LARGEST_IMAGE
from raceline.models.families.images import image_model, patches_of
from raceline.models.families.layers import (
    AttentionNames,
    MlpNames,
    Part,
    attention,
    block,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    residual,
    tensor,
)
from raceline.models.families.modulation import gated, learned_offset, modulated, modulation
from raceline.models.families.resblock import plain_heads
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, Model, fixed

COMPONENT = "transformer"
FRAMES_PER_LATENT = 4
_PATCH = 2
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("up", "down", "")
_BIASES = (True, True, True, True)


class _Shape(NamedTuple):
    """Widths and positions of the video and its text."""

    width: int
    heads: int
    layers: int
    inner: int
    video: Extent
    text: Extent
    patch: int
    out: int
    text_width: int

    @property
    def both(self) -> Extent:
        return fixed(self.video.fixed + self.text.fixed)


class _Video(NamedTuple):
    """What a model was made for: frames and pixels."""

    frames: int
    height: int
    width: int


def _shape(fields: Fields, image_size: int | None, own: _Video, tokens: int) -> _Shape:
    heads = fields.integer("num_attention_heads", maximum=4096)
    width = heads * fields.integer("attention_head_dim", default=64, maximum=4096)
    channels = fields.integer("in_channels", default=16, maximum=65_536)
    frames = fields.integer("num_frames", "sample_frames", default=own.frames, maximum=100_000)
    latents = (frames - 1) // FRAMES_PER_LATENT + 1
    places = [
        patches_of(patches_of(side, PIXELS_PER_LATENT), _PATCH) for side in _sides(fields, image_size, own)
    ]
    return _Shape(
        width=width,
        heads=heads,
        layers=fields.integer("num_layers", maximum=10_000),
        inner=fields.integer("ffn_dim", default=4 * width),
        video=fixed(latents * places[0] * places[1]),
        text=fixed(text_tokens(fields, tokens)),
        patch=_PATCH**2 * channels,
        out=_PATCH**2 * fields.integer("out_channels", default=channels, maximum=65_536),
        text_width=fields.integer("text_embed_dim", "text_dim", default=4096, maximum=65_536),
    )


def _sides(fields: Fields, image_size: int | None, own: _Video) -> tuple[int, int]:
    if image_size:
        return image_size, image_size
    height = fields.integer("height", default=own.height, maximum=LARGEST_IMAGE)
    return height, fields.integer("width", default=own.width, maximum=LARGEST_IMAGE)


def _model(fields: Fields, image_size: int | None, own: _Video, blocks: list[Block], width: int) -> Model:
    side = max(_sides(fields, image_size, own))
    rest: dict[str, Any] = {"objective": "denoise", "unit": "sample", "hidden": width, "notes": notes(fields)}
    return image_model(fields, "diffusion", blocks, side, **rest)


def build_cogvideox(fields: Fields, image_size: int | None = None) -> Model:
    """CogVideoX: text and video as one sequence with the same weights, modulated apart."""
    own = _Video(49, 480, 720)
    shape = _shape(fields, image_size, own, 226)
    step = fields.integer("time_embed_dim", default=512, maximum=65_536)
    width, rows = shape.width, shape.both
    layer = block(
        "layer",
        tensor("streams", width, rows),
        modulation("attention", width, 6, step),
        modulated("attention", "streams", "attention_in", width, rows, has_weights=True),
        _normed_attention(shape, "attention", "attention_in", rows, per_head=True),
        gated("attention_out", "attention", width, rows),
        residual("attention_add", width, "middle", rows),
        modulation("mlp", width, 6, step),
        modulated("mlp", "middle", "mlp_in", width, rows, has_weights=True),
        _feed(shape, rows),
        gated("mlp_out", "mlp", width, rows),
        residual("mlp_add", width, "output", rows),
        repeat=shape.layers,
        boundary="streams",
        component=COMPONENT,
    )
    return _model(fields, image_size, own, [_cog_input(shape, step), layer, _cog_output(shape, step)], width)


def _cog_input(shape: _Shape, step: int) -> Block:
    return block(
        "in",
        tensor("latent", shape.patch, shape.video),
        linear("patch_embedding", "latent", shape.patch, shape.width, rows=shape.video, bias=True),
        tensor("text", shape.text_width, shape.text),
        linear("text_proj", "text", shape.text_width, shape.width, rows=shape.text, bias=True),
        embedded("time", shape.width, step),
        shared("time_embedding", step, SAMPLE),
        role="input",
        component=COMPONENT,
    )


def _cog_output(shape: _Shape, step: int) -> Block:
    width, rows = shape.width, shape.video
    return block(
        "out",
        tensor("last", width, rows),
        norm("norm_final", "last", "final", width, rows=rows),
        modulation("out", width, 2, step),
        modulated("out", "final", "head_in", width, rows, has_weights=True),
        linear("proj_out", "head_in", width, shape.out, rows=rows, bias=True, quantisable=False),
        squared_error(shape.out, rows),
        role="output",
        component=COMPONENT,
    )


def build_wan(fields: Fields, image_size: int | None = None) -> Model:
    """Wan 2.1 from text: self- and cross-attention, norms in fp32, one modulation with learned offsets."""
    own = _Video(81, 480, 832)
    shape = _shape(fields, image_size, own, 512)
    width, rows = shape.width, shape.video
    layer = block(
        "layer",
        tensor("input", width, rows),
        learned_offset("attention", width, 6),
        modulated("attention", "input", "attention_in", width, rows, in_fp32=True),
        _normed_attention(shape, "attention", "attention_in", rows),
        gated("attention_out", "attention", width, rows),
        residual("attention_add", width, "middle", rows),
        norm("norm2", "middle", "cross_in", width, kind="layer_fp32_whole", rows=rows),
        _normed_attention(shape, "cross", "cross_in", rows, memory=shape.text),
        residual("cross_add", width, "crossed", rows),
        modulated("mlp", "crossed", "mlp_in", width, rows, by="attention", in_fp32=True),
        _feed(shape, rows),
        gated("mlp_out", "attention", width, rows),
        tensor("mlp_out_upcast", width / 2, rows, "fp32", eager=True),
        elementwise("mlp_upcast", 0, 0, rows=rows, keeps=("mlp_out_upcast",)),
        residual("mlp_add", width, "output", rows),
        repeat=shape.layers,
        boundary="input",
        component=COMPONENT,
    )
    return _model(fields, image_size, own, [_wan_input(fields, shape), layer, _wan_output(shape)], width)


def _wan_input(fields: Fields, shape: _Shape) -> Block:
    width = shape.width
    return block(
        "in",
        tensor("latent", shape.patch, shape.video),
        linear("patch_embedding", "latent", shape.patch, width, rows=shape.video, bias=True),
        embedded("time", fields.integer("freq_dim", default=STEP_WIDTH, maximum=65_536), width),
        modulation("shared", width, 6),
        embedded("text", shape.text_width, width, rows=shape.text),
        shared("memory", width, shape.text),
        role="input",
        component=COMPONENT,
    )


def _wan_output(shape: _Shape) -> Block:
    width, rows = shape.width, shape.video
    return block(
        "out",
        tensor("last", width, rows),
        learned_offset("out", width, 2),
        modulated("out", "last", "head_in", width, rows, in_fp32=True),
        linear("proj_out", "head_in", width, shape.out, rows=rows, bias=True, quantisable=False),
        squared_error(shape.out, rows),
        role="output",
        component=COMPONENT,
    )


def _normed_attention(
    shape: _Shape,
    prefix: str,
    given: str,
    rows: Extent,
    *,
    memory: Extent | None = None,
    per_head: bool = False,
) -> Part:
    """Attention with normalised queries and keys: each head on its own, or over the whole width."""
    heads = plain_heads(shape.width, shape.heads)
    plain = attention(
        given, shape.width, heads, rows=rows, bias=_BIASES, names=_ATTENTION, prefix=prefix,
        out=f"{prefix}_out", memory="memory" if memory else "", memory_rows=memory,
    )  # fmt: skip
    norms = []
    for side, at in (("q", rows), ("k", memory or rows)):
        raw, out = f"{prefix}_{side}_raw", f"{prefix}_{side}_normed"
        width, groups = (heads.dim, shape.heads) if per_head else (shape.width, 1)
        kind = "layer" if per_head else "rms_fp32"
        norms += [
            tensor(raw, shape.width, at, split=True),
            norm(f"norm_{side}", raw, out, width, kind=kind, rows=at, per_position=groups, split=True),
        ]
    return join(plain, *norms)


def _feed(shape: _Shape, rows: Extent) -> Part:
    return mlp(
        "mlp_in",
        shape.width,
        shape.inner,
        activation_kind="gelu",
        gated=False,
        bias=True,
        rows=rows,
        names=_MLP,
    )
