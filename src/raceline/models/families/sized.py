"""An image model that is known by its sizes alone: parameters, multiply-adds and activations.

Tables of results print these three for networks whose layers they don't show. They decide most of the time:
multiply-adds the arithmetic, activations (elements that convolutions and matmuls write, as timm counts them)
the memory traffic, parameters the optimizer's. The network drawn here has all three; its depth is a guess from
the activations, its layers are alike within a stage.

* Convolutions: four stages of halving sides, c 2^i channels at (side / 4)^2 / 4^i positions. How the layers are
  spread over stages follows from parameters over multiply-adds.
* Transformer: layers of 12 d^2 parameters over as many tokens as multiply-adds are to parameters.
"""

from __future__ import annotations

from math import sqrt

import msgspec

from raceline.models.graph import (
    SAMPLE,
    AnyOp,
    Attention,
    Block,
    Convolution,
    Elementwise,
    Extent,
    Loss,
    Matmul,
    Model,
    Norm,
    Tensor,
    fixed,
)
from raceline.present.errors import InputError

STAGES = 4
HEAD_WIDTH, CLASSES = 64, 1000
# Layers of a network with a million activations, and how they grow: read off the networks that are bundled.
DEPTH, DEPTH_POWER = 20.0, 0.45


class Sizes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known: millions of parameters, giga multiply-adds and millions of activations of one forward pass
    at `image_size`."""

    parameters_m: float
    gmacs: float
    mactivations_m: float
    image_size: int = 224
    kind: str = "convolution"
    name: str = "sized"


def build(sizes: Sizes, image_size: int | None = None) -> Model:
    """The model of these sizes, at another image size if one is given."""
    for field in ("parameters_m", "gmacs", "mactivations_m"):
        if not 1e-6 < getattr(sizes, field) < 1e6:
            raise InputError("models.sizes_wrong", field=field, given=str(getattr(sizes, field)))
    side = image_size or sizes.image_size
    scale = (side / sizes.image_size) ** 2
    draw = _transformer if sizes.kind == "transformer" else _convolutions
    blocks = draw(sizes, scale)
    head = Block(name="head", role="output", ops=(Loss(name="loss", rows=SAMPLE, classes=CLASSES),))
    return Model(
        name=sizes.name, family="sized", architecture=sizes.kind, blocks=(*blocks, head), unit="image",
        objective="classify", image_size=side, layers=sum(block.repeat for block in blocks),
        notes=("models.sizes_alone",),
    )  # fmt: skip


def _convolutions(sizes: Sizes, scale: float) -> list[Block]:
    macs, activations, parameters = sizes.gmacs * 1e9, sizes.mactivations_m * 1e6, sizes.parameters_m * 1e6
    area = (sizes.image_size / 4.0) ** 2
    layers = max(STAGES, round(DEPTH * sizes.mactivations_m**DEPTH_POWER))
    repeats = _spread(layers, parameters * area / macs)
    width = activations / (area * sum(n * 2.0**-i for i, n in enumerate(repeats)))
    reach = macs / (width * area * sum(repeats))
    return [
        _convolution(f"stage{i}", n, area * scale / 4.0**i, reach * 2.0**i, width * 2.0**i)
        for i, n in enumerate(repeats)
    ]


def _spread(layers: int, mean: float) -> list[int]:
    """Layers of each stage, so that the mean of 4^stage over layers is near `mean`."""
    low, high = 1e-3, 1e3
    for _ in range(60):
        ratio = sqrt(low * high)
        shares = [ratio**i for i in range(STAGES)]
        found = sum(share * 4.0**i for i, share in enumerate(shares)) / sum(shares)
        low, high = (ratio, high) if found < mean else (low, ratio)
    return [max(1, round(layers * share / sum(shares))) for share in shares]


def _convolution(name: str, repeat: int, positions: float, reach: float, width: float) -> Block:
    rows, channels = fixed(max(1.0, positions)), max(1, round(width))
    ops: tuple[AnyOp, ...] = (
        Convolution(
            name="convolution", rows=rows, k=max(1, round(reach)), n=channels, input_elements=float(channels),
            keeps_for_weight=("input",),
        ),
        Norm(name="norm", rows=rows, style="batch", width=channels, bias=True, keeps=("output",)),
        Elementwise(name="activation", rows=rows, reads=channels, writes=channels),
        # every third layer or so ends a block: a residual is added
        Elementwise(name="residual", rows=rows, reads=2.0 * channels / 3.0, writes=channels / 3.0),
    )  # fmt: skip
    tensors = (Tensor("input", channels, rows), Tensor("output", channels, rows))
    return Block(name=name, ops=ops, tensors=tensors, repeat=repeat, boundary="input")


def _transformer(sizes: Sizes, scale: float) -> list[Block]:
    macs, activations, parameters = sizes.gmacs * 1e9, sizes.mactivations_m * 1e6, sizes.parameters_m * 1e6
    tokens = min(max(macs / parameters, 4.0), (sizes.image_size / 4.0) ** 2)
    width = parameters * tokens * (9.0 + tokens / HEAD_WIDTH) / (12.0 * activations)
    layers = max(1, round(parameters / (12.0 * width**2)))
    hidden = max(8, round(sqrt(parameters / (12.0 * layers))))
    rows = fixed(tokens * scale)
    return [
        Block(
            name="layer",
            ops=_layer(hidden, rows),
            tensors=_kept(hidden, rows),
            repeat=layers,
            boundary="input",
        )
    ]


def _layer(hidden: int, rows: Extent) -> tuple[AnyOp, ...]:
    heads = max(1, round(hidden / HEAD_WIDTH))
    return (
        Norm(name="norm1", rows=rows, style="layer", width=hidden, bias=True, keeps=("input",)),
        Matmul(name="qkv", rows=rows, k=hidden, n=3 * hidden, bias=True, keeps_for_weight=("normed1",)),
        Attention(
            name="attention", rows=rows, heads=heads, kv_heads=heads, head_dim=HEAD_WIDTH, value_dim=HEAD_WIDTH,
            kv_rows=rows, causal=False, keeps=("qkv", "attended"),
        ),
        Matmul(name="out", rows=rows, k=hidden, n=hidden, bias=True, keeps_for_weight=("attended",)),
        Elementwise(name="residual1", rows=rows, reads=2 * hidden, writes=hidden),
        Norm(name="norm2", rows=rows, style="layer", width=hidden, bias=True, keeps=("middle",)),
        Matmul(name="up", rows=rows, k=hidden, n=4 * hidden, bias=True, keeps_for_weight=("normed2",)),
        Elementwise(name="gelu", rows=rows, reads=4 * hidden, writes=4 * hidden, keeps=("up",)),
        Matmul(name="down", rows=rows, k=4 * hidden, n=hidden, bias=True, keeps_for_weight=("act",)),
        Elementwise(name="residual2", rows=rows, reads=2 * hidden, writes=hidden),
    )  # fmt: skip


def _kept(hidden: int, rows: Extent) -> tuple[Tensor, ...]:
    widths = {
        "input": 1, "normed1": 1, "qkv": 3, "attended": 1, "middle": 1, "normed2": 1, "up": 4, "act": 4,
    }  # fmt: skip
    return tuple(Tensor(name, float(times * hidden), rows) for name, times in widths.items())
