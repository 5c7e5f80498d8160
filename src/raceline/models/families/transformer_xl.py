"""Transformer-XL (arXiv:1901.02860): a decoder that also sees the segment before, with relative positions
and an adaptive softmax (arXiv:1609.04309).

Scores of contents and of positions are computed apart over twice the segment's length, without a
fused kernel. The head's first cluster is computed for every token, a rarer cluster for its own tokens.
"""

from __future__ import annotations

import msgspec

from raceline.models.families import decoder
from raceline.models.fields import Fields
from raceline.models.graph import AnyOp, Attention, Block, Extent, Loss, Matmul, Model, Tensor

# Keys over queries: the memory is as long as the segment (https://github.com/NVIDIA/DeepLearningExamples, wt103).
_SEEN = Extent(per_token=2.0)
# Where the vocabulary is cut, and the share of WikiText-103's tokens in each cluster after the first.
_CUTOFFS, _SHARES = (20_000, 40_000, 200_000), (0.03, 0.04, 0.005)
_LEAST_VOCABULARY = 200_001


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The decoder with its attention and head replaced."""
    model = decoder.build(fields, image_size)
    is_adaptive = model.vocabulary >= _LEAST_VOCABULARY
    blocks = tuple(
        _body(block) if block.role == "body" else _output(block, model.vocabulary) if is_adaptive else block
        for block in model.blocks
    )
    return msgspec.structs.replace(model, blocks=blocks)


def _body(block: Block) -> Block:
    ops: list[AnyOp] = []
    for op in block.ops:
        if isinstance(op, Attention):
            wide = msgspec.structs.replace(op, kv_rows=_SEEN, causal=False)
            ops += [wide, msgspec.structs.replace(wide, name="positions", value_dim=0, cache_width=0)]
        else:
            ops.append(op)
    return msgspec.structs.replace(block, ops=tuple(ops))


def _output(block: Block, vocabulary: int) -> Block:
    """The head as clusters: equal parameters, fewer logits."""
    first = _CUTOFFS[0] + len(_SHARES)
    ops: list[AnyOp] = []
    for op in block.ops:
        if isinstance(op, Matmul) and op.n == vocabulary:
            ops += _clusters(op, vocabulary)
        elif isinstance(op, Loss):
            ops.append(msgspec.structs.replace(op, classes=first))
        else:
            ops.append(op)
    return msgspec.structs.replace(
        block, ops=tuple(ops), tensors=tuple(_narrowed(tensor, vocabulary, first) for tensor in block.tensors)
    )


def _clusters(head: Matmul, vocabulary: int) -> list[AnyOp]:
    ends = (*_CUTOFFS[1:], vocabulary)
    tails = [
        msgspec.structs.replace(
            head, name=f"{head.name}_{index}", n=end - start, rows=head.rows.scaled(share), keeps=()
        )
        for index, (start, end, share) in enumerate(zip(_CUTOFFS, ends, _SHARES, strict=True), 1)
    ]
    return [msgspec.structs.replace(head, n=_CUTOFFS[0] + len(_SHARES)), *tails]


def _narrowed(tensor: Tensor, vocabulary: int, width: int) -> Tensor:
    return msgspec.structs.replace(tensor, width=float(width)) if tensor.width == vocabulary else tensor
