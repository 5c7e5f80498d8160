"""SD3Transformer2DModel and FluxTransformer2DModel: transformers over image and text side by side.

Both streams have weights of their own and share one attention (arXiv:2403.03206). Flux goes on with layers
that run over both as one sequence, attention and feed-forward in parallel. Every layer scales, shifts and
gates what it does by the step's embedding.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.conditioning import (
    PIXELS_PER_LATENT,
    STEP_WIDTH,
    TEXT_TOKENS,
    embedded,
    notes,
    shared,
    squared_error,
    text_tokens,
)
from raceline.models.families.experts import Experts, experts
from raceline.models.families.images import image_model, image_size_of, patches_of
from raceline.models.families.layers import (
    Heads,
    MlpNames,
    Part,
    attend,
    block,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    residual,
    tensor,
)
from raceline.models.families.modulation import gated, modulated, modulation
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, Model, fixed

COMPONENT = "transformer"
SD3_TEXT_TOKENS = 256
FLUX_TEXT_TOKENS = 512
_MLP = MlpNames("up", "down", "")
_GATED_MLP = MlpNames("up", "down", "gate")


class Streams(NamedTuple):
    """Widths and positions of both streams. `inner`: of the feed-forward network, where it isn't four times
    the width. `modulates` False: scale, shift and gate come from elsewhere (Chroma). `norm_whole`: queries
    and keys are normalised over all heads at once. `experts`: stand in place of the image's network."""

    width: int
    heads: int
    dim: int
    image: Extent
    text: Extent
    norm: str = "rms_t5"
    has_bias: bool = True
    inner: int = 0
    is_gated: bool = False
    modulates: bool = True
    norm_whole: bool = False
    experts: Experts | None = None

    @property
    def both(self) -> Extent:
        return fixed(self.image.fixed + self.text.fixed)

    @property
    def attention(self) -> Heads:
        return Heads(
            query=self.heads, kv=self.heads, dim=self.dim, causal=False, rotary=False, score_upcast=False
        )


_PROJECTIONS = {
    "image": ("to_q", "to_k", "to_v", "to_out"),
    "text": ("add_q_proj", "add_k_proj", "add_v_proj", "to_add_out"),
}


def build_sd3(fields: Fields, image_size: int | None = None) -> Model:
    """The transformer of Stable Diffusion 3 alone."""
    own = PIXELS_PER_LATENT * fields.integer("sample_size", default=128, maximum=2048)
    side = image_size_of(fields, image_size, own)
    return _model(fields, sd3(fields, side, text_tokens(fields, SD3_TEXT_TOKENS)), side)


def build_flux(fields: Fields, image_size: int | None = None) -> Model:
    """The transformer of Flux alone."""
    side = image_size_of(fields, image_size, 1024)
    return _model(fields, flux(fields, side, text_tokens(fields, FLUX_TEXT_TOKENS)), side)


def _model(fields: Fields, blocks: list[Block], side: int) -> Model:
    width = fields.integer("num_attention_heads") * fields.integer("attention_head_dim")
    return image_model(
        fields, "diffusion", blocks, side, objective="denoise", hidden=width, notes=notes(fields)
    )


def _shape(fields: Fields, patches: int, tokens: int, *, has_norm: bool) -> Streams:
    heads = fields.integer("num_attention_heads", maximum=4096)
    dim = fields.integer("attention_head_dim", maximum=4096)
    return Streams(heads * dim, heads, dim, fixed(patches), fixed(tokens), "rms_t5" if has_norm else "")


def sd3(fields: Fields, side: int, tokens: int = SD3_TEXT_TOKENS, component: str = COMPONENT) -> list[Block]:
    """The blocks of MMDiT; the last one drops the text behind its attention. CLIP's tokens stand before
    the `tokens` of T5."""
    patch = fields.integer("patch_size", default=2, maximum=64)
    patches = patches_of(patches_of(side, PIXELS_PER_LATENT), patch) ** 2
    has_norm = fields.text("qk_norm", default=None) is not None
    shape = _shape(fields, patches, TEXT_TOKENS + tokens, has_norm=has_norm)
    layers = fields.integer("num_layers", maximum=10_000)
    latent = patch**2 * fields.integer("in_channels", default=16, maximum=65_536)
    out = patch**2 * fields.integer("out_channels", default=16, maximum=65_536)
    dual = _dual(fields, layers)
    plain = layers - 1 - dual
    return [
        _input(fields, shape, latent, 2048, component),
        *([double_layer(shape, dual, component, name="dual_block", has_second=True)] if dual else []),
        *([double_layer(shape, plain, component)] if plain > 0 else []),
        _last_double(shape, component),
        output_layer(shape, out, component),
    ]


def _dual(fields: Fields, layers: int) -> int:
    """How many layers before the last have a second attention."""
    stated = fields.items("dual_attention_layers", default=[])
    each = Fields({f"dual_attention_layers.{index}": one for index, one in enumerate(stated)}, fields.where)
    return len({each.integer(key, minimum=0, maximum=layers - 1) for key in each.values} - {layers - 1})


def flux(
    fields: Fields, side: int, tokens: int = FLUX_TEXT_TOKENS, component: str = COMPONENT
) -> list[Block]:
    """The blocks of Flux: latents are packed two by two before they come in."""
    patches = patches_of(side, 2 * PIXELS_PER_LATENT) ** 2
    shape = _shape(fields, patches, tokens, has_norm=True)
    latent = fields.integer("in_channels", default=64, maximum=65_536)
    size = fields.integer("patch_size", default=1, maximum=64) ** 2
    return [
        _input(fields, shape, latent, 768, component),
        double_layer(shape, fields.integer("num_layers", maximum=10_000), component),
        single_layer(shape, fields.integer("num_single_layers", maximum=10_000), component),
        output_layer(shape, size * fields.integer("out_channels", default=latent, maximum=65_536), component),
    ]


def _input(fields: Fields, shape: Streams, latent: int, pooled: int, component: str) -> Block:
    """Projections of the patches and the text, and the embedding of step, guidance and pooled text."""
    width, given = shape.width, fields.integer("joint_attention_dim", default=4096, maximum=65_536)
    pooled = fields.integer("pooled_projection_dim", default=pooled, maximum=65_536)
    has_guidance = fields.flag("guidance_embeds")
    return block(
        "in",
        tensor("latent", latent, shape.image),
        linear("x_embedder", "latent", latent, width, rows=shape.image, bias=True),
        tensor("text", given, shape.text),
        linear("context_embedder", "text", given, width, rows=shape.text, bias=True),
        embedded("time", STEP_WIDTH, width),
        embedded("guidance", STEP_WIDTH, width) if has_guidance else None,
        embedded("pooled", pooled, width),
        shared("time_embedding", width, SAMPLE),
        role="input",
        component=component,
    )


def double_layer(
    shape: Streams, repeat: int, component: str, name: str = "double_block", has_second: bool = False
) -> Block:
    """Both streams, each with its own weights around one attention. `has_second`: the image has an
    attention of its own beside it (Stable Diffusion 3.5)."""
    return block(
        name,
        tensor("streams", shape.width, shape.both),
        _before(shape, "image", 9 if has_second else 6),
        _before(shape, "text", 6),
        _joint_attention(shape),
        _second_attention(shape) if has_second else None,
        _after(shape, "image"),
        _after(shape, "text"),
        repeat=repeat,
        boundary="streams",
        component=component,
    )


def _last_double(shape: Streams, component: str) -> Block:
    return block(
        "last_block",
        tensor("streams", shape.width, shape.both),
        _before(shape, "image", 6),
        _before(shape, "text", 2),
        _joint_attention(shape, sides=("image",)),
        _after(shape, "image"),
        boundary="streams",
        component=component,
    )


def _rows(shape: Streams, side: str) -> Extent:
    return shape.image if side == "image" else shape.text


def _before(shape: Streams, side: str, factors: int) -> Part:
    """A stream's modulation and what attention reads of it."""
    rows = _rows(shape, side)
    return join(
        modulation(side, shape.width, factors, bias=shape.has_bias) if shape.modulates else None,
        modulated(side, "streams", f"{side}_in", shape.width, rows),
    )


def _joint_attention(shape: Streams, sides: tuple[str, ...] = ("image", "text")) -> Part:
    """Queries, keys and values of both streams in one attention. `sides`: those that read its result."""
    return join(
        *[_projected(shape, side, _PROJECTIONS[side]) for side in _PROJECTIONS],
        attend(shape.attention, shape.both, shape.both),
        *[_returned(shape, side, len(sides) > 1) for side in sides],
    )


def _projected(shape: Streams, side: str, names: tuple[str, ...], prefix: str = "") -> Part:
    """A stream's queries, keys and values, the first two normalised where the model does so."""
    prefix, rows, width = prefix or side, _rows(shape, side), shape.width
    projections = [
        linear(name, f"{prefix}_in", width, width, rows=rows, bias=shape.has_bias, split="column")
        for name in names[:3]
    ]
    return join(*projections, *(_normed(shape, prefix, rows, which) for which in "qk" if shape.norm))


def _normed(shape: Streams, prefix: str, rows: Extent, which: str) -> Part:
    raw, out = f"{prefix}_{which}_raw", f"{prefix}_{which}_normed"
    return join(
        tensor(raw, shape.width, rows, split=True),
        norm(
            f"norm_{which}",
            raw,
            out,
            shape.width if shape.norm_whole else shape.dim,
            kind=shape.norm,
            rows=rows,
            per_position=1 if shape.norm_whole else shape.heads,
            split=True,
        ),
    )


def _returned(shape: Streams, side: str, is_copied: bool) -> Part:
    """The output projection of a stream. Its part of the attention's result is copied out first."""
    rows, width, given = _rows(shape, side), shape.width, f"{side}_core"
    return join(
        tensor(given, width, rows, split=True, eager=True),
        elementwise(f"{side}_split", width, width, rows=rows, split=True) if is_copied else None,
        linear(
            _PROJECTIONS[side][3], given, width, width, rows=rows, bias=shape.has_bias, split="row",
            out=f"{side}_attention_out",
        ),
    )  # fmt: skip


def _second_attention(shape: Streams) -> Part:
    """Attention of the image alone, from the same normalised input under its own scale and shift."""
    width, rows = shape.width, shape.image
    return join(
        elementwise("second_modulate", width, width, rows=rows),
        tensor("second_in", width, rows),
        _projected(shape, "image", ("attn2.to_q", "attn2.to_k", "attn2.to_v"), "second"),
        attend(shape.attention, rows, rows, "second_attention"),
        linear(
            "attn2.to_out", "second_attention_core", width, width, rows=rows, bias=True, split="row",
            out="second_attention_out",
        ),
        gated("second_attention_out", "image", width, rows),
        residual("second_add", width, "image_second", rows),
    )  # fmt: skip


def _after(shape: Streams, side: str) -> Part:
    """A stream behind the attention: gate, residual, and the modulated feed-forward network."""
    width, rows, out = shape.width, _rows(shape, side), f"{side}_mlp_out"
    return join(
        gated(f"{side}_attention_out", side, width, rows),
        residual(f"{side}_attention_add", width, f"{side}_middle", rows),
        modulated(f"{side}_mlp", f"{side}_middle", f"{side}_mlp_in", width, rows, by=side),
        _network(shape, side, out),
        gated(out, side, width, rows),
        residual(f"{side}_mlp_add", width, f"{side}_out", rows),
    )  # fmt: skip


def _network(shape: Streams, side: str, out: str) -> Part:
    """The feed-forward network of a stream, or the experts in its place."""
    given, rows = f"{side}_mlp_in", _rows(shape, side)
    if shape.experts and side == "image":
        return experts(given, out, shape.width, shape.experts, rows)
    return mlp(
        given,
        shape.width,
        shape.inner or 4 * shape.width,
        activation_kind="silu" if shape.is_gated else "gelu",
        gated=shape.is_gated,
        bias=shape.has_bias and not shape.is_gated,
        rows=rows,
        names=_GATED_MLP if shape.is_gated else _MLP,
        prefix=f"{side}_mlp_inner",
        out=out,
    )


def joined_layer(shape: Streams, repeat: int, component: str) -> Block:
    """Both streams as one sequence with the same weights, the feed-forward network behind the attention."""
    one = shape._replace(image=shape.both)
    return block(
        "joined_block",
        tensor("streams", shape.width, one.image),
        _before(one, "image", 6),
        _projected(one, "image", _PROJECTIONS["image"]),
        attend(one.attention, one.image, one.image),
        linear(
            "to_out", "attention_core", one.width, one.width, rows=one.image, bias=one.has_bias, split="row",
            out="image_attention_out",
        ),
        _after(one, "image"),
        repeat=repeat,
        boundary="streams",
        component=component,
    )  # fmt: skip


def single_layer(shape: Streams, repeat: int, component: str) -> Block:
    """Both streams as one sequence: attention and feed-forward read one input and share one output matrix."""
    width, inner, rows = shape.width, 4 * shape.width, shape.both
    one = shape._replace(image=rows)
    return block(
        "single_block",
        tensor("streams", width, rows),
        _before(one, "image", 3),
        linear("proj_mlp", "image_in", width, inner, rows=rows, bias=True, split="column", out="mlp_up"),
        elementwise("mlp_gelu", inner, inner, keeps=("mlp_up",), rows=rows, split=True),
        _projected(one, "image", _PROJECTIONS["image"]),
        attend(shape.attention, rows, rows),
        elementwise("join", width + inner, width + inner, rows=rows, split=True),
        tensor("joined", width + inner, rows, split=True),
        linear(
            "proj_out", "joined", width + inner, width, rows=rows, bias=True, split="row", out="single_out"
        ),
        gated("single_out", "image", width, rows),
        residual("single_add", width, "out", rows),
        repeat=repeat,
        boundary="streams",
        component=component,
    )


def output_layer(shape: Streams, channels: int, component: str) -> Block:
    """The last modulated norm, the projection to patches, and the loss."""
    width, rows = shape.width, shape.image
    return block(
        "out",
        tensor("last", width, rows),
        modulation("out", width, 2, bias=shape.has_bias) if shape.modulates else None,
        modulated("out", "last", "head_in", width, rows),
        linear("proj_out", "head_in", width, channels, rows=rows, bias=shape.has_bias, quantisable=False),
        squared_error(channels, rows),
        role="output",
        component=component,
    )
