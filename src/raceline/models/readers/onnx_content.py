"""Small whole-number values of an ONNX graph, calculated because shapes are made of them.

Operator definitions: github.com/onnx/onnx, docs/Operators.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from raceline.models.readers.onnx_wire import Node
from raceline.models.readers.tensors import Shape

_MOST_FOLDED = 65_536
_ALWAYS_FOLDED = 64


class Known(msgspec.Struct, frozen=True):
    """What is known of a value: its shape, its content where that is small, the weight that it is."""

    shape: Shape
    content: Any = None
    weight: str | None = None
    is_whole: bool = False


Inputs = list[Known]
ABSENT = Known(())
"""Stands where a node leaves an optional input out."""


def whole_numbers(known: Known | None) -> list[int] | None:
    """The first numbers of a known content."""
    if known is None or known.content is None:
        return None
    return [int(value) for value in np.asarray(known.content).reshape(-1)[:64]]


def listed(node: Node, given: Inputs, position: int, name: str) -> list[int] | None:
    """A list that older versions write as an attribute and newer ones as an input."""
    if name in node.attributes:
        return list(node.attributes[name])
    return whole_numbers(given[position]) if len(given) > position else None


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Equal": np.equal, "Max": np.maximum, "Min": np.minimum,
    "Greater": np.greater, "Less": np.less,
}  # fmt: skip


def content_of(node: Node, given: Inputs, shape: Shape, room: int) -> Any:
    """The small whole-number content of an output that shapes are calculated with, or None. `room`: how
    many more elements the graph may hold; a few are always held, since shapes are that short."""
    if math.prod(shape) > min(_MOST_FOLDED, max(room, _ALWAYS_FOLDED)):
        return None
    if node.operator == "Shape":
        full = given[0].shape
        return np.array(
            full[node.attributes.get("start", 0) : node.attributes.get("end", len(full))], np.int64
        )
    if node.operator == "ConstantOfShape" and given[0].content is not None:
        value = getattr(node.attributes.get("value"), "values", None)
        return np.full(shape, 0 if value is None else np.ravel(value)[0])
    values = [known.content for known in given if known is not ABSENT]
    if not values or any(value is None for value in values):
        return None
    if node.operator in _ARITHMETIC and len(values) == 2:
        return np.asarray(_ARITHMETIC[node.operator](*values))
    if node.operator == "Div" and all(np.asarray(value).dtype.kind == "i" for value in values):
        return np.asarray(values[0] // np.maximum(values[1], 1))
    if node.operator == "Where":
        return np.where(*values)
    if node.operator == "Gather":
        return np.take(values[0], values[1].astype(np.int64), axis=node.attributes.get("axis", 0))
    if node.operator == "Concat":
        return np.concatenate([np.atleast_1d(value) for value in values], axis=node.attributes.get("axis", 0))
    if node.operator == "Range":
        return np.arange(*(int(np.ravel(value)[0]) for value in values))
    if node.operator == "Slice":
        return _sliced(node, given)
    if node.operator == "Expand":
        return np.broadcast_to(values[0], shape)
    if node.operator == "Cast":
        return values[0].astype(np.int64) if node.attributes.get("to") in (6, 7) else values[0]
    if node.operator in ("Unsqueeze", "Squeeze", "Reshape", "Identity"):
        return np.reshape(values[0], shape)
    return None


def _sliced(node: Node, given: Inputs) -> Any:
    content = np.asarray(given[0].content)
    starts, ends = listed(node, given, 1, "starts") or [], listed(node, given, 2, "ends") or []
    axes = listed(node, given, 3, "axes") or list(range(len(starts)))
    steps = listed(node, given, 4, "steps") or [1] * len(starts)
    index: list[Any] = [slice(None)] * content.ndim
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        index[axis] = slice(start, end, step)
    return content[tuple(index)]
