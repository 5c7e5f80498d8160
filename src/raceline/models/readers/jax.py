"""JAX and Flax: ``jax:module:function`` is run, because the user named it, and evaluated abstractly.

The function takes no arguments and returns (function, parameters, inputs…): `function(parameters,
*inputs)` is traced; parameters and inputs may be arrays or ``jax.ShapeDtypeStruct``s. Or it returns
(a Flax linen module, inputs…), whose parameters come from ``jax.eval_shape`` of its init, or (a Flax nnx
module, inputs…), where ``nnx.eval_shape(make)`` makes one without storage. Extra `jax`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from raceline.models.graph import Model
from raceline.models.readers import trace
from raceline.models.readers.torch_module import failed, named_function
from raceline.models.readers.trace import Step, Value
from raceline.present.errors import InputError, MissingExtraError

_DEEPEST = 40
_SILENT_NAMES = (
    "reshape", "transpose", "broadcast_in_dim", "squeeze", "expand_dims", "slice", "convert_element_type",
    "iota", "concatenate", "copy", "stop_gradient", "rev", "pad", "dynamic_slice", "split", "eq", "lt",
    "gt", "ge", "le", "ne", "and", "or", "not", "sign", "is_finite", "select_n",
)  # fmt: skip
_SILENT = frozenset(_SILENT_NAMES)
_SAME_WEIGHT = frozenset(("reshape", "transpose", "squeeze", "expand_dims", "convert_element_type", "copy"))


def read(reference: str, image_size: int | None = None) -> Model:
    """The model that ``module:function`` builds."""
    try:
        import jax
    except ImportError:
        raise MissingExtraError("models.extra_missing", extra="jax", package="jax") from None
    function = named_function(reference)
    try:
        made = function()
        apply, parameters, inputs = _parts(made, reference)
        steps, weights = _traced(apply, parameters, inputs)
        length = _tokens(inputs)
        notes: tuple[str, ...] = ("models.kept_assumed",)
        if length:
            try:
                more, _ = _traced(apply, parameters, [_longer(item, length) for item in inputs])
                steps = trace.grow(steps, more, (length, 2 * length))
            except (TypeError, ValueError):
                notes = (*notes, "models.length_fixed")
    except InputError:
        raise
    except Exception as error:  # the user's code may fail in any way
        raise failed(reference, error) from error
    first: tuple[int, ...] = tuple(jax.tree.leaves(inputs)[0].shape) if inputs else ()
    return trace.model_of(
        steps, weights, name=reference, architecture="JAX", source=reference, seq_len=length,
        image_size=int(first[1]) if len(first) == 4 else None, notes=notes,
    )  # fmt: skip


def _parts(made: Any, reference: str) -> tuple[Any, Any, list[Any]]:
    """(function, parameters, inputs) of what the user's function returned."""
    import jax

    if not isinstance(made, tuple) or len(made) < 2:
        raise InputError("models.jax_result", field="model", given=reference, type=type(made).__name__)
    first, *rest = made
    if hasattr(first, "init") and hasattr(first, "apply"):
        variables = jax.eval_shape(first.init, jax.random.key(0), *rest)
        return first.apply, variables, rest
    if _is_nnx(first):
        return *_nnx_parts(first), rest
    if not callable(first):
        raise InputError("models.jax_result", field="model", given=reference, type=type(first).__name__)
    return first, rest[0], rest[1:]


def _is_nnx(made: Any) -> bool:
    """Whether it is a Flax nnx module; Flax isn't imported for that, since whoever made one has done so."""
    return any(kind.__module__.startswith("flax.nnx") for kind in type(made).__mro__)


def _nnx_parts(module: Any) -> tuple[Any, dict[str, Any]]:
    """A function of the module's state, and that state: parameters, and the rest under the name that Flax
    linen gives to running statistics."""
    from flax import nnx

    definition, parameters, others = nnx.split(module, nnx.Param, ...)

    def apply(state: dict[str, Any], *inputs: Any) -> Any:
        return nnx.merge(definition, state["params"], state["batch_stats"])(*inputs)

    return apply, {"params": parameters, "batch_stats": others}


def _tokens(inputs: list[Any]) -> int | None:
    """The length of a token sequence: whole numbers in [batch, length]."""
    for item in inputs[:1]:
        shape: tuple[int, ...] = tuple(getattr(item, "shape", ()))
        if len(shape) == 2 and "int" in str(item.dtype) and shape[1] > 1:
            return int(shape[1])
    return None


def _longer(item: Any, length: int) -> Any:
    """The abstract value of an input at twice the length."""
    import jax

    shape: tuple[int, ...] = tuple(getattr(item, "shape", ()))
    if len(shape) < 2 or shape[1] != length:
        return item
    return jax.ShapeDtypeStruct((shape[0], 2 * length, *shape[2:]), item.dtype)


def _traced(apply: Any, parameters: Any, inputs: list[Any]) -> tuple[list[Step], dict[str, int]]:
    import jax

    closed = jax.make_jaxpr(apply)(parameters, *inputs)
    named, _ = jax.tree_util.tree_flatten_with_path(parameters)
    weights: dict[str, int] = {}
    known: dict[Any, str] = {}
    for (path, leaf), variable in zip(named, closed.jaxpr.invars, strict=False):
        name = ".".join(
            str(getattr(part, "key", getattr(part, "idx", getattr(part, "name", part)))) for part in path
        )
        # Flax keeps running statistics beside the parameters
        if not name.startswith("batch_stats"):
            known[variable] = name.removeprefix("params.")
            weights[known[variable]] = math.prod(leaf.shape)
    shapes = [item.shape for item in jax.tree.leaves(inputs) if getattr(item, "shape", ())]
    batch = int(shapes[0][0]) if shapes else 1
    steps = list(_steps(closed.jaxpr, known, batch, 0))
    return trace.fuse_attention(steps), weights


def _steps(program: Any, known: dict[Any, str], batch: int, depth: int) -> Iterator[Step]:
    """The steps of a jaxpr, inner ones where they are called, a loop's as often as it runs."""
    import msgspec

    if depth > _DEEPEST:
        raise InputError("present.too_deep", limit=_DEEPEST)
    for equation in program.eqns:
        inner = _inner(equation)
        if inner is not None:
            skip = equation.params.get("cond_nconsts", 0) if equation.primitive.name == "while" else 0
            given = equation.invars[skip:]
            names = {
                target: known[source] for target, source in zip(inner.invars, given, strict=False)
                if not hasattr(source, "val") and source in known
            }  # fmt: skip
            times = int(equation.params.get("length", 1)) if equation.primitive.name == "scan" else 1
            for step in _steps(inner, names, batch, depth + 1):
                op = msgspec.structs.replace(step.op, rows=step.op.rows.scaled(times))
                scaled = {name: size * times for name, size in step.weights.items()}
                yield msgspec.structs.replace(step, op=op, weights=scaled)
            continue
        if equation.primitive.name in _SAME_WEIGHT and equation.invars[0] in known:
            known[equation.outvars[0]] = known[equation.invars[0]]
        step_made = _step(equation, known, batch)
        if step_made is not None:
            yield step_made


def _inner(equation: Any) -> Any:
    """The jaxpr that an equation calls (jit, custom derivatives, remat, scan), if it calls one."""
    for key in ("jaxpr", "call_jaxpr", "fun_jaxpr", "body_jaxpr"):
        found = equation.params.get(key)
        if found is not None:
            return getattr(found, "jaxpr", found)
    branches = equation.params.get("branches")
    return getattr(branches[-1], "jaxpr", branches[-1]) if branches else None


def _value(variable: Any, known: dict[Any, str]) -> Value:
    shape = tuple(int(size) for size in getattr(variable.aval, "shape", ()))
    if hasattr(variable, "val"):
        return Value(shape)
    is_float = "float" in str(getattr(variable.aval, "dtype", ""))
    return Value(shape, known.get(variable), str(id(variable)) if is_float else "")


def _step(equation: Any, known: dict[Any, str], batch: int) -> Step | None:
    name = equation.primitive.name
    given = [_value(variable, known) for variable in equation.invars]
    out = _value(equation.outvars[0], {})
    weights = [value.weight for value in given if value.weight]
    path = weights[0].rpartition(".")[0] if weights else "model"
    if name == "dot_general":
        return _product(equation, given[0], given[1], path or "model", batch)
    if name == "conv_general_dilated":
        return _convolution(equation, given[0], given[1], out, path or "model", batch)
    if name == "gather" and given[0].weight:
        width = equation.params["slice_sizes"][-1]
        index = Value((out.elements() // max(width, 1),))
        return trace.embedding(path or given[0].weight, given[0], index, batch)
    if name in _SILENT and not weights:
        return None
    if name in _SAME_WEIGHT or name == "broadcast_in_dim" or not out.shape:
        return (
            None
            if not weights or name in _SAME_WEIGHT
            else trace.elementwise(path or name, name, given, out, batch)
        )
    label = "softmax" if name == "exp" else name
    return trace.elementwise(path or "model", label, given, out, batch)


def _product(equation: Any, left: Value, right: Value, path: str, batch: int) -> Step:
    """dot_general: contracted, batched and free dimensions of both sides, as one matrix product."""
    (left_inner, right_inner), (left_batch, right_batch) = equation.params["dimension_numbers"]
    if left.weight and not right.weight:
        left, right = right, left
        left_inner, right_inner, left_batch = right_inner, left_inner, right_batch
    k = math.prod(left.shape[at] for at in left_inner)
    copies = math.prod(left.shape[at] for at in left_batch)
    m = left.elements() // max(k * copies, 1)
    n = right.elements() // max(k * copies, 1)
    stacked = (copies,) if left_batch else ()
    return trace.product(
        path,
        Value((*stacked, m, k), None, left.name),
        Value((*stacked, k, n), right.weight, right.name),
        batch,
    )


def _convolution(equation: Any, given: Value, weight: Value, out: Value, path: str, batch: int) -> Step:
    """A convolution with its dimensions turned to channels first."""
    numbers = equation.params["dimension_numbers"]
    turned = [
        Value(tuple(value.shape[at] for at in order), value.weight, value.name)
        for value, order in ((given, numbers.lhs_spec), (weight, numbers.rhs_spec), (out, numbers.out_spec))
    ]
    groups = equation.params.get("feature_group_count", 1)
    given, weight, out = turned
    is_transposed = groups == 1 and any(step > 1 for step in equation.params.get("lhs_dilation") or ())
    if is_transposed:
        n, k, *window = weight.shape
        weight = Value((k, n, *window), weight.weight, weight.name)
    return trace.convolution(path, given, weight, None, out, groups, batch, is_transposed)
