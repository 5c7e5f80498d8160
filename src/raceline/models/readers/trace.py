"""What every reader of a program shares: calls with shapes become steps, and steps a model.

A reader (PyTorch, torch.export, ONNX, JAX, Keras) says which tensors a call reads and writes; the
builders here make the op, count each weight once, find attention among matrix products, and compare
two traces at different lengths to learn what grows with the sequence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec

from raceline.models import count
from raceline.models.graph import (
    AnyOp,
    Attention,
    Convolution,
    ElementType,
    Elementwise,
    Embedding,
    Extent,
    Matmul,
    Model,
    Norm,
    Tensor,
    fixed,
)
from raceline.models.readers.blocks import Placed, blocks_of
from raceline.models.readers.tensors import Shape

MOST_STEPS = 200_000


class Value(msgspec.Struct, frozen=True):
    """A tensor in a program. `weight`: the parameter that it is (or is a view of). `name` identifies an
    activation in a program that says which tensors its calls share (views have the name of their base)."""

    shape: Shape
    weight: str | None = None
    name: str = ""

    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


class Kept(msgspec.Struct, frozen=True):
    """A tensor that autograd keeps: `elements` of one sample, in rows of `width`."""

    key: str
    elements: float
    width: float
    element: ElementType = "activation"
    for_weight: bool = False


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One op of a trace with concrete sizes. `weights`: elements of each parameter that it uses;
    `groups`: independent matrices of a product in one sample (attention heads)."""

    path: str
    op: AnyOp
    weights: dict[str, int] = {}
    kept: tuple[Kept, ...] = ()
    groups: float = 1.0


# What PyTorch's gradients need of elementwise operators: their result, or their inputs; the rest need neither.
_NEED_RESULT = frozenset(
    ("relu", "sigmoid", "tanh", "softmax", "log_softmax", "logsoftmax", "exp", "sqrt", "rsqrt", "logistic")
)
_NEED_NOTHING = frozenset(
    (
        "add",
        "sub",
        "neg",
        "sum",
        "mean",
        "reducemean",
        "reducesum",
        "reduce_sum",
        "globalaveragepool",
        "adaptive_avg_pool2d",
        "avg_pool2d",
        "averagepool",
        "concat",
        "cat",
        "averagepooling2d",
        "add_any",
        "mean.dim",
        "reduce_max",
        "globalaveragepooling2d",
        "upsample",
        "resize",
        "masked_fill",
        "where",
    )
)


def _kept_of(values: Sequence[Value | None], batch: int, for_weight: bool = False) -> tuple[Kept, ...]:
    """The named activations among the values."""
    return tuple(
        Kept(
            value.name, value.elements() / batch, value.shape[-1] if value.shape else 1, for_weight=for_weight
        )
        for value in values
        if value is not None and value.name and not value.weight
    )


def input_of(op: AnyOp, key: str) -> tuple[Kept, ...]:
    """What an op keeps where the program doesn't name its tensors: its input, once."""
    rows = op.rows.fixed
    if isinstance(op, Matmul):
        return (Kept(key, rows * op.k, op.k, for_weight=True),)
    if isinstance(op, Convolution):
        return (Kept(key, rows * op.input_elements, max(op.input_elements, 1.0), for_weight=True),)
    if isinstance(op, Norm):
        return (Kept(key, rows * op.width, op.width),)
    if isinstance(op, Elementwise) and op.name not in _NEED_NOTHING:
        return (Kept(key, rows * op.writes, op.writes),)
    if isinstance(op, Attention):
        keys = op.kv_rows.fixed * op.kv_heads * (op.head_dim + op.value_dim)
        queries = rows * op.heads * (op.head_dim + op.value_dim)
        return (Kept(key, keys + queries, op.heads * op.head_dim),)
    return ()


def _weights(*values: Value | None) -> dict[str, int]:
    return {value.weight: value.elements() for value in values if value is not None and value.weight}


def product(path: str, left: Value, right: Value, batch: int, bias: Value | None = None) -> Step:
    """left [..., m, k] times right [..., k, n]; `right` may be a parameter, alone or one per expert."""
    k, n = right.shape[-2], right.shape[-1]
    rows = left.elements() / max(k, 1) / batch
    copies = math.prod(right.shape[:-2])
    if right.weight is None:
        op = Matmul(name="product", rows=fixed(rows), k=k, n=n, tied=True, quantisable=False)
        kept = _kept_of((left, right), batch)
        return Step(path=path, op=op, weights=_weights(left, bias), groups=copies / batch, kept=kept)
    is_bias = bias is not None and bias.weight is not None and bias.elements() == n
    op = Matmul(name="matmul", rows=fixed(rows), k=k, n=n, bias=is_bias, experts=copies)
    kept = _kept_of((left,), batch, for_weight=True)
    return Step(path=path, op=op, weights=_weights(left, right, bias), kept=kept)


def convolution(
    path: str, given: Value, weight: Value, bias: Value | None, out: Value, groups: int, batch: int,
    is_transposed: bool = False,
) -> Step:  # fmt: skip
    """A convolution in channels-first layout, weight [out, in / groups, …], or [in, out / groups, …]
    where it is transposed (then each input position is multiplied)."""
    counted = given if is_transposed else out
    rows = math.prod(counted.shape[2:]) * counted.shape[0] / batch
    n = weight.shape[0]
    k = math.prod(weight.shape[1:])
    if is_transposed:
        k, n = n, k
    has_bias = bias is not None and not is_transposed
    op = Convolution(
        name="convolution", rows=fixed(rows), k=k, n=n, groups=groups, bias=has_bias,
        input_elements=given.elements() / batch / max(rows, 1),
    )  # fmt: skip
    kept = _kept_of((given,), batch, for_weight=True)
    return Step(path=path, op=op, weights=_weights(weight, bias), kept=kept)


def attention(
    path: str, query: Shape, key: Shape, value: Shape, batch: int, *, causal: bool, has_bias: bool = False,
    named: Sequence[Value] = (),
) -> Step:  # fmt: skip
    """Fused attention over [batch, heads, positions, size]. `named`: the values q, k, v and the result."""
    sizes = query[-1], value[-1]
    heads = math.prod(query[:-2]) // batch
    kv_heads = max(math.prod(key[:-2]) // batch, 1)
    rows, kv_rows = query[-2], key[-2]
    op = Attention(
        name="attention", rows=fixed(rows), kv_rows=fixed(kv_rows), heads=heads, kv_heads=kv_heads,
        head_dim=sizes[0], value_dim=sizes[1], causal=causal, has_bias=has_bias,
        cache_width=kv_heads * sum(sizes) if causal else 0,
    )  # fmt: skip
    return Step(path=path, op=op, kept=_kept_of(named, batch))


def norm(
    path: str, style: Literal["layer", "rms", "batch", "group"], given: Value, weight: Value | None,
    bias: Value | None, batch: int,
) -> Step:  # fmt: skip
    """A normalisation; its width is that of its weight, or the last dimension."""
    width = weight.elements() if weight is not None else given.shape[-1]
    op = Norm(
        name="norm", style=style, width=width, weight=weight is not None, bias=bias is not None,
        rows=fixed(given.elements() / max(width, 1) / batch),
    )  # fmt: skip
    return Step(path=path, op=op, weights=_weights(weight, bias), kept=_kept_of((given,), batch))


def embedding(path: str, table: Value, index: Value, batch: int) -> Step:
    """A look-up of each index in a table."""
    op = Embedding(name="embedding", entries=table.shape[0], width=math.prod(table.shape[1:]),
                   rows=fixed(index.elements() / batch))  # fmt: skip
    return Step(path=path, op=op, weights=_weights(table))


def elementwise(path: str, name: str, given: Sequence[Value], out: Value, batch: int) -> Step:
    """Anything else: what it reads and writes."""
    width = out.shape[-1] if out.shape else 1
    rows = out.elements() / max(width, 1) / batch
    reads = sum(value.elements() for value in given) / batch / max(rows, 1e-9)
    op = Elementwise(name=name, rows=fixed(rows), reads=float(reads), writes=float(width))
    kept = _kept_of((out,) if name in _NEED_RESULT else () if name in _NEED_NOTHING else given, batch)
    return Step(path=path, op=op, weights=_weights(*given), kept=kept)


def fuse_attention(steps: Sequence[Step]) -> list[Step]:
    """softmax between two products of activations is attention: q k, then p v."""
    found: list[Step] = []
    index = 0
    while index < len(steps):
        end = _attention_end(steps, index)
        if end is None:
            found.append(steps[index])
            index += 1
        else:
            between = [step for step in steps[index + 1 : end] if not isinstance(step.op, Elementwise)]
            found += [*between, _fused([step for step in steps[index : end + 1] if step not in between])]
            index = end + 1
    return found


def _is_product(step: Step) -> bool:
    return isinstance(step.op, Matmul) and step.op.name == "product"


def _attention_end(steps: Sequence[Step], start: int) -> int | None:
    """The index of the second product, where attention begins at `start`."""
    first = steps[start]
    if not _is_product(first) or first.weights:
        return None
    is_softmaxed = False
    for index in range(start + 1, min(start + 24, len(steps))):
        step = steps[index]
        if _is_product(step):
            return index if is_softmaxed and _heads(first, step) is not None else None
        # values may be projected between the scores and their use, by a matmul with weights
        if isinstance(step.op, Attention):
            return None
        is_softmaxed |= isinstance(step.op, Elementwise) and step.op.name == "softmax"
    return None


class _Heads(NamedTuple):
    positions: float
    keys: float
    size: int
    value_size: int


def _heads(first: Step, last: Step) -> _Heads | None:
    """The sizes of attention whose two products these are, written in either order of their sides."""
    assert isinstance(first.op, Matmul) and isinstance(last.op, Matmul)
    groups = max(first.groups, 1.0)
    if groups != max(last.groups, 1.0):
        return None
    sides, made = (first.op.rows.fixed / groups, first.op.n), (last.op.rows.fixed / groups, last.op.n)
    keys = last.op.k
    if keys not in sides:
        return None
    positions = sides[0] if keys == sides[1] else sides[1]
    if positions not in made:
        return None
    value_size = made[1] if positions == made[0] else made[0]
    return _Heads(positions, keys, first.op.k, int(value_size))


def _fused(steps: Sequence[Step]) -> Step:
    sizes = _heads(steps[0], steps[-1])
    assert sizes is not None
    heads = max(round(steps[0].groups), 1)
    scores = heads * sizes.positions * sizes.keys
    op = Attention(
        name="attention", rows=fixed(sizes.positions), kv_rows=fixed(sizes.keys), heads=heads, kv_heads=heads,
        head_dim=sizes.size, value_dim=sizes.value_size, causal=False,
    )  # fmt: skip
    kept = tuple(
        item for step in (steps[0], steps[-1], *steps[1:-1]) for item in step.kept if item.elements != scores
    )
    weights = {name: size for step in steps for name, size in step.weights.items()}
    return Step(path=steps[0].path, op=op, kept=kept, weights=weights)


def grow(short: Sequence[Step], long: Sequence[Step], lengths: tuple[int, int]) -> list[Step]:
    """The steps of the short trace with rows that grow as the long trace shows. Traces that don't
    match step by step (control flow depends on the length) stay as they are."""
    if len(short) != len(long) or any(type(a.op) is not type(b.op) for a, b in zip(short, long, strict=True)):
        return list(short)
    return [_grown(a, b, lengths) for a, b in zip(short, long, strict=True)]


def _grown(short: Step, long: Step, lengths: tuple[int, int]) -> Step:
    changes = {"rows": _extent(short.op.rows.fixed, long.op.rows.fixed, lengths)}
    if isinstance(short.op, Attention) and isinstance(long.op, Attention):
        changes["kv_rows"] = _extent(short.op.kv_rows.fixed, long.op.kv_rows.fixed, lengths)
    if (
        isinstance(short.op, Matmul)
        and isinstance(long.op, Matmul)
        and (short.op.k, short.op.n) != (long.op.k, long.op.n)
    ):
        return short
    return msgspec.structs.replace(short, op=msgspec.structs.replace(short.op, **changes))


def _extent(short: float, long: float, lengths: tuple[int, int]) -> Extent:
    per_token = (long - short) / (lengths[1] - lengths[0])
    return Extent(fixed=short - per_token * lengths[0], per_token=per_token)


def model_of(
    steps: Sequence[Step], parameters: dict[str, int], *, name: str, architecture: str, source: str,
    seq_len: int | None, image_size: int | None = None, notes: tuple[str, ...] = (),
) -> Model:  # fmt: skip
    """The model of a trace. `parameters`: elements of every parameter of the program by name; those that
    no step uses are counted too. `seq_len`: the traced length, where rows grow with it."""
    uncounted = dict(parameters)
    placed = [item for step in _kept_once(steps) for item in _placed(step, uncounted, seq_len)]
    left = sum(uncounted.values())
    if left:
        rest = Elementwise(name="unused", reads=0.0, writes=0.0, parameters=left)
        placed.append(Placed("unused", rest))
    vocabulary = max((item.op.entries for item in placed if isinstance(item.op, Embedding)), default=0)
    unit: Literal["token", "image", "sample"] = "token" if seq_len else "image" if image_size else "sample"
    return Model(
        name=name, family="program", architecture=architecture, blocks=blocks_of(placed), unit=unit,
        objective="causal" if seq_len else "classify", seq_len=seq_len or 1, image_size=image_size,
        vocabulary=vocabulary, source=source, notes=notes,
        hidden=max((item.op.width for item in placed if isinstance(item.op, Embedding)), default=0),
        layers=sum(isinstance(item.op, Attention) for item in placed),
    )  # fmt: skip


def _kept_once(steps: Sequence[Step]) -> list[Step]:
    """Each kept tensor stands with the first step that keeps it, for the strongest of its reasons."""
    always = {item.key for step in steps for item in step.kept if not item.for_weight}
    seen: set[str] = set()
    result = []
    for step in steps:
        kept = []
        for item in step.kept:
            if item.key not in seen:
                seen.add(item.key)
                kept.append(msgspec.structs.replace(item, for_weight=item.key not in always))
        result.append(msgspec.structs.replace(step, kept=tuple(kept)))
    return result


def _placed(step: Step, uncounted: dict[str, int], seq_len: int | None) -> list[Placed]:
    """The step's op, with the parameters that no earlier step has counted. A step may use a part of a
    parameter (one of three stacked projections), or a view of it that is larger (a token for each image)."""
    taken = {name: min(size, uncounted.get(name, 0)) for name, size in step.weights.items()}
    new = sum(taken.values())
    for name, size in taken.items():
        uncounted[name] = uncounted.get(name, 0) - size
    kept = {item.key: _tensor(item, seq_len) for item in step.kept}
    op = msgspec.structs.replace(
        _by_token(step.op),
        keeps=tuple(item.key for item in step.kept if not item.for_weight),
        keeps_for_weight=tuple(item.key for item in step.kept if item.for_weight),
    )
    own = count.op_parameters(msgspec.structs.replace(op, tied=False)) * op.count if not step.op.tied else 0
    if own > new:
        op = msgspec.structs.replace(op, tied=True)
        own = 0
    result = [Placed(step.path, op, tuple(kept.values()))]
    if new > own and isinstance(op, Elementwise):
        result[0] = Placed(step.path, msgspec.structs.replace(op, parameters=new), tuple(kept.values()))
    elif new > own:
        rest = Elementwise(name="rest", reads=0.0, writes=0.0, parameters=new - own)
        result.append(Placed(f"{step.path}.rest", rest))
    return result


def _by_token(op: AnyOp) -> AnyOp:
    """Rows of a routed product are visits; the graph counts tokens, and visits per token."""
    if not isinstance(op, Matmul) or op.experts == 1 or op.rows.fixed or op.rows.per_token <= 1:
        return op
    visits = op.rows.per_token
    return msgspec.structs.replace(op, rows=op.rows.scaled(1 / visits), experts_per_token=visits)


def _tensor(item: Kept, seq_len: int | None) -> Tensor:
    rows = item.elements / max(item.width, 1)
    grows = seq_len and rows % seq_len == 0
    extent = Extent(per_token=rows / seq_len) if grows and seq_len else fixed(rows)
    return Tensor(item.key, item.width, extent, item.element)
