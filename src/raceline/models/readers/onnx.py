"""An .onnx file: its graph becomes ops; weights and external data stay unread. Needs no onnx package."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import msgspec

from raceline.models.graph import Model
from raceline.models.readers import trace
from raceline.models.readers.onnx_content import ABSENT, Known
from raceline.models.readers.onnx_plain import Plain, plain
from raceline.models.readers.onnx_shapes import attention_heads, einsum_letters, infer
from raceline.models.readers.onnx_wire import Graph, Node, load
from raceline.models.readers.tensors import checked_shape, without_buffers
from raceline.models.readers.trace import Step, Value
from raceline.present.errors import InputError

DEFAULT_TOKENS = 128
DEFAULT_IMAGE_SIZE = 224
_WHOLE = (6, 7)
_MOST_CONTENT = 4_000_000
_SILENT_NAMES = (
    "Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Shape", "Constant", "ConstantOfShape",
    "Identity", "Cast", "Expand", "Range", "Slice", "Split", "Dropout", "DequantizeLinear",
    "QuantizeLinear", "Gather", "Where", "Equal", "Concat",
)  # fmt: skip
_SILENT = frozenset(_SILENT_NAMES)  # fmt: skip


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of an ``.onnx`` file. A symbolic first dimension is the batch, that of whole-number inputs
    the sequence, that of images the image's side."""
    path = Path(reference)
    graph = load(path)
    try:
        return _model(graph, path, image_size)
    except (
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        OverflowError,
        ZeroDivisionError,
    ) as error:
        reason = f"{type(error).__name__} {error}".strip()[:80]
        raise InputError("models.onnx_graph", given=path.name, reason=reason) from None


def _model(file: Graph, path: Path, image_size: int | None) -> Model:
    program = plain(file)
    graph, weights = program.graph, _weights(program)
    shapes = _input_shapes(graph, DEFAULT_TOKENS, image_size or DEFAULT_IMAGE_SIZE)
    first = next(iter(shapes.values()), ())
    batch = first[0] if first else 1
    steps = _steps(graph, shapes, weights, batch)
    length = _sequence(graph, shapes)
    notes: tuple[str, ...] = ("models.kept_assumed",)
    if length and _is_symbolic(graph):
        longer = _input_shapes(graph, 2 * DEFAULT_TOKENS, image_size or DEFAULT_IMAGE_SIZE)
        steps = trace.grow(steps, _steps(graph, longer, weights, batch), (length, 2 * length))
    elif length:
        notes = (*notes, "models.length_fixed")
    model = trace.model_of(
        steps, weights, name=path.stem, architecture="ONNX", source=str(path), seq_len=length,
        image_size=first[-1] if len(first) == 4 else None, notes=notes,
    )  # fmt: skip
    precision, weight_format = _formats(program, weights)
    return msgspec.structs.replace(model, precision=precision, weight_format=weight_format)


def _weights(program: Plain) -> dict[str, int]:
    """Elements of each parameter: floating-point constants, and quantised weights."""
    shapes = {
        name: constant.shape for name, constant in program.graph.constants.items()
        if (constant.precision or name in program.bits) and constant.shape and name not in program.apart
    }  # fmt: skip
    return {name: math.prod(shape) for name, shape in without_buffers(shapes).items()}


def _formats(program: Plain, weights: dict[str, int]) -> tuple[str | None, str | None]:
    """The format of most floating-point weights, and that of the quantised ones where those are most."""
    elements: Counter[str | int] = Counter()
    for name, size in weights.items():
        elements[program.graph.constants[name].precision or program.bits[name]] += size
    floats = [(size, kind) for kind, size in elements.items() if isinstance(kind, str)]
    common = max(elements, key=elements.__getitem__, default=None)
    return max(floats)[1] if floats else None, f"int{common}" if isinstance(common, int) else None


def _input_shapes(graph: Graph, tokens: int, image_size: int) -> dict[str, tuple[int, ...]]:
    """A shape for each input: symbols of one name are one number."""
    symbols: dict[str, int] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for port in graph.inputs:
        dimensions = port.dimensions or ()
        sizes = []
        for at, size in enumerate(dimensions):
            if isinstance(size, int) and size > 0:
                sizes.append(size)
                continue
            key = size if isinstance(size, str) and size else f"{port.name}.{at}"
            if at == 0:
                chosen = 1
            elif len(dimensions) == 4:
                # a cache of keys and values starts empty
                chosen = 0 if "past" in key + port.name else image_size
            else:
                chosen = tokens
            sizes.append(symbols.setdefault(key, chosen))
        shapes[port.name] = checked_shape(sizes, port.name)
    return shapes


def _sequence(graph: Graph, shapes: dict[str, tuple[int, ...]]) -> int | None:
    ids = [shapes[port.name] for port in graph.inputs if port.kind in _WHOLE and len(shapes[port.name]) == 2]
    return ids[0][1] if ids and ids[0][1] > 1 else None


def _is_symbolic(graph: Graph) -> bool:
    return any(
        port.kind in _WHOLE
        and len(port.dimensions or ()) == 2
        and not isinstance((port.dimensions or ())[1], int)
        for port in graph.inputs
    )


def _steps(
    graph: Graph, shapes: dict[str, tuple[int, ...]], weights: dict[str, int], batch: int
) -> list[Step]:
    kinds = {port.name: port.kind in _WHOLE for port in graph.inputs}
    known = {name: Known(shape, is_whole=kinds.get(name, False)) for name, shape in shapes.items()}
    for name, constant in graph.constants.items():
        is_weight = name if name in weights else None
        is_whole = constant.precision is None and not is_weight
        known[name] = Known(constant.shape, constant.values, is_weight, is_whole)
    steps: list[Step] = []
    bases: dict[str, str] = {}
    room = _MOST_CONTENT
    for node in graph.nodes:
        if node.operator == "Constant":
            value = node.attributes.get("value")
            content = getattr(value, "values", None)
            known[node.outputs[0]] = Known(getattr(value, "shape", ()), content, None, content is not None)
            if value is None:
                known[node.outputs[0]] = _plain_constant(node)
            continue
        given = [known[name] if name else ABSENT for name in node.inputs]
        results = infer(node, given, _stated(graph, node), room)
        room -= math.prod(results[0].shape) if results[0].content is not None else 0
        known.update({name: result for name, result in zip(node.outputs, results, strict=False) if name})
        if node.operator in _SAME_STORAGE:
            bases |= dict.fromkeys(node.outputs, bases.get(node.inputs[0], node.inputs[0]))
        values = [_value(known.get(name), bases.get(name, name)) for name in node.inputs]
        out = Value(results[0].shape, None, node.outputs[0])
        step = _step(node, values, bool(given) and given[0].is_whole, out, batch)
        if step is not None:
            steps.append(step)
        if len(steps) > trace.MOST_STEPS:
            raise InputError("models.program_too_long", limit=trace.MOST_STEPS)
    return trace.fuse_attention(steps)


def _plain_constant(node: Node) -> Known:
    """A constant whose value is a number or list in an attribute."""
    import numpy as np

    value = next(iter(node.attributes.values()), 0)
    content = np.asarray(value) if isinstance(value, (int, float, list)) else np.asarray(0)
    return Known(content.shape, content, None, content.dtype.kind == "i")


def _stated(graph: Graph, node: Node) -> tuple[int, ...] | None:
    """The shape that the file states for the node's first output, if it is all numbers."""
    port = graph.values.get(node.outputs[0]) if node.outputs else None
    if port is None or port.dimensions is None:
        return None
    sizes = [size for size in port.dimensions if isinstance(size, int)]
    return tuple(sizes) if len(sizes) == len(port.dimensions) else None


def _value(known: Known | None, name: str) -> Value | None:
    if known is None:
        return None
    is_activation = not known.weight and not known.is_whole and known.content is None
    return Value(known.shape, known.weight, name if is_activation else "")


def _step(node: Node, values: list[Value | None], is_whole: bool, out: Value, batch: int) -> Step | None:
    path = node.path or "model"
    first = values[0] if values and values[0] is not None else Value(())
    second = values[1] if len(values) > 1 and values[1] is not None else Value(())
    third = values[2] if len(values) > 2 else None
    if node.operator in ("MatMul", "Gemm"):
        return trace.product(
            path, _turned(node, "transA", first), _matrix(_turned(node, "transB", second)), batch, third
        )
    if node.operator in ("Conv", "ConvTranspose"):
        groups = node.attributes.get("group", 1)
        return trace.convolution(
            path, first, second, third, out, groups, batch, node.operator == "ConvTranspose"
        )
    if node.operator in _NORMS:
        bias = third if node.operator != "SimplifiedLayerNormalization" else None
        return trace.norm(path, _NORMS[node.operator], first, second, bias, batch)  # type: ignore[arg-type]
    if node.operator == "Gather" and first.weight:
        return trace.embedding(path, first, second, batch)
    if node.operator in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
        return _attention(node, path, values, batch)
    if node.operator in ("LSTM", "GRU", "RNN"):
        return _recurrent(node, path, [value for value in values if value is not None], out, batch)
    if node.operator == "Einsum" and len(values) == 2:
        return _einsum(node, path, first, second, batch)
    if node.operator in _SILENT or is_whole:
        return None
    tensors = [value for value in values if value is not None and value.shape]
    return trace.elementwise(path, node.operator.lower(), tensors, out, batch)


_SAME_STORAGE = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Split", "Expand")
_NORMS = {
    "BatchNormalization": "batch", "LayerNormalization": "layer", "GroupNormalization": "group",
    "InstanceNormalization": "group", "SimplifiedLayerNormalization": "rms", "RMSNormalization": "rms",
}  # fmt: skip


def _turned(node: Node, attribute: str, value: Value) -> Value:
    """The matrix as it is multiplied: its last two dimensions change places where the node says so."""
    if not node.attributes.get(attribute):
        return value
    return Value((*value.shape[:-2], value.shape[-1], value.shape[-2]), value.weight, value.name)


def _matrix(value: Value) -> Value:
    return Value((*value.shape, 1), value.weight, value.name) if len(value.shape) == 1 else value


def _einsum(node: Node, path: str, left: Value, right: Value, batch: int) -> Step:
    """Two tensors as one matrix product: letters of both inputs are batched where the output has them,
    else summed."""
    (ours, theirs), output = einsum_letters(node, [len(left.shape), len(right.shape)])
    if left.weight and not right.weight:
        left, right, ours, theirs = right, left, theirs, ours
    sizes = dict(zip(ours + theirs, left.shape + right.shape, strict=True))
    shared = set(ours) & set(theirs)
    k = math.prod(sizes[letter] for letter in shared if letter not in output)
    copies = math.prod(sizes[letter] for letter in shared if letter in output)
    stacked = (copies,) if copies > 1 else ()
    m, n = (value.elements() // max(k * copies, 1) for value in (left, right))
    turned = Value((*stacked, k, n), right.weight, right.name)
    return trace.product(path, Value((*stacked, m, k), left.weight, left.name), turned, batch)


def _attention(node: Node, path: str, values: list[Value | None], batch: int) -> Step:
    """Fused attention over [batch, positions, heads x size] or [batch, heads, positions, size]; without
    keys and values the first input holds all three."""
    named = [value for value in values[:3] if value is not None]
    heads = attention_heads(node)
    if len(named) == 3:
        counts = (heads[0], heads[1], heads[1])
        shapes = [_by_head(value.shape, count) for value, count in zip(named, counts, strict=True)]
    else:
        shape = named[0].shape
        size = shape[4] if len(shape) == 5 else shape[2] // (heads[0] + 2 * heads[1])
        shapes = [(shape[0], count, shape[1], size) for count in (heads[0], heads[1], heads[1])]
    causal = bool(node.attributes.get("is_causal") or node.operator == "GroupQueryAttention")
    return trace.attention(path, shapes[0], shapes[1], shapes[2], batch, causal=causal, named=named)


def _by_head(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    return shape if len(shape) == 4 else (shape[0], count, shape[1], shape[2] // count)


def _recurrent(node: Node, path: str, values: list[Value], out: Value, batch: int) -> Step:
    """LSTM, GRU and RNN: input and state meet their matrices [directions, gates x hidden, …] at each position."""
    from raceline.models.graph import Matmul, fixed

    gates = values[1].shape[1]
    length, per_step = values[0].shape[0], values[0].shape[1]
    k = (values[1].elements() + values[2].elements()) // gates
    step = trace.elementwise(path, "recurrent", values[1:], out, batch)
    op = Matmul(name=node.operator.lower(), rows=fixed(length * per_step / batch), k=k, n=gates)
    return msgspec.structs.replace(step, op=op)
