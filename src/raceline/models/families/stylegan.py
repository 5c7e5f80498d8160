"""StyleGAN2: a mapping network, a generator of modulated convolutions, a residual discriminator.

Shapes follow NVlabs/stylegan3 (training/networks_stylegan2.py, training/loss.py, arXiv:1912.04958). Each
network is a component. Generating runs the generator alone; a step of training makes an image and judges it
for the generator's sake, then makes another one without a gradient and judges it and a real one for the
discriminator's sake. The blocks `again` are the passes of this second half, whose activations live after
those of the first have gone. The gradient penalties every few steps are left out, and the weight gradients
of the discriminator in the first half, which nobody needs, are not: about as much. Filters that resample
are counted by their traffic.

Fields: `image_size` (a power of two), `num_channels`, and the parts `generator` and `discriminator`, each
with `channel_base` (channels times side) and `channel_max`; `generator` also holds `z_dim`, `w_dim` and
`mapping_layers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from raceline.models.families.convnet import LARGEST_IMAGE, Drawing, Feature
from raceline.models.families.images import image_model, image_size_of, pixels
from raceline.models.families.layers import Part, elementwise, join, tensor
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Convolution, Loss, Model
from raceline.present.errors import InputError

_SMALLEST = 4
_VECTOR = (1, 1)
# a made image and a real one
_JUDGED_AGAIN = 2


def build(fields: Fields, image_size: int | None = None) -> Model:
    """StyleGAN2 at a side that is a power of two."""
    side, colours = side_of(fields, image_size), colours_of(fields)
    part = generator_of(fields)
    drawing, widths = Drawing("generator"), widths_of(part)
    style = mapping(drawing, part, 8)
    x = Feature("constant", widths.at(_SMALLEST), (_SMALLEST, _SMALLEST))
    for length in _sides(side):
        stage = _Stage(widths.at(length), colours, length == _SMALLEST, length == side)
        x = drawing.block(
            f"b{length}",
            x,
            lambda given, at=stage: _synthesise(drawing, given, style, at),  # type: ignore[misc]
        )
    return gan_model(fields, "stylegan2", drawing.blocks, side, style.channels)


def side_of(fields: Fields, image_size: int | None) -> int:
    """The side of the image: each block doubles it, from four pixels on."""
    side, known = image_size_of(fields, image_size, 1024), _sides(LARGEST_IMAGE)[1:]
    if side not in known:
        raise InputError(
            "models.block_unknown",
            field=f"{fields.where}image_size",
            given=str(side),
            known=", ".join(map(str, known)),
        )
    return side


def _sides(largest: int) -> list[int]:
    return [2**power for power in range(_SMALLEST.bit_length() - 1, largest.bit_length())]


def colours_of(fields: Fields) -> int:
    """Channels of the image."""
    return int(fields.integer("num_channels", default=3, maximum=64))


def generator_of(fields: Fields) -> Fields:
    """The fields of the generator; all have defaults."""
    part: Fields = fields.part("generator", default=Fields({}, f"{fields.where}generator."))
    return part


class Widths(NamedTuple):
    """Channels at a side: so many that side times channels stays `base`, at most `maximum`."""

    base: int
    maximum: int

    def at(self, side: int) -> int:
        """The channels of a StyleGAN2 block at this side."""
        return max(1, min(self.base // side, self.maximum))


def widths_of(part: Fields) -> Widths:
    """The widths of a network."""
    return Widths(
        part.integer("channel_base", default=32_768, maximum=2**24),
        part.integer("channel_max", default=512, maximum=65_536),
    )


def mapping(drawing: Drawing, part: Fields, layers: int) -> Feature:
    """Fully connected layers from the latent vector to the style, which every layer of the generator reads."""
    latent = part.integer("z_dim", default=512, maximum=65_536)
    width = part.integer("w_dim", default=512, maximum=65_536)
    depth = part.integer("mapping_layers", default=layers, maximum=256)

    def make(x: Feature) -> Feature:
        for _ in range(depth):
            x = drawing.act(drawing.linear(x, width, name="fc"), "leaky_relu")
        return x

    return drawing.block("mapping", Feature("latent", latent, _VECTOR), make, role="input")


def modulated_weights(drawing: Drawing, weights: int, copies: int = 0) -> None:
    """The weights of a convolution times the style: a copy for each sample, kept in fp32 (for their norm)
    and, where the convolution itself runs on them, `copies` times in the activations' type."""
    kept = [tensor("modulated_fp32", float(weights), SAMPLE, "fp32")]
    kept += [tensor("modulated", float(weights * copies), SAMPLE)] if copies else []
    names = tuple(one.name for part in kept for one in part.tensors)
    op = elementwise("modulate", 2.0 * weights, float(weights * (1 + copies)), keeps=names, rows=SAMPLE)
    drawing.part(join(op, *kept))


def bias(drawing: Drawing, channels: int) -> None:
    """A bias that the activation's kernel adds."""
    drawing.part(elementwise("bias", 0, 0, rows=SAMPLE, parameters=channels))


class _Stage(NamedTuple):
    """A block of the generator: its channels and where it stands."""

    channels: int
    colours: int
    is_first: bool
    is_last: bool


def _synthesise(drawing: Drawing, x: Feature, style: Feature, stage: _Stage) -> Feature:
    """Two modulated convolutions (the first doubles the side; on the learned constant there is only the
    second), and what they add to the image. The last block hands on the image."""
    if stage.is_first:
        learned = x.channels * _SMALLEST**2
        drawing.part(elementwise("constant", 0, x.channels, rows=x.rows, parameters=learned))
    else:
        x = _layer(drawing, x, style, stage.channels, doubles=True)
    x = _layer(drawing, x, style, stage.channels)
    scaled = drawing.multiply(x, drawing.linear(style, x.channels, name="affine"))
    image = drawing.conv(scaled, stage.colours, bias=True, name="to_image")
    if not stage.is_first:
        half = Feature("image", stage.colours, tuple(length // 2 for length in x.size))
        image = drawing.add(drawing.resize(half, x.size), image)
    return image if stage.is_last else x


def _layer(drawing: Drawing, x: Feature, style: Feature, channels: int, doubles: bool = False) -> Feature:
    """Scale by the style, convolve, scale back to unit variance, add noise and bias. In training the
    activations are scaled rather than the weights; the weights are scaled too, for their norm."""
    scaled = drawing.multiply(x, drawing.linear(style, x.channels, name="affine"))
    modulated_weights(drawing, 9 * x.channels * channels)
    y = _doubled(drawing, scaled, channels) if doubles else drawing.conv(scaled, channels, 3)
    y = drawing.multiply(y, Feature("demodulation", channels, _VECTOR))
    noise = elementwise("noise", 1, 0, rows=y.rows, parameters=1, keeps_for_weight=("noise",))
    drawing.part(join(noise, tensor("noise", 1, y.rows, "fp32")))
    bias(drawing, channels)
    return drawing.act(y, "leaky_relu")


def _doubled(drawing: Drawing, x: Feature, channels: int) -> Feature:
    """A transposed 3x3 convolution of stride two: each position of its input meets all nine weights. Then
    a filter smooths it."""
    size = tuple(2 * length for length in x.size)
    op = Convolution(
        name="upconv",
        rows=x.rows,
        k=x.channels,
        n=9 * channels,
        input_elements=float(x.channels),
        keeps_for_weight=(x.name,),
    )
    drawing.part(Part((op,)))
    return drawing.resize(Feature("doubled", channels, size), size)


def discriminator(fields: Fields, side: int) -> list[Block]:
    """Residual blocks that halve the side, the batch's deviation as one more channel, and two layers."""
    part = fields.part("discriminator", default=Fields({}, f"{fields.where}discriminator."))
    drawing, widths = Drawing("discriminator"), widths_of(part)
    x = pixels(side, colours_of(fields))
    for length in reversed(_sides(side)[1:]):
        step = (widths.at(length), widths.at(length // 2), length == side)
        x = drawing.block(
            f"b{length}",
            x,
            lambda given, at=step: _halve(drawing, given, *at),  # type: ignore[misc]
        )
    drawing.block("b4", x, lambda given: _judge(drawing, given, widths.at(_SMALLEST)), role="output")
    return [msgspec.structs.replace(block, runs_in="train") for block in drawing.blocks]


def _halve(drawing: Drawing, x: Feature, inner: int, channels: int, reads_image: bool) -> Feature:
    if reads_image:
        x = drawing.act(drawing.conv(x, inner, bias=True, name="from_image"), "leaky_relu")
    half = tuple(length // 2 for length in x.size)
    skip = drawing.conv(drawing.resize(x, half), channels)
    y = drawing.act(drawing.conv(x, inner, 3, bias=True), "leaky_relu")
    y = drawing.conv(drawing.resize(y, y.size), channels, 3, 2, bias=True)
    return drawing.add(drawing.act(y, "leaky_relu"), skip)


def _judge(drawing: Drawing, x: Feature, channels: int) -> Feature:
    """One value: real or made."""
    both = drawing.concat([x, Feature("deviation", 1, x.size)])
    y = drawing.act(drawing.conv(both, channels, 3, bias=True), "leaky_relu")
    y = drawing.act(drawing.linear(drawing.flatten(y), channels, name="fc"), "leaky_relu")
    y = drawing.linear(y, 1, name="out", quantisable=False)
    drawing.part(loss(1, SAMPLE))
    return y


def gan_model(fields: Fields, family: str, generator: Sequence[Block], side: int, hidden: int) -> Model:
    """The Model of both networks."""
    judge = discriminator(fields, side)
    made = _again(generator, trained=False, role="input")
    judged = _again(judge, repeat=_JUDGED_AGAIN, role="output")
    return image_model(fields, family, [*generator, *judge, made, judged], side, hidden=hidden)


def _again(blocks: Sequence[Block], **rest: Any) -> Block:
    """Another pass over the same weights in a step of training, which adds nothing to what is kept at once."""
    ops = [
        msgspec.structs.replace(op, tied=True, keeps=(), keeps_for_weight=())
        for block in blocks
        for op in block.ops
        if not isinstance(op, Loss)
    ]
    return Block(name="again", ops=tuple(ops), component=blocks[0].component, runs_in="train", **rest)
