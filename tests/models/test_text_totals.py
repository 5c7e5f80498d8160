"""Totals and refusals, with numbers computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError


def _model(name: str) -> Model:
    return registry.build_model(Fields(names.find(name).config))


def test_grouped_heads_cache_two_vectors_per_layer() -> None:
    assert count.kv_bytes_per_token(_model("llama-3.1-8b"), "bf16") == 32 * 2 * 8 * 128 * 2


def test_latent_attention_caches_the_compressed_vector() -> None:
    assert count.kv_bytes_per_token(_model("deepseek-v3"), "bf16") == 61 * (512 + 64) * 2


def test_forward_flops_are_twice_the_matrices_and_attention() -> None:
    model, length = _model("llama-3.1-8b"), 2048
    matrices = count.parameters(model) - 128256 * 4096 - 65 * 4096
    attention = 32 * 4 * length * length * 32 * 128
    assert count.flops(model, seq_len=length) == 2 * matrices * length + attention


def test_a_window_caps_the_keys() -> None:
    model = _model("mistral-7b")
    wide, wider = (count.flops(model, seq_len=length) / length for length in (8192, 16384))
    assert wide == wider


def test_four_bit_weights_leave_embedding_and_head() -> None:
    model = _model("llama-2-7b")
    packed = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
    expected = packed * 0.5625 + 2 * (count.parameters(model) - packed)
    assert count.weight_bytes(model, "nf4") == pytest.approx(expected)


def test_block_rows_add_up_to_the_totals() -> None:
    model = _model("deepseek-v2-lite")
    rows = count.rows(model, 2, 512)
    assert sum(row.parameters for row in rows) == count.parameters(model)
    assert sum(row.parameters_active for row in rows) == count.parameters_active(model)
    assert sum(row.flops for row in rows) == pytest.approx(count.flops(model, 2, 512))
    assert sum(row.saved_bytes for row in rows) == pytest.approx(count.saved_bytes(model, 2, 512))


@given(st.sampled_from(["llama-3.1-8b", "gpt2", "mixtral", "t5-base", "bert-base", "gpt-oss-20b"]))
def test_less_is_kept_when_kernels_fuse_or_weights_are_frozen(name: str) -> None:
    model = _model(name)
    everything = count.saved_bytes(model, attention="eager")
    assert everything >= count.saved_bytes(model) >= count.saved_bytes(model, fused=True) > 0
    assert count.saved_bytes(model) > count.saved_bytes(model, trains_weights=False) > 0


@pytest.mark.parametrize(
    "name", ["llama-3.1-8b", "gemma-2-2b", "deepseek-v3", "whisper-small", "bert-base", "llava-1.5-7b"]
)
def test_every_layer_names_its_boundary(name: str) -> None:
    for block in _model(name).blocks:
        if block.role == "body":
            assert block.boundary in {tensor.name for tensor in block.tensors}


def test_tensor_names_are_unique_within_a_block() -> None:
    for name in names.all_names():
        bundled = names.find(name)
        if bundled.config.get("model_type") in registry.TEXT:
            for block in registry.build_model(Fields(bundled.config)).blocks:
                kept = [tensor.name for tensor in count.kept_tensors(block)]
                assert len(kept) == len(set(kept)), (name, block.name, kept)


def test_an_unknown_causal_model_with_llama_fields_is_built_and_says_so() -> None:
    config = {
        **names.find("llama-3.1-8b").config,
        "model_type": "new_thing",
        "architectures": ["NewForCausalLM"],
    }
    model = registry.build_model(Fields(config))
    assert model.notes == ("models.assumed_llama",)
    assert count.parameters(model) == 8030261248


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "new_thing"},
        {"model_type": "new_thing", "architectures": ["NewForVision"]},
        {},
        {"model_type": "llama"},
        {"model_type": "llama", "hidden_size": -1},
        {
            "model_type": "llama",
            "hidden_size": 10,
            "num_attention_heads": 3,
            "num_hidden_layers": 1,
            "vocab_size": 9,
        },
        {"model_type": "gpt2", "n_embd": "wide", "n_layer": 1, "n_head": 1, "vocab_size": 1},
        {"model_type": "mixtral", "architectures": 7},
        {"model_type": "t5", "d_model": 1e30},
    ],
)
def test_a_config_that_cannot_be_built_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        registry.build_model(Fields(config))


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 10**12),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)
_FIELD_NAMES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "head_dim",
    "layer_types",
    "sliding_window",
    "architectures",
    "quantization_config",
    "tie_word_embeddings",
    "max_position_embeddings",
    "torch_dtype",
    "text_config",
    "vision_config",
    "num_local_experts",
    "num_experts_per_tok",
    "mlp_only_layers",
    "ffn_config",
    "attn_config",
    "pos_att_type",
    "conv_kernel",
    "conv_dim",
    "hybrid_override_pattern",
    "cross_attention_layers",
    "attn_layer_indices",
    "layers_block_type",
    "moe_layers",
    "image_size",
    "patch_size",
    "hidden_act",
    "position_buckets",
)


@given(
    st.sampled_from(sorted(registry.TEXT)),
    st.dictionaries(st.sampled_from(_FIELD_NAMES), _VALUES, max_size=6),
    st.sampled_from(
        [
            "llama-3.1-8b",
            "mixtral",
            "deepseek-v3",
            "bert-base",
            "t5-base",
            "whisper-tiny",
            "llava-1.5-7b",
            "wav2vec2-base",
            "nemotron-3-nano",
        ]
    ),
)
def test_hostile_values_give_a_model_or_one_clear_error(kind: str, values: dict[str, Any], name: str) -> None:
    config = {**names.find(name).config, "model_type": kind, **values}
    try:
        model = registry.build_model(Fields(config))
    except InputError:
        return
    assert count.parameters(model) >= 0
