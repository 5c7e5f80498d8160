"""A mixture of experts: router, routed experts, shared experts."""

from __future__ import annotations

import msgspec

from raceline.models.families.layers import (
    LLAMA_MLP,
    MlpNames,
    Part,
    elementwise,
    gate,
    join,
    linear,
    mlp,
    tensor,
)
from raceline.models.graph import TOKENS, Extent, Matmul


class Experts(msgspec.Struct, frozen=True, kw_only=True):
    """`count` experts of inner width `inner`, of which a token visits `visited`; beside them a shared
    network of inner width `shared`, with a gate of its own in some models. `scales_input`: the
    router's weight is applied before the expert (Llama 4), else after it."""

    count: int
    visited: int
    inner: int
    shared: int = 0
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    gated: bool = True
    activation: str = "silu"
    scales_input: bool = False


def experts(given: str, out: str, width: int, spec: Experts, rows: Extent = TOKENS) -> Part:
    """Router, dispatch, the routed experts (rows grow by the experts visited), and the weighted sum."""
    visits = rows.scaled(spec.visited)
    return join(
        _router(given, width, spec, rows),
        elementwise("dispatch", width, width, keeps=(), rows=visits),
        tensor("expert_input", width, visits),
        _routed(width, spec, rows, visits),
        elementwise(
            "combine",
            2.0 * width,
            width,
            rows=visits,
            keeps=("expert_input",) if spec.scales_input else ("expert_out", "expert_weighted"),
        ),
        # the sum over a token's experts keeps its addends, for their shape alone
        tensor("expert_weighted", width, visits, eager=True),
        tensor("expert_out", width, visits),
        _shared(given, width, spec, rows) if spec.shared else None,
        tensor(out, width, rows),
    )


def _router(given: str, width: int, spec: Experts, rows: Extent) -> Part:
    return join(
        linear("router", given, width, spec.count, rows=rows, bias=spec.router_bias, quantisable=False),
        elementwise("routing", 2.0 * spec.count, spec.visited, keeps=("router_probabilities",), rows=rows),
        tensor("router_probabilities", spec.count, rows, "fp32"),
    )


def _routed(width: int, spec: Experts, rows: Extent, visits: Extent) -> Part:
    sides = ("gate", "up") if spec.gated else ("up",)
    projections = [
        _matmul(f"experts.{side}_proj", "expert_input", width, spec.inner, spec, rows) for side in sides
    ]
    made = [tensor(f"expert_{side}", spec.inner, visits, split=True) for side in sides]
    if spec.gated:
        between = gate(spec.activation, "expert", spec.inner, visits)
    else:
        between = join(
            elementwise(
                "expert_activation", spec.inner, spec.inner, keeps=("expert_up",), rows=visits, split=True
            ),
            tensor("expert_hidden", spec.inner, visits, split=True),
        )
    down = _matmul("experts.down_proj", "expert_hidden", spec.inner, width, spec, rows, row=True)
    return join(*projections, *made, between, down)


def _matmul(name: str, given: str, k: int, n: int, spec: Experts, rows: Extent, row: bool = False) -> Part:
    op = Matmul(
        name=name,
        rows=rows,
        k=k,
        n=n,
        bias=spec.bias,
        split="row" if row else "column",
        experts=spec.count,
        experts_per_token=float(spec.visited),
        keeps_for_weight=(given,),
    )
    return Part((op,))


def _shared(given: str, width: int, spec: Experts, rows: Extent) -> Part:
    names = MlpNames("shared_expert.up_proj", "shared_expert.down_proj", "shared_expert.gate_proj")
    network = mlp(
        given,
        width,
        spec.shared,
        rows=rows,
        names=names if spec.gated else LLAMA_MLP,
        prefix="shared",
        out="shared_out",
        activation_kind=spec.activation,
        gated=spec.gated,
    )
    if not spec.shared_gate:
        return network
    return join(
        network,
        linear("shared_expert_gate", given, width, 1, rows=rows, quantisable=False),
        elementwise("shared_gating", width + 1.0, width, keeps=("shared_out", "shared_weight"), rows=rows),
        tensor("shared_weight", 1, rows),
    )
