"""Printed TFLOPs as tokens per second, by the count of work that the source says it used."""

from __future__ import annotations

from functools import cache
from typing import Literal

from raceline.models import count, read
from raceline.models.graph import Attention, Model

# What a source's model FLOPs count of attention: all scores, the causal half, or nothing of it.
Convention = Literal["full", "causal", "weights"]
_SHARE: dict[Convention, float] = {"full": 1.0, "causal": 0.5, "weights": 0.0}
PASSES = 3.0  # forward, and twice that in backward; recomputed work isn't counted


def tokens_per_s(tflops: float, model: str, seq_len: int, convention: Convention) -> float:
    """Tokens per second of a device that does `tflops` (10^12 FLOP/s) of a model's own work."""
    return tflops * 1e12 / flops_per_token(model, seq_len, convention)


def flops_per_token(model: str, seq_len: int, convention: Convention) -> float:
    """Training FLOPs of one token: three times the forward pass."""
    whole = _model(model)
    attention = sum(
        block.repeat * count.op_flops(op, seq_len, 0)
        for block in whole.blocks
        for op in block.ops
        if isinstance(op, Attention)
    )
    rest = count.flops(whole, 1, seq_len) - attention
    return PASSES * (rest + attention * _SHARE[convention]) / seq_len


@cache
def _model(name: str) -> Model:
    return read.read_listed(name)
