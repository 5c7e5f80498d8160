"""Linear attention and gated convolutions, as Sana has them (arXiv:2410.10629, section 3)."""

from __future__ import annotations

from raceline.models.families.layers import (
    AttentionNames,
    Heads,
    Part,
    elementwise,
    join,
    linear,
    norm,
    tensor,
)
from raceline.models.graph import Attention, Convolution, Extent, fixed


def linear_attention(
    given: str, width: int, heads: Heads, rows: Extent, *, bias: bool, names: AttentionNames
) -> Part:
    """relu(q) (relu(k) v) in fp32: no position meets another one, so that keys stand for as many
    positions as a head is wide, and one more for the sum that divides (half a one beside rotary positions)."""
    inner, dim = heads.query * heads.dim, heads.dim
    op = Attention(
        name="attention",
        rows=rows,
        kv_rows=fixed(dim + (0.5 if heads.rotary else 1.0)),
        heads=heads.query,
        kv_heads=heads.query,
        head_dim=dim,
        value_dim=dim,
        causal=False,
        score_upcast=False,
        keeps=("attention_q", "attention_k", "attention_v", "attention_sum"),
    )
    return join(
        *[
            linear(name, given, width, inner, rows=rows, bias=bias, split="column")
            for name in (names.q, names.k, names.v)
        ],
        *(_normed(heads, rows, side) for side in "qk" if heads.qk_norm),
        elementwise(
            "attention_relu", 2.0 * inner, 2.0 * inner, rows=rows, keeps=("attention_relu",), split=True
        ),
        tensor("attention_relu", 2.0 * inner, rows, split=True),
        elementwise("attention_rotary", 2.0 * inner, 2.0 * inner, rows=rows, split=True)
        if heads.rotary
        else None,
        *[tensor(f"attention_{part}", inner, rows, "fp32", split=True) for part in ("q", "k", "v", "sum")],
        Part((op,)),
        tensor("attention_core", inner, rows, split=True),
        linear(
            names.out, "attention_core", inner, width, rows=rows, bias=True, split="row", out="attention_out"
        ),
    )


def _normed(heads: Heads, rows: Extent, side: str) -> Part:
    inner, raw = heads.query * heads.dim, f"attention_{side}_raw"
    return join(
        tensor(raw, inner, rows, split=True),
        norm(f"{side}_norm", raw, f"{raw}_normed", inner, kind=heads.norm_kind, rows=rows, split=True),
    )


def glu_convolutions(given: str, width: int, inner: int, rows: Extent, *, over_time: bool) -> Part:
    """A widening convolution, one over 3 x 3 places for each channel, a gate, and one back; `over_time`: and
    one over three frames, added to its input."""
    both = 2 * inner
    return join(
        _convolution("conv_inverted", given, width, both, rows, out="mlp_up"),
        elementwise("mlp_silu", both, both, rows=rows, keeps=("mlp_up",)),
        tensor("mlp_widened", both, rows),
        _convolution("conv_depth", "mlp_widened", 9, both, rows, groups=both, out="mlp_gate"),
        elementwise("mlp_activation", both, inner, rows=rows, keeps=("mlp_gate", "mlp_activated")),
        tensor("mlp_activated", inner, rows, eager=True),
        tensor("mlp_hidden", inner, rows),
        _convolution("conv_point", "mlp_hidden", inner, width, rows, bias=False, out="mlp_out"),
        _convolution("conv_temp", "mlp_out", 3 * width, width, rows, bias=False) if over_time else None,
    )


def _convolution(
    name: str, given: str, k: int, n: int, rows: Extent, *, groups: int = 1, bias: bool = True, out: str = ""
) -> Part:
    read = float(n if groups > 1 else k)
    op = Convolution(
        name=name,
        rows=rows,
        k=k,
        n=n,
        groups=groups,
        bias=bias,
        input_elements=read,
        keeps_for_weight=(given,),
    )
    return join(Part((op,)), tensor(out, n, rows) if out else None)
