"""The header of a .safetensors file, or of the shards of one: names, types and shapes, no weights.

The format: 8 bytes with the header's length (little-endian), then that many bytes of JSON.
Source: github.com/huggingface/safetensors, README, section Format.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from raceline.models import count
from raceline.models.graph import Model
from raceline.models.readers import tensors
from raceline.models.readers.tensors import Shape
from raceline.present.documents import LARGEST_BYTES, load_json, open_file
from raceline.present.errors import InputError

_TYPES = {
    "F64": "fp64", "F32": "fp32", "F16": "fp16", "BF16": "bf16", "F8_E4M3": "fp8", "F8_E5M2": "fp8",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U8": "uint8", "BOOL": "bool",
    "U16": "uint16", "U32": "uint32", "U64": "uint64", "F4": "fp4", "F8_E8M0": "fp8", "F6_E2M3": "fp6",
    "F6_E3M2": "fp6", "C64": "complex64",
}  # fmt: skip
_PLAIN = ("fp64", "fp32", "fp16", "bf16")
_MOST_SHARDS = 2000


class Header(msgspec.Struct, frozen=True):
    """Shapes and element types by the tensor's name."""

    shapes: dict[str, Shape]
    types: dict[str, str]

    def commonest(self) -> str | None:
        """The type that most elements have."""
        totals: dict[str, int] = {}
        for name, shape in self.shapes.items():
            totals[self.types[name]] = totals.get(self.types[name], 0) + tensors.elements({name: shape})
        return max(totals, key=lambda kind: totals[kind], default=None)


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of a ``.safetensors`` file; a ``config.json`` beside it tells the architecture."""
    path = Path(reference)
    return _model(read_header(path), path, image_size)


def read_index(path: Path, index: Mapping[str, Any], image_size: int | None = None) -> Model:
    """The model of a sharded file's index: its shards must lie in the same folder."""
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
        raise InputError("models.index_wrong", field="weight_map", given=path.name)
    shards = sorted(set(weights.values()))
    if len(shards) > _MOST_SHARDS:
        raise InputError("models.index_wrong", field="weight_map", given=path.name)
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    for shard in shards:
        if shard in ("", ".", "..") or any(mark in shard for mark in "/\\\0") or ":" in shard:
            raise InputError("models.index_path", field="weight_map", given=shard[:80])
        header = read_header(path.parent / shard)
        shapes |= header.shapes
        types |= header.types
    return _model(Header(shapes, types), path, image_size)


def read_header(path: Path) -> Header:
    """The names, shapes and types of one file."""
    with open_file(path) as file:
        length_bytes = int.from_bytes(start, "little") if len(start := file.read(8)) == 8 else -1
        if not 2 <= length_bytes <= LARGEST_BYTES:
            raise InputError(
                "models.header_length",
                given=path.name,
                length_bytes=length_bytes,
                limit_mib=LARGEST_BYTES / 2**20,
            )
        data = file.read(length_bytes)
    if len(data) < length_bytes:
        raise InputError("models.file_truncated", given=path.name)
    return header_of(load_json(data), path.name)


def header_of(entries: Any, file: str) -> Header:
    """The header's JSON, checked."""
    if not isinstance(entries, dict):
        raise InputError("models.header_wrong", given=file)
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        if not isinstance(entry, dict) or entry.get("dtype") not in _TYPES:
            raise InputError("models.tensor_type_unknown", given=name[:80], file=file)
        shapes[name] = tensors.checked_shape(entry.get("shape"), name)
        types[name] = _TYPES[entry["dtype"]]
    if not shapes:
        raise InputError("models.no_tensors", given=file)
    return Header(shapes, types)


def _model(header: Header, path: Path, image_size: int | None) -> Model:
    stored = header.commonest()
    precision = stored if stored in _PLAIN else None
    config = path.parent / "config.json"
    name = path.parent.name if path.stem.startswith(("model", "diffusion_pytorch")) else path.stem
    name = name or path.stem
    if not config.is_file():
        return _quantised(tensors.model_of(header.shapes, name, str(path), precision), stored)
    from raceline.models.readers.hf import build

    model = build(load_json(config), name, str(path), image_size)
    model = msgspec.structs.replace(model, precision=model.precision or precision)
    present = tensors.elements(tensors.without_buffers(header.shapes))
    if precision is not None and count.parameters(model) != present:
        return msgspec.structs.replace(model, notes=(*model.notes, "models.weights_differ"))
    return _quantised(model, stored)


def _quantised(model: Model, stored: str | None) -> Model:
    """A model whose weights are stored in 8 bits says so, unless its config already does."""
    if model.weight_format is None and stored in ("fp8", "int8"):
        return msgspec.structs.replace(model, weight_format=stored)
    return model
