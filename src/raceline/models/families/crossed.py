"""Denoisers that read the text by cross-attention: LTX-Video (arXiv:2501.00103), Sana (arXiv:2410.10629), its
video model (arXiv:2509.24695), Cosmos (arXiv:2501.03575) and Kandinsky 5, in diffusers' fields."""

from __future__ import annotations

from typing import Any, NamedTuple

from raceline.models.families.conditioning import STEP_WIDTH, embedded, shared, squared_error
from raceline.models.families.images import whole_numbers
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
from raceline.models.families.linear_attention import glu_convolutions, linear_attention
from raceline.models.families.modulation import gated, learned_offset, modulated, modulation, scaled
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, fixed
from raceline.present.errors import InputError

COMPONENT = "transformer"
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("up", "down", "")
_WIDEST = 65_536
_BIASES = (True, True, True, True)
_NO_BIASES = (False, False, False, False)


class _Shape(NamedTuple):
    """Widths and positions of what is denoised, and of the text."""

    width: int
    heads: int
    dim: int
    layers: int
    rows: Extent
    text: Extent
    patch: int
    out: int

    def attention(self, qk_norm: str | None, *, rotary: bool = True) -> Heads:
        """All heads see all positions."""
        return Heads(
            query=self.heads, kv=self.heads, dim=self.dim, causal=False, rotary=rotary, qk_norm=qk_norm,
            norm_kind="rms_t5", score_upcast=False,
        )  # fmt: skip


def _whole(fields: Fields, name: str, default: int, maximum: int = _WIDEST) -> int:
    return int(fields.integer(name, default=default, maximum=maximum))


def _shape(fields: Fields, places: int, tokens: int, own: tuple[int, int, int, int], patch: int) -> _Shape:
    """`own`: heads, their width, layers and channels where the config has none."""
    heads = _whole(fields, "num_attention_heads", own[0], 4096)
    dim = _whole(fields, "attention_head_dim", own[1], 4096)
    channels, size = _whole(fields, "in_channels", own[3]), patch_elements(fields, patch)
    return _Shape(
        heads * dim,
        heads,
        dim,
        _whole(fields, "num_layers", own[2], 10_000),
        fixed(places),
        fixed(tokens),
        size * channels,
        size * _whole(fields, "out_channels", channels),
    )


def _first(shape: _Shape, *parts: Part | None, bias: bool = True, given: int | None = None) -> Block:
    given = given or shape.patch
    return block(
        "in",
        tensor("latent", given, shape.rows),
        linear("patch_embedding", "latent", given, shape.width, rows=shape.rows, bias=bias),
        *parts,
        role="input",
        component=COMPONENT,
    )


def _layer(shape: _Shape, *parts: Part | None) -> Block:
    return block(
        "layer",
        tensor("input", shape.width, shape.rows),
        *parts,
        repeat=shape.layers,
        boundary="input",
        component=COMPONENT,
    )


def _last(shape: _Shape, *parts: Part, bias: bool = True) -> Block:
    width, rows = shape.width, shape.rows
    return block(
        "out",
        tensor("last", width, rows),
        *parts,
        linear("proj_out", "head_in", width, shape.out, rows=rows, bias=bias, quantisable=False),
        squared_error(shape.out, rows),
        role="output",
        component=COMPONENT,
    )


def _returned(shape: _Shape, prefix: str, out: str, by: str = "") -> Part:
    """A branch back in the residual stream, behind its gate where it has one."""
    return join(
        gated(f"{prefix}_out", by, shape.width, shape.rows) if by else None,
        residual(f"{prefix}_add", shape.width, out, shape.rows),
    )


def _feed(shape: _Shape, inner: int, *, bias: bool = True, rows: Extent | None = None) -> Part:
    return mlp(
        "mlp_in", shape.width, inner, activation_kind="gelu", gated=False, bias=bias, rows=rows or shape.rows,
        names=_MLP,
    )  # fmt: skip


def _step_and_text(fields: Fields, shape: _Shape, given: int, *, normed: bool = False) -> list[Part | None]:
    """One modulation for all layers, and the text in the width of the layers."""
    width = shape.width
    return [
        embedded("time", STEP_WIDTH, width),
        embedded("guidance", STEP_WIDTH, width) if fields.flag("guidance_embeds") else None,
        shared("time_embedding", width, SAMPLE),
        modulation("shared", width, 6),
        embedded("caption", _whole(fields, "caption_channels", given), width, rows=shape.text),
        tensor("caption_out", width, shape.text) if normed else None,
        norm("caption_norm", "caption_out", "normed_caption", width, kind="rms_t5", rows=shape.text)
        if normed
        else None,
        shared("memory", width, shape.text),
    ]


def ltx_video(fields: Fields, places: int, tokens: int) -> list[Block]:
    """LTX-Video: RMS norms without weights, one modulation with learned offsets."""
    shape = _shape(fields, places, tokens, (32, 64, 28, 128), 1)
    width, rows = shape.width, shape.rows
    has_bias, out_bias = (fields.flag(f"attention{name}_bias", default=True) for name in ("", "_out"))
    rest: dict[str, Any] = {
        "rows": rows,
        "bias": (has_bias, has_bias, has_bias, out_bias),
        "names": _ATTENTION,
    }
    layer = _layer(
        shape,
        learned_offset("attention", width, 6),
        scaled("attention", "input", "attention_in", width, rows, kind="rms_plain"),
        attention("attention_in", width, shape.attention("full"), **rest),
        _returned(shape, "attention", "middle", "attention"),
        attention(
            "middle", width, shape.attention("full", rotary=False), prefix="cross", out="cross_out",
            memory="memory", memory_rows=shape.text,
            memory_width=_whole(fields, "cross_attention_dim", width), **rest,
        ),
        _returned(shape, "cross", "crossed"),
        scaled("mlp", "crossed", "mlp_in", width, rows, kind="rms_plain", by="attention"),
        _feed(shape, 4 * width),
        _returned(shape, "mlp", "output", "attention"),
    )  # fmt: skip
    last = _last(shape, learned_offset("out", width, 2), modulated("out", "last", "head_in", width, rows))
    return [_first(shape, *_step_and_text(fields, shape, 4096)), layer, last]


def sana(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Sana: linear attention, and gated convolutions in place of the feed-forward network."""
    return _sana(fields, _shape(fields, places, tokens, (70, 32, 20, 32), 1))


def sana_video(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Sana's video model: rotary positions, and a convolution over time behind the gated ones."""
    shape = _shape(fields, places, tokens, (20, 112, 20, 16), 2)
    return _sana(fields, shape, is_video=True)


def _sana(fields: Fields, shape: _Shape, *, is_video: bool = False) -> list[Block]:
    width, rows = shape.width, shape.rows
    default = "rms_norm_across_heads" if is_video else None
    qk_norm = "full" if fields.text("qk_norm", default=default) else None
    heads = _whole(fields, "num_cross_attention_heads", 20, 4096)
    dim = _whole(fields, "cross_attention_head_dim", 112, 4096)
    cross = shape._replace(heads=heads, dim=dim).attention(qk_norm, rotary=False)
    has_weights = fields.flag("norm_elementwise_affine")
    bias = fields.flag("attention_bias")
    inner = int(width * fields.number("mlp_ratio", default=2.5, minimum=0.01, maximum=100))
    layer = _layer(
        shape,
        learned_offset("attention", width, 6),
        modulated("attention", "input", "attention_in", width, rows),
        linear_attention(
            "attention_in", width, shape.attention(qk_norm, rotary=is_video), rows, bias=bias,
            names=_ATTENTION,
        ),
        _returned(shape, "attention", "middle", "attention"),
        attention(
            "middle", width, cross, rows=rows, bias=_BIASES, names=_ATTENTION, prefix="cross",
            out="cross_out", memory="memory", memory_rows=shape.text,
            memory_width=_whole(fields, "cross_attention_dim", width),
        ),
        _returned(shape, "cross", "crossed"),
        modulated("mlp", "crossed", "mlp_in", width, rows, by="attention", has_weights=has_weights),
        glu_convolutions("mlp_in", width, inner, rows, over_time=is_video),
        _returned(shape, "mlp", "output", "attention"),
    )  # fmt: skip
    last = _last(shape, learned_offset("out", width, 2), modulated("out", "last", "head_in", width, rows))
    return [_first(shape, *_step_and_text(fields, shape, 2304, normed=True)), layer, last]


def cosmos(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Cosmos-Predict: three modulations a layer, each of low rank; no biases."""
    shape = _shape(fields, places, tokens, (32, 128, 28, 16), 2)
    width, rows = shape.width, shape.rows
    _refuse_image_context(fields)
    text = _whole(fields, "text_embed_dim", 1024)
    rank = _whole(fields, "adaln_lora_dim", 256)
    inner = int(width * fields.number("mlp_ratio", default=4.0, minimum=0.01, maximum=100))
    rest: dict[str, Any] = {"rows": rows, "bias": _NO_BIASES, "names": _ATTENTION}
    layer = _layer(
        shape,
        _low_rank("attention", width, rank, 3),
        modulated("attention", "input", "attention_in", width, rows),
        attention("attention_in", width, shape.attention("head"), **rest),
        _returned(shape, "attention", "middle", "attention"),
        _low_rank("cross", width, rank, 3),
        modulated("cross", "middle", "cross_in", width, rows),
        attention(
            "cross_in", width, shape.attention("head", rotary=False), prefix="cross", out="cross_out",
            memory="memory", memory_rows=shape.text, memory_width=text, **rest,
        ),
        _returned(shape, "cross", "crossed", "cross"),
        _low_rank("mlp", width, rank, 3),
        modulated("mlp", "crossed", "mlp_in", width, rows),
        _feed(shape, inner, bias=False),
        _returned(shape, "mlp", "output", "mlp"),
    )  # fmt: skip
    last = _last(
        shape,
        _low_rank("out", width, rank, 2),
        modulated("out", "last", "head_in", width, rows),
        bias=False,
    )
    return [_cosmos_input(fields, shape, text), layer, last]


def _refuse_image_context(fields: Fields) -> None:
    given = fields.integer("img_context_dim_in", default=None, minimum=0, maximum=_WIDEST)
    if given:
        field = fields.where + "img_context_dim_in"
        raise InputError("models.block_unknown", field=field, given=str(given), known="null")


def _low_rank(prefix: str, width: int, rank: int, factors: int) -> Part:
    down, up = f"{prefix}_time_hidden", f"{prefix}_time_low"
    return join(
        elementwise(f"{prefix}_time_silu", width, width, rows=SAMPLE),
        tensor(down, width, SAMPLE),
        linear(f"{prefix}_down", down, width, rank, rows=SAMPLE, out=up),
        linear(f"{prefix}_up", up, rank, factors * width, rows=SAMPLE, out=f"{prefix}_factors"),
    )


def _cosmos_input(fields: Fields, shape: _Shape, text: int) -> Block:
    """Patches with a mask of padding beside their channels; learned positions in the first generation."""
    width = shape.width
    masked = patch_elements(fields, 2) if fields.flag("concat_padding_mask", default=True) else 0
    projects = fields.flag("use_crossattn_projection")
    given = _whole(fields, "crossattn_proj_in_channels", 1024)
    return _first(
        shape,
        _learned_positions(fields, width) if _has_positions(fields) else None,
        tensor("step", width, SAMPLE),
        linear("time_1", "step", width, width, rows=SAMPLE, out="time_up"),
        elementwise("time_activation", width, width, rows=SAMPLE, keeps=("time_up",)),
        tensor("time_hidden", width, SAMPLE),
        linear("time_2", "time_hidden", width, 3 * width, rows=SAMPLE),
        norm("time_norm", "step", "time_embedding", width, kind="rms_t5", rows=SAMPLE),
        tensor("text", given, shape.text) if projects else None,
        linear("text_projection", "text", given, text, rows=shape.text, bias=True) if projects else None,
        shared("memory", text, shape.text),
        bias=False,
        given=shape.patch + masked,
    )


def _has_positions(fields: Fields) -> bool:
    if "extra_pos_embed_type" not in fields.values:
        return True
    return fields.text("extra_pos_embed_type", default=None) is not None


def _learned_positions(fields: Fields, width: int) -> Part:
    sizes = [*whole_numbers(fields, "max_size", (128, 240, 240), 100_000), 1, 1, 1][:3]
    patches = [*whole_numbers(fields, "patch_size", (1, 2, 2), 64), 1, 1, 1][:3]
    count = sum(size // patch for size, patch in zip(sizes, patches, strict=True))
    return elementwise("positions", width, width, rows=SAMPLE, parameters=count * width)


def kandinsky5(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Kandinsky 5: layers over the text, then layers of the video that read it."""
    width, step = _whole(fields, "model_dim", 2048), _whole(fields, "time_dim", 512)
    dim = sum(whole_numbers(fields, "axes_dims", (16, 24, 24), 4096)[:3]) or 1
    if width % dim:
        field = fields.where + "axes_dims"
        raise InputError("models.heads_not_divisor", field=field, heads=dim, hidden=width)
    size, channels = patch_elements(fields, 2), _whole(fields, "in_visual_dim", 4)
    out = size * _whole(fields, "out_visual_dim", 4)
    layers = _whole(fields, "num_visual_blocks", 32, 10_000)
    given = size * (2 * channels + 1 if fields.flag("visual_cond") else channels)
    shape = _Shape(width, width // dim, dim, layers, fixed(places), fixed(tokens), given, out)
    inner = _whole(fields, "ff_dim", 5120, 10_000_000)
    last = _last(
        shape, modulation("out", width, 2, step), modulated("out", "last", "head_in", width, shape.rows)
    )
    return [
        _kandinsky_input(fields, shape, step),
        _kandinsky_layer(fields, shape, step, inner, is_text=True),
        _kandinsky_layer(fields, shape, step, inner, is_text=False),
        last,
    ]


def _kandinsky_input(fields: Fields, shape: _Shape, step: int) -> Block:
    width, text = _whole(fields, "in_text_dim", 3584), shape.text
    pooled = _whole(fields, "in_text_dim2", 768)
    return _first(
        shape,
        tensor("text", width, text),
        linear("text_in", "text", width, shape.width, rows=text, bias=True, out="text_hidden"),
        norm("text_norm", "text_hidden", "text_normed", shape.width, rows=text),
        tensor("pooled", pooled, SAMPLE),
        linear("pooled_in", "pooled", pooled, step, rows=SAMPLE, bias=True, out="pooled_hidden"),
        norm("pooled_norm", "pooled_hidden", "pooled_normed", step, rows=SAMPLE),
        embedded("time", shape.width, step),
        shared("time_embedding", step, SAMPLE),
        shared("memory", shape.width, text),
    )


def _kandinsky_layer(fields: Fields, shape: _Shape, step: int, inner: int, *, is_text: bool) -> Block:
    """Three factors for each branch from one matrix; the text's layers have no cross-attention."""
    if is_text:
        layers = _whole(fields, "num_text_blocks", 2, 10_000)
        shape = shape._replace(rows=shape.text, layers=layers)
    width, rows = shape.width, shape.rows
    rest: dict[str, Any] = {"rows": rows, "bias": _BIASES, "names": _ATTENTION}
    cross = join(
        modulated("cross", "middle", "cross_in", width, rows, by="attention", in_fp32=True),
        attention(
            "cross_in", width, shape.attention("head", rotary=False), prefix="cross", out="cross_out",
            memory="memory", memory_rows=shape.text, **rest,
        ),
        _returned(shape, "cross", "crossed", "attention"),
    )  # fmt: skip
    layer = _layer(
        shape,
        modulation("attention", width, 6 if is_text else 9, step),
        modulated("attention", "input", "attention_in", width, rows, in_fp32=True),
        attention("attention_in", width, shape.attention("head"), **rest),
        _returned(shape, "attention", "middle", "attention"),
        None if is_text else cross,
        modulated(
            "mlp", "middle" if is_text else "crossed", "mlp_in", width, rows, by="attention", in_fp32=True
        ),
        _feed(shape, inner, bias=False),
        _returned(shape, "mlp", "output", "attention"),
    )
    return _renamed(layer, "text_layer") if is_text else layer


def _renamed(layer: Block, name: str) -> Block:
    return block(
        name,
        Part(layer.ops, layer.tensors),
        repeat=layer.repeat,
        boundary=layer.boundary,
        component=COMPONENT,
    )
