"""Jasper (arXiv:1904.03288): one-dimensional convolutions over a spectrogram, joined densely by 1x1 convolutions.

Fields are those of NVIDIA's DeepLearningExamples (PyTorch/SpeechRecognition/Jasper): `filters`, `kernels` and
`repeat` of the dense blocks, `features` of the spectrogram, `first`, `last` (filters and kernel of the layers
around them), `labels`. A position of `seq_len` is one frame of 10 ms; the first layer halves them.
"""

from __future__ import annotations

from raceline.models.families.images import same_length, whole_numbers
from raceline.models.families.layers import Part, block, dropout, elementwise, join, residual, tensor
from raceline.models.families.transformer import describe, loss
from raceline.models.fields import Fields
from raceline.models.graph import TOKENS, Block, Convolution, Model, Norm

FIRST, LAST = [256, 11], [896, 29]
FRAMES, FEATURES, LABELS, WIDE = 1670, 64, 29, 1024
DROPPED = 0.2
_HALF = TOKENS.scaled(0.5)


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Jasper with its dense blocks."""
    filters, kernels = whole_numbers(fields, "filters", [256]), whole_numbers(fields, "kernels", [11])
    same_length(filters=filters, kernels=kernels)
    repeat = fields.integer("repeat", default=5, maximum=100)
    first, last = whole_numbers(fields, "first", FIRST), whole_numbers(fields, "last", LAST)
    labels = fields.integer("labels", default=LABELS, maximum=1_000_000)
    features = fields.integer("features", default=FEATURES, maximum=65_536)
    widths = [first[0], *filters]
    blocks = [
        _plain("prologue", features, first[0], first[1], "input"),
        *(_dense(index, widths, kernels[index], repeat) for index in range(len(filters))),
        _plain("epilogue", filters[-1], last[0], last[1], "body"),
        _plain("wide", last[0], WIDE, 1, "body"),
    ]
    output = block(
        "output", tensor("given", WIDE, _HALF), _convolution("decoder", "given", WIDE, labels, 1, bias=True),
        loss(labels, _HALF), role="output",
    )  # fmt: skip
    return describe(
        fields, "jasper", [*blocks, output], objective="classify", unit="sample", seq_len=FRAMES,
        hidden=max(filters), layers=len(filters) * repeat + 3, vocabulary=labels,
    )  # fmt: skip


def _convolution(name: str, given: str, before: int, width: int, kernel: int, bias: bool = False) -> Part:
    op = Convolution(
        name=name, rows=_HALF, k=kernel * before, n=width, bias=bias, input_elements=float(before),
        keeps_for_weight=(given,),
    )  # fmt: skip
    return Part((op,))


def _normed(name: str, given: str, before: int, width: int, kernel: int) -> Part:
    """A convolution and its batch norm."""
    kept = f"{name}_convolved"
    op = Norm(name=f"{name}_norm", rows=_HALF, style="batch", width=width, bias=True, keeps=(kept,))
    return join(_convolution(name, given, before, width, kernel), tensor(kept, width, _HALF), Part((op,)))


def _activated(name: str, out: str, width: int) -> Part:
    """ReLU and dropout."""
    relu = elementwise(f"{name}_relu", width, width, keeps=(out,), rows=_HALF)
    return join(relu, tensor(out, width, _HALF), dropout(f"{name}_dropout", width, DROPPED, _HALF))


def _plain(name: str, before: int, width: int, kernel: int, role: str) -> Block:
    layer = _normed("layer", "given", before, width, kernel)
    given = tensor("given", before, TOKENS if role == "input" else _HALF)
    return block(name, given, layer, _activated("layer", "made", width), role=role)


def _dense(index: int, widths: list[int], kernel: int, repeat: int) -> Block:
    """`repeat` convolutions; the last adds what the layers before all blocks up to this one made."""
    before, width = widths[index], widths[index + 1]
    parts = [tensor("made0", before, _HALF)]
    for layer in range(repeat):
        parts.append(_normed(f"layer{layer}", f"made{layer}", before, width, kernel))
        if layer == repeat - 1:
            parts += [_joined(f"join{other}", widths[other], width) for other in range(index + 1)]
        parts.append(_activated(f"layer{layer}", f"made{layer + 1}", width))
        before = width
    return block(f"dense{index}", *parts)


def _joined(name: str, before: int, width: int) -> Part:
    """A residual by 1x1 convolution. Its input belongs to the block that made it."""
    return join(_normed(name, "", before, width, 1), residual(f"{name}_add", width, f"{name}_sum", _HALF))
