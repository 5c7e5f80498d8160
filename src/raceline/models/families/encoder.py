"""Encoders: the BERT family, DeBERTa, ModernBERT, and speech encoders, from Hugging Face configs.

Counted as the base model with its pooler, as most checkpoints are used; a task head is small beside it.
"""

from __future__ import annotations

import msgspec

from raceline.models.families.decoder import Sizes, sizes
from raceline.models.families.designs import DESIGNS
from raceline.models.families.layers import (
    AttentionNames,
    Heads,
    MlpNames,
    Part,
    attention,
    block,
    dropout,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    tensor,
)
from raceline.models.families.transformer import (
    Arrangement,
    Make,
    describe,
    embedding,
    grouped,
    layer,
    rotary_tables,
)
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, TOKENS, Attention, Block, Extent, Model, fixed

_BERT_ATTENTION = AttentionNames("query", "key", "value", "dense")
_BERT_MLP = MlpNames("intermediate.dense", "output.dense", "")
_BIASED = (True, True, True, True)


class EncoderDesign(msgspec.Struct, frozen=True, kw_only=True):
    """What sets the BERT-like encoders apart."""

    types: int = 0
    pooler: bool = True
    positions: bool = True
    relative_buckets: int = 0
    dropout: float = 0.1
    shares_layer: bool = False
    attention: AttentionNames = _BERT_ATTENTION
    mlp: MlpNames = _BERT_MLP


ENCODERS: dict[str, EncoderDesign] = {
    "bert": EncoderDesign(types=2),
    "roberta": EncoderDesign(types=1),
    "xlm-roberta": EncoderDesign(types=1),
    "camembert": EncoderDesign(types=1),
    "ernie": EncoderDesign(types=2),
    "electra": EncoderDesign(types=2, pooler=False),
    "distilbert": EncoderDesign(
        pooler=False,
        attention=AttentionNames("q_lin", "k_lin", "v_lin", "out_lin"),
        mlp=MlpNames("lin1", "lin2", ""),
    ),
    "mpnet": EncoderDesign(relative_buckets=32, attention=AttentionNames("q", "k", "v", "o")),
    "albert": EncoderDesign(types=2, shares_layer=True, dropout=0.0),
    "deberta": EncoderDesign(pooler=False),
    "deberta-v2": EncoderDesign(pooler=False),
}


def _sizes(fields: Fields) -> Sizes:
    """DistilBERT names its sizes otherwise."""
    names = {
        "dim": "hidden_size",
        "n_layers": "num_hidden_layers",
        "n_heads": "num_attention_heads",
        "hidden_dim": "intermediate_size",
    }
    values = {names.get(name, name): value for name, value in fields.values.items()}
    return sizes(Fields({"vocab_size": 30522, **values}, fields.where), DESIGNS["gpt2"])


def build(fields: Fields, image_size: int | None = None) -> Model:
    """An encoder of the BERT family, DeBERTa or ModernBERT."""
    kind = fields.text("model_type", default="bert")
    if kind == "modernbert":
        return _build_modern(fields)
    design, size = ENCODERS[kind], _sizes(fields)
    dropped = fields.number("hidden_dropout_prob", "dropout", default=design.dropout)
    is_deberta = kind.startswith("deberta")
    mixer = _deberta_mixer(fields, size, kind) if is_deberta else _bert_mixer(design, size)
    body = layer(
        "layer",
        size.hidden,
        mixer,
        _bert_mlp(fields, design, size),
        arrangement="post_add",
        norm_kind="layer",
        dropped=dropped,
        repeat=size.layers,
    )
    blocks = [_input(fields, design, size, dropped, kind), *_shared(body, design.shares_layer)]
    if design.pooler:
        blocks.append(_pooler(size.hidden))
    return describe(
        fields,
        "encoder",
        blocks,
        objective="masked",
        hidden=size.hidden,
        layers=size.layers,
        vocabulary=size.vocabulary,
        notes=("models.encoder_without_head",),
        seq_len=min(512, fields.integer("max_position_embeddings", default=512)),
    )


def _shared(body: Block, is_shared: bool) -> list[Block]:
    """ALBERT runs one layer's weights again and again: the repeats own no parameters."""
    if not is_shared or body.repeat == 1:
        return [body]
    again = tuple(msgspec.structs.replace(op, tied=True) for op in body.ops)
    return [
        msgspec.structs.replace(body, repeat=1),
        msgspec.structs.replace(body, name="layer.again", ops=again, repeat=body.repeat - 1),
    ]


def _bert_mixer(design: EncoderDesign, size: Sizes) -> Make:
    heads = Heads(
        query=size.heads,
        kv=size.kv_heads,
        dim=size.head_dim,
        causal=False,
        rotary=False,
        has_bias=design.relative_buckets > 0,
        score_upcast=False,
    )

    def make(given: str, out: str) -> Part:
        return attention(given, size.hidden, heads, bias=_BIASED, names=design.attention, out=out)

    return make


def _bert_mlp(fields: Fields, design: EncoderDesign, size: Sizes) -> Make:
    kind = fields.text("hidden_act", "activation", default="gelu")

    def make(given: str, out: str) -> Part:
        return mlp(
            given,
            size.hidden,
            size.inner,
            activation_kind=kind,
            gated=False,
            bias=True,
            names=design.mlp,
            out=out,
        )

    return make


def _input(fields: Fields, design: EncoderDesign, size: Sizes, dropped: float, kind: str) -> Block:
    """Tables of words, positions and types, their norm, and a projection where they are narrower."""
    width = fields.integer("embedding_size", default=size.hidden)
    types = fields.integer("type_vocab_size", default=design.types, minimum=0)
    has_positions = fields.flag("position_biased_input", default=design.positions)
    length = fields.integer("max_position_embeddings", default=512)
    relative = (
        elementwise("relative_positions", 0, 0, parameters=design.relative_buckets * size.heads)
        if design.relative_buckets
        else None
    )
    return block(
        "embedding",
        embedding("word_embeddings", size.vocabulary, width),
        embedding("position_embeddings", length, width, split=False) if has_positions else None,
        embedding("token_type_embeddings", types, width, split=False) if types else None,
        tensor("embedded", width),
        norm("embedding_norm", "embedded", "normed", width),
        dropout("embedding_dropout", width, dropped),
        linear("embedding_projection", "normed", width, size.hidden, bias=kind in ("electra", "albert"))
        if width != size.hidden
        else None,
        relative,
        _relative_table(fields, size) if kind.startswith("deberta") else None,
        role="input",
    )


def _pooler(hidden: int) -> Block:
    """A projection of the first token."""
    return block(
        "pooler",
        tensor("first_token", hidden, SAMPLE),
        linear("pooler", "first_token", hidden, hidden, rows=SAMPLE, bias=True, quantisable=False),
        elementwise("tanh", hidden, hidden, keeps=("pooled",), rows=SAMPLE),
        tensor("pooled", hidden, SAMPLE),
        role="output",
    )


def _span(fields: Fields) -> int:
    """Half the entries of DeBERTa's relative position table."""
    buckets = fields.integer("position_buckets", default=-1, minimum=-1)
    if buckets > 0:
        return int(buckets)
    longest = fields.integer("max_relative_positions", default=-1, minimum=-1)
    return int(longest if longest > 0 else fields.integer("max_position_embeddings", default=512))


def _relative_table(fields: Fields, size: Sizes) -> Part | None:
    if not fields.flag("relative_attention"):
        return None
    table = elementwise("rel_embeddings", 0, 0, parameters=2 * _span(fields) * size.hidden)
    normed = "layer_norm" in fields.text("norm_rel_ebd", default="none")
    own = elementwise("rel_embeddings_norm", 0, 0, parameters=2 * size.hidden) if normed else None
    convolved = fields.integer("conv_kernel_size", default=0, minimum=0)
    convolution = (
        elementwise("convolution", 0, 0, parameters=size.hidden * (size.hidden * convolved + 3))
        if convolved
        else None
    )
    return join(table, own, convolution)


def _deberta_mixer(fields: Fields, size: Sizes, kind: str) -> Make:
    """Disentangled attention (arXiv:2006.03654): content to position and position to content beside
    content to content. The projections of the position table run once a batch and are left out of FLOPs."""
    heads = Heads(
        query=size.heads,
        kv=size.kv_heads,
        dim=size.head_dim,
        causal=False,
        rotary=False,
        has_bias=True,
        score_upcast=False,
    )
    positions = fixed(2.0 * _span(fields))
    terms = fields.values.get("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else list(terms)
    is_relative = fields.flag("relative_attention")
    shares = kind == "deberta-v2" and fields.flag("share_att_key")
    own = 0
    if is_relative and not shares:
        own += (size.hidden * size.hidden + (size.hidden if kind == "deberta-v2" else 0)) * ("c2p" in terms)
        own += (size.hidden * size.hidden + size.hidden) * ("p2c" in terms)
    names = (
        _BERT_ATTENTION
        if kind == "deberta"
        else AttentionNames("query_proj", "key_proj", "value_proj", "dense")
    )

    def make(given: str, out: str) -> Part:
        extra = [
            Part(
                (
                    Attention(
                        name=term,
                        heads=size.heads,
                        kv_heads=size.heads,
                        head_dim=size.head_dim,
                        value_dim=0,
                        kv_rows=positions,
                        causal=False,
                        score_copies=0.0,
                        score_upcast=False,
                    ),
                )
            )
            for term in terms
            if is_relative
        ]
        biased = (True, kind == "deberta-v2", True, True)
        return join(
            attention(given, size.hidden, heads, bias=biased, names=names, out=out),
            *extra,
            elementwise("position_projections", 0, 0, parameters=own) if own else None,
        )

    return make


def _build_modern(fields: Fields) -> Model:
    """ModernBERT: pre-norm without biases, gated, rotary, local attention in two of three layers."""
    size = _sizes(fields)
    width = size.hidden
    first = block(
        "embedding",
        embedding("tok_embeddings", size.vocabulary, width),
        tensor("embedded", width),
        norm("embedding_norm", "embedded", "first", width, kind="layer_no_bias"),
        rotary_tables(size.head_dim),
        role="input",
    )
    final = norm("final_norm", "last", "out", width, kind="layer_no_bias")
    last = block("output", tensor("last", width), final, role="output")
    return describe(
        fields, "encoder", [first, *_modern_layers(fields, size), last], objective="masked", hidden=width,
        layers=size.layers, vocabulary=size.vocabulary, notes=("models.encoder_without_head",),
    )  # fmt: skip


def _modern_layers(fields: Fields, size: Sizes) -> list[Block]:
    """The first layer reads the embedding's norm and has none of its own before attention."""
    every = fields.integer("global_attn_every_n_layers", default=3)
    local = fields.integer("local_attention", default=128)
    kinds = [(None if index % every == 0 else local, index > 0) for index in range(size.layers)]
    feed_names = MlpNames("Wi", "mlp.Wo", "")

    def feed(given: str, out: str) -> Part:
        return mlp(given, size.hidden, size.inner, activation_kind="gelu", names=feed_names, out=out)

    blocks = []
    for (window, has_norm), count in grouped(kinds):
        name = f"layer.window{window}" if window else "layer"
        built = layer(
            name, size.hidden, _modern_mixer(size, window), feed, norm_kind="layer_no_bias", repeat=count
        )
        ops = tuple(op for op in built.ops if has_norm or op.name != "attention_norm")
        blocks.append(msgspec.structs.replace(built, ops=ops))
    return blocks


def _modern_mixer(size: Sizes, window: int | None) -> Make:
    heads = Heads(query=size.heads, kv=size.kv_heads, dim=size.head_dim, causal=False, window=window)
    names = AttentionNames(out="Wo", fused="Wqkv")
    return lambda given, out: attention(given, size.hidden, heads, names=names, out=out)


def plain_layers(
    hidden: int,
    inner: int,
    heads: int,
    layers: int,
    rows: Extent = TOKENS,
    *,
    activation: str = "gelu",
    arrangement: Arrangement = "pre",
    component: str = "",
    dropped: float = 0.0,
    name: str = "layer",
    gated: bool = False,
    norm_kind: str = "layer",
    fused: bool = False,
    window: int | None = None,
    key_bias: bool = True,
    bias: bool = True,
    rotary: bool = False,
) -> Block:
    """Encoder layers with biases, as vision and speech towers have them."""
    shape = Heads(
        query=heads,
        kv=heads,
        dim=hidden // heads,
        causal=False,
        rotary=rotary,
        window=window,
        score_upcast=False,
    )
    names = AttentionNames(out="proj", fused="qkv") if fused else AttentionNames(out="out_proj")
    feed_names = MlpNames() if gated else MlpNames("fc1", "fc2", "")
    return layer(
        name,
        hidden,
        lambda given, out: attention(
            given, hidden, shape, rows=rows, bias=(bias, key_bias and bias, bias, bias), names=names, out=out
        ),
        lambda given, out: mlp(
            given,
            hidden,
            inner,
            activation_kind=activation,
            gated=gated,
            bias=bias,
            rows=rows,
            names=feed_names,
            out=out,
        ),
        arrangement=arrangement,
        norm_kind=norm_kind,
        rows=rows,
        dropped=dropped,
        repeat=layers,
        component=component,
    )
