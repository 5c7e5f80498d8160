"""The op graph of a model: what each op holds, computes and keeps for backward.

A graph knows no weights, batch or length. Quantities that grow with the workload are stated per
position, and an `Extent` says how many positions one sample has.
"""

from __future__ import annotations

from typing import Literal

import msgspec

ElementType = Literal["activation", "fp32", "byte", "int64"]
Split = Literal["none", "column", "row"]


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """Positions in one sample: fixed + per_token x seq_len + per_target x target_len.

    `seq_len` is the length of the (encoder or only) token sequence, `target_len` that of a second
    one (decoder of T5 or Whisper). An image model has a fixed number of positions at its image size.
    """

    fixed: float = 0.0
    per_token: float = 0.0
    per_target: float = 0.0

    def positions(self, seq_len: float = 0.0, target_len: float = 0.0) -> float:
        """The number of positions at these lengths."""
        return self.fixed + self.per_token * seq_len + self.per_target * target_len

    def scaled(self, factor: float) -> Extent:
        """The same extent, `factor` times as long."""
        return Extent(self.fixed * factor, self.per_token * factor, self.per_target * factor)


TOKENS = Extent(per_token=1.0)
TARGETS = Extent(per_target=1.0)
SAMPLE = Extent(fixed=1.0)


def fixed(positions: float) -> Extent:
    """An extent that doesn't depend on the workload's lengths."""
    return Extent(fixed=positions)


class Tensor(msgspec.Struct, frozen=True):
    """An activation that autograd may keep: `width` elements at each position of `rows`.

    `split`: tensor parallelism divides it (else only sequence parallelism does).
    `eager`: kept only where the kernels around it are not fused (plain PyTorch ops).
    In a mixture of experts, `rows` already counts the experts that a token visits.
    """

    name: str
    width: float
    rows: Extent = TOKENS
    element: ElementType = "activation"
    split: bool = False
    eager: bool = False


class Op(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """What every op has. `keeps`: names of the block's tensors that its input gradient needs;
    `keeps_for_weight`: those that only its weight gradient needs (not kept where it is frozen).
    `tied`: the parameters stand in another op and are not counted again."""

    name: str
    rows: Extent = TOKENS
    count: int = 1
    keeps: tuple[str, ...] = ()
    keeps_for_weight: tuple[str, ...] = ()
    tied: bool = False


class Matmul(Op, frozen=True, kw_only=True, tag="matmul"):
    """rows x k times k x n. `experts` > 1: that many weight copies, of which a position visits
    `experts_per_token`. `split`: how tensor parallelism cuts it (column: n, row: k).
    `quantisable`: weight quantisers take this op (embeddings and heads they leave)."""

    k: int
    n: int
    bias: bool = False
    split: Split = "none"
    experts: int = 1
    experts_per_token: float = 1.0
    quantisable: bool = True


class Convolution(Op, frozen=True, kw_only=True, tag="convolution"):
    """`rows` are output positions; `k` = in_channels / groups x kernel positions;
    `n` = out_channels; `input_elements` read per output position (stride and kernel reuse)."""

    k: int
    n: int
    groups: int = 1
    bias: bool = False
    input_elements: float = 0.0


class Attention(Op, frozen=True, kw_only=True, tag="attention"):
    """softmax(q k) v over `rows` queries and `kv_rows` keys. `window` caps the keys that a query
    sees. `cache_width`: elements per cached position and layer (0: nothing is cached).
    Eager attention keeps of each score the softmax in fp32 where it is taken so (`score_upcast`), and
    `score_copies` copies in the activations' type."""

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    kv_rows: Extent = TOKENS
    causal: bool = True
    window: int | None = None
    cache_width: int = 0
    has_bias: bool = False
    score_upcast: bool = True
    score_copies: float = 1.0


class Norm(Op, frozen=True, kw_only=True, tag="norm"):
    """Layer, RMS, batch or group normalisation over `width` elements a position."""

    style: Literal["layer", "rms", "batch", "group"]
    width: int
    weight: bool = True
    bias: bool = False


class Elementwise(Op, frozen=True, kw_only=True, tag="elementwise"):
    """Reads `reads` and writes `writes` elements a position (activation, gate, rotary, residual,
    pooling, softmax of a router). `parameters` for the odd learned scale."""

    reads: float
    writes: float
    parameters: int = 0
    split: bool = False


class Embedding(Op, frozen=True, kw_only=True, tag="embedding"):
    """A table of `entries` x `width`; each position looks up `lookups` rows of it."""

    entries: int
    width: int
    lookups: float = 1.0
    split: Split = "none"
    sharded_table: bool = False


class Scan(Op, frozen=True, kw_only=True, tag="scan"):
    """A state-space scan (Mamba 1 and 2): `inner` channels with `state` elements each.
    `state_bytes_width`: elements of recurrent state kept per sequence in inference."""

    inner: int
    state: int
    parameters: int = 0
    state_width: int = 0
    chunk: int = 256


class Loss(Op, frozen=True, kw_only=True, tag="loss"):
    """Cross-entropy (or another loss) over `classes` values a position."""

    classes: int


AnyOp = Matmul | Convolution | Attention | Norm | Elementwise | Embedding | Scan | Loss


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Ops that repeat `repeat` times with parameters of their own each time.

    `role`: input (embedding, stem), body (a layer: pipelines cut here, recompute works here) or
    output (final norm, head, loss). `boundary` names the tensor that full recompute keeps.
    `component`: the part of a composed model (transformer, vae, text_encoder); `trained` says
    whether training touches it by default; `passes`: once a sample, or once a denoising step; `runs_in`:
    the one task that computes what both hold (the encoder of an autoencoder, or its decoder).
    """

    name: str
    ops: tuple[AnyOp, ...]
    tensors: tuple[Tensor, ...] = ()
    repeat: int = 1
    role: Literal["input", "body", "output"] = "body"
    boundary: str | None = None
    component: str = ""
    trained: bool = True
    passes: Literal["once", "step"] = "step"
    runs_in: Literal["both", "train", "infer"] = "both"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model: blocks in the order of execution, and what a planner must know beside them.

    `unit`: what throughput counts (token, image, sample). `seq_len` and `target_len` are the
    lengths used where a workload names none; `max_seq_len` the longest that the model was made for.
    `precision`: the number format that it was trained in, None where the file doesn't say.
    `weight_format`: quantisation of the file (fp8, mxfp4, gptq-int4, q4_k_m, …), None if plain.
    """

    name: str
    family: str
    architecture: str
    blocks: tuple[Block, ...]
    unit: Literal["token", "image", "sample"] = "token"
    objective: Literal[
        "causal", "masked", "seq2seq", "classify", "contrastive", "detect", "denoise", "rank", "embed"
    ] = "causal"
    seq_len: int = 0
    target_len: int = 0
    max_seq_len: int | None = None
    image_size: int | None = None
    hidden: int = 0
    layers: int = 0
    vocabulary: int = 0
    precision: str | None = None
    weight_format: str | None = None
    source: str = ""
    notes: tuple[str, ...] = ()
