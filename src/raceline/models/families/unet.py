"""UNet2DConditionModel: the denoiser of Stable Diffusion 1, 2 and XL (arXiv:2112.10752, 2307.01952).

Residual blocks and transformers on three or four sizes of a latent, down and up again, conditioned on a
text by cross-attention. Fields are those of diffusers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raceline.models.families.conditioning import (
    PIXELS_PER_LATENT,
    TEXT_TOKENS,
    embedded,
    notes,
    shared,
    squared_error,
    text_tokens,
)
from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import image_model, image_size_of, patches_of, same_length, whole_numbers
from raceline.models.families.layers import (
    AttentionNames,
    MlpNames,
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
from raceline.models.families.resblock import (
    doubled,
    halved,
    level_widths,
    output_convolution,
    plain_heads,
    residual_block,
)
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, Model, fixed
from raceline.present.errors import InputError

COMPONENT = "unet"
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("proj", "ff_out", "")
_MOST_LAYERS = 100
_WIDTHS = (320, 640, 1280, 1280)
_BIASES = (False, False, False, True)
_DOWN, _CROSS_DOWN = "DownBlock2D", "CrossAttnDownBlock2D"
_UP, _CROSS_UP = "UpBlock2D", "CrossAttnUpBlock2D"


class _Level(NamedTuple):
    """One size of the image: residual blocks, and transformers of `depth` layers (0: none)."""

    channels: int
    layers: int
    heads: int
    depth: int


class _Shape(NamedTuple):
    """What all blocks share. `memory`: rows and width of the text that cross-attention reads."""

    down: list[_Level]
    up: list[_Level]
    middle: _Level
    groups: int
    time: int
    memory: Extent
    memory_width: int
    is_linear: bool


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The denoiser alone; `image_size` counts pixels, of which a latent has one in eight a side."""
    own = PIXELS_PER_LATENT * fields.integer("sample_size", default=64, maximum=2048)
    side = image_size_of(fields, image_size, own)
    blocks = denoiser(fields, side, text_tokens(fields, TEXT_TOKENS))
    hidden = level_widths(fields, _WIDTHS)[-1]
    return image_model(
        fields, "diffusion", blocks, side, objective="denoise", hidden=hidden, notes=notes(fields)
    )


def denoiser(fields: Fields, side: int, tokens: int = TEXT_TOKENS, component: str = COMPONENT) -> list[Block]:
    """The blocks of the U-Net at this image size."""
    small = patches_of(side, PIXELS_PER_LATENT)
    shape = _shape(fields, fixed(tokens))
    drawing = Drawing(component)
    latent = Feature("latent", fields.integer("in_channels", default=4, maximum=65_536), (small, small))
    first = shape.down[0].channels
    x = drawing.block("in", latent, lambda y: drawing.conv(y, first, 3, bias=True), role="input")
    x, skips = _go_down(drawing, x, shape)
    x = _middle(drawing, x, shape)
    x = _go_up(drawing, x, skips, shape)
    channels = fields.integer("out_channels", default=4, maximum=65_536)

    def out(y: Feature) -> Feature:
        y = output_convolution(drawing, y, channels, shape.groups)
        drawing.part(squared_error(channels, y.rows))
        return y

    drawing.block("out", x, out, role="output")
    return [_conditioning(fields, shape, component), *drawing.blocks]


def _shape(fields: Fields, memory: Extent) -> _Shape:
    widths = level_widths(fields, _WIDTHS)
    down = fields.items("down_block_types", default=[_CROSS_DOWN] * (len(widths) - 1) + [_DOWN], longest=64)
    up = fields.items("up_block_types", default=[_UP] + [_CROSS_UP] * (len(widths) - 1), longest=64)
    same_length(block_out_channels=widths, down_block_types=down, up_block_types=up)
    layers, depths, heads = (
        _per_level(fields, names, default, len(widths))
        for names, default in (
            (("layers_per_block",), 2),
            (("transformer_layers_per_block",), 1),
            (("num_attention_heads", "attention_head_dim"), 8),
        )
    )
    for width, count in zip(widths, heads, strict=True):
        if width % count:
            field = fields.where + "attention_head_dim"
            raise InputError("models.heads_not_divisor", field=field, heads=count, hidden=width)
    has = _attentive(fields, "down_block_types", down, _CROSS_DOWN, _DOWN)
    has_up = _attentive(fields, "up_block_types", up, _CROSS_UP, _UP)[::-1]
    levels = list(zip(widths, layers, heads, depths, strict=True))
    return _Shape(
        down=[_Level(w, n, h, d * on) for (w, n, h, d), on in zip(levels, has, strict=True)],
        up=[_Level(w, n + 1, h, d * on) for (w, n, h, d), on in zip(levels, has_up, strict=True)][::-1],
        middle=_Level(*levels[-1]),
        groups=fields.integer("norm_num_groups", default=32, maximum=65_536),
        time=4 * widths[0],
        memory=memory,
        memory_width=fields.integer("cross_attention_dim", default=1280, maximum=65_536),
        is_linear=fields.flag("use_linear_projection"),
    )


def _per_level(fields: Fields, names: Sequence[str], default: int, count: int) -> list[int]:
    """A whole number for each level, where a config states one for all or a list."""
    for name in names:
        value = fields.values.get(name)
        if isinstance(value, (list, tuple)):
            each = whole_numbers(fields, name, (), _MOST_LAYERS)
            same_length(**{"block_out_channels": range(count), name: each})
            return each
        if value is not None:
            return [int(fields.integer(name, maximum=_MOST_LAYERS))] * count
    return [default] * count


def _attentive(fields: Fields, name: str, kinds: list[Any], cross: str, plain: str) -> list[bool]:
    """Which levels have transformers."""
    for kind in kinds:
        if kind not in (cross, plain):
            raise InputError(
                "models.block_unknown",
                field=fields.where + name,
                given=str(kind)[:60],
                known=f"{plain}, {cross}",
            )
    return [kind == cross for kind in kinds]


def _conditioning(fields: Fields, shape: _Shape, component: str) -> Block:
    """The step's embedding and the text, which all blocks read: one tensor each."""
    parts = [embedded("time", shape.down[0].channels, shape.time)]
    if fields.text("addition_embed_type", default="") == "text_time":
        given = fields.integer("projection_class_embeddings_input_dim", maximum=65_536)
        parts.append(embedded("added", given, shape.time))
    if fields.text("encoder_hid_dim_type", default="") == "text_proj":
        given = fields.integer("encoder_hid_dim", maximum=65_536)
        parts.append(tensor("text", given, shape.memory))
        parts.append(
            linear("encoder_hid_proj", "text", given, shape.memory_width, rows=shape.memory, bias=True)
        )
    return block(
        "conditioning",
        *parts,
        shared("time_embedding", shape.time, SAMPLE),
        shared("memory", shape.memory_width, shape.memory, for_weight=True),
        role="input",
        component=component,
    )


def _go_down(drawing: Drawing, x: Feature, shape: _Shape) -> tuple[Feature, list[Feature]]:
    """The levels downwards; every result is read once more on the way up."""
    skips = [x]
    for index, level in enumerate(shape.down):
        for layer in range(level.layers):
            x = _pair(drawing, x, f"down{index}.{layer}", level, shape)
            skips.append(x)
        if index < len(shape.down) - 1:
            x = drawing.block(f"down{index}.half", x, lambda y: halved(drawing, y))
            skips.append(x)
    return x, skips


def _middle(drawing: Drawing, x: Feature, shape: _Shape) -> Feature:
    x = _pair(drawing, x, "mid.0", shape.middle, shape)
    return _pair(drawing, x, "mid.1", shape.middle._replace(depth=0), shape)


def _go_up(drawing: Drawing, x: Feature, skips: list[Feature], shape: _Shape) -> Feature:
    for index, level in enumerate(shape.up):
        for layer in range(level.layers):
            x = _pair(drawing, x, f"up{index}.{layer}", level, shape, skips.pop())
        if index < len(shape.up) - 1:
            size = skips[-1].size
            x = drawing.block(f"up{index}.double", x, lambda y, size=size: doubled(drawing, y, size))  # type: ignore[misc]
    return x


def _pair(
    drawing: Drawing, x: Feature, name: str, level: _Level, shape: _Shape, skip: Feature | None = None
) -> Feature:
    """A residual block and, where the level has one, a transformer. What comes from the way down is
    joined first: the joined tensor is the block's input."""
    if skip:
        x = Feature("joined", x.channels + skip.channels, skip.size)

    def resnet(y: Feature) -> Feature:
        if skip:
            drawing.part(elementwise("join", y.channels, y.channels, rows=y.rows))
        return residual_block(drawing, y, level.channels, shape.groups, shape.time)

    x = drawing.block(f"{name}.resnet", x, resnet)
    return _transformer(drawing, x, name, level, shape) if level.depth else x


def _transformer(drawing: Drawing, x: Feature, name: str, level: _Level, shape: _Shape) -> Feature:
    """Layers on the places of the image, between two projections and added to their input."""

    def project(y: Feature) -> Feature:
        if shape.is_linear:
            return drawing.linear(y, y.channels, name="proj")
        return drawing.conv(y, y.channels, bias=True, name="proj")

    y = drawing.block(f"{name}.in", x, lambda z: project(drawing.norm(z, "group", shape.groups)))
    y = drawing.block(
        f"{name}.layer", y, lambda z: _layer(drawing, z, level.heads, shape), repeat=level.depth
    )
    return drawing.block(f"{name}.out", y, lambda z: drawing.add(project(z), z))


def _layer(drawing: Drawing, x: Feature, heads: int, shape: _Shape) -> Feature:
    """Self-attention, cross-attention to the text, and a gated feed-forward network."""
    width, rows, shape_of_heads = x.channels, x.rows, plain_heads(x.channels, heads)
    drawing.part(
        join(
            norm("norm1", x.name, "own_in", width, rows=rows),
            attention("own_in", width, shape_of_heads, rows=rows, bias=_BIASES, names=_ATTENTION, prefix="own"),
            residual("own_add", width, "middle", rows),
            norm("norm2", "middle", "cross_in", width, rows=rows),
            attention(
                "cross_in", width, shape_of_heads, rows=rows, bias=_BIASES, names=_ATTENTION, prefix="cross",
                memory="memory", memory_width=shape.memory_width, memory_rows=shape.memory,
            ),
            residual("cross_add", width, "crossed", rows),
            norm("norm3", "crossed", "mlp_in", width, rows=rows),
            mlp("mlp_in", width, 4 * width, activation_kind="gelu", bias=True, rows=rows, names=_MLP),
            residual("mlp_add", width, "output", rows),
        )
    )  # fmt: skip
    return Feature("output", width, x.size)
