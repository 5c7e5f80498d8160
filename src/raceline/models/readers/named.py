"""Families that the names of weights tell: Llama's, GPT-2's and BERT's kin.

Shapes give hidden size, layers, feed-forward size and vocabulary. The size of an attention head stands
only in norms of q and k; without them it is assumed, as a note says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from raceline.models import count
from raceline.models.graph import Model
from raceline.models.readers import tensors
from raceline.models.readers.blocks import blocks_of
from raceline.models.readers.tensors import Shape
from raceline.present.errors import InputError

Config = dict[str, Any]

# Nearly all published models have heads of 128, narrow ones of 64; Gemma 2 and 3 of 256.
_WIDE_HEAD, _NARROW_HEAD, _GEMMA_HEAD = 128, 64, 256
_WIDE_FROM = 2048


def model_of(shapes: Mapping[str, Shape], name: str, source: str, precision: str | None) -> Model:
    """The model that named shapes (in PyTorch's order: out, in) show: a family where their names are its,
    else one op a tensor. Parameters equal the file's exactly."""
    shapes = tensors.with_experts_joined(tensors.without_buffers(shapes))
    tensors.check_count(shapes, name)
    model = _family(shapes) or tensors.model_of(shapes)
    return msgspec.structs.replace(model, name=name, source=source, precision=precision)


def _family(shapes: Mapping[str, Shape]) -> Model | None:
    """The first family whose names these are, with what heads it doesn't know beside it."""
    from raceline.models.families import registry
    from raceline.models.fields import Fields

    for recognise in (llama_config, gpt2_config, bert_config):
        config = recognise(shapes)
        if config is None:
            continue
        try:
            model = registry.build_model(Fields(config))
        except InputError:
            continue
        model = _with_heads(model, shapes, is_decoder="tie_word_embeddings" in config)
        if count.parameters(model) == tensors.elements(shapes):
            assumed = () if "_head_known" in config else ("models.heads_assumed",)
            return msgspec.structs.replace(model, notes=(*model.notes, *assumed))
    return None


_BODY = re.compile(r"(^|\.)(layers?|h|embeddings|embed_tokens|wte|wpe|norm|ln_f|pooler)\.")


def _with_heads(model: Model, shapes: Mapping[str, Shape], *, is_decoder: bool) -> Model:
    """The model without the pooler that the file lacks, and with the heads of its task."""
    blocks = model.blocks
    if not any("pooler." in name for name in shapes):
        blocks = tuple(block for block in blocks if block.name != "pooler")
    heads = {name: shape for name, shape in shapes.items() if not _BODY.search(name)}
    if is_decoder:
        heads.pop("lm_head.weight", None)
    made = (msgspec.structs.replace(block, role="output") for block in blocks_of(tensors.placed_ops(heads)))
    # with its head from the file, the model is no longer one without
    notes = tuple(note for note in model.notes if not heads or note != "models.encoder_without_head")
    return msgspec.structs.replace(model, blocks=(*blocks, *made), notes=notes)


class _Names:
    """Shapes by name below a prefix that the whole model shares."""

    def __init__(self, shapes: Mapping[str, Shape], marker: str, prefixes: tuple[str, ...]) -> None:
        self.shapes = shapes
        self.prefix = next((start for start in prefixes if f"{start}{marker}" in shapes), None)

    def matrix(self, name: str) -> Shape:
        """A matrix's two sizes; (0, 0) where there is none of that name."""
        shape = self.shapes.get(f"{self.prefix}{name}", ())
        return shape if len(shape) == 2 else (0, 0)

    def has(self, name: str) -> bool:
        """Whether there is such a tensor."""
        return f"{self.prefix}{name}" in self.shapes

    def layers(self, path: str) -> int:
        """How many numbers follow a path."""
        pattern = re.compile(rf"{re.escape(f'{self.prefix}{path}')}\.(\d{{1,6}})\.")
        return len({found.group(1) for name in self.shapes if (found := pattern.match(name))})


def llama_config(shapes: Mapping[str, Shape]) -> Config | None:
    """The config that Llama's names and their shapes imply (Qwen 2 and 3, Gemma 2 and 3 too)."""
    names = _Names(shapes, "embed_tokens.weight", ("model.", "", "language_model.model."))
    first = "layers.0."
    q, k = (
        names.matrix(f"{first}self_attn.q_proj.weight")[0],
        names.matrix(f"{first}self_attn.k_proj.weight")[0],
    )
    vocabulary, hidden = names.matrix("embed_tokens.weight")
    is_gemma = names.has(f"{first}pre_feedforward_layernorm.weight")
    norm = shapes.get(f"{names.prefix}{first}self_attn.q_norm.weight", ())
    head = norm[0] if norm else _assumed_head(q, is_gemma)
    if not head or not q or not k or q % head or k % head:
        return None
    has_bias = names.has(f"{first}self_attn.q_proj.bias")
    plain = "qwen3" if norm else "qwen2" if has_bias else "llama"
    config: Config = {
        "model_type": ("gemma3_text" if norm else "gemma2") if is_gemma else plain,
        "hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": names.layers("layers"),
        "intermediate_size": names.matrix(f"{first}mlp.gate_proj.weight")[0],
        "num_attention_heads": q // head, "num_key_value_heads": k // head, "head_dim": head,
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }  # fmt: skip
    return {**config, "_head_known": True} if norm else config


def _assumed_head(width: int, is_gemma: bool) -> int:
    if is_gemma and width % _GEMMA_HEAD == 0:
        return _GEMMA_HEAD
    return _WIDE_HEAD if width >= _WIDE_FROM else _NARROW_HEAD


def gpt2_config(shapes: Mapping[str, Shape]) -> Config | None:
    """The config that GPT-2's names imply; its matrices stand as (in, out)."""
    names = _Names(shapes, "wte.weight", ("transformer.", ""))
    hidden, fused = names.matrix("h.0.attn.c_attn.weight")
    vocabulary = names.matrix("wte.weight")[0]
    if not hidden or fused != 3 * hidden:
        return None
    return {
        "model_type": "gpt2", "n_embd": hidden, "n_layer": names.layers("h"), "vocab_size": vocabulary,
        "n_head": max(hidden // _NARROW_HEAD, 1), "n_positions": names.matrix("wpe.weight")[0],
        "n_inner": names.matrix("h.0.mlp.c_fc.weight")[1], "tie_word_embeddings": "lm_head.weight" not in shapes,
    }  # fmt: skip


def bert_config(shapes: Mapping[str, Shape]) -> Config | None:
    """The config that the names of BERT, RoBERTa and ELECTRA imply."""
    marker = "embeddings.word_embeddings.weight"
    names = _Names(shapes, marker, ("bert.", "roberta.", "electra.", ""))
    vocabulary, width = names.matrix(marker)
    hidden = names.matrix("encoder.layer.0.attention.self.query.weight")[0]
    if not hidden or width != hidden:
        return None
    return {
        "model_type": "bert", "hidden_size": hidden, "vocab_size": vocabulary,
        "num_hidden_layers": names.layers("encoder.layer"), "num_attention_heads": max(hidden // _NARROW_HEAD, 1),
        "intermediate_size": names.matrix("encoder.layer.0.intermediate.dense.weight")[0],
        "max_position_embeddings": names.matrix("embeddings.position_embeddings.weight")[0],
        "type_vocab_size": names.matrix("embeddings.token_type_embeddings.weight")[0],
    }  # fmt: skip
