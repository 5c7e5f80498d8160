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
from raceline.models.readers.packed import unpacked
from raceline.models.readers.safetensors import header_of
from raceline.present.documents import load_json
from raceline.present.errors import InputError
from readers.fixtures import elements, llama_shapes, write_safetensors

CONFIG = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
          "intermediate_size": 160, "vocab_size": 100, "tie_word_embeddings": True}  # fmt: skip


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_model(str(path))
    return caught.value.message.id


def test_llama_names_give_the_llama_family(tmp_path: Path) -> None:
    shapes = llama_shapes()
    model = read_model(str(write_safetensors(tmp_path / "tiny.safetensors", shapes)))
    assert (model.family, model.layers, model.precision) == ("decoder", 3, "bf16")
    assert count.parameters(model) == elements(shapes)


def gpt2_shapes() -> dict[str, list[int]]:
    shapes = {"wte.weight": [100, 64], "wpe.weight": [32, 64], "ln_f.weight": [64], "ln_f.bias": [64]}
    for layer in ("h.0.", "h.1."):
        for name, k, n in (("attn.c_attn", 64, 192), ("attn.c_proj", 64, 64), ("mlp.c_fc", 64, 256),
                           ("mlp.c_proj", 256, 64)):  # fmt: skip
            shapes |= {f"{layer}{name}.weight": [k, n], f"{layer}{name}.bias": [n]}
        shapes |= {f"{layer}{name}.{part}": [64] for name in ("ln_1", "ln_2") for part in ("weight", "bias")}
    return shapes


def bert_shapes() -> dict[str, list[int]]:
    norms = [
        "embeddings.LayerNorm",
        *(f"encoder.layer.0.{part}output.LayerNorm" for part in ("", "attention.")),
    ]
    shapes = {f"{name}.{part}": [64] for name in norms for part in ("weight", "bias")}
    tables = {"word": 100, "position": 32, "token_type": 2}
    shapes |= {f"embeddings.{name}_embeddings.weight": [size, 64] for name, size in tables.items()}
    layer = "encoder.layer.0."
    matrices = {f"{layer}attention.self.{name}": [64, 64] for name in ("query", "key", "value")}
    matrices |= {f"{layer}attention.output.dense": [64, 64], f"{layer}intermediate.dense": [256, 64],
                 f"{layer}output.dense": [64, 256]}  # fmt: skip
    shapes |= {f"{name}.weight": shape for name, shape in matrices.items()}
    shapes |= {f"{name}.bias": shape[:1] for name, shape in matrices.items()}
    return {**{f"bert.{name}": shape for name, shape in shapes.items()}, "classifier.weight": [3, 64]}


@pytest.mark.parametrize(("shapes", "architecture"), [(gpt2_shapes(), "gpt2"), (bert_shapes(), "bert")])
def test_names_tell_the_family(tmp_path: Path, shapes: dict[str, list[int]], architecture: str) -> None:
    model = read_model(str(write_safetensors(tmp_path / "tiny.safetensors", shapes)))
    assert model.architecture == architecture and model.layers
    assert count.parameters(model) == elements(shapes)
    assert "models.heads_assumed" in model.notes


def test_norms_of_queries_tell_the_size_of_a_head(tmp_path: Path) -> None:
    shapes = llama_shapes()
    for index in range(3):
        shapes |= {f"model.layers.{index}.self_attn.{name}_norm.weight": [32] for name in "qk"}
    model = read_model(str(write_safetensors(tmp_path / "tiny.safetensors", shapes)))
    assert (model.architecture, model.notes) == ("qwen3", ("models.weights_cut",))


def test_unknown_names_give_a_graph_with_every_parameter(tmp_path: Path) -> None:
    shapes = {"stem.weight": [8, 3, 3, 3], "stem.bias": [8], "blocks.0.fc.weight": [4, 8], "scale": [7],
              "blocks.1.fc.weight": [4, 8], "norm.weight": [4],
              "norm.bias": [4], "norm.running_mean": [4]}  # fmt: skip
    model = read_model(str(write_safetensors(tmp_path / "net.safetensors", shapes)))
    assert count.parameters(model) == elements(shapes) - 4
    assert [block.repeat for block in model.blocks if block.name == "blocks"] == [2]


def test_a_config_beside_it_tells_the_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
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


def write_index(folder: Path, shapes: dict[str, list[int]], kept: str = "") -> Path:
    """An index with a shard for each layer, of which those with `kept` in their name are there."""
    weights = {name: f"model-{name.partition('layers.')[2][:1] or 'x'}.safetensors" for name in shapes}
    for shard in set(weights.values()):
        if kept in shard:
            held = {name: shape for name, shape in shapes.items() if weights[name] == shard}
            write_safetensors(folder / shard, held)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": weights}))
    return index


def test_a_missing_layer_is_as_large_as_the_others(tmp_path: Path) -> None:
    index = write_index(tmp_path, llama_shapes())
    (tmp_path / "model-1.safetensors").unlink()
    model = read_model(str(index))
    assert count.parameters(model) == elements(llama_shapes())
    assert "models.shards_alike" in model.notes


@pytest.mark.parametrize("kept", ["model-0", "nothing"])
def test_without_its_tables_an_index_needs_a_config(tmp_path: Path, kept: str) -> None:
    index = write_index(tmp_path, llama_shapes(), kept)
    assert refused(index) == "models.shard_missing"
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = read_model(str(index))
    assert count.parameters(model) == elements(llama_shapes())
    assert "models.shards_missing" in model.notes


def test_weights_that_the_config_does_not_describe_are_noted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": 2}))
    model = read_model(str(write_safetensors(tmp_path / "model.safetensors", llama_shapes())))
    assert "models.weights_differ" in model.notes


def test_gptq_and_awq_weights_are_unpacked() -> None:
    gptq = {"a.qweight": (8, 32), "a.qzeros": (1, 4), "a.scales": (1, 32), "a.g_idx": (64,), "n.weight": (5,)}
    awq = {"a.qweight": (64, 4), "a.qzeros": (1, 4), "a.scales": (1, 32), "n.weight": (5,)}
    for packed, packing in ((gptq, "gptq-int4"), (awq, "awq-int4")):
        assert unpacked(packed, {}) == ({"a.weight": (32, 64), "n.weight": (5,)}, packing)


def test_blocks_of_four_bits_are_unpacked() -> None:
    nf4 = {"a.weight": (32, 1), "a.weight.absmax": (1,), "a.weight.quant_state.bitsandbytes__nf4": (80,)}
    assert unpacked(nf4, {}) == ({"a.weight": (64, 1)}, "nf4")
    assert unpacked({"up_blocks": (2, 6, 3, 16), "up_scales": (2, 6, 3)}, {}) == ({"up": (2, 6, 96)}, "mxfp4")
    shapes = {"a.weight_packed": (6, 4), "a.weight_scale": (6, 1)}
    assert unpacked(shapes, {"a.weight_packed": "int32"}) == ({"a.weight": (6, 32)}, "int4")
    assert unpacked(shapes, {"a.weight_packed": "uint8"}) == ({"a.weight": (6, 8)}, "nvfp4")


def test_scales_of_a_models_own_are_parameters() -> None:
    shapes = {"block.scales": (7,)}
    assert unpacked(shapes, {}) == (shapes, None)


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
        header_of({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, 8]}}, "x")


@pytest.mark.parametrize("offsets", [[0, 15], [16, 0], [-16, 0], [0.0, 16.0], [0], None, "ab", [0, 16, 32]])
def test_offsets_must_hold_the_elements(offsets: object) -> None:
    with pytest.raises(InputError) as caught:
        header_of({"x": {"dtype": "F32", "shape": [2, 2], "data_offsets": offsets}}, "x")
    assert caught.value.message.id == "models.tensor_offsets"


def test_a_file_that_ends_behind_its_header_is_read_with_a_note() -> None:
    entries = {"x": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}
    assert header_of(entries, "x", 3).notes == ("models.weights_cut",)
    assert header_of(entries, "x", 16).notes == ()


ENTRY = st.fixed_dictionaries({
    "dtype": st.sampled_from(["F32", "I8", "F4", "X", "", None]),
    "shape": st.lists(st.integers(-2, 10**16) | st.none(), max_size=4) | st.none(),
    "data_offsets": st.lists(st.integers(-(2**70), 2**70), max_size=3) | st.none(),
})  # fmt: skip


@given(st.dictionaries(st.text(max_size=12), ENTRY | st.none() | st.integers(), max_size=4))
def test_any_entries_are_read_or_refused(entries: dict[str, object]) -> None:
    with contextlib.suppress(InputError):
        header_of(entries, "x", 100)


@given(st.binary(max_size=120))
def test_any_header_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        header_of(load_json(data), "x")
