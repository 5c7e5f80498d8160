"""Small instances of every text family, as transformers builds them."""

from __future__ import annotations

from typing import Any

_BASE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 320,
    "max_position_embeddings": 128,
}
_LLAMA = {**_BASE, "num_key_value_heads": 2, "tie_word_embeddings": False}
_GPT = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 128, "vocab_size": 320}
_MOE = {**_LLAMA, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
_LATENT = {
    **_MOE,
    "num_key_value_heads": 4,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
}

DECODERS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "sliding_window": None},
    "qwen2": _LLAMA,
    "qwen3": {**_LLAMA, "head_dim": 32},
    "gemma": {**_LLAMA, "head_dim": 32, "tie_word_embeddings": True},
    "gemma2": {**_LLAMA, "head_dim": 32, "tie_word_embeddings": True, "sliding_window": 128},
    "gemma3_text": {**_LLAMA, "head_dim": 32, "tie_word_embeddings": True, "sliding_window": 128},
    "phi": {**_BASE, "tie_word_embeddings": False},
    "phi3": {**_LLAMA, "pad_token_id": 0},
    "gpt2": _GPT,
    "gpt_neox": {**_BASE, "tie_word_embeddings": False},
    "gptj": {**_GPT, "rotary_dim": 8, "tie_word_embeddings": False},
    "opt": {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "ffn_dim": 256,
        "vocab_size": 320,
        "word_embed_proj_dim": 64,
        "max_position_embeddings": 128,
    },
    "bloom": {"hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 320},
    "falcon": {
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "vocab_size": 320,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
    },
    "mpt": {"d_model": 64, "n_layers": 4, "n_heads": 4, "vocab_size": 320, "max_seq_len": 128},
    "stablelm": _LLAMA,
    "starcoder2": {**_LLAMA, "tie_word_embeddings": True},
    "cohere": {**_LLAMA, "tie_word_embeddings": True},
    "olmo": _LLAMA,
    "olmo2": _LLAMA,
    "granite": _LLAMA,
}
MIXTURES: dict[str, dict[str, Any]] = {
    "mixtral": {**_LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {**_MOE, "num_experts": 8, "shared_expert_intermediate_size": 96},
    "qwen3_moe": {**_MOE, "num_experts": 8, "head_dim": 16},
    "gpt_oss": {**_LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": 16},
    "olmoe": {**_LLAMA, "num_experts": 8, "num_experts_per_tok": 2},
    "granitemoe": {**_LLAMA, "num_local_experts": 8, "num_experts_per_tok": 2},
    "deepseek_v2": {**_LATENT, "q_lora_rank": None, "n_group": 1, "topk_group": 1},
    "deepseek_v3": {**_LATENT, "q_lora_rank": 48, "n_group": 1, "topk_group": 1},
}
ENCODERS: dict[str, dict[str, Any]] = {
    "bert": _BASE,
    "roberta": {**_BASE, "type_vocab_size": 1},
    "electra": {**_BASE, "embedding_size": 64},
    "distilbert": {
        "dim": 64,
        "n_layers": 4,
        "n_heads": 4,
        "hidden_dim": 176,
        "vocab_size": 320,
        "max_position_embeddings": 128,
    },
    "modernbert": {
        **_BASE,
        "local_attention": 128,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "cls_token_id": 1,
        "sep_token_id": 2,
    },
    "deberta-v2": {
        **_BASE,
        "relative_attention": True,
        "position_buckets": 2,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
}
SEQ2SEQ: dict[str, dict[str, Any]] = {
    "t5": {
        "d_model": 64,
        "d_ff": 176,
        "d_kv": 16,
        "num_heads": 4,
        "num_layers": 3,
        "num_decoder_layers": 3,
        "vocab_size": 320,
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        "decoder_start_token_id": 0,
    },
    "mt5": {
        "d_model": 64,
        "d_ff": 176,
        "d_kv": 16,
        "num_heads": 4,
        "num_layers": 3,
        "num_decoder_layers": 3,
        "vocab_size": 320,
        "feed_forward_proj": "gated-gelu",
        "tie_word_embeddings": True,
        "decoder_start_token_id": 0,
    },
    "bart": {
        "d_model": 64,
        "encoder_layers": 3,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 176,
        "decoder_ffn_dim": 176,
        "vocab_size": 320,
        "max_position_embeddings": 128,
    },
}
STATE_SPACE: dict[str, dict[str, Any]] = {
    "mamba": {"hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 320, "state_size": 8},
    "mamba2": {
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "vocab_size": 320,
        "state_size": 16,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 1,
    },
    "jamba": {
        **_LLAMA,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "use_mamba_kernels": False,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
    },
    "bamba": {
        **_LLAMA,
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_head": 16,
        "mamba_d_state": 16,
    },
    "falcon_h1": {**_LLAMA, "mamba_d_ssm": 128, "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_d_state": 16},
}

_TOWER = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip
IMAGE_TOKEN = 5
VISION: dict[str, tuple[int, dict[str, Any]]] = {
    "llava": (
        16,
        {
            "text_config": {**_LLAMA, "model_type": "llama"},
            "vision_config": {**_TOWER, "model_type": "clip_vision_model"},
            "image_token_index": IMAGE_TOKEN,
            "vision_feature_layer": -2,
        },
    ),
    "gemma3": (
        4,
        {
            "text_config": {**DECODERS["gemma3_text"], "model_type": "gemma3_text"},
            "vision_config": {**_TOWER, "model_type": "siglip_vision_model"},
            "mm_tokens_per_image": 4,
            "image_token_index": IMAGE_TOKEN,
            "boi_token_index": 6,
            "eoi_token_index": 7,
        },
    ),
}
"""By model type: tokens that an image takes, and the config."""
