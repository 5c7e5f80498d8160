"""Mixture-of-experts decoders: dense decoders some of whose feed-forward networks are experts."""

from __future__ import annotations

import msgspec

from raceline.models.families.decoder import (
    Sizes,
    arrangement,
    assemble,
    attention_maker,
    mlp_maker,
    sizes,
    windows,
)
from raceline.models.families.designs import DESIGNS, FUSED_MLP, Design
from raceline.models.families.experts import Experts, experts
from raceline.models.families.layers import AttentionNames, Part, elementwise, join
from raceline.models.families.transformer import Make, grouped, layer
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model


class MoeDesign(msgspec.Struct, frozen=True, kw_only=True):
    """A decoder design and how its experts are stated. `every`: every n-th layer has experts.
    `shared_field`: the field with the shared network's width; `shares`: the width of one shared expert
    is the routed ones'. `sinks`: a learned attention sink per head."""

    decoder: Design = DESIGNS["llama"]
    expert_bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False
    always_shared: bool = False
    scales_input: bool = False
    sinks: bool = False
    activation: str = "silu"


_LLAMA = DESIGNS["llama"]
MOE_DESIGNS: dict[str, MoeDesign] = {
    "mixtral": MoeDesign(decoder=DESIGNS["mistral"]),
    "qwen2_moe": MoeDesign(decoder=DESIGNS["qwen2"], shared_gate=True),
    "qwen3_moe": MoeDesign(decoder=DESIGNS["qwen3"]),
    "llama4_text": MoeDesign(
        decoder=Design(windows="pattern", pattern=4), always_shared=True, scales_input=True
    ),
    "gpt_oss": MoeDesign(
        decoder=Design(
            norm="rms_fp32", qkv_bias=True, out_bias=True, windows="alternate", score_upcast=False
        ),
        expert_bias=True,
        router_bias=True,
        sinks=True,
        activation="clamped_swiglu",
    ),
    "granitemoe": MoeDesign(),
    "granitemoeshared": MoeDesign(),
    "olmoe": MoeDesign(decoder=Design(qk_norm="full")),
    "phimoe": MoeDesign(decoder=Design(norm="layer", head_bias=True)),
    "minimax_m2": MoeDesign(decoder=Design(qk_norm="full")),
    "dbrx": MoeDesign(
        decoder=Design(norm="layer_no_bias", attention=AttentionNames(out="out_proj", fused="Wqkv"))
    ),
    "deepseek": MoeDesign(),
    "dots1": MoeDesign(decoder=DESIGNS["qwen3"]),
    "glm4_moe": MoeDesign(decoder=Design(flags=("", "attention_bias", ""), qk_norm_flag="use_qk_norm")),
    "hunyuan_v1_moe": MoeDesign(decoder=Design(qk_norm="head")),
    "ernie4_5_moe": MoeDesign(decoder=msgspec.structs.replace(DESIGNS["ernie4_5"], mlp=FUSED_MLP)),
}
"""By model_type; source: the modelling files of transformers."""


def experts_of(fields: Fields, design: MoeDesign) -> Experts:
    """The experts that a config states, under any of the names in use."""
    nested = fields.part("ffn_config", default=None) or fields
    inner = nested.integer(
        "moe_intermediate_size", "expert_ffn_hidden_size", "ffn_hidden_size", "intermediate_size"
    )
    shared = fields.integer(
        "shared_expert_intermediate_size", "shared_intermediate_size", default=0, minimum=0
    )
    shared = shared or inner * fields.integer(
        "n_shared_experts",
        "moe_num_shared_experts",
        "num_shared_expert",
        default=int(design.always_shared),
        minimum=0,
        maximum=1000,
    )
    count = nested.integer(
        "num_local_experts", "n_routed_experts", "num_experts", "moe_num_experts", maximum=100_000
    )
    return Experts(
        count=count,
        visited=nested.integer(
            "num_experts_per_tok", "experts_per_token", "moe_top_k", "moe_topk", "moe_k", maximum=count
        ),
        inner=inner,
        shared=shared,
        shared_gate=design.shared_gate,
        bias=design.expert_bias,
        router_bias=design.router_bias,
        scales_input=design.scales_input,
        activation=design.activation,
    )


def expert_layers(fields: Fields, layers: int) -> list[bool]:
    """Which layers have experts: all but the first dense ones, every n-th, or as listed."""
    first = fields.integer("first_k_dense_replace", "moe_layer_start_index", default=0, minimum=0)
    every = fields.integer("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq", default=1)
    dense = set(map(str, fields.items("mlp_only_layers", default=[])))
    kinds = fields.items("mlp_layer_types", default=None)
    if kinds is not None and len(kinds) == layers:
        return [kind == "sparse" for kind in kinds]
    listed = fields.items("moe_layers", default=None)
    if listed is not None:
        return [index in listed for index in range(layers)]
    return [
        index >= first and (index + 1) % every == 0 and str(index) not in dense for index in range(layers)
    ]


def experts_maker(spec: Experts, width: int) -> Make:
    """A function that builds one layer's experts."""

    def make(given: str, out: str) -> Part:
        return experts(given, out, width, spec)

    return make


def _with_sinks(make: Make, heads: int) -> Make:
    """Attention with a learned sink per head."""

    def build_it(given: str, out: str) -> Part:
        return join(make(given, out), elementwise("sinks", heads, heads, parameters=heads, split=True))

    return build_it


def expert_blocks(
    fields: Fields,
    design: MoeDesign,
    size: Sizes,
    mixer_of: dict[int | None, Make],
    per_layer: list[int | None],
) -> list[Block]:
    """The body: layers by their window and by whether they have experts."""
    decoder, spec = design.decoder, experts_of(fields, design)
    routed = experts_maker(spec, size.hidden)
    dense_inner = fields.integer("intermediate_size_mlp", default=size.inner)
    dense = mlp_maker(fields, decoder, size.hidden, dense_inner)
    kinds = list(zip(per_layer, expert_layers(fields, size.layers), strict=True))
    return [
        layer(
            ("layer.experts" if has_experts else "layer.dense") + (f".window{window}" if window else ""),
            size.hidden,
            mixer_of[window],
            routed if has_experts else dense,
            arrangement=arrangement(fields, decoder),
            norm_kind=decoder.norm,
            repeat=count,
        )
        for (window, has_experts), count in grouped(kinds)
    ]


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A decoder with experts whose model_type is in `MOE_DESIGNS`."""
    fields = _flattened(fields)
    design = MOE_DESIGNS[fields.text("model_type", default="mixtral")]
    size = sizes(fields, design.decoder)
    per_layer = windows(fields, design.decoder, size.layers)
    mixer_of = {window: attention_maker(fields, design.decoder, size, window) for window in set(per_layer)}
    if design.sinks:
        mixer_of = {window: _with_sinks(make, size.heads) for window, make in mixer_of.items()}
    body = expert_blocks(fields, design, size, mixer_of, per_layer)
    return assemble(fields, design.decoder, "moe", body, size)


def _flattened(fields: Fields) -> Fields:
    """DBRX states the dense width in `ffn_config`; other configs as they are."""
    if fields.part("ffn_config", default=None) is None:
        return fields
    inner = fields.part("ffn_config").integer("ffn_hidden_size")
    return Fields({"intermediate_size": inner, **fields.values}, fields.where)
