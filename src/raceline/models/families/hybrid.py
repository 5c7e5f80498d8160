"""State-space decoders (Mamba 1 and 2) and hybrids of them with attention and experts.

What a scan keeps is stated for the fused kernels that anyone trains with; the plain PyTorch path keeps
the state of every position.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import msgspec

from raceline.models.families.decoder import (
    Sizes,
    assemble,
    attention_maker,
    mlp_maker,
    sizes,
)
from raceline.models.families.designs import DESIGNS, Design
from raceline.models.families.experts import experts
from raceline.models.families.layers import Part, elementwise, join, linear, norm, tensor
from raceline.models.families.moe import MoeDesign, experts_maker, experts_of
from raceline.models.families.transformer import Make, grouped, layer
from raceline.models.fields import Fields
from raceline.models.graph import Block, Convolution, Model, Scan
from raceline.present.errors import InputError

_LLAMA = DESIGNS["llama"]


class StateSpace(NamedTuple):
    """Sizes of a Mamba mixer. `heads` 0: Mamba 1, with a step size of rank `rank`; else Mamba 2 with
    `groups` sharing B and C. `gated_norm`: a norm before the output projection."""

    inner: int
    state: int
    kernel: int
    rank: int = 0
    heads: int = 0
    groups: int = 1
    conv_bias: bool = True
    bias: bool = False
    gated_norm: bool = True
    inner_norms: bool = False


def state_space(fields: Fields, hidden: int) -> StateSpace:
    """Read them under any of the names in use."""
    expand = fields.number("mamba_expand", "expand", default=2.0)
    heads = fields.integer(
        "mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads", default=0, minimum=0
    )
    kind = fields.text("model_type", default="mamba")
    is_first = kind in ("mamba", "falcon_mamba", "jamba", "zamba")
    dim = fields.integer("mamba_d_head", "mamba_head_dim", "mamba_headdim", "head_dim", default=64)
    inner = fields.integer(
        "mamba_d_ssm",
        "intermediate_size" if kind in ("mamba", "falcon_mamba") else "mamba_d_ssm",
        default=None,
    )
    if inner is None:
        inner = heads * dim if heads and not is_first else int(expand * hidden)
    rank = fields.values.get("mamba_dt_rank", fields.values.get("time_step_rank", "auto"))
    return StateSpace(
        inner=inner,
        state=fields.integer(
            "mamba_d_state", "ssm_state_size", "state_size", default=16 if is_first else 128
        ),
        kernel=fields.integer("mamba_d_conv", "conv_kernel", default=4),
        rank=rank if isinstance(rank, int) and rank > 0 else math.ceil(hidden / 16),
        heads=0 if is_first else heads or max(1, inner // dim),
        groups=fields.integer("mamba_n_groups", "mamba_ngroups", "n_groups", default=1),
        conv_bias=fields.flag("mamba_conv_bias", "use_conv_bias", default=True),
        bias=fields.flag("mamba_proj_bias", "use_bias"),
        gated_norm=not is_first and fields.flag("mamba_rms_norm", default=kind != "falcon_h1"),
        inner_norms=kind == "jamba",
    )


def mamba(given: str, out: str, hidden: int, spec: StateSpace) -> Part:
    """One mixer: projection, short convolution, selective scan, gate, projection
    (arXiv:2312.00752, section 3.4; arXiv:2405.21060, section 7)."""
    return _mamba2(given, out, hidden, spec) if spec.heads else _mamba1(given, out, hidden, spec)


def _convolution(spec: StateSpace, channels: int) -> Part:
    op = Convolution(
        name="conv1d",
        k=spec.kernel,
        n=channels,
        groups=channels,
        bias=spec.conv_bias,
        input_elements=float(channels),
        keeps=("mixed",),
    )
    return join(Part((op,)), tensor("convolved", channels, split=True))


def _mamba1(given: str, out: str, hidden: int, spec: StateSpace) -> Part:
    scan = Scan(
        name="scan",
        inner=spec.inner,
        state=spec.state,
        parameters=spec.inner * spec.state + spec.inner,
        state_width=spec.inner * (spec.state + spec.kernel),
        keeps=("convolved", "delta", "selected", "mixed_gate"),
    )
    width = spec.rank + 2 * spec.state
    norms = elementwise("inner_norms", width, width, parameters=width) if spec.inner_norms else None
    return join(
        linear("in_proj", given, hidden, 2 * spec.inner, bias=spec.bias, split="column"),
        tensor("mixed", spec.inner, split=True),
        tensor("mixed_gate", spec.inner, split=True),
        _convolution(spec, spec.inner),
        linear("x_proj", "convolved", spec.inner, width, split="row", out="selected"),
        norms,
        linear("dt_proj", "selected", spec.rank, spec.inner, bias=True, split="column", out="delta"),
        Part((scan,)),
        tensor("scanned", spec.inner, split=True),
        linear("out_proj", "scanned", spec.inner, hidden, bias=spec.bias, split="row", out=out),
    )


def _mamba2(given: str, out: str, hidden: int, spec: StateSpace) -> Part:
    channels = spec.inner + 2 * spec.groups * spec.state
    scan = Scan(
        name="scan",
        inner=spec.inner,
        state=spec.state,
        parameters=3 * spec.heads,
        state_width=spec.inner * spec.state + channels * spec.kernel,
        keeps=("convolved", "delta", "scanned"),
    )
    gate = (
        join(
            norm("gated_norm", "scanned", "normed", spec.inner, kind="rms", split=True),
            elementwise("gate", 2.0 * spec.inner, spec.inner, keeps=("mixed_gate", "scanned"), split=True),
        )
        if spec.gated_norm
        else elementwise("gate", 2.0 * spec.inner, spec.inner, keeps=("mixed_gate", "scanned"), split=True)
    )
    last = "normed" if spec.gated_norm else "gated"
    return join(
        linear("in_proj", given, hidden, spec.inner + channels + spec.heads, bias=spec.bias, split="column"),
        tensor("mixed", channels, split=True),
        tensor("mixed_gate", spec.inner, split=True),
        tensor("delta", spec.heads, split=True),
        _convolution(spec, channels),
        Part((scan,)),
        tensor("scanned", spec.inner, split=True),
        gate,
        tensor("gated", spec.inner, split=True),
        linear("out_proj", last, spec.inner, hidden, bias=spec.bias, split="row", out=out),
    )


def _mamba_maker(fields: Fields, hidden: int) -> Make:
    spec = state_space(fields, hidden)
    return lambda given, out: mamba(given, out, hidden, spec)


def build_mamba(fields: Fields, image_size: int | None = None) -> Model:
    """Mamba, Falcon-Mamba, Mamba 2: mixers alone."""
    hidden = fields.integer("hidden_size", "d_model")
    layers = fields.integer("num_hidden_layers", "n_layer", maximum=10_000)
    size = Sizes(hidden, layers, 1, 1, hidden, hidden, fields.integer("vocab_size"))
    design = msgspec.structs.replace(
        _LLAMA, rotary=False, tied=fields.text("model_type", default="") != "mamba2"
    )
    body = [layer("layer.mamba", hidden, _mamba_maker(fields, hidden), None, repeat=layers)]
    return assemble(fields, design, "hybrid", body, size)


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Jamba, Bamba, Granite 4, Nemotron-H, Falcon-H1, Zamba: which layer is what stands in the config."""
    kind = fields.text("model_type", default="jamba")
    values = {"num_attention_heads": 1, **fields.values}
    if kind.startswith("zamba"):
        values.setdefault("head_dim", values.get("attention_head_dim"))
    listed = fields.items("layers_block_type", default=[])
    if listed:
        values.setdefault("num_hidden_layers", len(listed))
    fields = Fields(values, fields.where)
    size = sizes(fields, _LLAMA)
    is_jamba_like = kind in ("jamba", "granitemoehybrid", "nemotron_h")
    design = msgspec.structs.replace(
        _LLAMA,
        rotary=not is_jamba_like,
        gated=kind != "nemotron_h",
        activation="relu2" if kind == "nemotron_h" else "silu",
    )
    body = _BODIES[kind](fields, design, size)
    return assemble(fields, design, "hybrid", body, size)


def _alternating(fields: Fields, design: Design, size: Sizes) -> list[Block]:
    """Jamba, Bamba, Granite 4: each layer a mixer, Mamba or attention, and a feed-forward network."""
    dense = mlp_maker(fields, design, size.hidden, size.inner)
    routed = dense
    if fields.integer("num_experts", "num_local_experts", default=0, minimum=0) > 1:
        spec = experts_of(fields, MoeDesign())
        routed = experts_maker(spec, size.hidden)
    elif fields.values.get("shared_intermediate_size"):
        dense = routed = mlp_maker(fields, design, size.hidden, fields.integer("shared_intermediate_size"))
    mixers = {
        "mamba": _mamba_maker(fields, size.hidden),
        "attention": attention_maker(fields, design, size, None),
    }
    kinds = zip(_mixers(fields, size.layers), _experts(fields, size.layers), strict=True)
    return [
        layer(
            f"layer.{mixer}" + (".experts" if has_experts and routed is not dense else ""),
            size.hidden,
            mixers[mixer],
            routed if has_experts else dense,
            repeat=count,
        )
        for (mixer, has_experts), count in grouped(list(kinds))
    ]


_MAMBA_WORDS = ("mamba", "linear_attention")


def _mixers(fields: Fields, layers: int) -> list[str]:
    """mamba or attention, layer by layer."""
    listed = fields.items("layer_types", "layers_block_type", default=None)
    if listed is not None and len(listed) == layers:
        return ["mamba" if kind in _MAMBA_WORDS else "attention" for kind in listed]
    indices = fields.items("attn_layer_indices", default=[])
    if indices or fields.text("model_type", default="jamba") != "jamba":
        return ["attention" if index in indices else "mamba" for index in range(layers)]
    period, offset = (
        fields.integer("attn_layer_period", default=8),
        fields.integer("attn_layer_offset", default=4, minimum=0),
    )
    return ["attention" if index % period == offset else "mamba" for index in range(layers)]


def _experts(fields: Fields, layers: int) -> list[bool]:
    if fields.text("model_type", default="") != "jamba":
        return [True] * layers
    period, offset = (
        fields.integer("expert_layer_period", default=2),
        fields.integer("expert_layer_offset", default=1, minimum=0),
    )
    return [index % period == offset for index in range(layers)]


_LETTERS = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


def _nemotron(fields: Fields, design: Design, size: Sizes) -> list[Block]:
    """Nemotron-H: each layer is one thing: M a mixer, * attention, - a network, E experts. Nemotron 3's
    larger models route in a narrower space, between a shared pair of projections."""
    listed = fields.items("layers_block_type", "layer_types", default=[])
    pattern = "".join(_LETTERS.get(str(kind), "?") for kind in listed)
    pattern = pattern or fields.text("hybrid_override_pattern", default="")
    if len(pattern) != size.layers or set(pattern) - set("M*-E"):
        raise InputError(
            "models.pattern_wrong",
            field=fields.where + "hybrid_override_pattern",
            given=pattern[:60],
            layers=size.layers,
        )
    makers = {
        "M": _mamba_maker(fields, size.hidden),
        "*": attention_maker(fields, design, size, None),
        "-": mlp_maker(fields, design, size.hidden, size.inner),
    }
    if "E" in pattern:
        makers["E"] = _nemotron_experts(fields, size)
    names = {"M": "mamba", "*": "attention", "-": "mlp", "E": "experts"}
    return [
        layer(f"layer.{names[kind]}", size.hidden, makers[kind], None, repeat=count)
        for kind, count in grouped(pattern)
    ]


def _nemotron_experts(fields: Fields, size: Sizes) -> Make:
    shared = fields.integer("moe_shared_expert_intermediate_size", default=0, minimum=0)
    spec = msgspec.structs.replace(
        experts_of(fields, MoeDesign()), gated=False, activation="relu2", shared=shared
    )
    narrow = fields.integer("moe_latent_size", default=None)

    def make(given: str, out: str) -> Part:
        if narrow is None:
            return experts(given, out, size.hidden, spec)
        routed = msgspec.structs.replace(spec, shared=0)
        beside = mlp_maker(fields, Design(gated=False, activation="relu2"), size.hidden, spec.shared)
        return join(
            linear("latent_in", given, size.hidden, narrow, out="latent"),
            experts("latent", "latent_out", narrow, routed),
            linear("latent_out", "latent_out", narrow, size.hidden),
            beside(given, out),
        )

    return make


def _side_by_side(fields: Fields, design: Design, size: Sizes) -> list[Block]:
    """Falcon-H1: attention and a mixer read the same norm, and both are added."""
    attend, mix = attention_maker(fields, design, size, None), _mamba_maker(fields, size.hidden)
    return [
        layer(
            "layer",
            size.hidden,
            lambda given, out: join(attend(given, out), mix(given, "mamba_out")),
            mlp_maker(fields, design, size.hidden, size.inner),
            repeat=size.layers,
        )
    ]


def _zamba(fields: Fields, design: Design, size: Sizes) -> list[Block]:
    """Zamba: mixers, and one attention block, whose weights are shared, every few layers; it reads the
    layer's input beside the embedding, at twice the width."""
    hidden = size.hidden
    wide = size._replace(
        hidden=2 * hidden, head_dim=fields.integer("attention_head_dim", default=2 * hidden // size.heads)
    )
    period = fields.integer("attn_layer_period", "hybrid_layer_period", default=6)
    uses = len(fields.items("hybrid_layer_ids", default=list(range(period, size.layers, period))))
    owned = fields.integer("num_mem_blocks", default=1)
    shared = layer(
        "layer.shared_attention",
        2 * hidden,
        attention_maker(fields, design, wide, None),
        mlp_maker(fields, design, 2 * hidden, size.inner),
        repeat=min(owned, uses) or 1,
    )
    blocks = [layer("layer.mamba", hidden, _mamba_maker(fields, hidden), None, repeat=size.layers), shared]
    if uses > owned:
        again = tuple(msgspec.structs.replace(op, tied=True) for op in shared.ops)
        blocks.append(
            msgspec.structs.replace(
                shared, name="layer.shared_attention.again", ops=again, repeat=uses - owned
            )
        )
    return blocks


_BODIES = {
    "jamba": _alternating,
    "bamba": _alternating,
    "granitemoehybrid": _alternating,
    "nemotron_h": _nemotron,
    "falcon_h1": _side_by_side,
    "zamba": _zamba,
    "zamba2": _zamba,
}
