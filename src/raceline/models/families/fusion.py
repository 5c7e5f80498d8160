"""The temporal fusion transformer (arXiv:1912.09363), which forecasts a series from its past and known future.

Fields are those of NVIDIA's DeepLearningExamples (PyTorch/Forecasting/TFT): `hidden_size`, `n_head`,
`encoder_length`, `example_length`, `static_entries`, `known`, `observed` (variables a step; the target is observed),
`quantiles`, `dropout`. The LSTM's steps follow one another: each is a kernel of one row.
"""

from __future__ import annotations

from raceline.models.families.layers import (
    Heads,
    Part,
    attend,
    block,
    elementwise,
    join,
    linear,
    norm,
    residual,
    tensor,
)
from raceline.models.families.transformer import describe, embedding, loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Elementwise, Extent, Matmul, Model, fixed

_LONGEST, _WIDEST = 100_000, 65_536
# Vectors that the static variable gives: for selection, for the LSTM's two states and for enrichment.
CONTEXTS = 4


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The temporal fusion transformer."""
    hidden = fields.integer("hidden_size", default=128, maximum=_WIDEST)
    past = fields.integer("encoder_length", default=168, maximum=_LONGEST)
    steps = fields.integer("example_length", default=192, maximum=_LONGEST)
    known = fields.integer("known", default=3, maximum=1000)
    observed = fields.integer("observed", default=1, maximum=1000)
    quantiles = fields.integer("quantiles", default=3, maximum=1000)
    ahead, whole = fixed(max(1, steps - past)), fixed(steps)
    output = block(
        "output", tensor("given", hidden, ahead),
        linear("quantile_proj", "given", hidden, quantiles, rows=ahead, bias=True),
        loss(quantiles, ahead), role="output",
    )  # fmt: skip
    blocks = [
        _static(hidden, fields.integer("static_entries", default=1, maximum=100_000_000)),
        _selection("history", hidden, known + observed, fixed(past)),
        _selection("future", hidden, known, ahead),
        _recurrent("encoder", hidden, past),
        _recurrent("decoder", hidden, max(1, steps - past)),
        _enrichment(hidden, whole),
        _attention(hidden, fields.integer("n_head", default=4, maximum=1000), whole, ahead),
        _closing(hidden, ahead),
        output,
    ]
    return describe(
        fields, "fusion", blocks, objective="classify", unit="sample", seq_len=steps, hidden=hidden,
        layers=len(blocks), vocabulary=quantiles,
    )  # fmt: skip


def _gated(name: str, given: str, width: int, rows: Extent) -> Part:
    """A gated linear unit, the residual and its norm."""
    return join(
        linear(f"{name}_gate", given, width, 2 * width, rows=rows, bias=True),
        tensor(f"{name}_halves", 2.0 * width, rows),
        elementwise(f"{name}_glu", 2.0 * width, width, keeps=(f"{name}_halves",), rows=rows),
        residual(f"{name}_add", width, f"{name}_sum", rows),
        norm(f"{name}_norm", f"{name}_sum", f"{name}_out", width, rows=rows),
    )


def _residual_network(name: str, given: str, before: int, width: int, out: int, rows: Extent) -> Part:
    """A gated residual network from `before` to `out`, by `width` hidden units."""
    skips = linear(f"{name}_skip", given, before, out, rows=rows, bias=True) if before != out else None
    return join(
        skips,
        linear(f"{name}_a", given, before, width, rows=rows, bias=True),
        tensor(f"{name}_hidden", width, rows),
        elementwise(f"{name}_elu", width, width, keeps=(f"{name}_hidden",), rows=rows),
        linear(f"{name}_i", f"{name}_hidden", width, out, rows=rows, bias=True),
        tensor(f"{name}_made", out, rows),
        _gated(name, f"{name}_made", out, rows),
    )


def _static(hidden: int, entries: int) -> Block:
    parts = [embedding("static", entries, hidden, rows=SAMPLE, split=False), tensor("given", hidden, SAMPLE)]
    parts += [
        _residual_network(f"context{i}", "given", hidden, hidden, hidden, SAMPLE) for i in range(CONTEXTS)
    ]
    return block("static", *parts, role="input")


def _selection(name: str, hidden: int, variables: int, rows: Extent) -> Block:
    """Embeds `variables` numbers a step and weighs them."""
    joined = variables * hidden
    parts = [
        elementwise("embed", variables, joined, rows=rows, parameters=2 * joined),
        tensor("given", joined, rows),
        _residual_network("weights", "given", joined, hidden, variables, rows),
        linear("context", "", hidden, hidden, rows=SAMPLE),
        *(_residual_network(f"var{i}", "", hidden, hidden, hidden, rows) for i in range(variables)),
        elementwise("weigh", 2.0 * joined, hidden, rows=rows),
        tensor("selected", hidden, rows),
    ]
    return block(name, *parts, role="input")


def _recurrent(name: str, hidden: int, steps: int) -> Block:
    """An LSTM: the input of all steps at once, the state's part one step after the other."""
    rows = fixed(steps)
    state = Matmul(
        name="weight_hh", rows=SAMPLE, k=hidden, n=4 * hidden, bias=True, keeps_for_weight=("states",)
    )
    later = Matmul(
        name="weight_hh_next",
        rows=SAMPLE,
        k=hidden,
        n=4 * hidden,
        bias=True,
        tied=True,
        count=max(1, steps - 1),
    )
    gates = Elementwise(name="gates", rows=SAMPLE, reads=9.0 * hidden, writes=6.0 * hidden, count=steps)
    parts = (
        linear("weight_ih", "given", hidden, 4 * hidden, rows=rows, bias=True),
        Part((state, later, gates)),
    )
    return block(
        name, tensor("given", hidden, rows), *parts, tensor("states", hidden, rows),
        tensor("gates", 5.0 * hidden, rows),
    )  # fmt: skip


def _enrichment(hidden: int, rows: Extent) -> Block:
    enrich = _residual_network("enrichment", "gate_out", hidden, hidden, hidden, rows)
    return block("enrichment", tensor("given", hidden, rows), _gated("gate", "given", hidden, rows), enrich)


def _attention(hidden: int, count: int, rows: Extent, ahead: Extent) -> Block:
    """Heads with a value in common, averaged."""
    width = max(1, hidden // count)
    heads = Heads(query=count, kv=count, dim=width)
    fused = linear("qkv", "given", hidden, (2 * count + 1) * width, rows=rows)
    return block(
        "attention", tensor("given", hidden, rows), fused, attend(heads, rows, rows),
        linear("out_proj", "averaged", width, hidden, rows=rows), tensor("averaged", width, rows),
        _gated("attended", "", hidden, ahead),
    )  # fmt: skip


def _closing(hidden: int, rows: Extent) -> Block:
    network = _residual_network("positionwise", "given", hidden, hidden, hidden, rows)
    return block("closing", tensor("given", hidden, rows), network, _gated("last", "", hidden, rows))
