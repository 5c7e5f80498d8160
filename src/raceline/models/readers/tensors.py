"""A model from the names and shapes of its weights alone.

Shapes give every parameter, and the matrices that each token meets; what stands only in code (which
expert a token visits, the length of an image) they can't give, and the model's notes say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from raceline.models import count
from raceline.models.graph import (
    SAMPLE,
    TOKENS,
    AnyOp,
    Convolution,
    Elementwise,
    Embedding,
    Matmul,
    Model,
    Norm,
)
from raceline.models.readers.blocks import Placed, blocks_of, natural
from raceline.present.errors import InputError

Shape = tuple[int, ...]

MOST_ELEMENTS = 10**14
_MOST_TENSORS = 20_000
_LONGEST_NAMES = 1_200_000
_BUFFERS = re.compile(
    r"(inv_freq|position_ids|num_batches_tracked|running_mean|running_var|rope_freqs\.weight"
    r"|attn\.bias|attn\.masked_bias|rotary_emb\.(cos|sin)_cached)$"
)
_NUMBER = re.compile(r"(?<![^._])\d+(?![^._])")
_TABLE = re.compile(r"(embed|wte|wpe|token_type|position|lookup|vocab)", re.IGNORECASE)
_NORM = re.compile(r"(norm|ln_|\bln\d?\b|\bbn\d?\b|layernorm|batchnorm)", re.IGNORECASE)


def checked_shape(shape: Any, name: str) -> Shape:
    """A shape as a tuple; InputError unless it is a list of whole numbers of a sane product."""
    is_list = isinstance(shape, (list, tuple)) and len(shape) <= 8
    if not is_list or not all(type(size) is int and 0 <= size <= MOST_ELEMENTS for size in shape):
        raise InputError("models.tensor_shape_wrong", given=name[:80])
    if math.prod(shape) > MOST_ELEMENTS:
        raise InputError("models.tensor_shape_wrong", given=name[:80])
    return tuple(shape)


def without_buffers(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """The parameters among named tensors: running statistics and position tables are none."""
    return {name: shape for name, shape in shapes.items() if not _BUFFERS.search(name)}


def without_layer(name: str) -> str:
    """A tensor's name with a mark in the place of each number: what the layers of a model share."""
    return _NUMBER.sub("#", name)


def elements(shapes: Mapping[str, Shape]) -> int:
    """How many elements they have in all."""
    return sum(math.prod(shape) for shape in shapes.values())


def check_count(shapes: Mapping[str, Shape], name: str) -> None:
    """Refuse more tensors, or longer names, than a graph is made of within a second."""
    if len(shapes) > _MOST_TENSORS or sum(map(len, shapes)) > _LONGEST_NAMES:
        raise InputError("models.too_many_tensors", given=name[:80], limit=_MOST_TENSORS)


def model_of(shapes: Mapping[str, Shape], name: str, source: str, precision: str | None) -> Model:
    """The model that named shapes (in PyTorch's order: out, in) show: a known family where the names are
    Llama's, else one matmul, table or convolution a tensor. Parameters equal the file's exactly."""
    shapes = without_buffers(shapes)
    check_count(shapes, name)
    known = _as_llama(shapes)
    if known is None or count.parameters(known) != elements(shapes):
        known = _as_tensors(shapes)
    return msgspec.structs.replace(known, name=name, source=source, precision=precision)


def _as_llama(shapes: Mapping[str, Shape]) -> Model | None:
    """The decoder with Llama's names. The size of a head stands nowhere but in norms of q and k; without
    them it is 128 (64 for narrow models), as in nearly all published models, and a note says so."""
    from raceline.models.families import registry
    from raceline.models.fields import Fields

    config = llama_config(shapes)
    if config is None:
        return None
    try:
        model = registry.build_model(Fields(config))
    except InputError:
        return None
    if config["model_type"] == "qwen3":
        return model
    return msgspec.structs.replace(model, notes=(*model.notes, "models.heads_assumed"))


def llama_config(shapes: Mapping[str, Shape]) -> dict[str, Any] | None:
    """The config fields that Llama-like names and shapes imply, or None."""
    prefix = "model." if "model.embed_tokens.weight" in shapes else ""
    first = f"{prefix}layers.0."
    wanted = {
        "embedding": f"{prefix}embed_tokens.weight", "q": f"{first}self_attn.q_proj.weight",
        "k": f"{first}self_attn.k_proj.weight", "gate": f"{first}mlp.gate_proj.weight",
    }  # fmt: skip
    found = {key: shapes.get(name, ()) for key, name in wanted.items()}
    if any(len(shape) != 2 or 0 in shape for shape in found.values()):
        return None
    vocabulary, hidden = found["embedding"]
    head_norm = shapes.get(f"{first}self_attn.q_norm.weight")
    head = head_norm[0] if head_norm else 128 if found["q"][0] >= 2048 else 64
    if not head or found["q"][0] % head or found["k"][0] % head:
        return None
    layers = {
        int(m.group(1))
        for name in shapes
        if (m := re.match(rf"{re.escape(prefix)}layers\.(\d{{1,6}})\.", name))
    }
    has_bias = f"{first}self_attn.q_proj.bias" in shapes
    return {
        "model_type": "qwen3" if head_norm else "qwen2" if has_bias else "llama",
        "hidden_size": hidden, "vocab_size": vocabulary, "num_hidden_layers": len(layers),
        "intermediate_size": found["gate"][0], "num_attention_heads": found["q"][0] // head,
        "num_key_value_heads": found["k"][0] // head, "head_dim": head,
        "tie_word_embeddings": "lm_head.weight" not in shapes,
    }  # fmt: skip


def _as_tensors(shapes: Mapping[str, Shape]) -> Model:
    placed = list(_placed(shapes))
    is_text = any(isinstance(item.op, Embedding) for item in placed)
    vocabulary = max((item.op.entries for item in placed if isinstance(item.op, Embedding)), default=0)
    notes = ["models.from_weights"]
    if any(isinstance(item.op, Convolution) for item in placed):
        notes.append("models.image_unknown")
    return Model(
        name="",
        family="weights",
        architecture="weights",
        blocks=blocks_of(placed),
        unit="token" if is_text else "sample",
        objective="causal" if is_text else "classify",
        seq_len=2048 if is_text else 1,
        vocabulary=vocabulary,
        notes=tuple(notes),
    )


def _placed(shapes: Mapping[str, Shape]) -> Iterable[Placed]:
    for name in sorted(shapes, key=natural):
        path, _, kind = name.rpartition(".")
        if kind != "bias" or f"{path}.weight" not in shapes:
            bias = shapes.get(f"{path}.bias") if kind == "weight" else None
            yield from _ops(path or name, name, shapes[name], bias)


def _ops(path: str, name: str, shape: Shape, bias: Shape | None) -> Iterable[Placed]:
    op = _op(name, shape, bias)
    yield Placed(path, op)
    left = math.prod(shape) + (math.prod(bias) if bias is not None else 0) - count.op_parameters(op)
    if left:
        yield Placed(f"{path}.rest", Elementwise(name="rest", reads=0.0, writes=0.0, parameters=left))


def _op(name: str, shape: Shape, bias: Shape | None) -> AnyOp:
    if len(shape) == 2 and _TABLE.search(name):
        return Embedding(name="table", entries=shape[0], width=shape[1])
    if len(shape) == 2:
        return Matmul(name="matmul", rows=TOKENS, k=shape[1], n=shape[0], bias=bias == (shape[0],))
    if len(shape) in (3, 4, 5) and "experts" not in name:
        window = math.prod(shape[1:])
        return Convolution(name="convolution", rows=SAMPLE, k=window, n=shape[0], bias=bias == (shape[0],))
    if len(shape) == 1 and _NORM.search(name):
        style = "layer" if bias == shape else "rms"
        return Norm(name="norm", style=style, width=shape[0], bias=bias == shape)  # type: ignore[arg-type]
    return Elementwise(name="scale", reads=0.0, writes=0.0, parameters=math.prod(shape))
