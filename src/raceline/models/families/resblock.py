"""The residual block of diffusion U-Nets and of their autoencoder, and how both halve and double an image.

Follows the eager modules of diffusers: group norm, SiLU and a 3x3 convolution, twice, around which the
input is added (arXiv:2112.10752). Each of the six activations in between stays for backward.
"""

from __future__ import annotations

from collections.abc import Sequence

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import same_length, whole_numbers
from raceline.models.families.layers import Heads, Part, elementwise, join, linear, tensor
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE

MOST_LEVELS = 16


def level_widths(fields: Fields, default: Sequence[int] = (64,)) -> list[int]:
    """The channels at each size of the image, from the largest one on: `block_out_channels`."""
    widths = fields.items("block_out_channels", default=list(default), longest=MOST_LEVELS)
    same_length(block_out_channels=widths)
    return whole_numbers(fields, "block_out_channels", widths, 65_536)


def residual_block(
    drawing: Drawing, x: Feature, channels: int, groups: int, time_width: int = 0, *, copies: bool = False
) -> Feature:
    """Two convolutions of `channels`; `time_width`: elements of the step's embedding, added in between.
    `copies`: the convolution of the shortcut keeps a copy, since its input lies channels-last."""
    y = _convolved(drawing, x, channels, groups)
    if time_width:
        drawing.part(_time_projection(time_width, channels))
        y = drawing.add(y, y)
    y = _convolved(drawing, y, channels, groups)
    return drawing.add(y, x if x.channels == channels else _shortcut(drawing, x, channels, copies))


def _shortcut(drawing: Drawing, x: Feature, channels: int, copies: bool) -> Feature:
    return drawing.conv(drawing.concat([x]) if copies else x, channels, bias=True, name="conv_shortcut")


def _convolved(drawing: Drawing, x: Feature, channels: int, groups: int) -> Feature:
    return drawing.conv(drawing.act(drawing.norm(x, "group", groups), "silu"), channels, 3, bias=True)


def _time_projection(width: int, channels: int) -> Part:
    """SiLU of the step's embedding (one tensor for all blocks) and its projection onto the channels."""
    return join(
        elementwise("time_silu", width, width, rows=SAMPLE),
        tensor("time_hidden", width, SAMPLE),
        linear("time_emb_proj", "time_hidden", width, channels, rows=SAMPLE, bias=True),
    )


def output_convolution(drawing: Drawing, x: Feature, channels: int, groups: int) -> Feature:
    """Group norm, SiLU and the last convolution."""
    return _convolved(drawing, x, channels, groups)


def halved(drawing: Drawing, x: Feature) -> Feature:
    """A 3x3 convolution with stride 2."""
    return drawing.conv(x, x.channels, 3, 2, bias=True, name="downsample")


def doubled(drawing: Drawing, x: Feature, size: tuple[int, ...]) -> Feature:
    """Nearest neighbours at another size, then a 3x3 convolution."""
    return drawing.conv(drawing.resize(x, size), x.channels, 3, bias=True, name="upsample")


def plain_heads(width: int, heads: int) -> Heads:
    """Attention over places of an image: every one sees all, and eager softmax keeps the activations' type."""
    return Heads(query=heads, kv=heads, dim=width // heads, causal=False, rotary=False, score_upcast=False)
