"""The header of a .safetensors file, or of the shards of one: names, types and shapes, no weights.

The format: 8 bytes with the header's length (little-endian), then that many bytes of JSON.
Source: github.com/huggingface/safetensors, README, section Format.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from raceline.models import count
from raceline.models.graph import Model
from raceline.models.readers import named, tensors
from raceline.models.readers.packed import unpacked
from raceline.models.readers.tensors import Shape
from raceline.present.documents import LARGEST_BYTES, load_json, open_file
from raceline.present.errors import InputError

# The format's word for a type -> our word and its bits (safetensors/src/tensor.rs, enum Dtype)
_TYPES = {
    "F64": ("fp64", 64), "F32": ("fp32", 32), "F16": ("fp16", 16), "BF16": ("bf16", 16), "F8_E4M3": ("fp8", 8),
    "F8_E5M2": ("fp8", 8), "F8_E4M3FNUZ": ("fp8", 8), "F8_E5M2FNUZ": ("fp8", 8), "F8_E8M0": ("fp8", 8),
    "F6_E2M3": ("fp6", 6), "F6_E3M2": ("fp6", 6), "F4": ("fp4", 4), "I64": ("int64", 64), "I32": ("int32", 32),
    "I16": ("int16", 16), "I8": ("int8", 8), "U64": ("uint64", 64), "U32": ("uint32", 32), "U16": ("uint16", 16),
    "U8": ("uint8", 8), "BOOL": ("bool", 8), "C64": ("complex64", 64),
}  # fmt: skip
_PLAIN = ("fp64", "fp32", "fp16", "bf16")
_MOST_SHARDS = 2000
_MOST_TENSORS = 100_000
_TOLERANCE = 0.01


class Header(msgspec.Struct, frozen=True):
    """Shapes and element types by the tensor's name. `notes`: what the file lacks."""

    shapes: dict[str, Shape]
    types: dict[str, str]
    notes: tuple[str, ...] = ()

    def commonest(self) -> str | None:
        """The type that most elements have."""
        totals: dict[str, int] = {}
        for name, shape in self.shapes.items():
            kind = self.types[name]
            totals[kind] = totals.get(kind, 0) + math.prod(shape)
        return max(totals, key=lambda kind: totals[kind], default=None)


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of a ``.safetensors`` file; a ``config.json`` beside it tells the architecture."""
    path = Path(reference)
    return _model(read_header(path), path, image_size)


def read_index(path: Path, index: Mapping[str, Any], image_size: int | None = None) -> Model:
    """The model of a sharded file's index. Its shards lie in the same folder; what a missing one holds
    is taken from the same tensor of another layer, and a note says that shards are missing."""
    weights = index.get("weight_map")
    if not isinstance(weights, dict) or not all(isinstance(file, str) for file in weights.values()):
        raise InputError("models.index_wrong", field="weight_map", given=path.name)
    shards = sorted(set(weights.values()))
    if len(shards) > _MOST_SHARDS or len(weights) > _MOST_TENSORS:
        raise InputError("models.index_wrong", field="weight_map", given=path.name)
    for shard in shards:
        if shard in ("", ".", "..") or any(mark in shard for mark in "/\\\0") or ":" in shard:
            raise InputError("models.index_path", field="weight_map", given=shard[:80])
    header = _joined(path.parent / shard for shard in shards if (path.parent / shard).is_file())
    if len(header.shapes) >= len(weights):
        return _model(header, path, image_size)
    if not header.shapes and not _config_of(path).is_file():
        raise InputError("models.shard_missing", field="weight_map", given=shards[0][:80])
    return _model(_completed(header, weights), path, image_size)


def _joined(paths: Iterable[Path]) -> Header:
    """One header from the headers of several files, together no larger than one may be."""
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    notes: dict[str, None] = {}
    left = LARGEST_BYTES
    for path in paths:
        header = read_header(path, left)
        left -= sum(len(name) + _SMALLEST_ENTRY_BYTES for name in header.shapes)
        shapes |= header.shapes
        types |= header.types
        notes |= dict.fromkeys(header.notes)
    return Header(shapes, types, tuple(notes))


# a name's entry holds at least its keys, a type and two offsets
_SMALLEST_ENTRY_BYTES = len('"":{"dtype":"F4","shape":[],"data_offsets":[0,0]},')


def _completed(header: Header, weights: Mapping[str, str]) -> Header:
    """The header with what the index names and no shard there holds."""
    alike = {tensors.without_layer(name): name for name in header.shapes}
    shapes, types = dict(header.shapes), dict(header.types)
    for name in weights:
        known = alike.get(tensors.without_layer(name))
        if name not in shapes and known is not None:
            shapes[name], types[name] = header.shapes[known], header.types[known]
    is_whole = all(name in shapes for name in weights)
    note = "models.shards_alike" if is_whole else "models.shards_missing"
    return Header(shapes, types, (*header.notes, note))


def read_header(path: Path, largest_bytes: int = LARGEST_BYTES) -> Header:
    """The names, shapes and types of one file."""
    with open_file(path) as file:
        start = file.read(8)
        length_bytes = int.from_bytes(start, "little") if len(start) == 8 else 0
        if not 2 <= length_bytes <= largest_bytes:
            raise InputError(
                "models.header_length", given=path.name, length_bytes=length_bytes,
                limit_mib=largest_bytes / 2**20,
            )  # fmt: skip
        data = file.read(length_bytes)
        weight_bytes = file.seek(0, 2) - 8 - length_bytes
    if len(data) < length_bytes:
        raise InputError("models.file_truncated", given=path.name)
    return header_of(_entries(data, path.name), path.name, weight_bytes)


class _Entry(msgspec.Struct, frozen=True):
    """What a header says of a tensor. Metadata have none of these."""

    dtype: str = ""
    shape: tuple[int, ...] | None = None
    data_offsets: tuple[int, ...] | None = None


_KEYS = tuple(name.encode() for name in _Entry.__struct_fields__)


def _entries(data: bytes, file: str) -> Any:
    """The header's JSON. A sound one is decoded in a tenth of the time that the strict loader takes, which
    then says what is wrong with any other; it counts as sound if no key of an entry stands twice."""
    stated = max(data.count(b'"%s"' % key) for key in _KEYS)
    if stated > _MOST_TENSORS:
        raise InputError("models.too_many_tensors", given=file, limit=_MOST_TENSORS)
    try:
        entries = msgspec.json.decode(data, type=dict[str, _Entry])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return load_json(data)
    if len(entries) > _MOST_TENSORS + 1:
        raise InputError("models.too_many_tensors", given=file, limit=_MOST_TENSORS)
    tensors_there = {name: entry for name, entry in entries.items() if name != "__metadata__"}
    return tensors_there if stated == len(tensors_there) else load_json(data)


def header_of(entries: Any, file: str, weight_bytes: int | None = None) -> Header:
    """The header's entries, checked. A file may end behind its header, as downloaded headers do; a note
    says so."""
    if not isinstance(entries, dict) or len(entries) > _MOST_TENSORS:
        raise InputError("models.header_wrong", given=file)
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    end = 0
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        kind, shape, offsets = _stated(entry)
        if kind not in _TYPES:
            raise InputError("models.tensor_type_unknown", given=name[:80], file=file)
        types[name], bits = _TYPES[kind]
        shapes[name] = tensors.checked_shape(shape, name)
        end = max(end, _checked_end(offsets, name, math.prod(shapes[name]) * bits))
    if not shapes:
        raise InputError("models.no_tensors", given=file)
    is_cut = weight_bytes is not None and end > weight_bytes
    return Header(shapes, types, ("models.weights_cut",) if is_cut else ())


def _stated(entry: Any) -> tuple[str, Any, Any]:
    if isinstance(entry, _Entry):
        return entry.dtype, entry.shape, entry.data_offsets
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return "", None, None
    return entry["dtype"], entry.get("shape"), entry.get("data_offsets")


def _checked_end(offsets: Any, name: str, size_bits: int) -> int:
    """Where a tensor ends, if its offsets hold just its elements."""
    if (
        isinstance(offsets, (list, tuple))
        and len(offsets) == 2
        and type(offsets[0]) is type(offsets[1]) is int
    ):
        start, end = offsets
        if start >= 0 and (end - start) * 8 == size_bits:
            return int(end)
    raise InputError("models.tensor_offsets", given=name[:80])


def _config_of(path: Path) -> Path:
    return path.parent / "config.json"


def _model(header: Header, path: Path, image_size: int | None) -> Model:
    name = path.parent.name if path.stem.startswith(("model", "diffusion_pytorch")) else path.stem
    name = name or path.stem
    stored = header.commonest()
    precision = stored if stored in _PLAIN else None
    shapes, packing = unpacked(header.shapes, header.types)
    if _config_of(path).is_file():
        from raceline.models.readers.hf import build

        model = build(load_json(_config_of(path)), name, str(path), image_size)
        model = _compared(model, shapes, header.notes)
    else:
        if "models.shards_missing" in header.notes:
            raise InputError("models.shard_missing", field="weight_map", given=path.name)
        model = named.model_of(shapes, name, str(path), precision)
    packing = packing or (stored if stored in ("fp8", "int8") else None)
    return msgspec.structs.replace(
        model,
        precision=model.precision or (None if packing else precision),
        weight_format=model.weight_format or packing,
        notes=(*model.notes, *header.notes),
    )


def _compared(model: Model, shapes: Mapping[str, Shape], lacks: tuple[str, ...]) -> Model:
    """The config's model, with a note where the file's weights are others than it says."""
    present = tensors.elements(tensors.without_buffers(shapes))
    expected = count.parameters(model)
    if "models.shards_missing" in lacks or abs(present - expected) <= _TOLERANCE * expected:
        return model
    return msgspec.structs.replace(model, notes=(*model.notes, "models.weights_differ"))
