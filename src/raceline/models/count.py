"""Totals of a model: parameters, FLOPs, bytes of weights, of the cache and of what backward needs.

Pure functions over the op graph; `rows` gives the same per block. Attention's FLOPs count every
query with every key it may see within its window, a causal mask not taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from raceline.models.graph import (
    AnyOp,
    Attention,
    Block,
    Convolution,
    Elementwise,
    Embedding,
    Extent,
    Matmul,
    Model,
    Norm,
    Scan,
    Tensor,
)

BYTES = {
    "fp64": 8.0,
    "fp32": 4.0,
    "tf32": 4.0,
    "fp16": 2.0,
    "bf16": 2.0,
    "fp8": 1.0,
    "int8": 1.0,
    "mxfp8": 1.03125,
    "nf4": 0.5625,
    "nf4-double": 0.5158,
    "int4": 0.5625,
    "awq-int4": 0.53125,
    "gptq-int4": 0.53125,
    "mxfp4": 0.53125,
    "nvfp4": 0.5625,
}
"""Bytes an element with scales: one fp16 scale (and zero) per 128 for GPTQ and AWQ, an fp32 scale per 64
for NF4 (double quantisation: arXiv:2305.14314, section 3), one byte per 32 for the MX formats (OCP MX
specification 1.0), one fp8 scale per 16 for NVFP4."""


class BlockRow(msgspec.Struct, frozen=True, kw_only=True):
    """One block of `describe`'s table: totals over its repeats."""

    name: str
    component: str
    repeat: int
    parameters: int
    parameters_active: int
    flops: float
    saved_bytes: float
    kv_bytes_per_token: float


def op_parameters(op: AnyOp) -> int:
    """Parameters of one copy of the op; a tied op has none of its own."""
    if op.tied:
        return 0
    if isinstance(op, Matmul):
        return (op.k * op.n + (op.n if op.bias else 0)) * op.experts
    if isinstance(op, Convolution):
        return op.k * op.n + (op.n if op.bias else 0)
    if isinstance(op, Norm):
        return op.width * (int(op.weight) + int(op.bias))
    if isinstance(op, Embedding):
        return op.entries * op.width
    if isinstance(op, (Elementwise, Scan)):
        return op.parameters
    return 0


def _op_parameters_active(op: AnyOp) -> int:
    if isinstance(op, Matmul) and op.experts > 1:
        return round(op_parameters(op) / op.experts * op.experts_per_token)
    return op_parameters(op)


def _sum(blocks: Iterable[Block], value: Callable[[AnyOp], float]) -> float:
    return sum(block.repeat * sum(op.count * value(op) for op in block.ops) for block in blocks)


def parameters(model: Model) -> int:
    """All parameters, tied ones once."""
    return int(_sum(model.blocks, op_parameters))


def parameters_active(model: Model) -> int:
    """Those that one token uses: of routed experts only the ones it visits; tables count whole."""
    return int(_sum(model.blocks, _op_parameters_active))


def op_flops(op: AnyOp, seq_len: float, target_len: float) -> float:
    """Floating-point operations of one forward pass of one sample: matmuls, convolutions, attention.

    A matmul takes 2mnk; attention 2 q k (d_k + d_v) a head. A scan takes about 9 operations a
    channel and state (discretise, update, read out: arXiv:2312.00752, section 3.3)."""
    positions = op.rows.positions(seq_len, target_len)
    if isinstance(op, Matmul):
        return 2.0 * positions * op.k * op.n * op.experts_per_token
    if isinstance(op, Convolution):
        return 2.0 * positions * op.k * op.n
    if isinstance(op, Attention):
        keys = op.kv_rows.positions(seq_len, target_len)
        seen = min(keys, op.window) if op.window else keys
        return 2.0 * positions * seen * op.heads * (op.head_dim + op.value_dim)
    if isinstance(op, Scan):
        return 9.0 * positions * op.inner * op.state
    return 0.0


def lengths(model: Model, seq_len: float | None, target_len: float | None) -> tuple[float, float]:
    """The given lengths, or the model's own."""
    return (
        model.seq_len if seq_len is None else seq_len,
        model.target_len if target_len is None else target_len,
    )


def flops(
    model: Model, batch: float = 1, seq_len: float | None = None, target_len: float | None = None
) -> float:
    """FLOPs of one forward pass of `batch` samples."""
    seq, target = lengths(model, seq_len, target_len)
    return batch * _sum(model.blocks, lambda op: op_flops(op, seq, target))


def weight_bytes(model: Model, precision: str) -> float:
    """Bytes of the weights. Formats below 8 bits take the quantisable matrices, the rest stays 16-bit."""
    size = BYTES[precision]
    if size >= 1.0:
        return size * parameters(model)
    packed = _sum(model.blocks, lambda op: op.k * op.n * op.experts if _is_quantisable(op) else 0)  # type: ignore[union-attr]
    return size * packed + 2.0 * (parameters(model) - packed)


def _is_quantisable(op: AnyOp) -> bool:
    return isinstance(op, Matmul) and op.quantisable and not op.tied


def kv_bytes_per_token(model: Model, precision: str = "bf16") -> float:
    """Bytes that each cached position takes over all layers, windows not taken off."""
    return BYTES[precision] * _sum(
        model.blocks, lambda op: op.cache_width if isinstance(op, Attention) else 0
    )


def kept_tensors(block: Block, trains_weights: bool = True) -> list[Tensor]:
    """The block's tensors that autograd keeps, each once."""
    names = {name for op in block.ops for name in op.keeps}
    if trains_weights:
        names.update(name for op in block.ops for name in op.keeps_for_weight)
    return [tensor for tensor in block.tensors if tensor.name in names]


_FIXED_BYTES = {"fp32": 4.0, "byte": 1.0, "int64": 8.0}


def block_saved_bytes(
    block: Block,
    seq_len: float,
    target_len: float,
    *,
    precision: str = "bf16",
    attention: str = "flash",
    fused: bool = False,
    trains_weights: bool = True,
) -> float:
    """Bytes that one sample leaves for backward in this block, over its repeats."""
    size = BYTES[precision]
    kept = sum(
        tensor.rows.positions(seq_len, target_len) * tensor.width * _FIXED_BYTES.get(tensor.element, size)
        for tensor in kept_tensors(block, trains_weights)
        if not (tensor.eager and fused)
    )
    if attention == "eager":
        kept += sum(
            op.count * _score_bytes(op, seq_len, target_len, size)
            for op in block.ops
            if isinstance(op, Attention)
        )
    return block.repeat * kept


def _score_bytes(op: Attention, seq_len: float, target_len: float, size: float) -> float:
    """What eager attention keeps beside q, k, v and output: the softmax and its copies, and the keys and
    values repeated for every query head."""
    keys: Extent = op.kv_rows
    length = keys.positions(seq_len, target_len)
    scores = op.rows.positions(seq_len, target_len) * length * op.heads
    kinds = size * op.score_copies + (4.0 if op.score_upcast and size < 4.0 else 0.0)
    repeated = (
        length * (op.heads - op.kv_heads) * (op.head_dim + op.value_dim) if op.heads > op.kv_heads else 0.0
    )
    return scores * kinds + repeated * size


def saved_bytes(
    model: Model,
    batch: float = 1,
    seq_len: float | None = None,
    target_len: float | None = None,
    *,
    precision: str = "bf16",
    attention: str = "flash",
    fused: bool = False,
    trains_weights: bool = True,
) -> float:
    """Bytes that autograd keeps for backward of one forward pass, nothing recomputed.

    `attention`: flash (or another fused kernel) or eager; `fused`: kernels that do without the
    intermediates marked eager; `trains_weights` False: all weights frozen, gradients still flow."""
    seq, target = lengths(model, seq_len, target_len)
    return batch * sum(
        block_saved_bytes(
            block,
            seq,
            target,
            precision=precision,
            attention=attention,
            fused=fused,
            trains_weights=trains_weights,
        )
        for block in model.blocks
        if block.trained
    )


def rows(
    model: Model,
    batch: float = 1,
    seq_len: float | None = None,
    target_len: float | None = None,
    precision: str = "bf16",
) -> list[BlockRow]:
    """One row a block, in order; their sums are the model's totals."""
    seq, target = lengths(model, seq_len, target_len)
    return [
        BlockRow(
            name=block.name,
            component=block.component,
            repeat=block.repeat,
            parameters=int(_sum([block], op_parameters)),
            parameters_active=int(_sum([block], _op_parameters_active)),
            flops=batch * _sum([block], lambda op: op_flops(op, seq, target)),
            saved_bytes=batch * block_saved_bytes(block, seq, target, precision=precision) * block.trained,
            kv_bytes_per_token=BYTES[precision]
            * _sum([block], lambda op: op.cache_width if isinstance(op, Attention) else 0),
        )
        for block in model.blocks
    ]
