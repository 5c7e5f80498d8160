"""The parts of an .onnx file that describe its graph, read from the protobuf wire format.

Weights are skipped where they stand and external data isn't opened. Field numbers: onnx/onnx.proto of
github.com/onnx/onnx; the wire format: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from raceline.models.readers.tensors import Shape, checked_shape
from raceline.present.documents import open_file
from raceline.present.errors import InputError

_MOST_FIELDS = 300_000
_MOST_NODES = 15_000
_SMALL_ELEMENTS = 4096
_FLOATS = {1: "fp32", 10: "fp16", 11: "fp64", 16: "bf16", 17: "fp8", 18: "fp8", 19: "fp8", 20: "fp8"}
_NUMPY = {1: "<f4", 2: "u1", 3: "i1", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2", 11: "<f8", 12: "<u4", 13: "<u8"}


class Constant(msgspec.Struct, frozen=True):
    """A tensor in the file: its shape and type, and its values where they are few."""

    shape: Shape
    kind: int
    values: Any = None

    @property
    def precision(self) -> str | None:
        """The floating-point format, None for whole numbers and flags."""
        return _FLOATS.get(self.kind)


class Node(msgspec.Struct, frozen=True):
    """One operator. `path`: the module that made it, as the exporter noted it."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    path: str


class Port(msgspec.Struct, frozen=True):
    """An input or a value with a stated type; a dimension is a number, a symbol, or None."""

    name: str
    kind: int
    dimensions: tuple[int | str | None, ...] | None


class Graph(msgspec.Struct, frozen=True):
    """What stands in the file."""

    nodes: tuple[Node, ...]
    constants: dict[str, Constant]
    inputs: tuple[Port, ...]
    values: dict[str, Port]


def load(path: Path) -> Graph:
    """The graph of a file. Raises InputError where it is damaged or too long."""
    with open_file(path) as file:
        if not file.read(1):
            raise InputError("models.onnx_wrong", given=path.name)
        # closed by its last view, of which an error's traceback may hold some
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return parse(memoryview(data), path.name)


def parse(data: memoryview, name: str) -> Graph:
    """The graph in a serialised ModelProto."""
    try:
        reader = _Reader()
        graphs = [value for number, value in reader.fields(data) if number == 7]
        if not graphs or not isinstance(graphs[-1], memoryview):
            raise InputError("models.onnx_wrong", given=name)
        return reader.graph(graphs[-1])
    except (ValueError, TypeError, struct.error, IndexError, UnicodeDecodeError, OverflowError):
        raise InputError("models.onnx_wrong", given=name) from None


class _Reader:
    """Counts the fields that it has read, so that a hostile file ends in time."""

    def __init__(self) -> None:
        self.count = 0

    def fields(self, data: memoryview) -> Iterator[tuple[int, Any]]:
        """(field number, value): an int, or a view of the bytes of a text, message or packed list."""
        at, end = 0, len(data)
        while at < end:
            self.count += 1
            if self.count > _MOST_FIELDS:
                raise InputError("models.program_too_long", limit=_MOST_FIELDS)
            key, at = _varint(data, at)
            kind = key & 7
            if kind == 0:
                value, at = _varint(data, at)
                yield key >> 3, value
                continue
            if kind == 2:
                length, at = _varint(data, at)
            else:
                length = {1: 8, 5: 4}[kind] if kind in (1, 5) else -1
            if length < 0 or at + length > end:
                raise ValueError("length")
            yield key >> 3, data[at : at + length]
            at += length

    def graph(self, data: memoryview) -> Graph:
        nodes: list[Node] = []
        constants: dict[str, Constant] = {}
        inputs: list[Port] = []
        values: dict[str, Port] = {}
        for number, value in self.fields(data):
            if number == 1:
                nodes.append(self._node(value))
                if len(nodes) > _MOST_NODES:
                    raise InputError("models.program_too_long", limit=_MOST_NODES)
            elif number == 5:
                name, constant = self._tensor(value)
                constants[name] = constant
            elif number in (11, 12, 13):
                port = self._port(value)
                values[port.name] = port
                if number == 11:
                    inputs.append(port)
        return Graph(
            tuple(nodes), constants, tuple(port for port in inputs if port.name not in constants), values
        )

    def _node(self, data: memoryview) -> Node:
        inputs: list[str] = []
        outputs: list[str] = []
        attributes: dict[str, Any] = {}
        operator = name = scope = ""
        for number, value in self.fields(data):
            if number == 1:
                inputs.append(_text(value))
            elif number == 2:
                outputs.append(_text(value))
            elif number == 3:
                name = _text(value)
            elif number == 4:
                operator = _text(value)
            elif number == 5:
                key, found = self._attribute(value)
                attributes[key] = found
            elif number == 9:
                scope = self._scope(value) or scope
        return Node(operator, tuple(inputs), tuple(outputs), attributes, scope or _module(name))

    def _scope(self, data: memoryview) -> str:
        """The innermost module in the note that torch.onnx leaves: a list of names as text."""
        if b"name_scopes" not in bytes(data[:100]):
            return ""
        pair = {number: _text(value) for number, value in self.fields(data)}
        if not pair.get(1, "").endswith("name_scopes"):
            return ""
        names = [part.strip(" '\"") for part in pair.get(2, "").strip("[]").split(",")]
        return next((name for name in reversed(names[:-1]) if name), "")

    def _attribute(self, data: memoryview) -> tuple[str, Any]:
        name, found = "", None
        many: list[int] = []
        for number, value in self.fields(data):
            if number == 1:
                name = _text(value)
            elif number == 2:
                found = struct.unpack("<f", value)[0]
            elif number == 3:
                found = _signed(value)
            elif number == 4:
                found = bytes(value[:1000])
            elif number == 5:
                found = self._tensor(value)[1]
            elif number == 8:
                many += [_signed(value)] if isinstance(value, int) else _packed(value)
        return name, many if many else found

    def _tensor(self, data: memoryview) -> tuple[str, Constant]:
        sizes: list[int] = []
        name, kind = "", 0
        raw: memoryview | None = None
        listed: list[int] = []
        reals = bytearray()
        for number, value in self.fields(data):
            if number == 1:
                sizes += [_signed(value)] if isinstance(value, int) else _packed(value)
            elif number == 2:
                kind = value
            elif number == 8:
                name = _text(value)
            elif number == 9:
                raw = value
            elif number == 4:
                # one number a field, or all of them packed
                reals += bytes(value[: max(4 * _SMALL_ELEMENTS - len(reals), 0)])
            elif number in (5, 7):
                listed += [_signed(value)] if isinstance(value, int) else _packed(value[:50_000])
        shape = checked_shape(sizes, name)
        return name, Constant(shape, kind, _values(shape, kind, reals or raw, listed))

    def _port(self, data: memoryview) -> Port:
        name, kind = "", 0
        dimensions: tuple[int | str | None, ...] | None = None
        for number, value in self.fields(data):
            if number == 1:
                name = _text(value)
            elif number == 2:
                for inner, tensor in self.fields(value):
                    if inner == 1:
                        kind, dimensions = self._type(tensor)
        return Port(name, kind, dimensions)

    def _type(self, data: memoryview) -> tuple[int, tuple[int | str | None, ...] | None]:
        kind, dimensions = 0, None
        for number, value in self.fields(data):
            if number == 1:
                kind = value
            elif number == 2:
                dimensions = tuple(self._dimension(part) for inner, part in self.fields(value) if inner == 1)
        return kind, dimensions

    def _dimension(self, data: memoryview) -> int | str | None:
        for number, value in self.fields(data):
            if number == 1:
                return _signed(value)
            if number == 2:
                return _text(value)
        return None


def _values(shape: Shape, kind: int, raw: memoryview | bytearray | None, listed: list[int]) -> Any:
    elements = math.prod(shape)
    if elements > _SMALL_ELEMENTS or kind not in _NUMPY:
        return None
    if raw is not None and len(raw) == elements * np.dtype(_NUMPY[kind]).itemsize:
        return np.frombuffer(bytes(raw), dtype=_NUMPY[kind]).reshape(shape)
    if listed and len(listed) == elements and kind in (2, 3, 6, 7, 9, 12, 13):
        return np.array(listed, dtype=np.int64).reshape(shape)
    return None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("varint")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _packed(data: memoryview) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(data) and len(found) <= _SMALL_ELEMENTS:
        value, at = _varint(data, at)
        found.append(_signed(value))
    return found


def _text(data: memoryview) -> str:
    return bytes(data[:4096]).decode()


def _module(name: str) -> str:
    """The module in a node's name as older exporters write it: /layers/layers.0/conv/Conv."""
    parts = [part for part in name.split("/") if part][:-1]
    kept = [
        part
        for at, part in enumerate(parts)
        if at + 1 == len(parts) or not parts[at + 1].startswith(part + ".")
    ]
    return ".".join(kept)
