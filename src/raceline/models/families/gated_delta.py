"""Decoders that alternate gated delta networks with gated attention: Qwen3-Next and Qwen3.5.

What a delta network keeps for a sequence has one size, however long it is (arXiv:2412.06464).
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.decoder import Sizes, assemble, attention_maker, mlp_maker, sizes
from raceline.models.families.designs import DESIGNS
from raceline.models.families.layers import Part, elementwise, join, linear, norm, tensor
from raceline.models.families.moe import MoeDesign, experts_maker, experts_of
from raceline.models.families.transformer import Make, grouped, layer
from raceline.models.fields import Fields
from raceline.models.graph import Block, Convolution, Model, Scan
from raceline.present.errors import InputError

_DESIGN = DESIGNS["qwen3"]


class Delta(NamedTuple):
    """Heads of keys (queries have as many) and of values, their sizes, and the convolution's length."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int

    @property
    def values(self) -> int:
        """Elements of all value heads."""
        return self.value_heads * self.value_dim

    @property
    def mixed(self) -> int:
        """Elements of queries, keys and values together."""
        return 2 * self.key_heads * self.key_dim + self.values


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Qwen3-Next, and the text part of Qwen3.5."""
    size = sizes(Fields({"intermediate_size": 1, **fields.values}, fields.where), _DESIGN)
    has_experts = fields.integer("num_experts", default=0, minimum=0) > 1
    feed = mlp_maker(fields, _DESIGN, size.hidden, size.inner)
    if has_experts:
        spec = experts_of(fields, MoeDesign(decoder=_DESIGN, shared_gate=True))
        feed = experts_maker(spec, size.hidden)
    mixers = {"linear_attention": _delta(fields, size), "full_attention": _gated(fields, size)}
    body: list[Block] = [
        layer(f"layer.{kind}", size.hidden, mixers[kind], feed, repeat=count)
        for kind, count in grouped(_kinds(fields, size.layers))
    ]
    return assemble(fields, _DESIGN, "hybrid", body, size)


def _kinds(fields: Fields, layers: int) -> list[str]:
    every = fields.integer("full_attention_interval", default=4)
    kinds = fields.items("layer_types", default=None)
    if kinds is None:
        kinds = ["linear_attention" if (index + 1) % every else "full_attention" for index in range(layers)]
    if len(kinds) != layers or set(kinds) - {"linear_attention", "full_attention"}:
        field = fields.where + "layer_types"
        raise InputError("models.pattern_wrong", field=field, given=str(kinds)[:60], layers=layers)
    return list(kinds)


def _gated(fields: Fields, size: Sizes) -> Make:
    """Attention whose output is multiplied by a gate of its own."""
    width = size.heads * size.head_dim
    plain = attention_maker(fields, _DESIGN, size, None)

    def make(given: str, out: str) -> Part:
        return join(
            plain(given, out),
            linear("gate_proj", given, size.hidden, width, split="column", out="attention_gate"),
            elementwise("attention_gating", 2.0 * width, width, keeps=("attention_gate",), split=True),
        )

    return make


def _delta(fields: Fields, size: Sizes) -> Make:
    spec = Delta(
        fields.integer("linear_num_key_heads"), fields.integer("linear_num_value_heads"),
        fields.integer("linear_key_head_dim"), fields.integer("linear_value_head_dim"),
        fields.integer("linear_conv_kernel_dim", default=4),
    )  # fmt: skip
    return lambda given, out: delta_network(given, out, size.hidden, spec)


def delta_network(given: str, out: str, width: int, spec: Delta) -> Part:
    """Projections, a short convolution, the delta rule's scan, a gated norm and the output projection."""
    convolution = Convolution(
        name="conv1d", k=spec.kernel, n=spec.mixed, groups=spec.mixed, input_elements=float(spec.mixed),
        keeps=("mixed",),
    )  # fmt: skip
    scan = Scan(
        name="scan",
        inner=spec.values,
        state=spec.key_dim,
        parameters=2 * spec.value_heads,
        state_width=spec.values * spec.key_dim + spec.mixed * spec.kernel,
        chunk=64,
        keeps=("convolved", "delta"),
    )
    return join(
        linear("in_proj_qkv", given, width, spec.mixed, split="column"),
        linear("in_proj_z", given, width, spec.values, split="column"),
        linear("in_proj_ba", given, width, 2 * spec.value_heads, split="column"),
        tensor("mixed", spec.mixed, split=True),
        tensor("mixed_gate", spec.values, split=True),
        tensor("delta", 2 * spec.value_heads, split=True),
        Part((convolution,)),
        tensor("convolved", spec.mixed, split=True),
        Part((scan,)),
        tensor("scanned", spec.values, split=True),
        norm("gated_norm", "scanned", "normed", spec.value_dim, kind="rms", split=True),
        elementwise("gate", 2.0 * spec.values, spec.values, keeps=("mixed_gate", "scanned"), split=True),
        linear("out_proj", "normed", spec.values, width, split="row", out=out),
    )
