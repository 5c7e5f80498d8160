"""Transformer layers drawn on feature maps and tokens: attention, feed-forward, class tokens, tables.

Convolutional transformers go back and forth between an image and a sequence. Both are a `Feature` here: an
image has two sides, a sequence with class tokens one length.
"""

from __future__ import annotations

from math import prod

import msgspec

from raceline.models.families.convnet import Drawing, Feature, Make
from raceline.models.families.layers import (
    AttentionNames,
    Heads,
    MlpNames,
    Part,
    attention,
    elementwise,
    join,
    mlp,
    tensor,
)
from raceline.models.graph import AnyOp, Attention, Extent, Matmul, fixed

_NAMES = AttentionNames("query", "key", "value", "proj")
_MLP = MlpNames("fc1", "fc2", "")


def attend(
    drawing: Drawing,
    given: Feature,
    heads: int,
    *,
    memory: Feature | None = None,
    seen: Extent | None = None,
    bias: bool = True,
    has_bias: bool = False,
    score_copies: float = 1.0,
    factorised: bool = False,
    prefix: str = "attention",
) -> Feature:
    """Attention of `given` to itself, or to `memory`. `seen`: the positions that each one sees, where they
    are fewer than those that have keys. `factorised`: keys meet values first, over all positions."""
    shape = Heads(
        query=heads, kv=heads, dim=given.channels // heads, causal=False, rotary=False, has_bias=has_bias,
        score_upcast=False, score_copies=score_copies,
    )  # fmt: skip
    source = memory or given
    part = attention(
        given.name, given.channels, shape, rows=given.rows, memory=source.name, memory_width=source.channels,
        memory_rows=source.rows, bias=(bias, bias, bias, True), names=_NAMES, prefix=prefix,
        out=f"{prefix}_out",
    )  # fmt: skip
    if seen is not None:
        ops = [
            msgspec.structs.replace(op, kv_rows=seen) if isinstance(op, Attention) else op for op in part.ops
        ]
        part = part._replace(ops=tuple(ops))
    if factorised:
        part = part._replace(ops=tuple(new for op in part.ops for new in _factors(op)))
    drawing.part(part)
    return given._replace(name=f"{prefix}_out", kept=False)


def _factors(op: AnyOp) -> tuple[AnyOp, ...]:
    """q (k^T v) as two products: a square of a head's width, then one row of it for each query."""
    if not isinstance(op, Attention):
        return (op,)
    square, positions = fixed(op.head_dim), max(1, int(op.rows.fixed))
    summed = msgspec.structs.replace(
        op, name=f"{op.name}_sum", rows=square, kv_rows=square, head_dim=positions, value_dim=0, keeps=(),
        score_copies=0.0,
    )  # fmt: skip
    return summed, msgspec.structs.replace(op, kv_rows=square, value_dim=0)


def feed_forward(
    drawing: Drawing,
    given: Feature,
    inner: int,
    *,
    kind: str = "gelu",
    tied: bool = False,
    prefix: str = "mlp",
) -> Feature:
    """Two projections with an activation between. `tied`: their weights stand in another layer."""
    part = mlp(
        given.name, given.channels, inner, activation_kind=kind, gated=False, bias=True, rows=given.rows,
        names=_MLP, prefix=prefix, out=f"{prefix}_out",
    )  # fmt: skip
    if tied:
        ops = [msgspec.structs.replace(op, tied=True) if isinstance(op, Matmul) else op for op in part.ops]
        part = part._replace(ops=tuple(ops))
    drawing.part(part)
    return given._replace(name=f"{prefix}_out", kept=False)


def pre_norm_layer(drawing: Drawing, given: Feature, mix: Make, feed: Make) -> Feature:
    """Both halves of a layer, each on the norm of its input and added to it."""
    middle = drawing.add(mix(drawing.layer_norm(given)), given)
    return drawing.add(feed(drawing.layer_norm(middle)), middle)


def with_positions(drawing: Drawing, given: Feature, entries: int) -> Feature:
    """A learned table of `entries` rows added to all positions."""
    return _made(
        drawing,
        "positions",
        elementwise(
            "positions",
            given.channels,
            given.channels,
            rows=given.rows,
            parameters=entries * given.channels,
        ),
        given,
    )


def with_tokens(drawing: Drawing, given: Feature, count: int = 1, *, learned: bool = True) -> Feature:
    """`count` tokens before the positions. `learned`: they are parameters; else they came from a layer."""
    longer = given._replace(size=(prod(given.size) + count,))
    width = float(given.channels)
    added = elementwise(
        "class_token", width, width, rows=longer.rows, parameters=count * given.channels * learned
    )
    return _made(drawing, "with_tokens", added, longer)


def _made(drawing: Drawing, name: str, part: Part, like: Feature) -> Feature:
    drawing.part(join(part, tensor(name, like.channels, like.rows)))
    return like._replace(name=name, kept=False)


def as_image(given: Feature, side: int) -> Feature:
    """The positions after the class tokens as an image: a view."""
    return given._replace(size=(side, side))


def first_token(given: Feature) -> Feature:
    """The class token alone: a view, so that a layer on it keeps all of what it comes from."""
    return given._replace(size=(1,))
