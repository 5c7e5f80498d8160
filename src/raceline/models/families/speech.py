"""Speech encoders: wav2vec 2.0 and its kin on waveforms, the audio spectrogram transformer on patches.

For waveforms a position of `seq_len` is one output frame (20 ms, 320 samples at 16 kHz).
"""

from __future__ import annotations

from math import prod

from raceline.models.families.encoder import plain_layers
from raceline.models.families.layers import Part, block, elementwise, join, linear, norm, tensor
from raceline.models.families.transformer import describe, loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, TOKENS, Block, Convolution, Model, Norm, fixed

_KERNELS, _STRIDES = [10, 3, 3, 3, 3, 2, 2], [5, 2, 2, 2, 2, 2, 2]
_TEN_SECONDS = 500


def build(fields: Fields, image_size: int | None = None) -> Model:
    """wav2vec 2.0, HuBERT, WavLM, or the audio spectrogram transformer."""
    if fields.text("model_type", default="wav2vec2") == "audio-spectrogram-transformer":
        return _build_spectrogram(fields)
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    stable = fields.flag("do_stable_layer_norm")
    body = plain_layers(
        hidden,
        fields.integer("intermediate_size"),
        fields.integer("num_attention_heads"),
        layers,
        arrangement="pre" if stable else "post_add",
        dropped=fields.number("hidden_dropout", default=0.1),
    )
    vocabulary = fields.integer("vocab_size", default=32)
    output = block(
        "output",
        tensor("last", hidden),
        linear("lm_head", "last", hidden, vocabulary, bias=True, quantisable=False),
        loss(vocabulary),
        role="output",
    )
    return describe(
        fields,
        "encoder",
        [_feature_extractor(fields), _projection(fields, hidden), body, output],
        objective="classify",
        unit="sample",
        seq_len=_TEN_SECONDS,
        hidden=hidden,
        layers=layers,
        vocabulary=vocabulary,
    )


def _feature_extractor(fields: Fields) -> Block:
    """Convolutions over the waveform; each level has the frames times the strides that follow."""
    kernels = fields.items("conv_kernel", default=_KERNELS, longest=64)
    strides = fields.items("conv_stride", default=_STRIDES, longest=64)
    widths = fields.items("conv_dim", default=[512] * len(kernels), longest=64)
    every = fields.text("feat_extract_norm", default="group") == "layer"
    bias = fields.flag("conv_bias")
    parts: list[Part] = [tensor("wave0", 1, TOKENS.scaled(prod(strides)))]
    before = 1
    for index, (kernel, width) in enumerate(zip(kernels, widths, strict=True)):
        rows = TOKENS.scaled(prod(strides[index + 1 :]))
        op = Convolution(
            name=f"conv{index}",
            rows=rows,
            k=kernel * before,
            n=width,
            bias=bias,
            input_elements=float(strides[index] * before),
            keeps_for_weight=(f"wave{index}",),
        )
        given = f"conv{index}_out"
        parts += [Part((op,)), tensor(given, width, rows)]
        if every:
            parts.append(norm(f"norm{index}", given, f"conv{index}_normed", width, rows=rows))
        elif index == 0:
            group = Norm(name="group_norm", rows=rows, style="group", width=width, bias=True, keeps=(given,))
            parts += [Part((group,)), tensor("conv0_normed", width, rows)]
        act = f"conv{index}_normed" if every or index == 0 else given
        parts += [
            elementwise(f"gelu{index}", width, width, keeps=(act,), rows=rows),
            tensor(f"wave{index + 1}", width, rows),
        ]
        before = width
    return block("feature_extractor", *parts, role="input")


def _projection(fields: Fields, hidden: int) -> Block:
    """Norm and projection of the features, and positions by a grouped convolution with weight norm."""
    width = fields.items("conv_dim", default=[512], longest=64)[-1]
    kernel, groups = (
        fields.integer("num_conv_pos_embeddings", default=128),
        fields.integer("num_conv_pos_embedding_groups", default=16),
    )
    positions = Convolution(
        name="pos_conv",
        k=kernel * hidden // groups,
        n=hidden,
        groups=groups,
        bias=True,
        keeps_for_weight=("projected",),
    )
    return block(
        "projection",
        tensor("features", width),
        norm("feature_norm", "features", "normed", width),
        linear("projection", "normed", width, hidden, bias=True, out="projected"),
        Part((positions,)),
        tensor("positions", hidden),
        elementwise("gelu", hidden, hidden, keeps=("positions",), parameters=kernel),
        elementwise("masked_spec_embed", 0, 0, parameters=hidden),
        tensor("embedded", hidden),
        norm("encoder_norm", "embedded", "first", hidden),
        role="input",
    )


def _build_spectrogram(fields: Fields) -> Model:
    """Overlapping patches of a spectrogram, a class and a distillation token, a classifier."""
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    patch = fields.integer("patch_size", default=16)
    mels, frames = fields.integer("num_mel_bins", default=128), fields.integer("max_length", default=1024)
    high = (mels - patch) // fields.integer("frequency_stride", default=10) + 1
    wide = (frames - patch) // fields.integer("time_stride", default=10) + 1
    patches, rows = fixed(max(1, high * wide)), fixed(max(1, high * wide) + 2)
    labels = fields.integer("num_labels", default=527)
    stem = Convolution(
        name="patch_embedding",
        rows=patches,
        k=patch * patch,
        n=hidden,
        bias=True,
        keeps_for_weight=("patches",),
    )
    first = block(
        "embedding",
        tensor("patches", patch * patch, patches),
        Part((stem,)),
        elementwise("positions", hidden, hidden, rows=rows, parameters=int(rows.fixed + 2) * hidden),
        role="input",
    )
    body = plain_layers(
        hidden, fields.integer("intermediate_size"), fields.integer("num_attention_heads"), layers, rows
    )
    output = block(
        "output",
        tensor("last", hidden, rows),
        norm("final_norm", "last", "normed", hidden, rows=rows),
        join(
            tensor("pooled", hidden, SAMPLE),
            norm("classifier_norm", "pooled", "head_input", hidden, rows=SAMPLE),
        ),
        linear("classifier", "head_input", hidden, labels, rows=SAMPLE, bias=True, quantisable=False),
        loss(labels, SAMPLE),
        role="output",
    )
    return describe(
        fields,
        "encoder",
        [first, body, output],
        objective="classify",
        unit="sample",
        seq_len=0,
        hidden=hidden,
        layers=layers,
        vocabulary=labels,
    )
