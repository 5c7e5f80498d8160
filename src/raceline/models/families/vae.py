"""AutoencoderKL: the autoencoder between pixels and latents (arXiv:2112.10752), in diffusers' fields."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import image_model, image_size_of, patches_of, pixels
from raceline.models.families.layers import AttentionNames, attention, join, tensor
from raceline.models.families.resblock import (
    doubled,
    halved,
    level_widths,
    output_convolution,
    plain_heads,
    residual_block,
)
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model

COMPONENT = "vae"
_NAMES = AttentionNames("to_q", "to_k", "to_v", "to_out")
_BIASES = (True, True, True, True)


class _Shape(NamedTuple):
    """Widths from the pixels inwards."""

    channels: list[int]
    layers: int
    groups: int
    latent: int
    has_attention: bool


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The autoencoder alone: training runs both halves, inference the decoder."""
    side = image_size_of(fields, image_size, fields.integer("sample_size", default=512, maximum=16_384))
    blocks = [msgspec.structs.replace(one, runs_in="train") for one in encoder(fields, side)]
    blocks += decoder(fields, side)
    hidden = level_widths(fields)[-1]
    return image_model(fields, "diffusion", blocks, side, objective="denoise", hidden=hidden)


def reduction(fields: Fields) -> int:
    """Pixels along one side of a latent's place."""
    return int(2 ** (len(level_widths(fields)) - 1))


def _shape(fields: Fields) -> _Shape:
    return _Shape(
        level_widths(fields),
        fields.integer("layers_per_block", default=1, maximum=100),
        fields.integer("norm_num_groups", default=32, maximum=65_536),
        fields.integer("latent_channels", default=4, maximum=65_536),
        fields.flag("mid_block_add_attention", default=True),
    )


def encoder(fields: Fields, side: int, component: str = COMPONENT) -> list[Block]:
    """From pixels to the mean and variance of a latent."""
    shape, drawing = _shape(fields), Drawing(component)
    patches_of(side, reduction(fields))
    image = pixels(side, fields.integer("in_channels", default=3, maximum=1024))
    x = drawing.block("encoder.in", image, lambda y: drawing.conv(y, shape.channels[0], 3, bias=True))
    for level, channels in enumerate(shape.channels):
        x = _level(drawing, x, f"encoder.down{level}", channels, shape.layers, shape.groups)
        if level < len(shape.channels) - 1:
            x = drawing.block(f"encoder.down{level}.half", x, lambda y: halved(drawing, y))
    x = _middle(drawing, x, "encoder.mid", shape)
    twice = 2 * shape.latent

    def out(y: Feature) -> Feature:
        y = output_convolution(drawing, y, twice, shape.groups)
        return drawing.conv(y, twice, bias=True) if fields.flag("use_quant_conv", default=True) else y

    drawing.block("encoder.out", x, out)
    return drawing.blocks


def decoder(fields: Fields, side: int, component: str = COMPONENT) -> list[Block]:
    """From a latent to pixels."""
    shape, drawing = _shape(fields), Drawing(component)
    small = patches_of(side, reduction(fields))
    widths = shape.channels[::-1]

    def first(y: Feature) -> Feature:
        if fields.flag("use_post_quant_conv", default=True):
            y = drawing.conv(y, shape.latent, bias=True)
        return drawing.conv(y, widths[0], 3, bias=True)

    x = drawing.block("decoder.in", Feature("latent", shape.latent, (small, small)), first)
    x = _middle(drawing, x, "decoder.mid", shape)
    for level, channels in enumerate(widths):
        x = _level(drawing, x, f"decoder.up{level}", channels, shape.layers + 1, shape.groups, copies=True)
        if level < len(widths) - 1:
            size = tuple(2 * length for length in x.size)
            x = drawing.block(
                f"decoder.up{level}.double",
                x,
                lambda y, size=size: doubled(drawing, y, size),  # type: ignore[misc]
            )
    channels = fields.integer("out_channels", default=3, maximum=1024)
    drawing.block("decoder.out", x, lambda y: output_convolution(drawing, y, channels, shape.groups))
    return drawing.blocks


def _level(
    drawing: Drawing, x: Feature, name: str, channels: int, layers: int, groups: int, *, copies: bool = False
) -> Feature:
    """Residual blocks of one size: the first may change the width."""
    changes = 1 if x.channels != channels else 0
    for index, repeat in ((0, changes), (changes, layers - changes)):
        if repeat:
            x = drawing.block(
                f"{name}.{index}",
                x,
                lambda y: residual_block(drawing, y, channels, groups, copies=copies),
                repeat=repeat,
            )
    return x


def _middle(drawing: Drawing, x: Feature, name: str, shape: _Shape) -> Feature:
    def resnet(y: Feature) -> Feature:
        return residual_block(drawing, y, y.channels, shape.groups)

    x = drawing.block(f"{name}.0", x, resnet)
    if shape.has_attention:
        x = drawing.block(f"{name}.attention", x, lambda y: _attended(drawing, y, shape.groups))
    return drawing.block(f"{name}.1", x, resnet)


def _attended(drawing: Drawing, x: Feature, groups: int) -> Feature:
    """One head over all places, added to its input. Its result lies channels-last, and with it all that the
    decoder makes of it; each of the three projections copies what it reads into rows."""
    rows, width = drawing.norm(x, "group", groups).rows, x.channels
    drawing.part(
        join(
            tensor("places", 3.0 * width, rows),
            attention("places", width, plain_heads(width, 1), rows=rows, bias=_BIASES, names=_NAMES),
        )
    )
    return drawing.add(x, x)
