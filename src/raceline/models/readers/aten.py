"""PyTorch's operators by name: which step a call is. Used on live traces and on exported graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from raceline.models.graph import Matmul, fixed
from raceline.models.readers import trace
from raceline.models.readers.trace import Step, Value


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call: the operator's name without overload, its arguments (tensors as Value), its results."""

    name: str
    arguments: tuple[Any, ...]
    results: tuple[Value, ...]
    path: str
    batch: int
    named: dict[str, Any] = {}

    def tensor(self, position: int, name: str = "") -> Value | None:
        """The tensor at this position or under this name."""
        value = self.arguments[position] if position < len(self.arguments) else self.named.get(name)
        return value if isinstance(value, Value) else None

    def given(self, position: int) -> Value:
        """The tensor that must stand at this position."""
        value = self.tensor(position)
        return value if value is not None else Value(())

    def other(self, position: int, name: str, default: Any) -> Any:
        """An argument that is no tensor."""
        return self.arguments[position] if position < len(self.arguments) else self.named.get(name, default)


def step_of(call: Call) -> Step | None:
    """The step of a call; None where it moves no data (views) or makes none."""
    rule = _RULES.get(call.name)
    if rule is not None:
        return rule(call)
    if call.name in VIEWS or not call.results:
        return None
    tensors = [value for value in _flat(call.arguments) if isinstance(value, Value)]
    return trace.elementwise(call.path, call.name.strip("_"), tensors, call.results[0], call.batch)


_VIEW_NAMES = (
    "view", "reshape", "_unsafe_view", "permute", "transpose", "t", "expand", "squeeze", "unsqueeze",
    "select", "slice", "split", "chunk", "detach", "alias", "unbind", "narrow", "as_strided", "flatten",
    "unflatten", "split_with_sizes", "lift_fresh_copy", "sym_size", "item", "_local_scalar_dense",
    "contiguous", "arange", "zeros", "ones", "full", "empty", "dropout", "movedim", "view_as", "expand_as",
    "scalar_tensor", "empty_like", "zeros_like", "ones_like", "full_like", "numpy_T", "mT", "size",
    "getitem", "new_zeros", "new_ones", "_assert_tensor_metadata", "sym_constrain_range_for_size", "set_",
    "rand", "randn", "unfold", "triu", "tril", "diagonal", "swapaxes", "adjoint", "to",
)  # fmt: skip
VIEWS = frozenset(_VIEW_NAMES)
"""Operators that move nothing, or whose memory nobody counts."""


def _flat(values: Any) -> list[Any]:
    if isinstance(values, (list, tuple)):
        return [item for value in values for item in _flat(value)]
    return [values]


def _mm(call: Call) -> Step:
    return _product(call, call.given(0), call.given(1))


def _addmm(call: Call) -> Step:
    return _product(call, call.given(1), call.given(2), call.tensor(0))


def _linear(call: Call) -> Step:
    weight = call.given(1)
    turned = Value(weight.shape[::-1], weight.weight, weight.name)
    return _product(call, call.given(0), turned, call.tensor(2, "bias"))


def _product(call: Call, left: Value, right: Value, bias: Value | None = None) -> Step:
    if len(right.shape) == 1:
        right = Value((*right.shape, 1), right.weight, right.name)
    if len(left.shape) == 1:
        left = Value((1, *left.shape), left.weight, left.name)
    if left.weight is not None and right.weight is None and len(left.shape) == 2:
        # weight times activations: the transposed product does the same work
        left, right = Value(_turned(right.shape), None, right.name), Value(left.shape[::-1], left.weight)
    return trace.product(call.path, left, right, call.batch, bias)


def _grouped(call: Call) -> Step:
    """Rows sorted by expert, each with its expert's matrix."""
    return trace.product(call.path, call.given(0), call.given(1), call.batch)


def _turned(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-1], shape[-2])


def _convolution(call: Call) -> Step:
    is_general = call.name in ("convolution", "_convolution", "convolution_overrideable")
    is_transposed = bool(call.other(6, "transposed", False)) if is_general else "transpose" in call.name
    place = 8 if is_general else 7 if is_transposed and not is_general else 6
    groups = call.other(place, "groups", 1)
    return trace.convolution(
        call.path, call.given(0), call.given(1), call.tensor(2, "bias"), call.results[0],
        groups if isinstance(groups, int) else 1, call.batch, is_transposed,
    )  # fmt: skip


def _attention(call: Call) -> Step:
    causal = call.other(5, "is_causal", False)
    has_bias = call.tensor(3, "attn_mask") is not None
    return trace.attention(
        call.path, call.given(0).shape, call.given(1).shape, call.given(2).shape, call.batch,
        causal=causal is True, has_bias=has_bias, named=(*(call.given(at) for at in range(3)), call.results[0]),
    )  # fmt: skip


def _norm(style: Literal["layer", "rms", "batch", "group"], weight: int) -> Callable[[Call], Step]:
    def build(call: Call) -> Step:
        return trace.norm(
            call.path, style, call.given(0), call.tensor(weight, "weight"),
            call.tensor(weight + 1, "bias") if style != "rms" else None, call.batch,
        )  # fmt: skip

    return build


def _embedding(call: Call) -> Step:
    return trace.embedding(call.path, call.given(0), call.given(1), call.batch)


def _softmax(call: Call) -> Step:
    return trace.elementwise(call.path, "softmax", [call.given(0)], call.results[0], call.batch)


def _recurrent(gates: int) -> Callable[[Call], Step]:
    """LSTM and GRU: each step multiplies input and state by their gate matrices."""

    def build(call: Call) -> Step:
        weights = [value for value in _flat(call.arguments) if isinstance(value, Value) and value.weight]
        matrices = [value for value in weights if len(value.shape) == 2]
        elements = sum(value.elements() for value in matrices)
        rows = math.prod(call.given(0).shape[:-1]) / call.batch
        step = trace.elementwise(call.path, "recurrent", weights, call.results[0], call.batch)
        op = Matmul(name="recurrent", rows=fixed(rows), k=max(elements // max(gates, 1), 1), n=gates)
        return msgspec.structs.replace(step, op=op)

    return build


_RULES: dict[str, Callable[[Call], Step]] = {
    "mm": _mm, "bmm": _mm, "matmul": _mm, "dot": _mm, "mv": _mm, "addmm": _addmm, "baddbmm": _addmm,
    "_scaled_mm": _mm, "_grouped_mm": _grouped,
    "linear": _linear, "scaled_dot_product_attention": _attention, "native_layer_norm": _norm("layer", 2),
    "layer_norm": _norm("layer", 2), "native_group_norm": _norm("group", 1), "group_norm": _norm("group", 2),
    "rms_norm": _norm("rms", 2), "_fused_rms_norm": _norm("rms", 2), "embedding": _embedding,
    "softmax": _softmax, "_softmax": _softmax, "_safe_softmax": _softmax, "lstm": _recurrent(4),
    "gru": _recurrent(3),
}  # fmt: skip
_RULES |= dict.fromkeys(
    ("convolution", "_convolution", "convolution_overrideable", "conv1d", "conv2d", "conv3d",
     "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _convolution,
)  # fmt: skip
_RULES |= dict.fromkeys(
    ("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional", "batch_norm",
     "_native_batch_norm_legit_no_training", "cudnn_batch_norm", "_batch_norm_with_update"),
    _norm("batch", 1),
)  # fmt: skip
