"""Headers of .safetensors files become models; damaged ones are refused."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.read import read_model
from raceline.models.readers.safetensors import header_of
from raceline.present.documents import load_json
from raceline.present.errors import InputError
from readers.fixtures import elements, llama_shapes, write_safetensors


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_model(str(path))
    return caught.value.message.id


def test_llama_names_give_the_llama_family(tmp_path: Path) -> None:
    shapes = llama_shapes()
    model = read_model(str(write_safetensors(tmp_path / "tiny.safetensors", shapes)))
    assert (model.family, model.layers, model.precision) == ("decoder", 3, "bf16")
    assert count.parameters(model) == elements(shapes)


def test_unknown_names_give_a_graph_with_every_parameter(tmp_path: Path) -> None:
    shapes = {"stem.weight": [8, 3, 3, 3], "stem.bias": [8], "blocks.0.fc.weight": [4, 8], "scale": [7],
              "blocks.1.fc.weight": [4, 8], "norm.weight": [4],
              "norm.bias": [4], "norm.running_mean": [4]}  # fmt: skip
    model = read_model(str(write_safetensors(tmp_path / "net.safetensors", shapes)))
    assert count.parameters(model) == elements(shapes) - 4
    assert [block.repeat for block in model.blocks if block.name == "blocks"] == [2]


def test_a_config_beside_it_tells_the_architecture(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
              "intermediate_size": 160, "vocab_size": 100, "tie_word_embeddings": True}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    model = read_model(str(write_safetensors(tmp_path / "model.safetensors", llama_shapes())))
    assert count.parameters(model) == elements(llama_shapes())
    assert "models.weights_differ" not in model.notes


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    names = list(llama_shapes())
    halves = names[: len(names) // 2], names[len(names) // 2 :]
    weights = {}
    for number, half in enumerate(halves):
        file = f"model-{number}.safetensors"
        write_safetensors(tmp_path / file, {name: llama_shapes()[name] for name in half})
        weights |= dict.fromkeys(half, file)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    assert count.parameters(read_model(str(index))) == elements(llama_shapes())
    assert count.parameters(read_model(str(tmp_path))) == elements(llama_shapes())


@pytest.mark.parametrize("shard", ["../secret.safetensors", "/etc/passwd", "a\\b", "..", "C:x"])
def test_an_index_leads_nowhere_else(tmp_path: Path, shard: str) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": shard}}))
    assert refused(index) == "models.index_path"


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", struct.pack("<Q", 2**31) + b"{}", struct.pack("<Q", 2**63) + b"{}",
     struct.pack("<Q", 100) + b"{}", struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 2) + b"{}",
     struct.pack("<Q", 1000) + b"[" * 1000, struct.pack("<Q", 17) + b'{"a": 1, "a": 2}'],
)  # fmt: skip
def test_a_damaged_header_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    assert refused(path).split(".")[0] in ("models", "present")


@pytest.mark.parametrize("shape", [[-1, 2], [10**18], [2.5], "ab", [True], [1] * 9, None, [10**9, 10**9]])
def test_a_senseless_shape_is_refused(shape: object) -> None:
    with pytest.raises(InputError):
        header_of({"x": {"dtype": "F32", "shape": shape}}, "x")


@given(st.binary(max_size=120))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        header_of(load_json(data), "x")
