"""Adaptive layer norm: scale, shift and gate taken from the step's embedding (arXiv:2212.09748, section 3.2).

Most often the layer norm itself has no weights. Scale and gate depend on weights, so that their products
keep both sides.
"""

from __future__ import annotations

from raceline.models.families.layers import Part, elementwise, join, linear, norm, tensor
from raceline.models.graph import SAMPLE, Extent, Norm


def modulation(prefix: str, width: int, factors: int, given: int | None = None, *, bias: bool = True) -> Part:
    """`factors` vectors of `width` for each sample, from SiLU of the step's embedding."""
    given = given or width
    return join(
        elementwise(f"{prefix}_time_silu", given, given, rows=SAMPLE),
        tensor(f"{prefix}_time_hidden", given, SAMPLE),
        linear(
            f"{prefix}_modulation",
            f"{prefix}_time_hidden",
            given,
            factors * width,
            rows=SAMPLE,
            bias=bias,
            out=f"{prefix}_factors",
        ),
    )


def learned_offset(prefix: str, width: int, factors: int) -> Part:
    """Scale, shift and gate as the sum of those that all layers share and a learned table."""
    size = factors * width
    return join(
        elementwise(f"{prefix}_table", size, size, rows=SAMPLE, parameters=size),
        tensor(f"{prefix}_factors", size, SAMPLE),
    )


def modulated(
    prefix: str,
    given: str,
    out: str,
    width: int,
    rows: Extent,
    *,
    by: str = "",
    has_weights: bool = False,
    in_fp32: bool = False,
) -> Part:
    """Layer norm, scaled and shifted. `by`: the prefix of the modulation, if another one. `in_fp32`: what is
    kept of the input and of the norm is a copy of four bytes an element."""
    normed, statistics, upcast = f"{prefix}_normed", f"{prefix}_statistics", f"{prefix}_upcast"
    op = Norm(
        name=f"{prefix}_norm",
        rows=rows,
        style="layer",
        width=width,
        weight=has_weights,
        bias=has_weights,
        keeps=(given, statistics, *((upcast,) if in_fp32 else ())),
    )
    return join(
        Part((op,)),
        tensor(statistics, 2.0, rows, "fp32"),
        tensor(upcast, width / 2, rows, "fp32", eager=True) if in_fp32 else None,
        tensor(normed, width, rows, "fp32" if in_fp32 else "activation"),
        elementwise(f"{prefix}_modulate", width, width, rows=rows, keeps=(normed, f"{by or prefix}_factors")),
        tensor(out, width, rows),
    )


def scaled(
    prefix: str, given: str, out: str, width: int, rows: Extent, *, kind: str = "rms_t5", by: str = ""
) -> Part:
    """A norm of any kind, then scale and shift. `by`: the prefix of the modulation, if another one."""
    normed = f"{prefix}_normed"
    return join(
        norm(f"{prefix}_norm", given, normed, width, kind=kind, rows=rows),
        elementwise(f"{prefix}_modulate", width, width, rows=rows, keeps=(normed, f"{by or prefix}_factors")),
        tensor(out, width, rows),
    )


def gated(given: str, by: str, width: int, rows: Extent) -> Part:
    """A branch times its gate."""
    return elementwise(f"{given}_gate", width, width, rows=rows, keeps=(given, f"{by}_factors"))
