"""Denoisers over image and text as one sequence: Lumina-Image 2.0 (arXiv:2503.21758), Krea 2 and ERNIE-Image, in
diffusers' fields. RMS norms, gated feed-forward networks, no biases in a layer."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families.conditioning import STEP_WIDTH, embedded, shared, squared_error
from raceline.models.families.latents import patch_elements
from raceline.models.families.layers import (
    AttentionNames,
    Heads,
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
from raceline.models.families.modulation import gated, learned_offset, modulated, modulation, scaled
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Attention, Block, Extent, fixed
from raceline.present.errors import InputError

COMPONENT = "transformer"
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("up", "down", "gate")
_WIDEST = 65_536
_STEP_LIMIT = 1024


class _Shape(NamedTuple):
    """Widths of one kind of layer. `activation`: of the gate; `has_gate`: the attention's result is gated by
    its input (Krea 2)."""

    width: int
    heads: int
    kv_heads: int
    dim: int
    inner: int
    activation: str = "silu"
    has_gate: bool = False
    normed: bool = True

    @property
    def attention(self) -> Heads:
        """All heads see all positions."""
        return Heads(
            query=self.heads, kv=self.kv_heads, dim=self.dim, causal=False, score_upcast=False,
            qk_norm="head" if self.normed else None, norm_kind="rms_t5",
        )  # fmt: skip


def _whole(fields: Fields, name: str, default: int, maximum: int = _WIDEST) -> int:
    return int(fields.integer(name, default=default, maximum=maximum))


def _both(places: int, tokens: int) -> Extent:
    return fixed(places + tokens)


def _dim(fields: Fields, width: int, heads: int) -> int:
    if width % heads:
        field = fields.where + "num_attention_heads"
        raise InputError("models.heads_not_divisor", field=field, heads=heads, hidden=width)
    return width // heads


def _attended(shape: _Shape, given: str, rows: Extent) -> Part:
    """Attention with normalised queries and keys; a sigmoid of the input gates it in Krea 2."""
    inner = shape.heads * shape.dim
    plain = attention(given, shape.width, shape.attention, rows=rows, names=_ATTENTION)
    if not shape.has_gate:
        return plain
    gate = join(
        linear("to_gate", given, shape.width, inner, rows=rows, split="column", out="gate_up"),
        elementwise("gate_sigmoid", inner, inner, rows=rows, keeps=("gate_open",), split=True),
        tensor("gate_open", inner, rows, split=True),
        elementwise("gate_core", 2.0 * inner, inner, rows=rows, keeps=("attention_core",), split=True),
        tensor("gated_core", inner, rows, split=True),
    )
    out = msgspec.structs.replace(plain.ops[-1], keeps_for_weight=("gated_core",))
    return join(Part(plain.ops[:-1], plain.tensors), gate, Part((out,)))


def _fed(shape: _Shape, rows: Extent) -> Part:
    return mlp(
        "mlp_in", shape.width, shape.inner, activation_kind=shape.activation, rows=rows, names=_MLP,
    )  # fmt: skip


def _layer(
    shape: _Shape, rows: Extent, repeat: int, name: str, factors: Part | None, *, sandwich: bool = False
) -> Block:
    """Attention and feed-forward network behind norms. `factors` scale them and gate the way back; `sandwich`:
    norms behind them too (Lumina)."""
    width, by = shape.width, "attention" if factors else ""
    return block(
        name,
        tensor("input", width, rows),
        factors,
        _before("attention", "input", width, rows, by),
        _attended(shape, "attention_in", rows),
        *_after("attention", "middle", width, rows, by, sandwich),
        _before("mlp", "middle", width, rows, by),
        _fed(shape, rows),
        *_after("mlp", "output", width, rows, by, sandwich),
        repeat=repeat,
        boundary="input",
        component=COMPONENT,
    )


def _before(prefix: str, given: str, width: int, rows: Extent, by: str) -> Part:
    if by:
        return scaled(prefix, given, f"{prefix}_in", width, rows, by=by)
    return norm(f"{prefix}_norm", given, f"{prefix}_in", width, kind="rms_t5", rows=rows)


def _after(prefix: str, out: str, width: int, rows: Extent, by: str, sandwich: bool) -> list[Part | None]:
    normed = f"{prefix}_behind" if sandwich else f"{prefix}_out"
    return [
        norm(f"{prefix}_norm2", f"{prefix}_out", normed, width, kind="rms_t5", rows=rows)
        if sandwich
        else None,
        gated(normed, by, width, rows) if by else None,
        residual(f"{prefix}_add", width, out, rows),
    ]


def _output(width: int, out: int, rows: Extent, *parts: Part) -> Block:
    """`rows` of the whole sequence, whose text is dropped behind the projection."""
    return block(
        "out",
        tensor("last", width, rows),
        *parts,
        linear("proj_out", "head_in", width, out, rows=rows, bias=True, quantisable=False),
        squared_error(out, rows),
        role="output",
        component=COMPONENT,
    )


def _latent(given: int, width: int, rows: Extent) -> Part:
    return join(
        tensor("latent", given, rows),
        linear("x_embedder", "latent", given, width, rows=rows, bias=True),
    )


def lumina2(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Lumina-Image 2.0: layers over the text and over the image alone come first."""
    width, heads = _whole(fields, "hidden_size", 2304), _whole(fields, "num_attention_heads", 24, 4096)
    multiple = _whole(fields, "multiple_of", 256)
    factor = fields.number("ffn_dim_multiplier", default=1.0, minimum=0.01, maximum=100)
    inner = multiple * -(-int(factor * 4 * width) // multiple)
    shape = _Shape(width, heads, _whole(fields, "num_kv_heads", 8, heads), _dim(fields, width, heads), inner)
    step, size = min(width, _STEP_LIMIT), patch_elements(fields, 2)
    channels, text = _whole(fields, "in_channels", 16), _whole(fields, "cap_feat_dim", 1024)
    refiners = _whole(fields, "num_refiner_layers", 2, 10_000)
    factors, rows = modulation("attention", width, 4, step), _both(places, tokens)
    first = block(
        "in",
        _latent(size * channels, width, fixed(places)),
        tensor("caption", text, fixed(tokens)),
        norm("caption_norm", "caption", "caption_normed", text, kind="rms_t5", rows=fixed(tokens)),
        linear("caption_embedder", "caption_normed", text, width, rows=fixed(tokens), bias=True),
        embedded("time", STEP_WIDTH, step),
        shared("time_embedding", step, SAMPLE),
        role="input",
        component=COMPONENT,
    )
    out = size * _whole(fields, "out_channels", channels)
    last = _output(
        width, out, rows, modulation("out", width, 1, step), modulated("out", "last", "head_in", width, rows)
    )
    return [
        first,
        _layer(shape, fixed(tokens), refiners, "text_layer", None, sandwich=True),
        _layer(shape, fixed(places), refiners, "image_layer", factors, sandwich=True),
        _layer(shape, rows, _whole(fields, "num_layers", 26, 10_000), "layer", factors, sandwich=True),
        last,
    ]


def krea2(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Krea 2: several layers of the text encoder are fused for each token before they join the image."""
    heads, dim = (
        _whole(fields, "num_attention_heads", 48, 4096),
        _whole(fields, "attention_head_dim", 128, 4096),
    )
    width, rows = heads * dim, _both(places, tokens)
    shape = _Shape(
        width,
        heads,
        _whole(fields, "num_key_value_heads", 12, heads),
        dim,
        _whole(fields, "intermediate_size", 16_384, 10_000_000),
        has_gate=True,
    )
    channels = _whole(fields, "in_channels", 64)
    first = block(
        "in",
        _latent(channels, width, fixed(places)),
        embedded("time", _whole(fields, "timestep_embed_dim", 256), width),
        modulation("shared", width, 6),
        shared("time_embedding", width, SAMPLE),
        role="input",
        component=COMPONENT,
    )
    last = _output(
        width, channels, rows, learned_offset("out", width, 2), scaled("out", "last", "head_in", width, rows)
    )
    layers = _whole(fields, "num_layers", 28, 10_000)
    return [
        first,
        *_fused_text(fields, width, tokens),
        _layer(shape, rows, layers, "layer", learned_offset("attention", width, 6)),
        last,
    ]


def _fused_text(fields: Fields, width: int, tokens: int) -> list[Block]:
    """Layers across the tapped layers of each token, their weighted sum, layers across the tokens."""
    given, taps = _whole(fields, "text_hidden_dim", 2560), _whole(fields, "num_text_layers", 12, 1024)
    heads = _whole(fields, "text_num_attention_heads", 20, 4096)
    shape = _Shape(
        given,
        heads,
        _whole(fields, "text_num_key_value_heads", 20, heads),
        _dim(fields, given, heads),
        _whole(fields, "text_intermediate_size", 6912, 10_000_000),
        has_gate=True,
    )
    rows = fixed(tokens)
    across = _whole(fields, "num_layerwise_text_blocks", 2, 10_000)
    refined = _whole(fields, "num_refiner_text_blocks", 2, 10_000)
    taken = block(
        "text_sum",
        tensor("tapped", taps * given, rows),
        linear("projector", "tapped", taps, 1, rows=rows.scaled(given), quantisable=False),
        boundary="tapped",
        component=COMPONENT,
    )
    joined = block(
        "text_in",
        tensor("text", given, rows),
        norm("text_norm", "text", "text_normed", given, kind="rms_t5", rows=rows),
        embedded("text", given, width, rows=rows),
        boundary="text",
        component=COMPONENT,
    )
    wide = _layer(shape, rows.scaled(taps), across, "tap_layer", None)
    return [_over(wide, fixed(taps)), taken, _layer(shape, rows, refined, "text_layer", None), joined]


def _over(layer: Block, keys: Extent) -> Block:
    """The same layer where a position sees `keys` others instead of all."""
    ops = tuple(
        msgspec.structs.replace(op, kv_rows=keys) if isinstance(op, Attention) else op for op in layer.ops
    )
    return msgspec.structs.replace(layer, ops=ops)


def ernie_image(fields: Fields, places: int, tokens: int) -> list[Block]:
    """ERNIE-Image: one modulation for all layers, without offsets of their own; diffusers spreads it over all
    positions, and each layer keeps scales and gates so in fp32."""
    width, heads = _whole(fields, "hidden_size", 3072), _whole(fields, "num_attention_heads", 24, 4096)
    shape = _Shape(
        width,
        heads,
        heads,
        _dim(fields, width, heads),
        _whole(fields, "ffn_hidden_size", 8192, 10_000_000),
        activation="gelu",
        normed=fields.flag("qk_layernorm", default=True),
    )
    size, channels = patch_elements(fields, 1), _whole(fields, "in_channels", 128)
    text, rows = _whole(fields, "text_in_dim", 2560), _both(places, tokens)
    first = block(
        "in",
        _latent(size * channels, width, fixed(places)),
        tensor("text", text, fixed(tokens)),
        linear("text_proj", "text", text, width, rows=fixed(tokens)) if text != width else None,
        embedded("time", width, width),
        modulation("shared", width, 6),
        shared("time_embedding", width, SAMPLE),
        role="input",
        component=COMPONENT,
    )
    factors = tensor("attention_factors", 4 * width, rows, "fp32", eager=True)
    out = size * _whole(fields, "out_channels", channels)
    last = _output(
        width, out, rows, modulation("out", width, 2), modulated("out", "last", "head_in", width, rows)
    )
    return [first, _layer(shape, rows, _whole(fields, "num_layers", 24, 10_000), "layer", factors), last]
