"""Models as the arguments of a Megatron-LM launch describe them (megatron/training/arguments.py).

``script`` names the entry point: ``pretrain_gpt`` where it is left out, ``pretrain_bert``, ``pretrain_t5``.
The vocabulary is padded as Megatron pads it. Vision towers are not described by arguments and not read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from raceline.models.families import hybrid, seq2seq
from raceline.models.families.decoder import (
    MOST_LAYERS,
    Sizes,
    assemble,
    attention_maker,
    dropout_of,
    mlp_maker,
    sizes,
)
from raceline.models.families.designs import Design
from raceline.models.families.layers import AttentionNames, Heads, MlpNames, Part, attention
from raceline.models.families.mla import latent, latent_attention
from raceline.models.families.moe import MoeDesign, experts_maker, experts_of
from raceline.models.families.transformer import Make, grouped, layer
from raceline.models.fields import Fields
from raceline.models.graph import Attention, Block, Model
from raceline.present.errors import InputError

ATTENTION = AttentionNames(out="linear_proj", fused="linear_qkv")
MLP = MlpNames("linear_fc1", "linear_fc2", "")
PAD_VOCABULARY_TO = 128
_FREQUENCY = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?")


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The model of a mapping of Megatron arguments; names may be written with ``-`` or ``_``."""
    given = Fields({name.replace("_", "-"): value for name, value in fields.values.items()}, fields.where)
    model = _read(given)
    return _dropping_scores(model) if given.number("attention-dropout", default=0.1, maximum=1.0) else model


def _dropping_scores(model: Model) -> Model:
    """Attention with dropout: beside the softmax, unfused kernels keep a mask of one byte a score and the
    dropped scores, together 5 bytes (https://arxiv.org/abs/2205.05198)."""
    blocks = [
        msgspec.structs.replace(
            block,
            ops=tuple(
                msgspec.structs.replace(op, score_copies=2.5) if isinstance(op, Attention) else op
                for op in block.ops
            ),
        )
        for block in model.blocks
    ]
    return msgspec.structs.replace(model, blocks=tuple(blocks))


def _read(given: Fields) -> Model:
    script = given.text("script", default="pretrain_gpt")
    if script == "pretrain_t5" or "encoder-num-layers" in given.values:
        return seq2seq.build_bart(Fields(_t5(given)))
    if "hybrid-layer-pattern" in given.values:
        return hybrid.build(Fields(_hybrid(given)))
    if script == "pretrain_bert":
        return _bert(given)
    if script != "pretrain_gpt":
        raise InputError("models.megatron_script", field=given.where + "script", given=script[:60])
    return _gpt(given)


def padded_vocabulary(fields: Fields) -> int:
    """The table's entries: a multiple of make-vocab-size-divisible-by x tensor parallelism."""
    stated = fields.integer("padded-vocab-size", default=None)
    if stated is not None:
        return int(stated)
    multiple = fields.integer("make-vocab-size-divisible-by", default=PAD_VOCABULARY_TO)
    multiple *= fields.integer("tensor-model-parallel-size", default=1)
    entries = fields.integer("vocab-size") + fields.integer("vocab-extra-ids", default=0, minimum=0)
    return int(math.ceil(entries / multiple) * multiple)


def _common(fields: Fields, layers: str = "num-layers") -> dict[str, Any]:
    """The sizes under the names that the families read."""
    hidden = fields.integer("hidden-size")
    is_gated = fields.flag("swiglu")
    inner = fields.integer("ffn-hidden-size", default=None) or _default_inner(hidden, is_gated)
    groups = (
        fields.integer("num-query-groups", default=None) if fields.flag("group-query-attention") else None
    )
    values = {
        "model_type": "megatron",
        "hidden_size": hidden,
        "num_hidden_layers": fields.integer(layers, maximum=MOST_LAYERS),
        "num_attention_heads": fields.integer("num-attention-heads"),
        "num_key_value_heads": groups,
        "head_dim": fields.integer("kv-channels", default=None),
        "intermediate_size": inner,
        "vocab_size": padded_vocabulary(fields),
        "max_position_embeddings": fields.integer("max-position-embeddings", "seq-length", default=None),
        "hidden_dropout": fields.number("hidden-dropout", default=0.1, maximum=1.0),
        "tie_word_embeddings": not fields.flag("untie-embeddings-and-output-weights"),
        "num_experts": fields.integer("num-experts", default=None),
        "num_experts_per_tok": fields.integer("moe-router-topk", default=2),
        "moe_intermediate_size": fields.integer("moe-ffn-hidden-size", default=inner),
        "shared_expert_intermediate_size": fields.integer(
            "moe-shared-expert-intermediate-size", default=None
        ),
    }
    return {name: value for name, value in values.items() if value is not None}


def _default_inner(hidden: int, is_gated: bool) -> int:
    """Four times the width, or for gated networks two thirds of that, in steps of 64."""
    return int(4 * hidden * 2 / 3 / 64) * 64 if is_gated else 4 * hidden


def _design(fields: Fields) -> Design:
    is_gated, is_biased = fields.flag("swiglu"), not fields.flag("disable-bias-linear")
    position = fields.text("position-embedding-type", default="learned_absolute")
    return Design(
        norm="rms" if fields.text("normalization", default="LayerNorm") == "RMSNorm" else "layer",
        gated=is_gated,
        activation="silu" if is_gated else "gelu",
        qkv_bias=is_biased or fields.flag("add-qkv-bias"),
        out_bias=is_biased,
        mlp_bias=is_biased,
        flags=("", "", ""),
        qk_norm="head" if fields.flag("qk-layernorm") else None,
        rotary=position == "rope",
        learned_positions=0 if position == "learned_absolute" else None,
        attention=ATTENTION,
        mlp=MLP,
        score_upcast=False,
    )


def _gpt(fields: Fields) -> Model:
    """A decoder, dense or with experts, with plain or latent attention."""
    design, values = _design(fields), _common(fields)
    if fields.flag("multi-latent-attention"):
        values |= _latent(fields)
    read = Fields(values)
    size = sizes(read, design)
    body = _layers(fields, read, design, size)
    family = (
        "mla" if fields.flag("multi-latent-attention") else "moe" if "num_experts" in values else "decoder"
    )
    return assemble(read, design, family, body, size)


def _latent(fields: Fields) -> dict[str, Any]:
    names = {
        "q_lora_rank": ("q-lora-rank", None), "kv_lora_rank": ("kv-lora-rank", 32),
        "qk_nope_head_dim": ("qk-head-dim", 128), "qk_rope_head_dim": ("qk-pos-emb-head-dim", 64),
        "v_head_dim": ("v-head-dim", 128),
    }  # fmt: skip
    found = {name: fields.integer(given, default=default) for name, (given, default) in names.items()}
    return {**found, "head_dim": found["qk_rope_head_dim"]}


def _layers(fields: Fields, read: Fields, design: Design, size: Sizes) -> list[Block]:
    """The body: layers with and without experts, and the layers of multi-token prediction."""
    mixer = _mixer(fields, read, design, size)
    dense = mlp_maker(read, design, size.hidden, size.inner)
    routed = _experts(fields, read, design, size) if "num_experts" in read.values else dense
    sparse = _sparse(fields, size.layers) if routed is not dense else [False] * size.layers
    sparse += sparse[-1:] * fields.integer("mtp-num-layers", default=0, minimum=0, maximum=64)
    return [
        layer(
            "layer.experts" if has_experts else "layer.dense", size.hidden, mixer,
            routed if has_experts else dense, norm_kind=design.norm, dropped=dropout_of(read, design), repeat=count,
        )
        for has_experts, count in grouped(sparse)
    ]  # fmt: skip


def _mixer(fields: Fields, read: Fields, design: Design, size: Sizes) -> Make:
    if not fields.flag("multi-latent-attention"):
        return attention_maker(read, design, size, None)
    spec = latent(read)
    return lambda given, out: latent_attention(given, out, size.hidden, size.heads, spec)


def _experts(fields: Fields, read: Fields, design: Design, size: Sizes) -> Make:
    is_biased = design.mlp_bias and not fields.flag("moe-grouped-gemm")
    spec = msgspec.structs.replace(
        experts_of(read, MoeDesign(decoder=design)), gated=design.gated, bias=is_biased,
        activation=design.activation,
    )  # fmt: skip
    return experts_maker(spec, size.hidden)


def _sparse(fields: Fields, layers: int) -> list[bool]:
    """Which layers have experts: every n-th, or the pattern that moe-layer-freq spells: ``([0]*3+[1]*9)``."""
    given = fields.values.get("moe-layer-freq", 1)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
        return [index % given == 0 for index in range(layers)]
    text = str(given).replace(" ", "").strip("()")
    found = [_FREQUENCY.fullmatch(part) for part in text.split("+")[:1000]]
    pattern = [
        flag == "1"
        for part in found
        if part
        for flag in part[1].split(",") * min(int(part[2] or 1), MOST_LAYERS)
    ]
    if None in found or len(pattern) != layers:
        field = fields.where + "moe-layer-freq"
        raise InputError("models.pattern_wrong", field=field, given=text[:60], layers=layers)
    return pattern


def _bert(fields: Fields) -> Model:
    """Megatron's BERT: the norm stands before each half, and the tied head predicts masked tokens."""
    design, read = _design(fields), Fields(_common(fields))
    size = sizes(read, design)
    heads = Heads(
        query=size.heads, kv=size.kv_heads, dim=size.head_dim, causal=False, rotary=False, score_upcast=False
    )
    bias = (design.qkv_bias, design.qkv_bias, design.qkv_bias, design.out_bias)

    def mixer(given: str, out: str) -> Part:
        return attention(given, size.hidden, heads, bias=bias, names=ATTENTION, out=out)

    body = layer(
        "layer", size.hidden, mixer, mlp_maker(read, design, size.hidden, size.inner), norm_kind=design.norm,
        dropped=dropout_of(read, design), repeat=size.layers,
    )  # fmt: skip
    model = assemble(read, design, "encoder", [body], size)
    return msgspec.structs.replace(model, objective="masked")


def _t5(fields: Fields) -> dict[str, Any]:
    """Megatron's T5 has learned positions, biases and norms as BART's kind, before each half."""
    values = _common(fields, "encoder-num-layers")
    sides: Mapping[str, Any] = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (
            ("layers", fields.integer(f"{side}-num-layers", maximum=MOST_LAYERS)),
            ("attention_heads", values["num_attention_heads"]),
            ("ffn_dim", values["intermediate_size"]),
        )
    }
    longest = fields.integer("max-position-embeddings", "seq-length", default=512)
    return {
        **sides, "model_type": "blenderbot", "d_model": values["hidden_size"], "vocab_size": values["vocab_size"],
        "max_position_embeddings": longest, "dropout": values["hidden_dropout"],
    }  # fmt: skip


def _hybrid(fields: Fields) -> dict[str, Any]:
    """Mamba, attention, feed-forward and experts in the order of the pattern; ``|`` cuts pipeline stages and
    what follows ``/`` predicts further tokens."""
    pattern = fields.text("hybrid-layer-pattern").partition("/")[0].replace("|", "")
    values = _common(Fields({**fields.values, "num-layers": len(pattern)}, fields.where))
    return {
        **values,
        "model_type": "nemotron_h",
        "hybrid_override_pattern": pattern,
        "ssm_state_size": fields.integer("mamba-state-dim", default=128),
        "mamba_head_dim": fields.integer("mamba-head-dim", default=64),
        "n_groups": fields.integer("mamba-num-groups", default=8),
        "moe_shared_expert_intermediate_size": values.get("shared_expert_intermediate_size"),
    }
