"""StyleGAN3: Fourier features through layers whose sampling rates rise without aliasing.

Shapes follow NVlabs/stylegan3 (training/networks_stylegan3.py, arXiv:2106.12423, appendix C); the
discriminator is StyleGAN2's. Beside the fields of `stylegan` the part `generator` holds `conv_kernel` (3 for
config T, 1 for R), `num_layers`, `num_critical`, `first_cutoff`, `first_stopband`, `last_stopband_rel` and
`margin_size`. The filters around an activation run in one kernel, counted by its traffic.
"""

from __future__ import annotations

from math import ceil, log2
from typing import NamedTuple

from raceline.models.families import stylegan
from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.layers import elementwise, join, tensor
from raceline.models.fields import Fields
from raceline.models.graph import Model, fixed

_ACTIVATION_UPSAMPLING = 2
_SIGNS_PER_BYTE = 4


class _Level(NamedTuple):
    """What a layer makes."""

    channels: int
    side: int
    rate: int


class _Layer(NamedTuple):
    """A layer between two levels. `upsampling`: how much finer its activation is sampled than its input."""

    channels: int
    side: int
    kernel: int
    upsampling: int
    is_last: bool


def build(fields: Fields, image_size: int | None = None) -> Model:
    """StyleGAN3 at a side that is a power of two."""
    side, colours = stylegan.side_of(fields, image_size), stylegan.colours_of(fields)
    part = stylegan.generator_of(fields)
    kernel = part.integer("conv_kernel", default=3, maximum=15)
    drawing, levels = Drawing("generator"), _levels(part, side, colours)
    style = stylegan.mapping(drawing, part, 2)
    first = Feature("waves", levels[0].channels, (levels[0].side,) * 2)
    x = drawing.block("input", first, lambda given: _fourier(drawing, given, style))
    for index, (before, level) in enumerate(zip([levels[0], *levels], levels, strict=False)):
        is_last = index == len(levels) - 1
        finest = max(before.rate, level.rate) * (1 if is_last else _ACTIVATION_UPSAMPLING)
        layer = _Layer(level.channels, level.side, 1 if is_last else kernel, finest // before.rate, is_last)
        x = drawing.block(
            f"L{index}",
            x,
            lambda given, at=layer: _synthesise(drawing, given, style, at),  # type: ignore[misc]
        )
    return stylegan.gan_model(fields, "stylegan3", drawing.blocks, side, style.channels)


def _levels(part: Fields, side: int, colours: int) -> list[_Level]:
    """Channels, side and sampling rate after each layer: cutoffs and stopbands grow geometrically up to the
    critically sampled layers, and the rate is the power of two that holds the stopband."""
    layers = part.integer("num_layers", default=14, minimum=2, maximum=256)
    critical = part.integer("num_critical", default=2, minimum=0, maximum=layers - 1)
    cutoff = part.number("first_cutoff", default=2.0, minimum=0.5, maximum=1024.0)
    stopband = part.number("first_stopband", default=2**2.1, minimum=0.5, maximum=4096.0)
    last_stopband = side / 2 * part.number("last_stopband_rel", default=2**0.3, minimum=1.0, maximum=16.0)
    margin = part.integer("margin_size", default=10, minimum=0, maximum=1024)
    widths, levels = stylegan.widths_of(part), []
    for index in range(layers + 1):
        share = min(index / (layers - critical), 1)
        passed = cutoff * (side / 2 / cutoff) ** share
        stopped = stopband * (last_stopband / stopband) ** share
        rate = 2 ** ceil(log2(min(2 * stopped, side)))
        channels = max(1, round(min(widths.base / 2 / passed, widths.maximum)))
        is_inner = index < layers - 1
        levels.append(
            _Level(channels if index < layers else colours, rate + 2 * margin if is_inner else side, rate)
        )
    return levels


def _fourier(drawing: Drawing, x: Feature, style: Feature) -> Feature:
    """Sines of frequencies that four numbers of the style rotate and shift, and a matrix over them."""
    drawing.linear(style, 4, name="affine")
    return drawing.linear(drawing.act(x, "sine"), x.channels, bias=False, name="weight")


def _synthesise(drawing: Drawing, x: Feature, style: Feature, layer: _Layer) -> Feature:
    """A convolution with weights of its own for each sample, and a leaky ReLU at a finer sampling rate, which
    keeps two bits a position: the sign, and whether the value was clamped."""
    drawing.linear(style, x.channels, name="affine")
    stylegan.modulated_weights(drawing, layer.kernel**2 * x.channels * layer.channels, copies=1)
    y = drawing.conv(x, layer.channels, layer.kernel, padding=layer.kernel - 1)
    stylegan.bias(drawing, layer.channels)
    finer = layer.side if layer.is_last else y.size[0] * layer.upsampling
    out = y._replace(name="filtered", size=(layer.side, layer.side))
    signs = () if layer.is_last else ("signs",)
    share = y.rows.fixed / out.rows.fixed
    filtered = elementwise(
        "filtered_leaky_relu",
        share * layer.channels,
        float(layer.channels),
        keeps=signs,
        rows=out.rows,
    )
    kept = tensor("signs", layer.channels / _SIGNS_PER_BYTE, fixed(finer**2), "byte")
    drawing.part(join(filtered, kept, tensor("filtered", layer.channels, out.rows)))
    return out
