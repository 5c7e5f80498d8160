"""ONNX's quantised and fused operators, rewritten as the plain ones that they compute.

Inputs: github.com/onnx/onnx, docs/Operators.md, and github.com/microsoft/onnxruntime,
docs/ContribOperators.md. What a rewritten node leaves out are scales, zero points and tables that are no parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from raceline.models.readers.onnx_wire import Constant, Graph, Node

_EIGHT_BITS = (2, 3)
_FOUR_BITS = (21, 22)


class Plain(msgspec.Struct, frozen=True):
    """The plain graph. `apart`: constants that are no parameters; `bits`: of each quantised weight."""

    graph: Graph
    apart: frozenset[str]
    bits: dict[str, int]


# operator -> the plain one, and which inputs it takes
_TAKEN: dict[str, tuple[str, tuple[int, ...]]] = {
    "QLinearConv": ("Conv", (0, 3, 8)), "ConvInteger": ("Conv", (0, 1)), "QLinearMatMul": ("MatMul", (0, 3)),
    "MatMulInteger": ("MatMul", (0, 1)), "QGemm": ("Gemm", (0, 3, 6)), "MatMulNBits": ("MatMul", (0, 1, 5)),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1, 4)), "MatMulIntegerToFloat": ("MatMul", (0, 1, 6)),
    "FusedConv": ("Conv", (0, 1, 2)), "FusedGemm": ("Gemm", (0, 1, 2)), "FusedMatMul": ("MatMul", (0, 1)),
    "QLinearAdd": ("Add", (0, 3)), "QLinearMul": ("Mul", (0, 3)), "QLinearSigmoid": ("Sigmoid", (0,)),
    "QLinearLeakyRelu": ("LeakyRelu", (0,)), "QLinearSoftmax": ("Softmax", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)), "QLinearAveragePool": ("AveragePool", (0,)),
    "BiasGelu": ("Gelu", (0, 1)), "FastGelu": ("Gelu", (0, 1)), "QuickGelu": ("Gelu", (0,)),
    "GatherBlockQuantized": ("Gather", (0, 1)), "RotaryEmbedding": ("RotaryEmbedding", (0,)),
    "DequantizeLinear": ("DequantizeLinear", (0,)), "QuantizeLinear": ("QuantizeLinear", (0,)),
    "BatchNormalization": ("BatchNormalization", (0, 1, 2)),
    "GroupQueryAttention": ("GroupQueryAttention", (0, 1, 2)),
}  # fmt: skip


def plain(graph: Graph) -> Plain:
    """The graph in plain operators."""
    nodes: list[Node] = []
    apart: set[str] = set()
    constants = dict(graph.constants)
    bits: dict[str, int] = {}
    for node in graph.nodes:
        if node.operator not in _CONCERNED:
            nodes.append(node)
            continue
        made = list(_rewritten(node, graph.constants))
        kept = {name for part in made for name in part.inputs}
        apart.update(name for name in node.inputs if name not in kept)
        for name in _quantised(node, made, graph.constants):
            constants[name], bits[name] = _unpacked(node, graph.constants[name])
        nodes += made
    # what onnxruntime's quantiser writes beside each weight
    apart.update(name for name in constants if f"{name.removesuffix('_scale')}_quantized" in constants)
    return Plain(Graph(tuple(nodes), constants, graph.inputs, graph.values), frozenset(apart), bits)


def _rewritten(node: Node, constants: dict[str, Constant]) -> Iterator[Node]:
    rule = _RULES.get(node.operator)
    if node.operator in _TAKEN:
        operator, positions = _TAKEN[node.operator]
        yield _node(node, operator, [_input(node, at) for at in positions], node.outputs)
    elif node.operator == "QLinearConcat":
        yield _node(node, "Concat", node.inputs[2::3], node.outputs)
    elif rule is None or (node.operator == "Attention" and _input(node, 1) not in constants):
        yield node
    else:
        yield from rule(node)


def _node(node: Node, operator: str, inputs: list[str] | tuple[str, ...], outputs: tuple[str, ...]) -> Node:
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    return Node(operator, tuple(inputs), outputs, node.attributes, node.path)


def _input(node: Node, position: int) -> str:
    return node.inputs[position] if position < len(node.inputs) else ""


def _output(node: Node, position: int, name: str) -> str:
    """The name of an output, or of an inner value where nobody reads it."""
    given = node.outputs[position] if position < len(node.outputs) else ""
    return given or f"{node.outputs[0]}/{name}"


def _skip_norm(operator: str, bias: int, parameters: int) -> Callable[[Node], Iterator[Node]]:
    """A residual sum, which is the fourth output too, and its normalisation."""

    def rewrite(node: Node) -> Iterator[Node]:
        total = _output(node, 3, "sum")
        yield _node(node, "Sum", [_input(node, 0), _input(node, 1), _input(node, bias)], (total,))
        yield _node(node, operator, [total, *node.inputs[2 : 2 + parameters]], node.outputs[:1])

    return rewrite


def _embed_norm(node: Node) -> Iterator[Node]:
    """Look-ups of tokens, positions and segments, summed and normalised; positions are as many as tokens."""
    tables = [(2, _input(node, 0)), (3, _input(node, 0)), (4, _input(node, 1))]
    parts = []
    for table, index in tables:
        if _input(node, table):
            parts.append(f"{node.outputs[0]}/{table}")
            found = _node(node, "Gather", [_input(node, table), index], (parts[-1],))
            yield msgspec.structs.replace(found, attributes={})
    total = f"{node.outputs[0]}/sum"
    yield _node(node, "Sum", parts, (total,))
    yield _node(node, "LayerNormalization", [total, _input(node, 5), _input(node, 6)], node.outputs[:1])


def _projected_attention(node: Node) -> Iterator[Node]:
    """Attention with the projections of q, k and v in one matrix."""
    packed, parts = f"{node.outputs[0]}/qkv", tuple(f"{node.outputs[0]}/{part}" for part in "qkv")
    heads = node.attributes.get("num_heads", 1)
    sizes = node.attributes.get("qkv_hidden_sizes")
    yield Node("MatMul", node.inputs[:3], (packed,), {}, node.path)
    yield Node("Split", (packed,), parts, {"axis": -1} | ({"split": sizes} if sizes else {}), node.path)
    causal = node.attributes.get("unidirectional", 0)
    yield Node("Attention", parts, node.outputs[:1], {"q_num_heads": heads, "is_causal": causal}, node.path)


_RULES: dict[str, Callable[[Node], Iterator[Node]]] = {
    "SkipLayerNormalization": _skip_norm("LayerNormalization", 4, 2),
    "SkipSimplifiedLayerNormalization": _skip_norm("SimplifiedLayerNormalization", 3, 1),
    "EmbedLayerNormalization": _embed_norm, "Attention": _projected_attention, "QAttention": _projected_attention,
}  # fmt: skip


def _quantised(node: Node, made: list[Node], constants: dict[str, Constant]) -> Iterator[str]:
    """Whole-number constants that are weights: what a rewritten operator multiplies, adds or turns to floats,
    and tables of 8 or 4 bits."""
    for part in made:
        for name in part.inputs:
            constant = constants.get(name)
            if constant is None or constant.precision or not constant.shape:
                continue
            is_table = part.operator == "Gather" and constant.kind in (*_EIGHT_BITS, *_FOUR_BITS)
            if part.operator in _WITH_WEIGHTS or is_table:
                yield name


_WITH_WEIGHTS = ("Conv", "MatMul", "Gemm", "DequantizeLinear")
_CONCERNED = frozenset((*_TAKEN, *_RULES, *_WITH_WEIGHTS, "Gather", "QLinearConcat"))


def _unpacked(node: Node, constant: Constant) -> tuple[Constant, int]:
    """A quantised weight in its own shape, and its bits; several may stand in one byte."""
    bits = node.attributes.get("bits", 4) if node.operator in ("MatMulNBits", "GatherBlockQuantized") else 8
    shape = constant.shape
    if node.operator == "MatMulNBits":
        shape = (node.attributes["K"], node.attributes["N"])
    elif node.operator == "GatherBlockQuantized" and constant.kind in _EIGHT_BITS:
        shape = (*shape[:-1], shape[-1] * (8 // max(bits, 1)))
    bits = 4 if constant.kind in _FOUR_BITS else bits if constant.kind in _EIGHT_BITS else 32
    return Constant(shape, constant.kind), bits
