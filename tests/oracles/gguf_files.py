"""GGUF files of small Hugging Face models, written by the gguf library with its own names of tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy
import transformers
from torch import nn

PLAIN = {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 96,
         "vocab_size": 100, "pad_token_id": 0}  # fmt: skip
GROUPED = {**PLAIN, "num_key_value_heads": 2}
EXPERTS = {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}
QWEN_EXPERTS = {
    **GROUPED,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "head_dim": 32,
}
LATENT = {
    **PLAIN, "q_lora_rank": 32, "kv_lora_rank": 24, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "n_shared_experts": 1,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
GPT2 = {"n_embd": 128, "n_layer": 3, "n_head": 4, "vocab_size": 100, "n_positions": 64}
# architecture's name in GGUF -> the class that is saved, and its settings
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", GROUPED),
    "qwen2": ("Qwen2ForCausalLM", GROUPED),
    "qwen3": ("Qwen3ForCausalLM", {**GROUPED, "head_dim": 64}),
    "gemma": ("GemmaForCausalLM", {**GROUPED, "head_dim": 64}),
    "gemma2": ("Gemma2ForCausalLM", {**GROUPED, "head_dim": 64}),
    "gemma3": ("Gemma3ForCausalLM", {**GROUPED, "head_dim": 64}),
    "phi2": ("PhiForCausalLM", PLAIN),
    "phi3": ("Phi3ForCausalLM", GROUPED),
    "gpt2": ("GPT2LMHeadModel", GPT2),
    "gptneox": ("GPTNeoXForCausalLM", PLAIN),
    "falcon": ("FalconForCausalLM", {**PLAIN, "new_decoder_architecture": False, "multi_query": True,
                                     "ffn_hidden_size": 512}),
    "starcoder2": ("Starcoder2ForCausalLM", GROUPED),
    "stablelm": ("StableLmForCausalLM", GROUPED),
    "command-r": ("CohereForCausalLM", GROUPED),
    "olmo2": ("Olmo2ForCausalLM", GROUPED),
    "bloom": ("BloomForCausalLM", {"hidden_size": 128, "n_layer": 3, "n_head": 4, "vocab_size": 100}),
    "granite": ("GraniteForCausalLM", GROUPED),
    "mixtral": ("MixtralForCausalLM", EXPERTS),
    "qwen2moe": ("Qwen2MoeForCausalLM", {**QWEN_EXPERTS, "shared_expert_intermediate_size": 64}),
    "qwen3moe": ("Qwen3MoeForCausalLM", QWEN_EXPERTS),
    "deepseek2": ("DeepseekV3ForCausalLM", LATENT),
}  # fmt: skip
# a setting -> its key below the architecture
_KEYS = {
    "num_hidden_layers": "block_count", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count", "max_position_embeddings": "context_length",
    "num_key_value_heads": "attention.head_count_kv", "sliding_window": "attention.sliding_window",
    "num_local_experts": "expert_count", "num_experts": "expert_count", "n_routed_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length", "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count", "kv_lora_rank": "attention.kv_lora_rank",
    "q_lora_rank": "attention.q_lora_rank", "qk_rope_head_dim": "rope.dimension_count",
}  # fmt: skip


def build(architecture: str) -> nn.Module:
    """The small model of an architecture."""
    name, settings = MODELS[architecture]
    kind = getattr(transformers, name)
    if architecture == "gemma3":
        return kind(transformers.Gemma3TextConfig(**settings))
    return kind(kind.config_class(**settings))


def write(model: nn.Module, architecture: str, path: Path) -> None:
    """Its weights as llama.cpp's converter writes them: experts of a layer in one tensor, Llama's
    architecture for Mixtral."""
    stored = "llama" if architecture == "mixtral" else architecture
    writer = gguf.GGUFWriter(path, stored)
    for key, value in _metadata(model.config, stored).items():
        writer.add_uint32(f"{stored}.{key}", int(value))
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([f"t{index}" for index in range(100)])
    for name, weight in _tensors(model, stored).items():
        writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _metadata(config: Any, stored: str) -> dict[str, int]:
    found = {}
    for setting, key in _KEYS.items():
        value = getattr(config, setting, None)
        if isinstance(value, int) and not isinstance(value, bool):
            found[key] = value
    if stored == "falcon":
        found |= {"attention.head_count_kv": 1, "feed_forward_length": config.ffn_hidden_size}
    if stored == "gpt2":
        found["feed_forward_length"] = 4 * config.n_embd
    if stored == "bloom":
        found["feed_forward_length"] = 4 * config.hidden_size
    if stored == "deepseek2":
        found |= {"attention.key_length": config.kv_lora_rank + config.qk_rope_head_dim, "attention.head_count_kv": 1,
                  "attention.value_length": config.kv_lora_rank, "attention.value_length_mla": config.v_head_dim,
                  "attention.key_length_mla": config.qk_nope_head_dim + config.qk_rope_head_dim}  # fmt: skip
    elif isinstance(getattr(config, "head_dim", None), int):
        found |= {"attention.key_length": config.head_dim, "attention.value_length": config.head_dim}
    return found


def _tensors(model: nn.Module, stored: str) -> dict[str, numpy.ndarray[Any, Any]]:
    kind = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == stored)
    names = gguf.get_tensor_name_map(kind, 3)
    found: dict[str, numpy.ndarray[Any, Any]] = {}
    for name, weight in model.named_parameters():
        values = weight.detach().numpy().astype(numpy.float16)
        if name.endswith("gate_up_proj") and values.ndim == 3:
            # newer transformers hold both halves of all experts in one tensor
            path = names.get_name(name.removesuffix("gate_up_proj") + "gate_proj")
            middle = values.shape[1] // 2
            found |= {
                f"{path}.weight": values[:, :middle],
                f"{path.replace('gate', 'up')}.weight": values[:, middle:],
            }
            continue
        name = name.removeprefix("transformer.") if stored == "bloom" else name
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert target is not None, name
        found[target if target.endswith((".weight", ".bias")) else f"{target}.weight"] = values
    return found
