"""Diffusion transformers on patches of a latent: DiT by label (arXiv:2212.09748), PixArt by text (arXiv:2310.00426).

Fields are those of diffusers' DiTTransformer2DModel and PixArtTransformer2DModel. diffusers gives every
layer of DiT its own embedding of step and label; with `shares_embedding` there is one for all, as in the
paper's code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from raceline.models.families.conditioning import (
    PIXELS_PER_LATENT,
    STEP_WIDTH,
    embedded,
    notes,
    shared,
    squared_error,
)
from raceline.models.families.images import image_model, image_size_of, patches_of
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
    residual,
    tensor,
)
from raceline.models.families.modulation import gated, learned_offset, modulated, modulation
from raceline.models.families.resblock import plain_heads
from raceline.models.families.transformer import embedding
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, Model, fixed

COMPONENT = "transformer"
PIXART_TEXT_TOKENS = 120
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("up", "down", "")
_LARGE_SIDE = 128
_PIXART_CHANNELS = 8
Denoise = Callable[[Fields, int], list[Block]]


class _Shape(NamedTuple):
    """Widths and positions; `patch` and `out` count the elements of a patch before and behind."""

    width: int
    heads: int
    layers: int
    rows: Extent
    patch: int
    out: int
    biases: tuple[bool, bool, bool, bool]


def build_labelled(fields: Fields, image_size: int | None = None) -> Model:
    """DiT alone."""
    return _model(fields, labelled, image_size, 32)


def build_pixart(fields: Fields, image_size: int | None = None) -> Model:
    """The transformer of PixArt alone."""
    return _model(fields, pixart, image_size, _LARGE_SIDE)


def _model(fields: Fields, make: Denoise, image_size: int | None, latent_side: int) -> Model:
    own = PIXELS_PER_LATENT * fields.integer("sample_size", default=latent_side, maximum=2048)
    side = image_size_of(fields, image_size, own)
    blocks = make(fields, side)
    width = _shape(fields, side).width
    return image_model(
        fields, "diffusion", blocks, side, objective="denoise", hidden=width, notes=notes(fields)
    )


def _shape(fields: Fields, side: int, out_channels: int | None = None) -> _Shape:
    heads = fields.integer("num_attention_heads", default=16, maximum=4096)
    dim = fields.integer("attention_head_dim", default=72, maximum=4096)
    patch = fields.integer("patch_size", default=2, maximum=64)
    channels = fields.integer("in_channels", default=4, maximum=65_536)
    out = fields.integer("out_channels", default=out_channels or channels, maximum=65_536)
    has_bias = fields.flag("attention_bias", default=True)
    return _Shape(
        heads * dim,
        heads,
        fields.integer("num_layers", default=28, maximum=10_000),
        fixed(patches_of(patches_of(side, PIXELS_PER_LATENT), patch) ** 2),
        patch**2 * channels,
        patch**2 * out,
        (has_bias, has_bias, has_bias, True),
    )


def labelled(fields: Fields, side: int, text_tokens: int = 0, component: str = COMPONENT) -> list[Block]:
    """The blocks of DiT."""
    shape = _shape(fields, side)
    classes = fields.integer("num_embeds_ada_norm", default=1000, maximum=10_000_000)
    step = _step_and_label(shape.width, classes + 1)
    is_shared = fields.flag("shares_embedding")
    first = block(
        "in",
        _patches(shape),
        step if is_shared else None,
        _fixed_positions(shape) if is_shared else None,
        role="input",
        component=component,
    )
    body = block(
        "layer",
        tensor("input", shape.width, shape.rows),
        None if is_shared else step,
        modulation("attention", shape.width, 6),
        _attended(shape),
        _fed(shape, "middle"),
        repeat=shape.layers,
        boundary="input",
        component=component,
    )
    return [first, body, _output(shape, component, modulation("out", shape.width, 2))]


def pixart(
    fields: Fields, side: int, text_tokens: int = PIXART_TEXT_TOKENS, component: str = COMPONENT
) -> list[Block]:
    """The blocks of PixArt: one modulation for all layers, each with a learned offset of its own."""
    shape, text = _shape(fields, side, _PIXART_CHANNELS), fixed(text_tokens)
    body = block(
        "layer",
        tensor("input", shape.width, shape.rows),
        learned_offset("attention", shape.width, 6),
        _attended(shape),
        _read_text(fields, shape, text),
        _fed(shape, "crossed"),
        repeat=shape.layers,
        boundary="input",
        component=component,
    )
    return [
        _pixart_input(fields, shape, text, component),
        body,
        _output(shape, component, learned_offset("out", shape.width, 2)),
    ]


def _patches(shape: _Shape) -> Part:
    return join(
        tensor("latent", shape.patch, shape.rows),
        linear("patch_embedding", "latent", shape.patch, shape.width, rows=shape.rows, bias=True),
    )


def _fixed_positions(shape: _Shape) -> Part:
    """Sines that the paper's code stores as a parameter."""
    count = int(shape.rows.fixed) * shape.width
    return elementwise("positions", shape.width, shape.width, rows=shape.rows, parameters=count)


def _step_and_label(width: int, classes: int) -> Part:
    return join(
        embedded("time", STEP_WIDTH, width),
        embedding("label", classes, width, rows=SAMPLE, split=False),
        shared("time_embedding", width, SAMPLE),
    )


def _pixart_input(fields: Fields, shape: _Shape, text: Extent, component: str) -> Block:
    width, third = shape.width, shape.width // 3
    given = fields.integer("caption_channels", default=None, maximum=65_536)
    is_large = fields.integer("sample_size", default=_LARGE_SIDE, maximum=2048) == _LARGE_SIDE
    sizes = fields.flag("use_additional_conditions", default=is_large)
    return block(
        "in",
        _patches(shape),
        embedded("time", STEP_WIDTH, width),
        embedded("resolution", STEP_WIDTH, third) if sizes else None,
        embedded("aspect_ratio", STEP_WIDTH, third) if sizes else None,
        modulation("shared", width, 6),
        embedded("caption", given, width, rows=text) if given else None,
        shared("memory", fields.integer("cross_attention_dim", default=width), text),
        role="input",
        component=component,
    )


def _attended(shape: _Shape) -> Part:
    """Self-attention between scale, shift and gate."""
    width, rows = shape.width, shape.rows
    return join(
        modulated("attention", "input", "attention_in", width, rows),
        attention(
            "attention_in", width, plain_heads(width, shape.heads), rows=rows, bias=shape.biases,
            names=_ATTENTION,
        ),
        gated("attention_out", "attention", width, rows),
        residual("attention_add", width, "middle", rows),
    )  # fmt: skip


def _read_text(fields: Fields, shape: _Shape, text: Extent) -> Part:
    """Cross-attention to the text, without a norm before it."""
    width = shape.width
    return join(
        attention(
            "middle", width, plain_heads(width, shape.heads), rows=shape.rows, bias=shape.biases,
            names=_ATTENTION, prefix="cross", out="cross_out", memory="memory", memory_rows=text,
            memory_width=fields.integer("cross_attention_dim", default=width, maximum=65_536),
        ),
        residual("cross_add", width, "crossed", shape.rows),
    )  # fmt: skip


def _fed(shape: _Shape, given: str) -> Part:
    width, rows = shape.width, shape.rows
    return join(
        modulated("mlp", given, "mlp_in", width, rows, by="attention"),
        mlp(
            "mlp_in", width, 4 * width, activation_kind="gelu", gated=False, bias=True, rows=rows, names=_MLP
        ),
        gated("mlp_out", "attention", width, rows),
        residual("mlp_add", width, "output", rows),
    )  # fmt: skip


def _output(shape: _Shape, component: str, factors: Part) -> Block:
    width, rows = shape.width, shape.rows
    return block(
        "out",
        tensor("last", width, rows),
        factors,
        modulated("out", "last", "head_in", width, rows),
        linear("proj_out", "head_in", width, shape.out, rows=rows, bias=True, quantisable=False),
        squared_error(shape.out, rows),
        role="output",
        component=component,
    )
