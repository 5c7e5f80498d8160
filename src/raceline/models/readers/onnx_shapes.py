"""Shapes of an ONNX graph's values, operator by operator.

Operator definitions: github.com/onnx/onnx, docs/Operators.md. An operator that isn't here takes its
stated shape from the file, else the shape of its first input.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from raceline.models.readers.onnx_content import ABSENT, Inputs, Known, content_of, listed, whole_numbers
from raceline.models.readers.onnx_wire import Node
from raceline.models.readers.tensors import Shape, checked_shape


def infer(node: Node, given: Inputs, stated: Shape | None, room: int) -> list[Known]:
    """What is known of the node's outputs. `room`: how many elements of content may still be held."""
    rule = _RULES.get(node.operator)
    whole = bool(given) and given[0].is_whole
    if rule is None:
        shape = stated if stated is not None else _broadcast([known.shape for known in given])
        shapes = [shape]
    else:
        shapes = rule(node, given)
    content = content_of(node, given, shapes[0] if shapes else (), room)
    if content is not None:
        return [Known(tuple(content.shape), content, None, content.dtype.kind in "iub")]
    weight = given[0].weight if given and node.operator in _SAME_WEIGHT else None
    kept = [Known(checked_shape(shape, node.operator), None, weight, whole) for shape in shapes]
    return kept + [kept[0]] * (len(node.outputs) - len(kept)) if kept else kept


_SAME_WEIGHT = frozenset(
    ["Transpose", "Cast", "Identity", "Reshape", "Unsqueeze", "Squeeze", "DequantizeLinear", "Flatten"]
)


def _broadcast(shapes: list[Shape]) -> Shape:
    width = max((len(shape) for shape in shapes), default=0)
    padded = [(1,) * (width - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))


def _first(node: Node, given: Inputs) -> list[Shape]:
    return [given[0].shape]


def _elementwise(node: Node, given: Inputs) -> list[Shape]:
    return [_broadcast([known.shape for known in given])]


def _matmul(node: Node, given: Inputs) -> list[Shape]:
    left, right = _turned(node, "transA", given[0].shape), _turned(node, "transB", given[1].shape)
    if len(right) == 1:
        return [left[:-1]]
    if len(left) == 1:
        return [(*right[:-2], right[-1])]
    return [(*_broadcast([left[:-2], right[:-2]]), left[-2], right[-1])]


def _turned(node: Node, attribute: str, shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if node.attributes.get(attribute) else shape


def _windowed(given: Shape, channels: int, node: Node, kernel: list[int]) -> Shape:
    """The output of a window that slides: convolution and pooling."""
    count = len(kernel)
    strides = node.attributes.get("strides") or [1] * count
    dilations = node.attributes.get("dilations") or [1] * count
    pads = node.attributes.get("pads") or [0] * (2 * count)
    automatic = node.attributes.get("auto_pad", b"NOTSET")
    sizes = []
    for at in range(count):
        size, reach = given[2 + at], dilations[at] * (kernel[at] - 1) + 1
        if automatic in (b"SAME_UPPER", b"SAME_LOWER"):
            sizes.append(-(-size // strides[at]))
            continue
        room = size + pads[at] + pads[at + count] - reach
        up = node.attributes.get("ceil_mode", 0)
        sizes.append(max((-(-room // strides[at]) if up else room // strides[at]) + 1, 0))
    return (given[0], channels, *sizes)


def _conv(node: Node, given: Inputs) -> list[Shape]:
    weight = given[1].shape
    return [_windowed(given[0].shape, weight[0], node, list(weight[2:]))]


def _conv_transpose(node: Node, given: Inputs) -> list[Shape]:
    shape, weight = given[0].shape, given[1].shape
    count = len(weight) - 2
    strides = node.attributes.get("strides") or [1] * count
    pads = node.attributes.get("pads") or [0] * (2 * count)
    extra = node.attributes.get("output_padding") or [0] * count
    sizes = [
        strides[at] * (shape[2 + at] - 1) + extra[at] + weight[2 + at] - pads[at] - pads[at + count]
        for at in range(count)
    ]
    return [(shape[0], weight[1] * node.attributes.get("group", 1), *sizes)]


def _pool(node: Node, given: Inputs) -> list[Shape]:
    return [_windowed(given[0].shape, given[0].shape[1], node, node.attributes["kernel_shape"])]


def _global_pool(node: Node, given: Inputs) -> list[Shape]:
    return [given[0].shape[:2] + (1,) * (len(given[0].shape) - 2)]


def _reshape(node: Node, given: Inputs) -> list[Shape]:
    wanted = listed(node, given, 1, "shape")
    if wanted is None:
        raise KeyError("shape")
    shape = given[0].shape
    sizes = [shape[at] if size == 0 and at < len(shape) else size for at, size in enumerate(wanted)]
    if -1 in sizes:
        rest = math.prod(size for size in sizes if size != -1)
        sizes[sizes.index(-1)] = math.prod(shape) // max(rest, 1)
    return [tuple(sizes)]


def _transpose(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    order = node.attributes.get("perm") or list(range(len(shape)))[::-1]
    return [tuple(shape[at] for at in order)]


def _concat(node: Node, given: Inputs) -> list[Shape]:
    axis = node.attributes.get("axis", 0) % max(len(given[0].shape), 1)
    sizes = list(given[0].shape)
    sizes[axis] = sum(known.shape[axis] for known in given)
    return [tuple(sizes)]


def _split(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    axis = node.attributes.get("axis", 0) % len(shape)
    parts = listed(node, given, 1, "split") or [-(-shape[axis] // len(node.outputs))] * len(node.outputs)
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in parts]


def _slice(node: Node, given: Inputs) -> list[Shape]:
    shape = list(given[0].shape)
    starts, ends = listed(node, given, 1, "starts"), listed(node, given, 2, "ends")
    if starts is None or ends is None:
        return [tuple(shape)]
    axes = listed(node, given, 3, "axes") or list(range(len(starts)))
    steps = listed(node, given, 4, "steps") or [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        shape[axis] = len(range(*slice(start, end, step).indices(shape[axis])))
    return [tuple(shape)]


def _unsqueeze(node: Node, given: Inputs) -> list[Shape]:
    axes = listed(node, given, 1, "axes") or [0]
    sizes = list(given[0].shape)
    total = len(sizes) + len(axes)
    for axis in sorted(axis % total for axis in axes):
        sizes.insert(axis, 1)
    return [tuple(sizes)]


def _squeeze(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    axes = listed(node, given, 1, "axes")
    gone = (
        {axis % len(shape) for axis in axes} if axes else {at for at, size in enumerate(shape) if size == 1}
    )
    return [tuple(size for at, size in enumerate(shape) if at not in gone)]


def _flatten(node: Node, given: Inputs) -> list[Shape]:
    axis = node.attributes.get("axis", 1)
    shape = given[0].shape
    return [(math.prod(shape[:axis]), math.prod(shape[axis:]))]


def _gather(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    axis = node.attributes.get("axis", 0) % max(len(shape), 1)
    return [(*shape[:axis], *given[1].shape, *shape[axis + 1 :])]


def _reduce(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    axes = listed(node, given, 1, "axes") or list(range(len(shape)))
    gone = {axis % len(shape) for axis in axes}
    if node.attributes.get("keepdims", 1):
        return [tuple(1 if at in gone else size for at, size in enumerate(shape))]
    return [tuple(size for at, size in enumerate(shape) if at not in gone)]


def _expand(node: Node, given: Inputs) -> list[Shape]:
    return [_broadcast([given[0].shape, tuple(whole_numbers(given[1]) or ())])]


def _from_content(node: Node, given: Inputs) -> list[Shape]:
    return [tuple(whole_numbers(given[0]) or (1,))]


def _shape(node: Node, given: Inputs) -> list[Shape]:
    return [(len(given[0].shape),)]


def _range(node: Node, given: Inputs) -> list[Shape]:
    bounds = [whole_numbers(known) for known in given]
    if any(not bound for bound in bounds):
        raise KeyError("range")
    return [(len(range(*(bound[0] for bound in bounds if bound))),)]


def _resize(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    sizes = whole_numbers(given[3]) if len(given) > 3 else None
    if sizes:
        return [tuple(sizes)]
    scales = given[2 if len(given) > 2 else 1].content  # the first version has no region before them
    if scales is None or np.size(scales) != len(shape):
        raise KeyError("scales")
    return [tuple(int(size * float(scale)) for size, scale in zip(shape, np.ravel(scales), strict=True))]


def _pad(node: Node, given: Inputs) -> list[Shape]:
    shape = given[0].shape
    pads = listed(node, given, 1, "pads") or [0] * (2 * len(shape))
    half = len(pads) // 2
    return (
        [tuple(size + pads[at] + pads[at + half] for at, size in enumerate(shape))]
        if half == len(shape)
        else [shape]
    )


def _recurrent(node: Node, given: Inputs) -> list[Shape]:
    length, batch = given[0].shape[:2]
    state = (given[1].shape[0], batch, node.attributes.get("hidden_size", given[2].shape[-1]))
    return [(length, *state), state, state]


def _tile(node: Node, given: Inputs) -> list[Shape]:
    times = whole_numbers(given[1])
    if times is None:
        raise KeyError("repeats")
    return [tuple(size * count for size, count in zip(given[0].shape, times, strict=True))]


def _top(node: Node, given: Inputs) -> list[Shape]:
    count = listed(node, given, 1, "k") or [node.attributes.get("k", 1)]
    shape = list(given[0].shape)
    axis = node.attributes.get("axis", -1) % len(shape)
    shape[axis] = min(count[0], shape[axis])
    return [tuple(shape)]


def _index_shaped(node: Node, given: Inputs) -> list[Shape]:
    return [given[1].shape]


def _gather_many(node: Node, given: Inputs) -> list[Shape]:
    shape, index = given[0].shape, given[1].shape
    return [(*index[:-1], *shape[node.attributes.get("batch_dims", 0) + index[-1] :])]


def _one_hot(node: Node, given: Inputs) -> list[Shape]:
    depth = whole_numbers(given[1])
    if not depth:
        raise KeyError("depth")
    shape = given[0].shape
    axis = node.attributes.get("axis", -1) % (len(shape) + 1)
    return [(*shape[:axis], depth[0], *shape[axis:])]


def _depth_to_space(node: Node, given: Inputs) -> list[Shape]:
    batch, channels, height, width = given[0].shape
    side = node.attributes["blocksize"]
    if node.operator == "DepthToSpace":
        return [(batch, channels // side**2, height * side, width * side)]
    return [(batch, channels * side**2, height // side, width // side)]


def _einsum(node: Node, given: Inputs) -> list[Shape]:
    inputs, output = einsum_letters(node, [len(known.shape) for known in given])
    sizes = {
        letter: size for letters, known in zip(inputs, given, strict=True)
        for letter, size in zip(letters, known.shape, strict=True)
    }  # fmt: skip
    return [tuple(sizes[letter] for letter in output)]


def einsum_letters(node: Node, ranks: list[int]) -> tuple[list[str], str]:
    """The letters of each input's dimensions and of the output's: ``bqd,bkd->bqk``. Dimensions under ``...``
    are counted from the right, so they get digits from the right."""
    inputs, arrow, output = node.attributes["equation"].decode().replace(" ", "").partition("->")
    if not arrow:
        letters = inputs.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
    parts = inputs.split(",")
    hidden = [rank - len(part.replace("...", "")) for part, rank in zip(parts, ranks, strict=True)]
    return [
        part.replace("...", _digits(count)) for part, count in zip(parts, hidden, strict=True)
    ], output.replace("...", _digits(max(hidden)))


def _digits(count: int) -> str:
    return "".join(str(at) for at in range(count - 1, -1, -1))


def _attention(node: Node, given: Inputs) -> list[Shape]:
    """[batch, positions, heads x size], as the queries, or in the heads' layout that they have. Queries, keys
    and values in one tensor share its last dimension."""
    query = given[0].shape
    if len(given) > 2 and given[1] is not ABSENT:
        return [query if len(query) == 4 else (*query[:2], _value_width(node, query, given[2].shape))]
    if len(query) == 5:
        return [(*query[:2], query[2] * query[4])]
    heads, kv_heads = attention_heads(node)
    return [(*query[:2], query[2] // (heads + 2 * kv_heads) * heads)]


def _value_width(node: Node, query: Shape, value: Shape) -> int:
    heads, kv_heads = attention_heads(node)
    return value[2] // kv_heads * heads if len(value) == 3 else query[2]


def attention_heads(node: Node) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    heads = node.attributes.get("q_num_heads") or node.attributes.get("num_heads") or 1
    return heads, node.attributes.get("kv_num_heads") or heads


_RULES: dict[str, Callable[[Node, Inputs], list[Shape]]] = {
    "MatMul": _matmul, "Gemm": _matmul, "Conv": _conv, "ConvTranspose": _conv_transpose, "MaxPool": _pool,
    "AveragePool": _pool, "GlobalAveragePool": _global_pool, "GlobalMaxPool": _global_pool, "Reshape": _reshape,
    "Transpose": _transpose, "Concat": _concat, "Split": _split, "Slice": _slice, "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze, "Flatten": _flatten, "Gather": _gather, "Expand": _expand, "Shape": _shape,
    "ConstantOfShape": _from_content, "Range": _range, "Resize": _resize, "Pad": _pad, "LSTM": _recurrent,
    "GRU": _recurrent, "RNN": _recurrent, "Tile": _tile, "TopK": _top, "GatherElements": _index_shaped,
    "GatherND": _gather_many, "OneHot": _one_hot, "DepthToSpace": _depth_to_space, "Upsample": _resize,
    "SpaceToDepth": _depth_to_space, "Einsum": _einsum, "Attention": _attention, "MultiHeadAttention": _attention,
    "GroupQueryAttention": _attention,
}  # fmt: skip
_RULES |= dict.fromkeys(
    ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceProd", "ArgMax", "ArgMin"],
    _reduce,
)
_BROADCAST_NAMES = (
    "Add", "Sub", "Mul", "Div", "Pow", "Where", "Equal", "Greater", "Less", "And", "Or", "Max", "Min",
    "Mod", "PRelu", "Sum",
)  # fmt: skip
_RULES |= dict.fromkeys(_BROADCAST_NAMES, _elementwise)
_SAME_SHAPE_NAMES = (
    "Relu", "Gelu", "Sigmoid", "Tanh", "Erf", "Sqrt", "Exp", "Log", "Neg", "Abs", "Cast", "Identity",
    "Softmax", "LogSoftmax", "Clip", "LeakyRelu", "Elu", "Selu", "HardSwish", "HardSigmoid", "Softplus",
    "Sin", "Cos", "Reciprocal", "Not", "Dropout", "BatchNormalization", "LayerNormalization",
    "GroupNormalization", "InstanceNormalization", "SimplifiedLayerNormalization", "RMSNormalization",
    "DequantizeLinear", "QuantizeLinear", "Swish", "Mish", "Trilu", "ScatterND", "Floor", "Ceil", "Round",
    "Sign", "IsNaN", "RotaryEmbedding",
)  # fmt: skip
_RULES |= dict.fromkeys(_SAME_SHAPE_NAMES, _first)
