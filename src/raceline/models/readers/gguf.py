"""The header of a .gguf file: metadata and tensor shapes, no weights.

The format and its key names: github.com/ggml-org/ggml, docs/gguf.md. The numbers of tensor types and
file types: ggml.h (enum ggml_type) and llama.h (enum llama_ftype) of github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from raceline.models import count
from raceline.models.graph import Model
from raceline.models.readers import named, tensors
from raceline.models.readers.tensors import Shape
from raceline.present.documents import open_file
from raceline.present.errors import InputError

LARGEST_HEADER_BYTES = 64 * 2**20
_MOST_ENTRIES = 50_000
_MOST_PARTS = 100
_MOST_ITEMS = 1_500_000

_NEARLY_ALL = 0.75

_NUMBERS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d",
}  # fmt: skip
_TEXT, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_DEEPEST_ARRAY = 2
# number of a tensor's type -> our word, and its bits a weight with scales (ggml-common.h, struct block_*)
_TENSOR_TYPES = {
    0: ("fp32", 32.0), 1: ("fp16", 16.0), 2: ("q4_0", 4.5), 3: ("q4_1", 5.0), 6: ("q5_0", 5.5), 7: ("q5_1", 6.0),
    8: ("q8_0", 8.5), 9: ("q8_1", 10.0), 10: ("q2_k", 2.625), 11: ("q3_k", 3.4375), 12: ("q4_k", 4.5),
    13: ("q5_k", 5.5), 14: ("q6_k", 6.5625), 15: ("q8_k", 9.125), 16: ("iq2_xxs", 2.0625), 17: ("iq2_xs", 2.3125),
    18: ("iq3_xxs", 3.0625), 19: ("iq1_s", 1.5625), 20: ("iq4_nl", 4.5), 21: ("iq3_s", 3.4375),
    22: ("iq2_s", 2.5625), 23: ("iq4_xs", 4.25), 24: ("int8", 8.0), 25: ("int16", 16.0), 26: ("int32", 32.0),
    27: ("int64", 64.0), 28: ("fp64", 64.0), 29: ("iq1_m", 1.75), 30: ("bf16", 16.0), 34: ("tq1_0", 1.6875),
    35: ("tq2_0", 2.0625), 39: ("mxfp4", 4.25), 40: ("nvfp4", 4.5), 41: ("q1_0", 1.125),
}  # fmt: skip
# general.file_type -> the word for it, of the formats that estimates know; others go by their bits
_FILE_TYPES = {
    0: "fp32", 1: "fp16", 2: "q4_0", 7: "q8_0", 10: "q2_k", 12: "q3_k_m", 15: "q4_k_m", 16: "q5_k_s",
    17: "q5_k_m", 18: "q6_k", 32: "bf16", 38: "mxfp4", 39: "nvfp4",
}  # fmt: skip
# bits a weight of each, over a whole file (llama.cpp, tools/quantize/README.md)
_FORMAT_BITS = {
    "q2_k": 3.0, "q3_k_m": 3.9, "mxfp4": 4.25, "q4_0": 4.5, "q4_k_m": 4.85, "q5_k_s": 5.5, "q5_k_m": 5.7,
    "q6_k": 6.56, "q8_0": 8.5,
}  # fmt: skip
_PLAIN = ("fp32", "fp16", "bf16", "fp64")

# general.architecture -> the model type whose family builds it, where the two differ
_ARCHITECTURES = {
    "gptneox": "gpt_neox", "gemma3": "gemma3_text", "phi2": "phi", "command-r": "cohere",
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "deepseek2": "deepseek_v3", "gpt-oss": "gpt_oss",
    "nomic-bert": "bert",
}  # fmt: skip
_FIELDS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length", "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window", "num_local_experts": "expert_count",
    "num_experts": "expert_count", "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length", "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count", "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank", "vocab_size": "vocab_size",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}  # fmt: skip


Config = dict[str, Any]


class Header(NamedTuple):
    """Metadata by key (arrays only as their length) and each tensor's shape (outermost first) and type."""

    metadata: dict[str, Any]
    shapes: dict[str, Shape]
    types: dict[str, str]


class Length(NamedTuple):
    """Stands for an array of the metadata: only its length is kept, and its numbers if they are few."""

    items: int
    values: tuple[Any, ...] = ()


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of a ``.gguf`` file, or of the parts that one was split into beside it."""
    path = Path(reference)
    header, notes = _whole(path)
    stored, is_own = weight_format(header)
    if not is_own:
        notes = (*notes, "models.format_nearest")
    model = _family(header, is_whole="models.shards_missing" not in notes)
    if model is None and "models.shards_missing" in notes:
        raise InputError("models.part_missing", given=path.name)
    model = model or named.model_of(header.shapes, path.stem, "", None)
    name = header.metadata.get("general.name")
    return msgspec.structs.replace(
        model,
        name=name[:200] if isinstance(name, str) and name else path.stem,
        source=str(path),
        precision=stored if stored in _PLAIN else None,
        weight_format=None if stored in _PLAIN else stored,
        notes=(*model.notes, *notes),
    )


_PART = re.compile(r"-(\d{5})-of-(\d{5})$")


def _whole(path: Path) -> tuple[Header, tuple[str, ...]]:
    """The header of a file, or of all its parts that are there; the first part holds the metadata."""
    found = _PART.search(path.stem)
    if found is None or not 1 <= int(found.group(2)) <= _MOST_PARTS:
        return _header(path), ()
    base, last = path.stem[: found.start()], int(found.group(2))
    parts = [path.with_name(f"{base}-{part:05}-of-{last:05}{path.suffix}") for part in range(1, last + 1)]
    if not parts[0].is_file():
        raise InputError("models.part_missing", given=parts[0].name)
    headers = [_header(part) for part in parts if part.is_file()]
    if sum(len(header.shapes) for header in headers) > _MOST_ENTRIES:
        raise InputError("models.gguf_version", given=path.name, version=3)
    joined = headers[0]
    for header in headers[1:]:
        joined = Header(joined.metadata, {**joined.shapes, **header.shapes}, {**joined.types, **header.types})
    return joined, () if len(headers) == last else ("models.shards_missing",)


def _header(path: Path) -> Header:
    with open_file(path) as file:
        data = file.read(LARGEST_HEADER_BYTES)
    return parse(data, path.name)


def weight_format(header: Header) -> tuple[str, bool]:
    """The format of the weights as estimates know it, and whether it is the file's own: the file's word,
    else a type that nearly all elements have, else the format that is nearest in bits a weight."""
    named = _FILE_TYPES.get(header.metadata.get("general.file_type", -1))
    if named is not None:
        return named, True
    matrices = {name: math.prod(shape) for name, shape in header.shapes.items() if len(shape) > 1}
    totals: dict[str, int] = {}
    for name, size in (matrices or dict.fromkeys(header.shapes, 1)).items():
        totals[header.types[name]] = totals.get(header.types[name], 0) + size
    commonest = max(totals, key=lambda kind: totals[kind])
    is_known = commonest in _PLAIN or commonest in _FORMAT_BITS
    if is_known and totals[commonest] > _NEARLY_ALL * sum(totals.values()):
        return commonest, True
    bits = bits_per_weight(header)
    return min(_FORMAT_BITS, key=lambda name: abs(_FORMAT_BITS[name] - bits)), False


def bits_per_weight(header: Header) -> float:
    """Stored bits of all tensors, scales included, a weight."""
    bits = dict(_TENSOR_TYPES.values())
    sizes = {name: math.prod(shape) for name, shape in header.shapes.items()}
    stored = sum(bits[header.types[name]] * size for name, size in sizes.items())
    return stored / max(sum(sizes.values()), 1)


def _family(header: Header, *, is_whole: bool) -> Model | None:
    """The family's model, if its parameters are exactly those of a whole file."""
    from raceline.models.families import registry
    from raceline.models.fields import Fields

    try:
        model = registry.build_model(Fields(config_of(header)))
    except InputError:
        return None
    shapes = tensors.without_buffers(header.shapes)
    return model if not is_whole or count.parameters(model) == tensors.elements(shapes) else None


def config_of(header: Header) -> Config:
    """The metadata under the names of a Hugging Face config."""
    values = header.metadata
    architecture = values.get("general.architecture")
    if not isinstance(architecture, str):
        raise InputError("models.gguf_architecture", field="general.architecture")
    config: Config = {"model_type": _ARCHITECTURES.get(architecture, architecture)}
    for field, key in _FIELDS.items():
        value = values.get(f"{architecture}.{key}")
        if isinstance(value, Length):
            value = value.values[0] if len(set(value.values)) == 1 else None
        if value is not None:
            config[field] = value
    table = header.shapes.get("token_embd.weight")
    if table:
        config["vocab_size"] = table[0]
    if config.get("num_local_experts") and architecture == "llama":
        config["model_type"] = "mixtral"
    if "attn_q.bias" in {name.rpartition("blk.0.")[2] for name in header.shapes} and architecture == "llama":
        config["attention_bias"] = True
    if architecture == "deepseek2":
        config |= _latent(values, architecture)
        config.pop("num_key_value_heads", None)
    config["tie_word_embeddings"] = "output.weight" not in header.shapes
    return config


def _latent(values: Mapping[str, Any], architecture: str) -> Config:
    """The parts of a head under latent attention; newer files name the lengths of what is cached otherwise."""

    def length(name: str) -> int:
        found = values.get(f"{architecture}.{name}_mla", values.get(f"{architecture}.{name}"))
        return found if isinstance(found, int) else 0

    rotary = length("rope.dimension_count")
    return {
        "qk_rope_head_dim": rotary, "qk_nope_head_dim": length("attention.key_length") - rotary,
        "v_head_dim": length("attention.value_length"),
    }  # fmt: skip


def parse(data: bytes, file: str) -> Header:
    """The header from a file's first bytes. Raises InputError where they are no sound GGUF."""
    if data[:4] != b"GGUF":
        raise InputError("models.gguf_magic", given=file)
    cursor = _Cursor(data, file)
    version, tensor_count, entry_count = cursor.number("<I"), cursor.number("<Q"), cursor.number("<Q")
    if version not in (2, 3) or tensor_count > _MOST_ENTRIES or entry_count > _MOST_ENTRIES:
        raise InputError("models.gguf_version", given=file, version=version)
    metadata: dict[str, Any] = {}
    for _ in range(entry_count):
        key = cursor.text()
        if key in metadata:
            raise InputError("present.duplicate_key", key=key[:100])
        metadata[key] = cursor.value(cursor.number("<I"))
    shapes, types = _tensor_table(cursor, tensor_count)
    return Header(metadata, shapes, types)


def _tensor_table(cursor: _Cursor, tensor_count: int) -> tuple[dict[str, Shape], dict[str, str]]:
    shapes: dict[str, Shape] = {}
    types: dict[str, str] = {}
    for _ in range(tensor_count):
        name = cursor.text()
        dimensions = cursor.number("<I")
        if dimensions > 8 or name in shapes:
            raise InputError("models.tensor_shape_wrong", given=name[:80])
        sizes = [cursor.number("<Q") for _ in range(dimensions)]
        kind = cursor.number("<I")
        cursor.number("<Q")
        if kind not in _TENSOR_TYPES:
            raise InputError("models.tensor_type_unknown", given=name[:80], file=cursor.file)
        # GGUF writes the innermost dimension first
        shapes[name] = tensors.checked_shape(sizes[::-1], name)
        types[name] = _TENSOR_TYPES[kind][0]
    if not shapes:
        raise InputError("models.no_tensors", given=cursor.file)
    return shapes, types


class _Cursor:
    """A position in the header; every read is checked against the end of the data."""

    def __init__(self, data: bytes, file: str) -> None:
        self.data = data
        self.file = file
        self.at = 4
        self.items = 0

    def take(self, length_bytes: int) -> bytes:
        end = self.at + length_bytes
        if end > len(self.data):
            raise InputError("models.file_truncated", given=self.file)
        taken = self.data[self.at : end]
        self.at = end
        return taken

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> str:
        return self.take(self.number("<Q")).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _TEXT:
            return self.text()
        if kind == _ARRAY and depth < _DEEPEST_ARRAY:
            return self._array(depth)
        if kind not in _NUMBERS:
            raise InputError("models.gguf_value", given=self.file, kind=kind)
        return self.number(_NUMBERS[kind])

    def _array(self, depth: int) -> Length:
        kind, length = self.number("<I"), self.number("<Q")
        if kind in _NUMBERS:
            size_bytes = struct.calcsize(_NUMBERS[kind])
            data = self.take(length * size_bytes)
            few = length <= 4096
            values = tuple(struct.unpack(f"<{length}{_NUMBERS[kind][1]}", data)) if few else ()
            return Length(length, values)
        self.items += length
        if self.items > _MOST_ITEMS:
            raise InputError("models.file_truncated", given=self.file)
        if kind == _TEXT:
            self._skip_texts(length)
        else:
            for _ in range(length):
                self.value(kind, depth + 1)
        return Length(length)

    def _skip_texts(self, length: int) -> None:
        """Go past texts without making them: a vocabulary holds hundreds of thousands."""
        at, end = self.at, len(self.data) - 8
        read = _LENGTH.unpack_from
        for _ in range(length):
            if at > end:
                raise InputError("models.file_truncated", given=self.file)
            at += 8 + read(self.data, at)[0]
        self.at = at
        self.take(0)
