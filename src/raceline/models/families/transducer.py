"""RNN transducers: LSTM layers over frames of speech, LSTM layers over the text, and a joint network.

Fields are those of MLPerf's reference (mlcommons/training, rnn_speech_recognition/pytorch, arXiv:1211.3711):
`in_feats`, `n_classes` (with the blank), `enc_n_hid`, `enc_pre_rnn_layers`, `enc_stack_time_factor`,
`enc_post_rnn_layers`, `pred_n_hid`, `pred_rnn_layers`, `joint_n_hid`, and `enc_dropout`, `pred_dropout`,
`joint_dropout`. A position of `seq_len` is one frame. Two more fields stand for the data: `frames` (what
`seq_len` is where a workload names none) and `text_len` (pieces of text a sample). The joint network sees
every pair of a stacked frame and a piece of text.
"""

from __future__ import annotations

from typing import Literal

from raceline.models.families.layers import block, dropout, elementwise, linear, tensor
from raceline.models.families.transformer import describe, embedding, loss
from raceline.models.fields import Fields
from raceline.models.graph import TOKENS, Block, Extent, Model, fixed

_WIDEST, _DEEPEST, _LONGEST = 65_536, 1000, 100_000
# LibriSpeech: 960.9 hours in 281,241 utterances, so 12.3 s, at 30 ms a frame
_FRAMES = 410
# an assumption: some 33 words a sample, in a vocabulary of 1023 pieces
_TEXT_LEN = 60

Side = Literal["encoder", "prediction"]


def build(fields: Fields, image_size: int | None = None) -> Model:
    """An RNN transducer."""
    classes = fields.integer("n_classes", default=1024, minimum=2, maximum=1_000_000)
    text_len = fields.integer("text_len", default=_TEXT_LEN, maximum=_LONGEST)
    factor = fields.integer("enc_stack_time_factor", default=2, maximum=64)
    encoder, layers = _encoder(fields, factor), _depths(fields)
    return describe(
        fields,
        "transducer",
        [
            *encoder,
            *_prediction(fields, classes, text_len),
            _joint(fields, classes, factor, text_len),
        ],
        objective="classify",
        unit="sample",
        seq_len=fields.integer("frames", default=_FRAMES, maximum=_LONGEST),
        hidden=_width(fields, "enc_n_hid", 1024),
        layers=sum(layers.values()),
        vocabulary=classes,
    )


def _width(fields: Fields, name: str, default: int) -> int:
    return int(fields.integer(name, default=default, maximum=_WIDEST))


def _depths(fields: Fields) -> dict[str, int]:
    """LSTM layers of each stack."""
    usual = {"enc_pre_rnn_layers": 2, "enc_post_rnn_layers": 3, "pred_rnn_layers": 2}
    return {name: fields.integer(name, default=depth, maximum=_DEEPEST) for name, depth in usual.items()}


def _encoder(fields: Fields, factor: int) -> list[Block]:
    """LSTM layers over frames, then over `factor` frames side by side."""
    width, depths = _width(fields, "enc_n_hid", 1024), _depths(fields)
    dropped = fields.number("enc_dropout", default=0.1, maximum=1.0)
    stacked = TOKENS.scaled(1 / factor)
    before = _stack("pre_rnn", _width(fields, "in_feats", 240), width, depths["enc_pre_rnn_layers"], dropped)
    copied = block(
        "stack_time",
        elementwise("stack_time", float(factor * width), float(factor * width), rows=stacked),
        role="input",
        component="encoder",
    )
    after = _stack("post_rnn", factor * width, width, depths["enc_post_rnn_layers"], dropped, stacked)
    return [*before, copied, *after]


def _prediction(fields: Fields, classes: int, text_len: int) -> list[Block]:
    """A table of all classes but the blank, and LSTM layers from a start symbol on."""
    width, depth = _width(fields, "pred_n_hid", 512), _depths(fields)["pred_rnn_layers"]
    dropped = fields.number("pred_dropout", default=0.3, maximum=1.0)
    table = block(
        "embed",
        embedding("embed", classes - 1, width, rows=fixed(text_len), split=False),
        role="input",
        component="prediction",
    )
    return [table, *_stack("dec_rnn", width, width, depth, dropped, fixed(text_len + 1), "prediction")]


def _stack(
    name: str,
    given: int,
    width: int,
    layers: int,
    dropped: float,
    rows: Extent = TOKENS,
    side: Side = "encoder",
) -> list[Block]:
    """The first layer reads `given` elements a position, the others what the layer below makes."""
    blocks = [_lstm(f"{name}.0", given, width, rows, dropped, side, 1)]
    if layers > 1:
        blocks.append(_lstm(f"{name}.1", width, width, rows, dropped, side, layers - 1))
    return blocks


def _lstm(name: str, given: int, width: int, rows: Extent, dropped: float, side: Side, repeat: int) -> Block:
    """One LSTM layer (as torch.nn.LSTM, with two biases): four gates from the input and from the state
    before, kept with the cell. Without dropout the next layer keeps the states as its input."""
    return block(
        name,
        tensor("input", given, rows),
        linear("weight_ih", "input", given, 4 * width, rows=rows, bias=True),
        linear("weight_hh", "states" if dropped else "", width, 4 * width, rows=rows, bias=True),
        tensor("states", width, rows),
        tensor("gates", 4.0 * width, rows),
        tensor("cells", width, rows),
        elementwise("gates", 9.0 * width, 6.0 * width, keeps=("gates", "cells"), rows=rows),
        dropout("dropout", width, dropped, rows),
        repeat=repeat,
        boundary="input",
        component=side,
    )


def _joint(fields: Fields, classes: int, factor: int, text_len: int) -> Block:
    """Both sides projected to one width and added for every pair of frame and piece, ReLU, and the classes."""
    frames, pieces = TOKENS.scaled(1 / factor), fixed(text_len + 1)
    pairs = TOKENS.scaled((text_len + 1) / factor)
    encoded, predicted = _width(fields, "enc_n_hid", 1024), _width(fields, "pred_n_hid", 512)
    width = _width(fields, "joint_n_hid", 512)
    dropped = fields.number("joint_dropout", default=0.3, maximum=1.0)
    return block(
        "joint",
        tensor("encoded", encoded, frames),
        tensor("predicted", predicted, pieces),
        linear("joint_enc", "encoded", encoded, width, rows=frames, bias=True),
        linear("joint_pred", "predicted", predicted, width, rows=pieces, bias=True),
        elementwise("relu", 2.0 * width, width, rows=pairs, keeps=("joined",)),
        tensor("joined", width, pairs),
        dropout("dropout", width, dropped, pairs),
        tensor("dropped", width, pairs) if dropped else None,
        linear(
            "joint_net",
            "dropped" if dropped else "joined",
            width,
            classes,
            rows=pairs,
            bias=True,
            quantisable=False,
        ),
        loss(classes, pairs),
        role="output",
        component="joint",
    )
