"""Readers of weights against the libraries that write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")
pytest.importorskip("gguf")
pytestmark = pytest.mark.filterwarnings("ignore")

from oracles import gguf_files  # noqa: E402
from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402

SIZES = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 96,
         "vocab_size": 100}  # fmt: skip
GPT2 = {"n_embd": 128, "n_layer": 3, "n_head": 2, "vocab_size": 100, "n_positions": 64}
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 64, "pad_token_id": 0}
# class -> settings, and the architecture that its names tell (weights: none, one op a tensor)
MODELS: dict[str, tuple[dict[str, Any], str]] = {
    "LlamaForCausalLM": (GROUPED, "llama"), "LlamaForSequenceClassification": (GROUPED, "llama"),
    "MistralForCausalLM": (GROUPED, "llama"), "Qwen2ForCausalLM": ({**GROUPED, "head_dim": None}, "qwen2"),
    "Qwen3ForCausalLM": (GROUPED, "qwen3"), "Gemma2ForCausalLM": (GROUPED, "gemma2"),
    "Gemma3ForCausalLM": (GROUPED, "gemma3_text"), "GPT2LMHeadModel": (GPT2, "gpt2"), "GPT2Model": (GPT2, "gpt2"),
    "BertModel": (SIZES, "bert"), "BertForMaskedLM": (SIZES, "bert"), "RobertaForMaskedLM": (SIZES, "bert"),
    "BertForSequenceClassification": (SIZES, "bert"), "MixtralForCausalLM": (GROUPED, "weights"),
    "ViTModel": ({key: SIZES[key] for key in list(SIZES)[:4]}, "weights"),
}  # fmt: skip


def saved(name: str, settings: dict[str, Any], folder: Path) -> int:
    """Save a small model; its parameters."""
    kind = getattr(transformers, name)
    given = {key: value for key, value in settings.items() if value is not None}
    model = kind(kind.config_class(**given))
    model.save_pretrained(folder)
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_weights_alone_give_every_parameter(name: str, tmp_path: Path) -> None:
    settings, architecture = MODELS[name]
    expected = saved(name, settings, tmp_path)
    (tmp_path / "config.json").unlink()
    model = read_model(str(tmp_path / "model.safetensors"))
    assert (count.parameters(model), model.architecture) == (expected, architecture)


def test_a_folder_with_shards_is_the_model_that_was_saved(tmp_path: Path) -> None:
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**GROUPED))
    model.save_pretrained(tmp_path, max_shard_size="300KB")
    index = tmp_path / "model.safetensors.index.json"
    expected = sum(weight.numel() for weight in model.parameters())
    assert count.parameters(read_model(str(index))) == expected
    assert not {"models.weights_differ", "models.weights_cut"} & set(read_model(str(index)).notes)


@pytest.mark.parametrize("architecture", gguf_files.MODELS)
def test_gguf_files_are_read_as_their_family(architecture: str, tmp_path: Path) -> None:
    made = gguf_files.build(architecture)
    gguf_files.write(made, architecture, tmp_path / "tiny.gguf")
    model = read_model(str(tmp_path / "tiny.gguf"))
    assert count.parameters(model) == sum(weight.numel() for weight in made.parameters())
    assert model.family != "weights" and model.layers == 3
