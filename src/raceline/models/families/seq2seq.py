"""Encoder-decoder models: T5, BART and their kin, Whisper. Encoder rows follow `seq_len` (Whisper's are
fixed by its audio window), decoder rows `target_len`."""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.encoder import plain_layers
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
    mlp,
    norm,
    tensor,
)
from raceline.models.families.transformer import (
    Arrangement,
    Make,
    describe,
    embedding,
    head,
    layer,
    output_block,
)
from raceline.models.fields import Fields
from raceline.models.graph import TARGETS, TOKENS, Block, Convolution, Extent, Model, fixed

_T5_ATTENTION = AttentionNames("q", "k", "v", "o")
_T5_PLAIN, _T5_GATED = MlpNames("wi", "wo", ""), MlpNames("wi_1", "wo", "wi_0")
_DEFAULT_LENGTH = 512
_COMPONENTS = ("encoder", "decoder")


def _memory_block(width: int, norm_kind: str | None, rows: Extent = TOKENS) -> Block:
    """The encoder's result, behind its final norm where there is one: all cross-attention keeps this
    one tensor for its weights."""
    final = norm("final_norm", "last", "memory", width, kind=norm_kind, rows=rows) if norm_kind else None
    return block(
        "encoder.final",
        tensor("last", width, rows) if final else tensor("memory", width, rows),
        final,
        elementwise("memory", 0, 0, keeps_for_weight=("memory",), rows=rows),
        role="input",
        component="encoder",
    )


def _attention_maker(
    width: int,
    heads: Heads,
    names: AttentionNames,
    bias: tuple[bool, bool, bool, bool],
    rows: Extent,
    memory_rows: Extent | None = None,
    prefix: str = "attention",
) -> Make:
    def make(given: str, out: str) -> Part:
        return attention(
            given,
            width,
            heads,
            rows=rows,
            memory="memory" if memory_rows else "",
            memory_rows=memory_rows,
            bias=bias,
            names=names,
            prefix=prefix,
            out=out,
        )

    return make


class _T5(NamedTuple):
    """Sizes of a T5."""

    width: int
    inner: int
    heads: int
    dim: int
    dropped: float
    feed_forward: str

    def shape(self, *, causal: bool = False, cross: bool = False) -> Heads:
        """Attention of the encoder, of the decoder, or across."""
        return Heads(
            query=self.heads, kv=self.heads, dim=self.dim, causal=causal, rotary=False, has_bias=not cross,
            score_upcast=False, cache_width=2 * self.heads * self.dim if cross else None,
        )  # fmt: skip


def build_t5(fields: Fields, image_size: int | None = None) -> Model:
    """T5, mT5, UMT5, Flan-T5: RMS norms, relative position biases shared by a stack's layers."""
    kind = fields.text("model_type", default="t5")
    size = _t5_size(fields)
    layers = fields.integer("num_layers", maximum=10_000)
    decoder_layers = fields.integer("num_decoder_layers", default=layers, maximum=10_000)
    vocabulary = fields.integer("vocab_size")
    tied = fields.flag("tie_word_embeddings", default=kind not in ("mt5", "umt5"))
    table = fields.integer("relative_attention_num_buckets", default=32) * size.heads
    tables = (layers, decoder_layers) if kind == "umt5" else (1, 1)
    last = head(size.width, vocabulary, tied=tied, rows=TARGETS)
    blocks = [
        _t5_opening("encoder", TOKENS, size.width, vocabulary, table * tables[0]),
        _t5_stack("encoder", TOKENS, layers, size),
        _memory_block(size.width, "rms_t5"),
        _t5_opening("decoder", TARGETS, size.width, vocabulary, table * tables[1]),
        _t5_stack("decoder", TARGETS, decoder_layers, size),
        output_block(size.width, "rms_t5", last, rows=TARGETS, component="decoder"),
    ]
    return describe(
        fields, "seq2seq", blocks, objective="seq2seq", seq_len=_DEFAULT_LENGTH, target_len=_DEFAULT_LENGTH,
        hidden=size.width, layers=layers + decoder_layers, vocabulary=vocabulary,
    )  # fmt: skip


def _t5_size(fields: Fields) -> _T5:
    return _T5(
        fields.integer("d_model"), fields.integer("d_ff"), fields.integer("num_heads"),
        fields.integer("d_kv", default=64), fields.number("dropout_rate", default=0.1),
        fields.text("feed_forward_proj", default="relu"),
    )  # fmt: skip


def t5_encoder(fields: Fields, rows: Extent) -> list[Block]:
    """T5's encoder alone, over texts of `rows`: what pipelines of image models read texts with."""
    size, layers = _t5_size(fields), fields.integer("num_layers", maximum=10_000)
    table = fields.integer("relative_attention_num_buckets", default=32) * size.heads
    tables = layers if fields.text("model_type", default="t5") == "umt5" else 1
    return [
        _t5_opening("encoder", rows, size.width, fields.integer("vocab_size"), table * tables),
        _t5_stack("encoder", rows, layers, size),
        _memory_block(size.width, "rms_t5", rows),
    ]


def _t5_opening(side: str, rows: Extent, width: int, vocabulary: int, biases: int) -> Block:
    """The token table, which both sides share, and the table of position biases."""
    return block(
        f"{side}.embedding",
        embedding("shared", vocabulary, width, rows=rows, tied=side == "decoder"),
        elementwise("relative_attention_bias", 0, 0, parameters=biases),
        role="input",
        component=side,
    )


def _t5_stack(side: str, rows: Extent, count: int, size: _T5) -> Block:
    none = (False, False, False, False)
    own = size.shape(causal=side == "decoder")
    cross = _attention_maker(
        size.width, size.shape(cross=True), _T5_ATTENTION, none, TARGETS, TOKENS, "cross"
    )
    return layer(
        f"{side}.layer", size.width, _attention_maker(size.width, own, _T5_ATTENTION, none, rows),
        _t5_feed(size, rows), norm_kind="rms_t5", rows=rows, dropped=size.dropped,
        repeat=count, component=side,
        between=(cross, "cross") if side == "decoder" else None,
    )  # fmt: skip


def _t5_feed(size: _T5, rows: Extent) -> Make:
    gated = size.feed_forward.startswith("gated-")
    plain = size.feed_forward.removeprefix("gated-")
    kind = "gelu_new" if gated and plain == "gelu" else plain
    names = _T5_GATED if gated else _T5_PLAIN

    def make(given: str, out: str) -> Part:
        network = mlp(
            given, size.width, size.inner, activation_kind=kind, gated=gated, rows=rows, names=names, out=out
        )
        return join(network, dropout("hidden_dropout", size.inner, size.dropped, rows))

    return make


class _Bart(NamedTuple):
    """How the models of BART's kind differ."""

    arrangement: Arrangement = "post_add"
    positions: int | None = 2
    embedding_norm: bool = True
    final_norm: bool = False


_BARTS: dict[str, _Bart] = {
    "bart": _Bart(),
    "mbart": _Bart("pre", 2, True, True),
    "pegasus": _Bart("pre", 0, False, True),
    "marian": _Bart("post_add", 0, False, False),
    "blenderbot": _Bart("pre", 0, False, True),
    "m2m_100": _Bart("pre", None, False, True),
}


class _Stack(NamedTuple):
    """Sizes of one side."""

    layers: int
    heads: int
    inner: int


def _stack_sizes(fields: Fields, side: str) -> _Stack:
    return _Stack(
        fields.integer(f"{side}_layers", maximum=10_000),
        fields.integer(f"{side}_attention_heads"),
        fields.integer(f"{side}_ffn_dim"),
    )


def _decoder_layers(
    width: int,
    stack: _Stack,
    memory_rows: Extent,
    arrangement: Arrangement,
    dropped: float,
    activation: str,
    key_bias: bool = True,
) -> Block:
    """Decoder layers with cross-attention and biases everywhere (Whisper: not on keys)."""
    dim = width // stack.heads
    bias = (True, key_bias, True, True)
    causal = Heads(query=stack.heads, kv=stack.heads, dim=dim, rotary=False, score_upcast=False)
    cross = Heads(
        query=stack.heads,
        kv=stack.heads,
        dim=dim,
        causal=False,
        rotary=False,
        cache_width=2 * width,
        score_upcast=False,
    )
    names = AttentionNames(out="out_proj")
    return layer(
        "decoder.layer",
        width,
        _attention_maker(width, causal, names, bias, TARGETS),
        lambda given, out: mlp(
            given,
            width,
            stack.inner,
            activation_kind=activation,
            gated=False,
            bias=True,
            rows=TARGETS,
            names=MlpNames("fc1", "fc2", ""),
            out=out,
        ),
        between=(_attention_maker(width, cross, names, bias, TARGETS, memory_rows, "cross"), "cross"),
        arrangement=arrangement,
        norm_kind="layer",
        rows=TARGETS,
        dropped=dropped,
        repeat=stack.layers,
        component="decoder",
    )


def _bart_opening(fields: Fields, side: str, rows: Extent) -> Block:
    """The embedding of one side; the decoder shares the encoder's table."""
    width, longest = fields.integer("d_model"), fields.integer("max_position_embeddings", default=1024)
    spec = _BARTS[fields.text("model_type", default="bart")]
    positions = None
    if spec.positions is not None:
        positions = embedding("embed_positions", longest + spec.positions, width, rows=rows, split=False)
    first = None
    if spec.embedding_norm:
        first = norm("layernorm_embedding", "embedded", "first", width, rows=rows)
    return block(
        f"{side}.embedding",
        embedding("shared", fields.integer("vocab_size"), width, rows=rows, tied=side == "decoder"),
        positions,
        tensor("embedded", width, rows),
        first,
        dropout("embedding_dropout", width, fields.number("dropout", default=0.1), rows),
        role="input",
        component=side,
    )


def build_bart(fields: Fields, image_size: int | None = None) -> Model:
    """BART and models built like it."""
    width, vocabulary = fields.integer("d_model"), fields.integer("vocab_size")
    spec = _BARTS[fields.text("model_type", default="bart")]
    longest = fields.integer("max_position_embeddings", default=1024)
    sides = {side: _stack_sizes(fields, side) for side in _COMPONENTS}
    dropped = fields.number("dropout", default=0.1)
    activation = fields.text("activation_function", default="gelu")

    encoder = sides["encoder"]
    blocks = [
        _bart_opening(fields, "encoder", TOKENS),
        plain_layers(
            width,
            encoder.inner,
            encoder.heads,
            encoder.layers,
            activation=activation,
            arrangement=spec.arrangement,
            component="encoder",
            dropped=dropped,
            name="encoder.layer",
        ),
        _memory_block(width, "layer" if spec.final_norm else None),
        _bart_opening(fields, "decoder", TARGETS),
        _decoder_layers(width, sides["decoder"], TOKENS, spec.arrangement, dropped, activation),
        output_block(
            width,
            "layer" if spec.final_norm else None,
            head(width, vocabulary, tied=True, rows=TARGETS),
            rows=TARGETS,
            component="decoder",
        ),
    ]
    length = min(longest, _DEFAULT_LENGTH)
    return describe(
        fields,
        "seq2seq",
        blocks,
        objective="seq2seq",
        seq_len=length,
        target_len=length,
        hidden=width,
        layers=encoder.layers + sides["decoder"].layers,
        vocabulary=vocabulary,
    )


def build_whisper(fields: Fields, image_size: int | None = None) -> Model:
    """Whisper: two convolutions over 30 seconds of audio, an encoder of fixed length, a decoder."""
    width, vocabulary = fields.integer("d_model"), fields.integer("vocab_size")
    frames = fields.integer("max_source_positions", default=1500)
    mels = fields.integer("num_mel_bins", default=80)
    targets = fields.integer("max_target_positions", default=448)
    encoder, decoder = _stack_sizes(fields, "encoder"), _stack_sizes(fields, "decoder")
    rows = fixed(frames)
    activation = fields.text("activation_function", default="gelu")
    dropped = fields.number("dropout", default=0.0)
    blocks = [
        _whisper_stem(width, mels, rows, frames),
        plain_layers(
            width,
            encoder.inner,
            encoder.heads,
            encoder.layers,
            rows,
            activation=activation,
            component="encoder",
            dropped=dropped,
            name="encoder.layer",
            key_bias=False,
        ),
        _memory_block(width, "layer", rows),
        block(
            "decoder.embedding",
            embedding("embed_tokens", vocabulary, width, rows=TARGETS),
            embedding("embed_positions", targets, width, rows=TARGETS, split=False),
            role="input",
            component="decoder",
        ),
        _decoder_layers(width, decoder, rows, "pre", dropped, activation, key_bias=False),
        output_block(
            width,
            "layer",
            head(width, vocabulary, tied=True, rows=TARGETS, name="proj_out"),
            rows=TARGETS,
            component="decoder",
        ),
    ]
    return describe(
        fields,
        "seq2seq",
        blocks,
        objective="seq2seq",
        unit="sample",
        seq_len=0,
        target_len=targets,
        hidden=width,
        layers=encoder.layers + decoder.layers,
        vocabulary=vocabulary,
        max_seq_len=targets,
    )


def _whisper_stem(width: int, mels: int, rows: Extent, frames: int) -> Block:
    """Two convolutions of width 3, the second with stride 2; positions are a fixed table."""
    double = rows.scaled(2.0)
    convolutions = (
        Convolution(
            name="conv1",
            rows=double,
            k=3 * mels,
            n=width,
            bias=True,
            input_elements=mels,
            keeps_for_weight=("mel",),
        ),
        Convolution(
            name="conv2",
            rows=rows,
            k=3 * width,
            n=width,
            bias=True,
            input_elements=2.0 * width,
            keeps=("wide_hidden",),
        ),
    )
    return block(
        "encoder.stem",
        join(
            tensor("mel", mels, double),
            Part(convolutions[:1]),
            tensor("wide", width, double),
            elementwise("gelu1", width, width, keeps=("wide",), rows=double),
            tensor("wide_hidden", width, double),
        ),
        join(
            Part(convolutions[1:]),
            tensor("narrow", width, rows),
            elementwise("gelu2", width, width, keeps=("narrow",), rows=rows),
        ),
        elementwise("embed_positions", width, width, rows=rows, parameters=frames * width),
        role="input",
        component="encoder",
    )
