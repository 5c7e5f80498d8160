"""Swin transformers, first and second version, from transformers' config fields.

arXiv:2103.14030 and arXiv:2111.09883. Attention within windows: every position sees the positions of its own
window. An image that windows don't divide is padded. `window_size` is one number or one for each stage.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

import msgspec

from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    patches_of,
    same_length,
    whole_numbers,
)
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
    tensor,
)
from raceline.models.families.transformer import layer, loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, AnyOp, Attention, Block, Convolution, Model, Norm, Tensor, fixed

_NAMES = AttentionNames("query", "key", "value", "dense")
_FUSED = AttentionNames(out="proj", fused="qkv")
_MLP = MlpNames("intermediate.dense", "output.dense", "")
_POSITION_HIDDEN = 512


class _Stage(NamedTuple):
    """Sizes of one stage. `padded`: positions after padding to whole windows."""

    width: int
    heads: int
    side: int
    window: int
    depth: int

    @property
    def padded(self) -> int:
        return (ceil(self.side / self.window) * self.window) ** 2


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of windowed layers in stages of halved sides and doubled widths."""
    side = image_size_of(fields, image_size, 224)
    width = fields.integer("embed_dim", default=96, maximum=65_536)
    stages = _stages(fields, width, patches_of(side, fields.integer("patch_size", default=4, maximum=1024)))
    is_second = fields.text("model_type", default="swin") == "swinv2"
    blocks = [_embedding(fields, stages[0])]
    for index, stage in enumerate(stages):
        blocks.append(_layers(fields, f"stage{index}", stage, is_second))
        if index < len(stages) - 1:
            blocks.append(_merge(f"merge{index}", stage, is_second))
    blocks.append(_output(stages[-1], classes_of(fields)))
    return image_model(fields, "swin", blocks, side, hidden=stages[-1].width)


def _stages(fields: Fields, width: int, side: int) -> list[_Stage]:
    depths = whole_numbers(fields, "depths", [2, 2, 6, 2], 10_000)
    heads = whole_numbers(fields, "num_heads", [3, 6, 12, 24], 4096)
    single = not isinstance(fields.values.get("window_size"), (list, tuple))
    default = 8 if fields.text("model_type", default="swin") == "swinv2" else 7
    size = fields.integer("window_size", default=default, maximum=4096) if single else 0
    windows = [size] * len(depths) if single else whole_numbers(fields, "window_size", [], 4096)
    same_length(depths=depths, num_heads=heads, window_size=windows)
    stages = []
    for depth, count, window in zip(depths, heads, windows, strict=True):
        stages.append(_Stage(width, count, side, min(window, side), depth))
        width, side = 2 * width, ceil(side / 2)
    return stages


def _embedding(fields: Fields, stage: _Stage) -> Block:
    k = fields.integer("num_channels", default=3, maximum=64) * fields.integer("patch_size", default=4) ** 2
    rows = fixed(stage.side**2)
    patches = Convolution(
        name="patch_embedding",
        rows=rows,
        k=k,
        n=stage.width,
        bias=True,
        input_elements=float(k),
        keeps_for_weight=("pixels",),
    )
    return block(
        "embedding",
        tensor("pixels", k, rows),
        Part((patches,)),
        tensor("embedded", stage.width, rows),
        norm("norm", "embedded", "first", stage.width, rows=rows),
        role="input",
    )


def _layers(fields: Fields, name: str, stage: _Stage, is_second: bool) -> Block:
    rows, inside = fixed(stage.side**2), fixed(stage.padded)
    is_fused = fields.flag("fused_qkv")
    heads = Heads(
        query=stage.heads, kv=stage.heads, dim=stage.width // stage.heads, causal=False, rotary=False,
        has_bias=True, score_upcast=not (is_fused or is_second), score_copies=2.0 if is_second else 1.0,
    )  # fmt: skip
    biased = fields.flag("qkv_bias", default=True)
    bias = (biased, biased and not is_second, biased, True)
    inner = int(stage.width * fields.number("mlp_ratio", default=4.0, maximum=100))

    def mixer(given: str, out: str) -> Part:
        names = _FUSED if is_fused else _NAMES
        return attention(given, stage.width, heads, rows=inside, bias=bias, names=names, out=out)

    def feed(given: str, out: str) -> Part:
        kind = fields.text("hidden_act", default="gelu")
        return mlp(
            given,
            stage.width,
            inner,
            activation_kind=kind,
            gated=False,
            bias=True,
            rows=rows,
            names=_MLP,
            out=out,
        )

    body = layer(
        name, stage.width, mixer, feed, arrangement="post" if is_second else "pre", norm_kind="layer", rows=rows,
        repeat=stage.depth,
    )  # fmt: skip
    ops = [_windowed(op, stage) for op in body.ops]
    positions = (_learned_positions if is_second else _table)(stage)
    return msgspec.structs.replace(
        body, ops=(*ops, *positions.ops), tensors=(*body.tensors, *positions.tensors)
    )


def _windowed(op: AnyOp, stage: _Stage) -> AnyOp:
    """A query sees the keys of its window, while keys and values are kept for all positions."""
    if isinstance(op, Attention):
        return msgspec.structs.replace(op, kv_rows=fixed(stage.window**2))
    return op


def _table(stage: _Stage) -> Part:
    """A bias for each head and each distance within a window."""
    entries = (2 * stage.window - 1) ** 2 * stage.heads
    return elementwise("relative_positions", entries, entries, rows=SAMPLE, parameters=entries)


def _learned_positions(stage: _Stage) -> Part:
    """Version 2: a small network over the distances gives the bias (once a batch, so that its work is too
    little to count), and each head has a temperature."""
    parameters = 3 * _POSITION_HIDDEN + _POSITION_HIDDEN * stage.heads + stage.heads
    table = (2 * stage.window - 1) ** 2 * stage.heads
    rows = fixed(stage.padded)
    return join(
        elementwise("relative_positions", table, table, rows=SAMPLE, parameters=parameters),
        # queries and keys become unit vectors: plain operations keep both forms
        elementwise(
            "unit_vectors", 2.0 * stage.width, 2.0 * stage.width, rows=rows, keeps=("attention_raw",)
        ),
        Part((), (Tensor("attention_raw", 2.0 * stage.width, rows, split=True, eager=True),)),
    )


def _merge(name: str, stage: _Stage, is_second: bool) -> Block:
    """Four neighbours become one position of twice the width; version 2 norms after, not before."""
    few, wide = fixed(ceil(stage.side / 2) ** 2), 4 * stage.width
    width = wide // 2 if is_second else wide
    first = linear("reduction", "merged", wide, 2 * stage.width, rows=few, out="reduced")
    if is_second:
        parts = [tensor("merged", wide, few), first, norm("norm", "reduced", "out", width, rows=few)]
    else:
        reduction = linear("reduction", "normed", wide, 2 * stage.width, rows=few)
        parts = [tensor("merged", wide, few), norm("norm", "merged", "normed", width, rows=few), reduction]
    return block(name, *parts)


def _output(stage: _Stage, classes: int) -> Block:
    rows = fixed(stage.side**2)
    pooled = Norm(
        name="final_norm",
        rows=rows,
        style="layer",
        width=stage.width,
        bias=True,
        keeps=("last", "statistics"),
    )
    return block(
        "output",
        tensor("last", stage.width, rows),
        tensor("statistics", 2, rows, "fp32"),
        Part((pooled,)),
        elementwise("pooling", stage.width * rows.fixed, stage.width, rows=SAMPLE),
        tensor("pooled", stage.width, SAMPLE),
        linear("classifier", "pooled", stage.width, classes, rows=SAMPLE, bias=True, quantisable=False),
        loss(classes, SAMPLE),
        role="output",
    )
