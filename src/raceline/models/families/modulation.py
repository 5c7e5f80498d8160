"""Adaptive layer norm: scale, shift and gate taken from the step's embedding (arXiv:2212.09748, section 3.2).

The layer norm itself has no weights. Since scale and gate depend on weights, their products keep both sides.
"""

from __future__ import annotations

from raceline.models.families.layers import Part, elementwise, join, linear, tensor
from raceline.models.graph import SAMPLE, Extent, Norm


def modulation(prefix: str, width: int, factors: int, given: int | None = None) -> Part:
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
            bias=True,
            out=f"{prefix}_factors",
        ),
    )


def modulated(prefix: str, given: str, out: str, width: int, rows: Extent, *, by: str = "") -> Part:
    """Layer norm without weights, scaled and shifted. `by`: the prefix of the modulation, if another one."""
    normed, statistics = f"{prefix}_normed", f"{prefix}_statistics"
    op = Norm(
        name=f"{prefix}_norm", rows=rows, style="layer", width=width, weight=False, keeps=(given, statistics)
    )
    return join(
        Part((op,)),
        tensor(statistics, 2.0, rows, "fp32"),
        tensor(normed, width, rows),
        elementwise(f"{prefix}_modulate", width, width, rows=rows, keeps=(normed, f"{by or prefix}_factors")),
        tensor(out, width, rows),
    )


def gated(given: str, by: str, width: int, rows: Extent) -> Part:
    """A branch times its gate."""
    return elementwise(f"{given}_gate", width, width, rows=rows, keeps=(given, f"{by}_factors"))
