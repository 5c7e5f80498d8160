"""Denoisers with a stream for the image and one for the text: Qwen-Image (arXiv:2508.02324), LongCat-Image,
Chroma, AuraFlow, HiDream (arXiv:2505.22705) and HunyuanVideo 1.5 (arXiv:2511.18870), in diffusers' fields.

Their layers are those of `mmdit`; what differs is the input, and where scale, shift and gate come from.
"""

from __future__ import annotations

import msgspec

from raceline.models.families.conditioning import STEP_WIDTH, embedded, shared
from raceline.models.families.experts import Experts
from raceline.models.families.images import same_length, whole_numbers
from raceline.models.families.latents import patch_elements
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
from raceline.models.families.mmdit import (
    COMPONENT,
    Streams,
    double_layer,
    joined_layer,
    output_layer,
    single_layer,
)
from raceline.models.families.modulation import gated, modulation
from raceline.models.families.transformer import embedding
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, fixed

REGISTERS = 8
GLYPH_TOKENS = 256
GLYPH_WIDTH = 2048
IMAGE_TOKENS = 729
_TYPES = 3
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("up", "down", "")
_WIDEST = 65_536
_MOST_LAYERS = 10_000


def _streams(fields: Fields, places: int, tokens: int, heads: int, dim: int) -> Streams:
    heads = fields.integer("num_attention_heads", default=heads, maximum=4096)
    dim = fields.integer("attention_head_dim", default=dim, maximum=4096)
    return Streams(heads * dim, heads, dim, fixed(places), fixed(tokens))


def _layers(fields: Fields, name: str, default: int) -> int:
    return int(fields.integer(name, default=default, maximum=_MOST_LAYERS))


def _widths(fields: Fields, name: str, default: int | None) -> int:
    return int(fields.integer(name, default=default, maximum=_WIDEST))


def _input(*parts: Part | None) -> Block:
    return block("in", *parts, role="input", component=COMPONENT)


def _latent(shape: Streams, width: int) -> Part:
    return join(
        tensor("latent", width, shape.image),
        linear("x_embedder", "latent", width, shape.width, rows=shape.image, bias=True),
    )


def _text(shape: Streams, width: int, *, bias: bool = True) -> Part:
    return join(
        tensor("text", width, shape.text),
        linear("context_embedder", "text", width, shape.width, rows=shape.text, bias=bias),
    )


def _step(width: int) -> Part:
    return join(embedded("time", STEP_WIDTH, width), shared("time_embedding", width, SAMPLE))


def qwen_image(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Qwen-Image: double layers alone, behind a norm of the text."""
    shape = _streams(fields, places, tokens, 24, 128)
    given = _widths(fields, "joint_attention_dim", 3584)
    latent = _widths(fields, "in_channels", 64)
    patch = fields.integer("patch_size", default=2, maximum=64)
    out = patch**2 * _widths(fields, "out_channels", 16)
    first = _input(
        _latent(shape, latent),
        tensor("given", given, shape.text),
        norm("txt_norm", "given", "text", given, kind="rms_t5", rows=shape.text),
        linear("txt_in", "text", given, shape.width, rows=shape.text, bias=True),
        _step(shape.width),
    )
    layers = double_layer(shape, _layers(fields, "num_layers", 60), COMPONENT)
    return [first, layers, output_layer(shape, out, COMPONENT)]


def longcat_image(fields: Fields, places: int, tokens: int) -> list[Block]:
    """LongCat-Image: Flux without a pooled text."""
    shape = _streams(fields, places, tokens, 24, 128)
    latent = _widths(fields, "in_channels", 64)
    first = _input(
        _latent(shape, latent),
        _text(shape, _widths(fields, "joint_attention_dim", 3584)),
        _step(shape.width),
    )
    patch = fields.integer("patch_size", default=1, maximum=64)
    return [first, *_flux_layers(fields, shape), output_layer(shape, patch**2 * latent, COMPONENT)]


def _flux_layers(fields: Fields, shape: Streams) -> list[Block]:
    return [
        double_layer(shape, _layers(fields, "num_layers", 19), COMPONENT),
        single_layer(shape, _layers(fields, "num_single_layers", 38), COMPONENT),
    ]


def chroma(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Chroma: Flux whose scales, shifts and gates one small network makes for all layers."""
    shape = _streams(fields, places, tokens, 24, 128)._replace(modulates=False)
    latent = _widths(fields, "in_channels", 64)
    factors = 12 * _layers(fields, "num_layers", 19) + 3 * _layers(fields, "num_single_layers", 38) + 2
    first = _input(
        _latent(shape, latent),
        _text(shape, _widths(fields, "joint_attention_dim", 4096)),
        *_approximator(fields, shape.width, fixed(factors)),
    )
    patch = fields.integer("patch_size", default=1, maximum=64)
    out = patch**2 * _widths(fields, "out_channels", latent)
    return [first, *_flux_layers(fields, shape), output_layer(shape, out, COMPONENT)]


def _approximator(fields: Fields, width: int, rows: Extent) -> list[Part]:
    """Residual layers over one vector for each scale, shift and gate."""
    given = _widths(fields, "approximator_num_channels", 64)
    inner = _widths(fields, "approximator_hidden_dim", 5120)
    count = fields.integer("approximator_layers", default=5, minimum=0, maximum=100)
    layers = [part for index in range(count) for part in _approximated(f"layer{index}", inner, rows)]
    return [
        tensor("factor", given, rows),
        linear("factor_in", "factor", given, inner, rows=rows, bias=True, out="layer0_input"),
        *layers,
        linear("factor_out", f"layer{count}_input", inner, width, rows=rows, bias=True),
        shared("factors", width, rows),
    ]


def _approximated(name: str, inner: int, rows: Extent) -> list[Part]:
    following = f"layer{int(name.removeprefix('layer')) + 1}_input"
    return [
        norm(f"{name}_norm", f"{name}_input", f"{name}_normed", inner, kind="rms_t5", rows=rows),
        linear(f"{name}_1", f"{name}_normed", inner, inner, rows=rows, bias=True, out=f"{name}_up"),
        elementwise(f"{name}_silu", inner, inner, rows=rows, keeps=(f"{name}_up",)),
        tensor(f"{name}_hidden", inner, rows),
        linear(f"{name}_2", f"{name}_hidden", inner, inner, rows=rows, bias=True),
        elementwise(f"{name}_add", 2 * inner, inner, rows=rows),
        tensor(following, inner, rows),
    ]


def auraflow(fields: Fields, places: int, tokens: int) -> list[Block]:
    """AuraFlow: double layers, then layers over both streams; no biases; eight registers before the text."""
    shape = _streams(fields, places, tokens + REGISTERS, 12, 256)
    inner = 256 * -(-(8 * shape.width // 3) // 256)
    shape = shape._replace(norm="layer_plain", has_bias=False, is_gated=True, inner=inner)
    patch = fields.integer("patch_size", default=2, maximum=64) ** 2
    table = fields.integer("pos_embed_max_size", default=1024, maximum=10_000_000)
    width, text = shape.width, shape._replace(text=fixed(tokens))
    first = _input(
        _latent(shape, patch * _widths(fields, "in_channels", 4)),
        elementwise("positions", 2 * width, width, rows=shape.image, parameters=table * width),
        _text(text, _widths(fields, "joint_attention_dim", 2048), bias=False),
        elementwise("registers", width, width, rows=fixed(REGISTERS), parameters=REGISTERS * width),
        _step(width),
    )
    return [
        first,
        double_layer(shape, _layers(fields, "num_mmdit_layers", 4), COMPONENT),
        joined_layer(shape, _layers(fields, "num_single_dit_layers", 32), COMPONENT),
        output_layer(shape, patch * _widths(fields, "out_channels", 4), COMPONENT),
    ]


def hidream(fields: Fields, places: int, tokens: int) -> list[Block]:
    """HiDream: experts in the image's stream. `tokens` of T5 and of the language model's last layer stand
    before those of its layer for this block."""
    shape = _streams(fields, places, 3 * tokens, 20, 128)
    width = shape.width
    inner = 256 * -(-(8 * width // 3) // 256)
    shape = shape._replace(
        norm="rms_t5", norm_whole=True, is_gated=True, inner=inner, experts=_experts(fields, width, inner)
    )
    double, single = _layers(fields, "num_layers", 16), _layers(fields, "num_single_layers", 32)
    patch = fields.integer("patch_size", default=2, maximum=64) ** 2
    latent = _widths(fields, "in_channels", 16)
    first = _input(
        _latent(shape, patch * latent),
        _captions(fields, width, double + single, fixed(tokens)),
        embedded("time", STEP_WIDTH, width),
        embedded("pooled", _widths(fields, "text_emb_dim", 2048), width),
        shared("time_embedding", width, SAMPLE),
    )
    return [
        first,
        double_layer(shape, double, COMPONENT),
        joined_layer(shape, single, COMPONENT),
        output_layer(shape, patch * _widths(fields, "out_channels", latent), COMPONENT),
    ]


def _experts(fields: Fields, width: int, inner: int) -> Experts | None:
    count = fields.integer("num_routed_experts", default=4, minimum=0, maximum=4096)
    if not count:
        return None
    visited = fields.integer("num_activated_experts", default=2, maximum=count)
    half = 256 * -(-(4 * width // 3) // 256)
    return Experts(count=count, visited=visited, inner=inner, shared=half)


def _captions(fields: Fields, width: int, layers: int, rows: Extent) -> Part:
    """A projection of T5's text, and one of the language model's for each layer."""
    widths = whole_numbers(fields, "caption_channels", (4096, 4096), _WIDEST)
    same_length(caption_channels=widths[:2], text_encoders=("t5", "llama"))
    (project,) = linear("caption_projection", "captions", widths[1], width, rows=rows).ops
    return join(
        tensor("text", widths[0], rows),
        linear("t5_projection", "text", widths[0], width, rows=rows),
        tensor("captions", layers * widths[1], rows),
        Part((msgspec.structs.replace(project, count=layers),)),
    )


def hunyuan_video(fields: Fields, places: int, tokens: int) -> list[Block]:
    """HunyuanVideo 1.5: `tokens` of the language model behind a refiner, those of the glyphs and of an image."""
    shape = _streams(fields, places, tokens + GLYPH_TOKENS + IMAGE_TOKENS, 16, 128)
    width, size = (
        shape.width,
        patch_elements(fields, 1) * fields.integer("patch_size_t", default=1, maximum=64),
    )
    ratio = fields.number("mlp_ratio", default=4.0, minimum=0.01, maximum=100)
    has_norm = fields.text("qk_norm", default="rms_norm") is not None
    shape = shape._replace(inner=max(1, int(ratio * width)), norm="rms_t5" if has_norm else "")
    first = _input(
        _latent(shape, size * _widths(fields, "in_channels", 65)),
        _image_tokens(width, _widths(fields, "image_embed_dim", 1152)),
        _glyphs(width, _widths(fields, "text_embed_2_dim", 1472)),
        _refiner_input(width, _widths(fields, "text_embed_dim", 3584), fixed(tokens)),
        embedding("type", _TYPES, width, rows=shape.text, split=False),
        embedded("end_time", STEP_WIDTH, width) if fields.flag("use_meanflow") else None,
        _step(width),
    )
    return [
        first,
        _refiner(shape, _layers(fields, "num_refiner_layers", 2), fixed(tokens)),
        double_layer(shape, _layers(fields, "num_layers", 54), COMPONENT),
        output_layer(shape, size * _widths(fields, "out_channels", 32), COMPONENT),
    ]


def _image_tokens(width: int, given: int) -> Part:
    rows = fixed(IMAGE_TOKENS)
    return join(
        tensor("image_given", given, rows),
        norm("image_norm_in", "image_given", "image_normed", given, rows=rows),
        linear("image_1", "image_normed", given, given, rows=rows, bias=True, out="image_up"),
        elementwise("image_gelu", given, given, rows=rows, keeps=("image_up",)),
        tensor("image_hidden", given, rows),
        linear("image_2", "image_hidden", given, width, rows=rows, bias=True, out="image_wide"),
        norm("image_norm_out", "image_wide", "image_tokens", width, rows=rows),
    )


def _glyphs(width: int, given: int) -> Part:
    """Tokens of the byte-level encoder that reads what shall be written in the picture."""
    rows = fixed(GLYPH_TOKENS)
    return join(
        tensor("glyphs", given, rows),
        norm("glyph_norm", "glyphs", "glyph_normed", given, rows=rows),
        linear("glyph_1", "glyph_normed", given, GLYPH_WIDTH, rows=rows, bias=True, out="glyph_up"),
        elementwise("glyph_gelu", GLYPH_WIDTH, GLYPH_WIDTH, rows=rows, keeps=("glyph_up",)),
        tensor("glyph_hidden", GLYPH_WIDTH, rows),
        linear("glyph_2", "glyph_hidden", GLYPH_WIDTH, GLYPH_WIDTH, rows=rows, bias=True, out="glyph_up2"),
        elementwise("glyph_gelu2", GLYPH_WIDTH, GLYPH_WIDTH, rows=rows, keeps=("glyph_up2",)),
        tensor("glyph_hidden2", GLYPH_WIDTH, rows),
        linear("glyph_3", "glyph_hidden2", GLYPH_WIDTH, width, rows=rows, bias=True),
    )


def _refiner_input(width: int, given: int, rows: Extent) -> Part:
    return join(
        embedded("refiner_time", STEP_WIDTH, width),
        embedded("pooled", given, width),
        tensor("text", given, rows),
        linear("text_in", "text", given, width, rows=rows, bias=True),
    )


def _refiner(shape: Streams, repeat: int, rows: Extent) -> Block:
    """Layers over the text alone, whose two branches the step gates."""
    width = shape.width
    return block(
        "text_layer",
        tensor("input", width, rows),
        norm("norm1", "input", "attention_in", width, rows=rows),
        attention(
            "attention_in", width, shape.attention, rows=rows, bias=(True, True, True, True), names=_ATTENTION
        ),
        modulation("attention", width, 2),
        gated("attention_out", "attention", width, rows),
        residual("attention_add", width, "middle", rows),
        norm("norm2", "middle", "mlp_in", width, rows=rows),
        mlp("mlp_in", width, 4 * width, gated=False, bias=True, rows=rows, names=_MLP),
        gated("mlp_out", "attention", width, rows),
        residual("mlp_add", width, "output", rows),
        repeat=repeat,
        boundary="input",
        component=COMPONENT,
    )
