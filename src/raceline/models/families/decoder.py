"""Dense decoder-only language models, from the fields of a Hugging Face config."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families.designs import DESIGNS, Design
from raceline.models.families.layers import Heads, Part, attention, block, join, linear, mlp, norm, tensor
from raceline.models.families.transformer import (
    LENGTHS,
    Arrangement,
    Make,
    describe,
    embedding,
    grouped,
    head,
    layer,
    output_block,
    rotary_tables,
)
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model
from raceline.present.errors import InputError

MOST_LAYERS = 10_000


class Sizes(NamedTuple):
    """The sizes that every decoder's config states."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocabulary: int


def sizes(fields: Fields, design: Design) -> Sizes:
    """Read them under any of their names. Raises InputError where one is missing or out of range."""
    hidden = fields.integer("hidden_size", "n_embd", "d_model")
    heads = fields.integer("num_attention_heads", "n_head", "n_heads", "num_heads")
    inner = fields.integer("intermediate_size", "ffn_hidden_size", "ffn_dim", "n_inner", default=None)
    if inner is None:
        inner = hidden * fields.integer("expansion_ratio", default=design.ffn_multiple, maximum=1000)
    return Sizes(
        hidden=hidden,
        layers=fields.integer("num_hidden_layers", "n_layer", "n_layers", "num_layers", maximum=MOST_LAYERS),
        heads=heads,
        kv_heads=_kv_heads(fields, heads),
        head_dim=fields.integer("head_dim", "kv_channels", default=None) or _head_dim(fields, hidden, heads),
        inner=max(1, inner // design.ffn_divisor),
        vocabulary=fields.integer("padded_vocab_size", "vocab_size"),
    )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if hidden % heads:
        raise InputError(
            "models.heads_not_divisor", field=fields.where + "num_attention_heads", heads=heads, hidden=hidden
        )
    return hidden // heads


def _kv_heads(fields: Fields, heads: int) -> int:
    """Key and value heads: stated, one under multi-query attention, else as many as query heads."""
    nested = fields.part("attn_config", default=None)
    if nested is not None and nested.integer("kv_n_heads", default=None):
        return int(nested.integer("kv_n_heads"))
    is_grouped = fields.flag("new_decoder_architecture") or fields.flag("multi_query_attention")
    if fields.flag("multi_query") and not is_grouped:
        return 1
    kv_heads = int(
        fields.integer(
            "num_key_value_heads", "num_kv_heads", "multi_query_group_num", "n_head_kv", default=heads
        )
    )
    if heads % kv_heads:
        where = fields.where + "num_key_value_heads"
        raise InputError("models.kv_heads_not_divisor", field=where, kv_heads=kv_heads, heads=heads)
    return kv_heads


def windows(fields: Fields, design: Design, layers: int) -> list[int | None]:
    """The sliding window of each layer, None where it sees all."""
    window = fields.integer("sliding_window", "attention_chunk_size", "window_size", default=None, minimum=0)
    kinds = fields.items("layer_types", default=None)
    if not window or (design.windows == "none" and kinds is None):
        return [None] * layers
    if kinds is not None and len(kinds) == layers:
        return [window if kind in ("sliding_attention", "chunked_attention") else None for kind in kinds]
    if design.windows == "alternate":
        return [window if index % 2 == 0 else None for index in range(layers)]
    if design.windows == "pattern":
        every = fields.integer("sliding_window_pattern", default=design.pattern)
        return [None if (index + 1) % every == 0 else window for index in range(layers)]
    if design.windows == "flagged":
        first = fields.integer("max_window_layers", default=0, minimum=0)
        used = fields.flag("use_sliding_window")
        return [window if used and index >= first else None for index in range(layers)]
    return [window] * layers


def biases(fields: Fields, design: Design) -> tuple[bool, bool, bool]:
    """Whether q k v, the attention's output and the feed-forward projections have a bias."""
    whole, qkv, feed = design.flags
    attention_bias = fields.flag(whole, default=design.out_bias) if whole else design.out_bias
    qkv_bias = fields.flag(whole, default=design.qkv_bias) if whole else design.qkv_bias
    if qkv and fields.values.get(qkv) is not None:
        qkv_bias = fields.flag(qkv)
    return qkv_bias, attention_bias, fields.flag(feed, default=design.mlp_bias) if feed else design.mlp_bias


def heads_of(fields: Fields, design: Design, size: Sizes, window: int | None) -> Heads:
    """The shape of one layer's attention."""
    qk_norm = design.qk_norm
    if design.qk_norm_flag and fields.flag(design.qk_norm_flag):
        qk_norm = "full"
    return Heads(
        query=size.heads,
        kv=size.kv_heads,
        dim=size.head_dim,
        window=window,
        rotary=design.rotary,
        has_bias=design.alibi,
        qk_norm=qk_norm,
        norm_kind=design.norm,
        score_upcast=design.score_upcast,
        score_copies=2.0 if fields.values.get("attn_logit_softcapping", design.softcap) else 1.0,
    )


def attention_maker(fields: Fields, design: Design, size: Sizes, window: int | None) -> Make:
    """A function that builds one layer's attention."""
    qkv, out_bias, _ = biases(fields, design)
    heads = heads_of(fields, design, size, window)

    def make(given: str, out: str) -> Part:
        return attention(
            given, size.hidden, heads, bias=(qkv, qkv, qkv, out_bias), names=design.attention, out=out
        )

    return make


def mlp_maker(fields: Fields, design: Design, width: int, inner: int) -> Make:
    """A function that builds one layer's feed-forward network."""
    _, _, bias = biases(fields, design)
    kind = fields.text("hidden_activation", "hidden_act", "activation_function", default=design.activation)

    def make(given: str, out: str) -> Part:
        return mlp(
            given,
            width,
            inner,
            activation_kind=kind,
            gated=design.gated,
            bias=bias,
            names=design.mlp,
            out=out,
        )

    return make


def layers_of(fields: Fields, design: Design, size: Sizes) -> list[Block]:
    """The body: equal layers as one block."""
    feed = mlp_maker(fields, design, size.hidden, size.inner)
    blocks = []
    for window, count in grouped(windows(fields, design, size.layers)):
        blocks.append(
            layer(
                f"layer.window{window}" if window else "layer",
                size.hidden,
                attention_maker(fields, design, size, window),
                feed,
                arrangement=arrangement(fields, design),
                norm_kind=design.norm,
                dropped=dropout_of(fields, design),
                repeat=count,
            )
        )
    return blocks


def dropout_of(fields: Fields, design: Design) -> float:
    """The probability of dropout on the residual branches."""
    return float(
        fields.number(
            "hidden_dropout_prob",
            "resid_pdrop",
            "dropout",
            "hidden_dropout",
            "residual_dropout",
            "dropout_rate",
            default=design.dropout,
        )
    )


def arrangement(fields: Fields, design: Design) -> Arrangement:
    """The layer's arrangement, where flags of the config override the design's."""
    if design.arrangement.startswith("parallel") or fields.values.get("use_parallel_residual"):
        parallel = fields.flag("use_parallel_residual", "parallel_attn", default=True)
        norms = fields.integer("num_ln_in_parallel_attn", default=None)
        if not parallel:
            return "pre"
        two = norms == 2 if norms else fields.flag("new_decoder_architecture")
        return (
            "parallel_two_norms" if two else design.arrangement if design.arrangement != "pre" else "parallel"
        )
    if fields.values.get("do_layer_norm_before") is False:
        return "post_add"
    return design.arrangement


def input_block(fields: Fields, design: Design, size: Sizes) -> Block:
    """Token and position tables, and what stands between them and the first layer."""
    longest = fields.integer(*LENGTHS, default=1024)
    narrow = fields.integer("word_embed_proj_dim", default=size.hidden)
    has_positions = design.learned_positions is not None
    return block(
        "embedding",
        embedding("embed_tokens", size.vocabulary, narrow),
        embedding("embed_positions", longest + (design.learned_positions or 0), size.hidden, split=False)
        if has_positions
        else None,
        linear("project_in", "narrow", narrow, size.hidden) if narrow != size.hidden else None,
        tensor("narrow", narrow),
        tensor("embedded", size.hidden) if design.embedding_norm else None,
        norm("embedding_norm", "embedded", "first", size.hidden, kind=design.norm)
        if design.embedding_norm
        else None,
        rotary_tables(size.head_dim) if design.rotary else None,
        role="input",
    )


def end_block(fields: Fields, design: Design, size: Sizes) -> Block:
    """Final norm, head and loss."""
    narrow = fields.integer("word_embed_proj_dim", default=size.hidden)
    has_norm = design.final_norm and fields.values.get("do_layer_norm_before") is not False
    tied = fields.flag("tie_word_embeddings", default=design.tied)
    squeeze = None
    if narrow != size.hidden:
        squeeze = join(linear("project_out", "head_input", size.hidden, narrow), tensor("narrow", narrow))
    projection = head(
        narrow,
        size.vocabulary,
        tied=tied,
        bias=fields.flag("lm_head_bias", default=design.head_bias),
        given="narrow" if squeeze else "head_input",
        softcap=bool(fields.values.get("final_logit_softcapping", design.softcap)),
    )
    return output_block(size.hidden, design.norm if has_norm else None, join(squeeze, projection))


def assemble(
    fields: Fields, design: Design, family: str, body: list[Block], size: Sizes, notes: tuple[str, ...] = ()
) -> Model:
    """The whole decoder around its body."""
    return describe(
        fields,
        family,
        [input_block(fields, design, size), *body, end_block(fields, design, size)],
        hidden=size.hidden,
        layers=size.layers,
        vocabulary=size.vocabulary,
        notes=notes,
    )


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A dense decoder whose model_type is in `DESIGNS`."""
    design = DESIGNS.get(fields.text("model_type", default="llama"), DESIGNS["llama"])
    if fields.flag("alibi"):
        design = msgspec.structs.replace(design, rotary=False, alibi=True)
    size = sizes(fields, design)
    return assemble(fields, design, "decoder", layers_of(fields, design, size), size)


def build_assumed(fields: Fields, image_size: int | None = None) -> Model:
    """A decoder of an unknown type whose config has Llama's fields: built as Llama, and said so."""
    for name in (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    ):
        fields.integer(name)
    design = DESIGNS["llama"]
    size = sizes(fields, design)
    notes = ("models.assumed_llama",)
    return assemble(fields, design, "decoder", layers_of(fields, design, size), size, notes)
