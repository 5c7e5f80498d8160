"""Op builders that text and image families share: linear, normalisation, attention, MLP, experts.

Each returns a `Part`: ops and the tensors that they may keep. A tensor is named by the part that
makes it; ops name what they keep, so a tensor that nobody keeps costs nothing. What is kept follows
the eager PyTorch modules of transformers and timm; `eager` marks what fused kernels do without.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from raceline.models.graph import (
    TOKENS,
    AnyOp,
    Attention,
    Block,
    ElementType,
    Elementwise,
    Extent,
    Matmul,
    Norm,
    Split,
    Tensor,
)


class Part(NamedTuple):
    """Ops in order and the tensors they make."""

    ops: tuple[AnyOp, ...] = ()
    tensors: tuple[Tensor, ...] = ()


def join(*parts: Part | None) -> Part:
    """Parts one after the other; None stands for a part that this model lacks."""
    there = [part for part in parts if part is not None]
    return Part(
        tuple(op for part in there for op in part.ops),
        tuple(tensor for part in there for tensor in part.tensors),
    )


def block(name: str, *parts: Part | None, **rest: object) -> Block:
    """A Block of these parts; `rest` are Block's own fields."""
    whole = join(*parts)
    return Block(name=name, ops=whole.ops, tensors=whole.tensors, **rest)  # type: ignore[arg-type]


def tensor(
    name: str,
    width: float,
    rows: Extent = TOKENS,
    element: ElementType = "activation",
    split: bool = False,
    eager: bool = False,
) -> Part:
    """A tensor alone."""
    return Part((), (Tensor(name, width, rows, element, split, eager),))


def linear(
    name: str,
    given: str,
    k: int,
    n: int,
    *,
    out: str = "",
    rows: Extent = TOKENS,
    bias: bool = False,
    split: Split = "none",
    quantisable: bool = True,
    tied: bool = False,
) -> Part:
    """A projection of `given` (kept for the weight's gradient only) from k to n."""
    op = Matmul(
        name=name,
        rows=rows,
        k=k,
        n=n,
        bias=bias,
        split=split,
        quantisable=quantisable,
        tied=tied,
        keeps_for_weight=(given,),
    )
    return join(Part((op,)), tensor(out, n, rows, split=split == "column") if out else None)


class NormKind(NamedTuple):
    """How a normalisation is written. `upcasts`: fp32 elements kept per element of its input, beyond the
    input itself: half a one where a single fp32 copy stands
    in its place: two bytes more than the 16-bit input that a fused kernel keeps. `hat`: the
    element type of the normalised input, kept for the weight's gradient; None where one kernel does it."""

    style: Literal["layer", "rms"]
    upcasts: float = 0.0
    hat: ElementType | None = None
    bias: bool = False


NORMS: dict[str, NormKind] = {
    "layer": NormKind("layer", bias=True),
    "layer_no_bias": NormKind("layer"),
    "layer_fp32": NormKind("layer", upcasts=1.5, hat="fp32"),
    "layer_plain": NormKind("layer", upcasts=0.5),
    "layer_fp32_whole": NormKind("layer", upcasts=0.5, bias=True),
    "rms": NormKind("rms", upcasts=0.5, hat="activation"),
    "rms_fp32": NormKind("rms", upcasts=0.5, hat="fp32"),
    "rms_gemma": NormKind("rms", upcasts=0.5, hat="fp32"),
    "rms_t5": NormKind("rms", upcasts=1.0, hat="activation"),
    "rms_plain": NormKind("rms", upcasts=1.0),
}


def norm(
    name: str,
    given: str,
    out: str,
    width: int,
    *,
    kind: str = "layer",
    rows: Extent = TOKENS,
    per_position: int = 1,
    split: bool = False,
) -> Part:
    """Normalise `given` over `width` elements into `out`. `per_position` groups of them stand at each
    position (heads) and share the weights: rows grow so, the parameters do not."""
    spec = NORMS[kind]
    whole = float(width * per_position)
    statistics = 2.0 if spec.style == "layer" else 1.0
    keeps = [given, f"{out}_statistics"]
    tensors = [tensor(f"{out}_statistics", statistics * per_position, rows, "fp32", split)]
    if spec.upcasts:
        keeps.append(f"{out}_upcast")
        tensors.append(tensor(f"{out}_upcast", whole * spec.upcasts, rows, "fp32", split, eager=True))
    if spec.hat:
        tensors.append(tensor(f"{out}_hat", whole, rows, spec.hat, split, eager=True))
    op = Norm(
        name=name,
        rows=rows.scaled(per_position),
        style=spec.style,
        width=width,
        weight=not kind.endswith("_plain"),
        bias=spec.bias,
        keeps=tuple(keeps),
        keeps_for_weight=(f"{out}_hat",) if spec.hat else (),
    )
    return join(Part((op,)), *tensors, tensor(out, whole, rows, split=split))


def elementwise(
    name: str,
    reads: float,
    writes: float,
    *,
    keeps: tuple[str, ...] = (),
    keeps_for_weight: tuple[str, ...] = (),
    rows: Extent = TOKENS,
    split: bool = False,
    parameters: int = 0,
) -> Part:
    """Memory traffic of `reads` + `writes` elements a position."""
    return Part(
        (
            Elementwise(
                name=name,
                rows=rows,
                reads=reads,
                writes=writes,
                keeps=keeps,
                split=split,
                keeps_for_weight=keeps_for_weight,
                parameters=parameters,
            ),
        )
    )


def residual(name: str, width: int, out: str, rows: Extent = TOKENS) -> Part:
    """The residual stream after an addition, as tensor `out`."""
    return join(elementwise(name, 2.0 * width, width, rows=rows), tensor(out, width, rows))


def dropout(name: str, width: int, probability: float, rows: Extent = TOKENS) -> Part | None:
    """Dropout keeps a mask of one byte an element; none at probability zero."""
    if not probability:
        return None
    return join(
        elementwise(name, width, width, keeps=(f"{name}_mask",), rows=rows),
        tensor(f"{name}_mask", width, rows, "byte"),
    )


# How many more tensors of the inner width an activation keeps when it is written in plain ops.
EAGER_EXTRAS = {"gelu_new": 3, "gelu_fast": 6, "quick_gelu": 1, "relu2": 0, "clamped_swiglu": 3}


def activation(
    kind: str, prefix: str, inner: int, rows: Extent = TOKENS, given: str = "", split: bool = True
) -> Part:
    """The nonlinearity from `given` to `{prefix}_hidden`. ReLU's gradient needs its output, which the
    next projection keeps anyway; others need their input."""
    given = given or f"{prefix}_up"
    extras = EAGER_EXTRAS.get(kind, 0)
    keeps = (f"{prefix}_hidden",) if kind == "relu" else (given, *((f"{prefix}_inner",) if extras else ()))
    return join(
        elementwise(f"{prefix}_activation", inner, inner, keeps=keeps, rows=rows, split=split),
        tensor(f"{prefix}_inner", extras * inner, rows, split=split, eager=True) if extras else None,
        tensor(f"{prefix}_hidden", inner, rows, split=split),
    )


def gate(kind: str, prefix: str, inner: int, rows: Extent = TOKENS, split: bool = True) -> Part:
    """act(gate) * up. A fused kernel keeps gate and up and computes the rest again."""
    extras = EAGER_EXTRAS.get(kind, 0)
    keeps = [f"{prefix}_gate", f"{prefix}_up", f"{prefix}_activated"]
    return join(
        elementwise(f"{prefix}_activation", 2.0 * inner, inner, keeps=tuple(keeps), rows=rows, split=split),
        tensor(f"{prefix}_activated", (1 + extras) * inner, rows, split=split, eager=True),
        tensor(f"{prefix}_hidden", inner, rows, split=split),
    )


class MlpNames(NamedTuple):
    """Module names in the framework, which adapters target. `gate` empty: gate and up in one matrix."""

    up: str = "up_proj"
    down: str = "down_proj"
    gate: str = "gate_proj"


LLAMA_MLP = MlpNames()


def mlp(
    given: str,
    width: int,
    inner: int,
    *,
    activation_kind: str = "silu",
    gated: bool = True,
    bias: bool = False,
    rows: Extent = TOKENS,
    names: MlpNames = LLAMA_MLP,
    prefix: str = "mlp",
    out: str = "mlp_out",
    out_width: int | None = None,
) -> Part:
    """A feed-forward network: two projections, or three with a gate."""
    down = linear(
        names.down, f"{prefix}_hidden", inner, out_width or width, rows=rows, bias=bias, split="row", out=out
    )
    if not gated:
        up = linear(names.up, given, width, inner, rows=rows, bias=bias, split="column", out=f"{prefix}_up")
        return join(up, activation(activation_kind, prefix, inner, rows), down)
    if names.gate:
        both = join(
            linear(names.gate, given, width, inner, rows=rows, bias=bias, split="column"),
            linear(names.up, given, width, inner, rows=rows, bias=bias, split="column"),
        )
    else:
        both = linear(names.up, given, width, 2 * inner, rows=rows, bias=bias, split="column")
    made = [tensor(f"{prefix}_{side}", inner, rows, split=True) for side in ("gate", "up")]
    return join(both, *made, gate(activation_kind, prefix, inner, rows), down)


class Heads(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of attention. `value_dim` None: as `dim`. `cache_width`: elements cached per position
    (None: keys and values of all heads). `qk_norm`: per head, over the full width, or none."""

    query: int
    kv: int
    dim: int
    value_dim: int | None = None
    window: int | None = None
    causal: bool = True
    rotary: bool = True
    has_bias: bool = False
    cache_width: int | None = None
    qk_norm: str | None = None
    norm_kind: str = "rms"
    score_upcast: bool = True
    score_copies: float = 1.0


class AttentionNames(NamedTuple):
    """Module names, which adapters target. `fused`: one matrix for q, k and v."""

    q: str = "q_proj"
    k: str = "k_proj"
    v: str = "v_proj"
    out: str = "o_proj"
    fused: str = ""


LLAMA_ATTENTION = AttentionNames()


def attention(
    given: str,
    width: int,
    heads: Heads,
    *,
    rows: Extent = TOKENS,
    memory: str = "",
    memory_width: int | None = None,
    memory_rows: Extent | None = None,
    bias: tuple[bool, bool, bool, bool] = (False, False, False, False),
    names: AttentionNames = LLAMA_ATTENTION,
    prefix: str = "attention",
    out: str = "attention_out",
) -> Part:
    """Projections, rotary positions, attention and the output projection. `memory`: the other
    sequence of cross-attention, where keys and values come from. `bias`: of q, k, v and output."""
    kv_rows = memory_rows or rows
    value_dim = heads.value_dim or heads.dim
    q, k, v = heads.query * heads.dim, heads.kv * heads.dim, heads.kv * value_dim
    inner = heads.query * value_dim
    if names.fused:
        projections = join(
            linear(names.fused, given, width, q + k + v, rows=rows, bias=bias[0], split="column"),
            # the rotated q and k are new tensors, while v is a view that holds all three
            tensor(f"{prefix}_qkv", q + k, rows, split=True, eager=True) if heads.rotary else None,
        )
    else:
        source, source_width = memory or given, memory_width or width
        projections = join(
            linear(names.q, given, width, q, rows=rows, bias=bias[0], split="column"),
            linear(names.k, source, source_width, k, rows=kv_rows, bias=bias[1], split="column"),
            linear(names.v, source, source_width, v, rows=kv_rows, bias=bias[2], split="column"),
        )
    cached = heads.cache_width if heads.cache_width is not None else (k + v if heads.causal else 0)
    core = attend(
        heads, rows, kv_rows, prefix, cached, extra=(f"{prefix}_qkv",) if names.fused and heads.rotary else ()
    )
    return join(
        projections,
        _qk_norm(heads, rows, kv_rows, prefix),
        elementwise(f"{prefix}_rotary", q + k, q + k, rows=rows, split=True) if heads.rotary else None,
        core,
        linear(names.out, f"{prefix}_core", inner, width, rows=rows, bias=bias[3], split="row", out=out),
    )


def attend(
    heads: Heads,
    rows: Extent,
    kv_rows: Extent,
    prefix: str = "attention",
    cached: int = 0,
    extra: tuple[str, ...] = (),
) -> Part:
    """softmax(q k) v. A fused kernel keeps q, k, v, its output and the log of the softmax's sum; what
    eager attention keeps of the scores follows from the op itself."""
    value_dim = heads.value_dim or heads.dim
    keeps = tuple(f"{prefix}_{name}" for name in ("q", "k", "v", "core", "logsumexp"))
    op = Attention(
        name=prefix,
        rows=rows,
        kv_rows=kv_rows,
        heads=heads.query,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=value_dim,
        causal=heads.causal,
        window=heads.window,
        cache_width=cached,
        has_bias=heads.has_bias,
        keeps=keeps + extra,
        score_upcast=heads.score_upcast,
        score_copies=heads.score_copies,
    )
    return join(
        tensor(f"{prefix}_q", heads.query * heads.dim, rows, split=True),
        tensor(f"{prefix}_k", heads.kv * heads.dim, kv_rows, split=True),
        tensor(f"{prefix}_v", heads.kv * value_dim, kv_rows, split=True),
        Part((op,)),
        tensor(f"{prefix}_core", heads.query * value_dim, rows, split=True),
        tensor(f"{prefix}_logsumexp", heads.query, rows, "fp32", split=True),
    )


def _qk_norm(heads: Heads, rows: Extent, kv_rows: Extent, prefix: str) -> Part | None:
    """Normalised queries and keys: their inputs stay for the norm's gradient."""
    if not heads.qk_norm:
        return None
    parts = []
    for side, count, at in (("q", heads.query, rows), ("k", heads.kv, kv_rows)):
        width, groups = (heads.dim, count) if heads.qk_norm == "head" else (heads.dim * count, 1)
        raw = f"{prefix}_{side}_raw"
        parts += [
            tensor(raw, heads.dim * count, at, split=True),
            norm(
                f"{side}_norm",
                raw,
                f"{prefix}_{side}_normed",
                width,
                kind=heads.norm_kind,
                rows=at,
                per_position=groups,
                split=True,
            ),
        ]
    return join(*parts)
