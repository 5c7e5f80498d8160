"""A ``torch.export`` archive (.pt2): its graph is JSON inside the zip, so nothing is unpickled and PyTorch
isn't needed. Layout: torch/export/pt2_archive/constants.py and torch/_export/serde/schema.py."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from raceline.models.graph import Model
from raceline.models.readers import trace
from raceline.models.readers.archives import read_members
from raceline.models.readers.aten import VIEWS, Call, step_of
from raceline.models.readers.tensors import checked_shape
from raceline.models.readers.trace import Step, Value
from raceline.present.documents import load_json
from raceline.present.errors import InputError

# ScalarType of the schema: half, float, double, bfloat16 and the 8-bit formats
_FLOATS = (6, 7, 8, 13, 29, 30)
_MOST_NODES = 10_000
_MOST_MAPPINGS = 220_000
_MOST_EXPRESSIONS = 1_000
_COPIES = ("contiguous", "dropout")
_OLD = "serialized_exported_program.json"
_WEIGHTS = "data/weights/model_weights_config.json"


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of a ``.pt2`` file; figures at other lengths follow its symbolic sizes."""
    path = Path(reference)
    members = read_members(path, lambda name: name.endswith((_OLD, _WEIGHTS)) or _is_graph(name))
    graphs = [data for name, data in sorted(members.items()) if name.endswith(_OLD) or _is_graph(name)]
    if not graphs:
        raise InputError("models.pt2_without_graph", given=path.name)
    if graphs[0].count(b"{") > _MOST_MAPPINGS:
        raise InputError("present.too_many_nodes", limit=_MOST_MAPPINGS)
    weights = next((load_json(data) for name, data in members.items() if name.endswith(_WEIGHTS)), None)
    try:
        program = Program(load_json(graphs[0]), weights)
        return program.model(path)
    except (KeyError, TypeError, AttributeError, ValueError, IndexError, OverflowError, ZeroDivisionError,
            RecursionError) as error:  # fmt: skip
        raise InputError("models.pt2_wrong", given=path.name, reason=type(error).__name__) from None


def _is_graph(name: str) -> bool:
    folder, _, file = name.rpartition("/")
    return file.endswith(".json") and folder.rpartition("/")[2] == "models"


class Program:
    """An exported program's JSON. Sizes that are symbols take their hint, times `factor`."""

    def __init__(self, data: Any, weights: Any = None) -> None:
        module = data["graph_module"]
        self.graph = module["graph"]
        if len(self.graph["nodes"]) > _MOST_NODES:
            raise InputError("models.program_too_long", limit=_MOST_NODES)
        self.shapes: dict[str, tuple[int, ...]] = {}
        # tied parameters have several names, and one file in the archive
        files = {
            name: entry.get("path_name", name) for name, entry in (weights or {}).get("config", {}).items()
        }
        self.parameters: dict[str, str] = {}
        self.inputs: list[str] = []
        for item in module["signature"]["input_specs"]:
            if "parameter" in item:
                name = item["parameter"]["parameter_name"]
                self.parameters[item["parameter"]["arg"]["name"]] = files.get(name, name)
            elif "user_input" in item and "as_tensor" in item["user_input"].get("arg", {}):
                self.inputs.append(item["user_input"]["arg"]["as_tensor"]["name"])
        self.symbols: dict[str, int] = {}
        self.sizes: dict[str, int | None] = {}
        # views share the storage of their base
        self.bases: dict[str, str] = {}
        # whole numbers (indices, masks) need no gradient
        tensors = self.graph["tensor_values"]
        self.silent = {name for name, tensor in tensors.items() if tensor.get("dtype") not in _FLOATS}

    def model(self, path: Path) -> Model:
        """The op graph; the second dimension of whole-number inputs is the sequence."""
        first = self.graph["tensor_values"][self.inputs[0]] if self.inputs else {"sizes": []}
        shape = self.shape(first)
        batch = shape[0] if shape else 1
        is_tokens = len(shape) == 2 and first.get("dtype") in (4, 5)  # int32 and int64 of ScalarType
        steps = list(self.steps(batch))
        symbol = _symbol(first["sizes"][1]) if is_tokens else ""
        if symbol:
            self.symbols = {symbol: 2 * shape[1]}
            steps = trace.grow(steps, list(self.steps(batch)), (shape[1], 2 * shape[1]))
            self.symbols = {}
        notes = (
            ("models.kept_assumed",)
            if is_tokens and symbol
            else ("models.kept_assumed", "models.length_fixed")
        )
        return trace.model_of(
            steps,
            {key: self.value(name).elements() for name, key in self.parameters.items()},
            name=path.stem, architecture="torch.export", source=str(path),
            seq_len=shape[1] if is_tokens else None,
            image_size=shape[-1] if len(shape) == 4 else None,
            notes=notes if is_tokens else notes[:1],
        )  # fmt: skip

    def steps(self, batch: int) -> Iterator[Step]:
        """One step a call that moves data."""
        turned: dict[str, str] = {}
        self.bases = {}
        self.shapes = {}
        found = []
        for node in self.graph["nodes"]:
            name = node["target"].removeprefix("torch.ops.aten.").partition(".")[0]
            arguments = [self.argument(item["arg"], turned) for item in node["inputs"]]
            results = [tensor for item in node["outputs"] for tensor in self._results(item)]
            if name in VIEWS and arguments and isinstance(arguments[0], Value) and arguments[0].weight:
                turned |= dict.fromkeys(results, arguments[0].weight)
            if name in VIEWS and name not in _COPIES and arguments and isinstance(arguments[0], Value):
                self.bases |= dict.fromkeys(results, arguments[0].name)
            call = Call(
                name=name, arguments=tuple(self._positional(node, arguments)),
                named={item["name"]: value for item, value in zip(node["inputs"], arguments, strict=True)},
                results=tuple(self.value(result) for result in results), path=_path(node), batch=batch,
            )  # fmt: skip
            step = step_of(call)
            if step is not None:
                found.append(step)
        yield from trace.fuse_attention(found)

    def _positional(self, node: Any, arguments: list[Any]) -> list[Any]:
        """Arguments before the first that the graph leaves at its default and so skips: the rest go by name."""
        return [
            value for item, value in zip(node["inputs"], arguments, strict=True) if item.get("kind", 1) == 1
        ]

    def _results(self, item: Any) -> list[str]:
        if "as_tensor" in item:
            return [item["as_tensor"]["name"]]
        return [tensor["name"] for tensor in item.get("as_tensors", [])]

    def argument(self, item: Any, turned: dict[str, str]) -> Any:
        """A tensor as Value, lists as lists, numbers and flags as they are."""
        if "as_tensor" in item:
            return self.value(item["as_tensor"]["name"], turned)
        if "as_tensors" in item:
            return [self.value(tensor["name"], turned) for tensor in item["as_tensors"]]
        return next(iter(item.values()), None)

    def value(self, name: str, turned: dict[str, str] | None = None) -> Value:
        """The tensor of this name with its sizes."""
        shape = self.shapes.get(name)
        if shape is None:
            shape = self.shapes[name] = self.shape(self.graph["tensor_values"][name])
        weight = self.parameters.get(name) or (turned or {}).get(name)
        return Value(shape, weight, "" if name in self.silent else self.bases.get(name, name))

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """Its sizes, symbols at their hints or at what `symbols` sets."""
        return checked_shape([self._size(size) for size in tensor["sizes"]], "sizes")

    def _size(self, size: Any) -> int:
        if "as_int" in size:
            return int(size["as_int"])
        hint = int((size["as_expr"].get("hint") or {}).get("as_int", 1))
        if not self.symbols:
            return hint
        text = size["as_expr"]["expr_str"]
        if text not in self.sizes and len(self.sizes) < _MOST_EXPRESSIONS:
            self.sizes[text] = self._evaluated(text[:200])
        found = self.sizes.get(text)
        return hint if found is None else found

    def _evaluated(self, text: str) -> int | None:
        try:
            return _evaluate(ast.parse(text, mode="eval").body, self.symbols)
        except (KeyError, SyntaxError, TypeError):
            return None


_OPERATORS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}  # fmt: skip


def _evaluate(node: ast.expr, symbols: dict[str, int]) -> int:
    """Sums and products of whole numbers and symbols; KeyError for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return symbols[node.id]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _called(node.func.id, node.args, symbols)
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_evaluate(node.left, symbols), _evaluate(node.right, symbols))
    raise KeyError(type(node).__name__)


def _called(name: str, arguments: list[ast.expr], symbols: dict[str, int]) -> int:
    """The form in which newer files write an expression: Mul(Integer(2), Symbol('s0'))."""
    if name == "Symbol" and isinstance(arguments[0], ast.Constant):
        return symbols[str(arguments[0].value)]
    values = [_evaluate(item, symbols) for item in arguments]
    return math.prod(values) if name == "Mul" else {"Integer": sum, "Add": sum}[name](values)


def _symbol(size: Any) -> str:
    """The symbol that a size is, or nothing where it is a number or an expression."""
    text = size.get("as_expr", {}).get("expr_str", "")
    found = re.fullmatch(r"(?:Symbol\('(\w+)'.*\)|(\w+))", text)
    return (found.group(1) or found.group(2)) if found else ""


def _path(node: Any) -> str:
    """The module that made the call: the innermost of its stack, written name,path,type and parted by ;"""
    stack = node.get("metadata", {}).get("nn_module_stack", "")
    parts = [entry.split(",") for entry in stack.split(";")]
    paths = [part[1] for part in parts if len(part) >= 2 and part[1]]
    return paths[-1] if paths and not paths[-1].startswith("_empty") else "model"
