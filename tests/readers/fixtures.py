"""Small files of each format, written by hand."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

Shapes = dict[str, list[int]]
_BYTES = {"F32": 4, "BF16": 2, "F8_E4M3": 1, "I32": 4, "U8": 1}


def llama_shapes(layers: int = 3, hidden: int = 64, inner: int = 160, vocabulary: int = 100) -> Shapes:
    """Weights of a small Llama in PyTorch's names and order, head size 64."""
    shapes: Shapes = {"model.embed_tokens.weight": [vocabulary, hidden], "model.norm.weight": [hidden]}
    for index in range(layers):
        layer = f"model.layers.{index}."
        shapes |= {f"{layer}self_attn.{name}_proj.weight": [hidden, hidden] for name in "qkvo"}
        shapes |= {f"{layer}mlp.{name}_proj.weight": [inner, hidden] for name in ("gate", "up")}
        shapes[f"{layer}mlp.down_proj.weight"] = [hidden, inner]
        shapes |= {f"{layer}{name}_layernorm.weight": [hidden] for name in ("input", "post_attention")}
    return shapes


def elements(shapes: Shapes) -> int:
    """How many elements they hold."""
    total = 0
    for shape in shapes.values():
        size = 1
        for length in shape:
            size *= length
        total += size
    return total


def write_safetensors(path: Path, shapes: Shapes, kind: str = "BF16") -> Path:
    """A header alone: no reader needs the weights behind it."""
    entries: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + elements({name: shape}) * _BYTES[kind]
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    data = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(data)) + data)
    return path


def text(value: str) -> bytes:
    """A string as GGUF writes it."""
    return struct.pack("<Q", len(value)) + value.encode()


def gguf_bytes(metadata: dict[str, Any], shapes: Shapes, kind: int = 8) -> bytes:
    """A GGUF header, version 3. Values are texts, whole numbers or lists of texts."""
    data = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata))
    for key, value in metadata.items():
        data += text(key)
        if isinstance(value, str):
            data += struct.pack("<I", 8) + text(value)
        elif isinstance(value, list):
            data += struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        else:
            data += struct.pack("<II", 4, value)
    for name, shape in shapes.items():
        data += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape[::-1])
        data += struct.pack("<IQ", kind, 0)
    return data
