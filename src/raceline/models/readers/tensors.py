"""A model from the names and shapes of its weights alone.

Shapes give every parameter, and the matrices that each token meets; what stands only in code (which
expert a token visits, the length of an image) they can't give, and the model's notes say so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

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
_BUFFERS = (
    "inv_freq", "position_ids", "num_batches_tracked", "running_mean", "running_var", "rope_freqs.weight",
    "rope_factors_long.weight", "rope_factors_short.weight", "rotary_emb.cos_cached", "rotary_emb.sin_cached",
    "e_score_correction_bias", "exp_probs_b", "exp_probs_b.bias", ".attn.bias", ".attn.masked_bias",
)  # fmt: skip
_NUMBER = re.compile(r"(?<![^._])\d+(?![^._])")
_TABLE = re.compile(r"(embed|wte|wpe|token_type|position|lookup|vocab)", re.IGNORECASE)
_EXPERT = re.compile(r"^(.*experts)\.\d+\.(.+)$")
_EXPERTS = re.compile(r"experts|_exps\b")
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
    return {name: shape for name, shape in shapes.items() if not name.endswith(_BUFFERS)}


def without_layer(name: str) -> str:
    """A tensor's name with a mark in the place of each number: what the layers of a model share."""
    return _NUMBER.sub("#", name)


def elements(shapes: Mapping[str, Shape]) -> int:
    """How many elements they have in all."""
    return sum(math.prod(shape) for shape in shapes.values())


def with_experts_joined(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Matrices of a layer's experts that stand alone become one tensor with the experts in front."""
    alike: dict[str, list[Shape]] = {}
    others: dict[str, Shape] = {}
    for name, shape in shapes.items():
        found = _EXPERT.match(name) if "experts." in name else None
        if found is None:
            others[name] = shape
        else:
            alike.setdefault(f"{found.group(1)}.{found.group(2)}", []).append(shape)
    for name, many in alike.items():
        if name in others or any(shape != many[0] for shape in many):
            return dict(shapes)
        others[name] = (len(many), *many[0])
    return others


def check_count(shapes: Mapping[str, Shape], name: str) -> None:
    """Refuse more tensors, or longer names, than a graph is made of within a second."""
    if len(shapes) > _MOST_TENSORS or sum(map(len, shapes)) > _LONGEST_NAMES:
        raise InputError("models.too_many_tensors", given=name[:80], limit=_MOST_TENSORS)


def model_of(shapes: Mapping[str, Shape]) -> Model:
    """The model of parameters that no family knows, in PyTorch's order (out, in): a matmul, table or
    convolution a tensor."""
    placed = list(placed_ops(shapes))
    is_text = any(isinstance(item.op, Embedding) for item in placed)
    vocabulary = max((item.op.entries for item in placed if isinstance(item.op, Embedding)), default=0)
    notes = ["models.from_weights"]
    if any(isinstance(item.op, Convolution) for item in placed):
        notes.append("models.image_unknown")
    if any(isinstance(item.op, Matmul) and item.op.experts > 1 for item in placed):
        notes.append("models.experts_assumed")
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


def placed_ops(shapes: Mapping[str, Shape]) -> Iterable[Placed]:
    """An op for each weight with its bias, in the order of their numbers."""
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
    if name.endswith("bias"):
        return Elementwise(name="bias", reads=0.0, writes=0.0, parameters=math.prod(shape))
    if len(shape) == 2 and _TABLE.search(name):
        return Embedding(name="table", entries=shape[0], width=shape[1])
    if len(shape) == 2:
        return Matmul(name="matmul", rows=TOKENS, k=shape[1], n=shape[0], bias=bias == (shape[0],))
    if len(shape) == 3 and _EXPERTS.search(name):
        # the fewest that published models visit is 2, the most 8 (Mixtral; DeepSeek-V3, Qwen3)
        visited = min(max(shape[0] // 16, 2), 8, shape[0])
        return Matmul(
            name="experts", k=shape[2], n=shape[1], experts=shape[0], experts_per_token=float(visited)
        )
    if len(shape) in (3, 4, 5):
        window = math.prod(shape[1:])
        return Convolution(name="convolution", rows=SAMPLE, k=window, n=shape[0], bias=bias == (shape[0],))
    if len(shape) == 1 and _NORM.search(name):
        style = "layer" if bias == shape else "rms"
        return Norm(name="norm", style=style, width=shape[0], bias=bias == shape)  # type: ignore[arg-type]
    return Elementwise(name="scale", reads=0.0, writes=0.0, parameters=math.prod(shape))
