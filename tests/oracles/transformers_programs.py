"""Tiny models of transformers that the readers' oracles trace."""

from __future__ import annotations

from typing import Any

import torch
import transformers as library

TOKENS = 16
TEXT: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 100,
}  # fmt: skip


def ids() -> torch.Tensor:
    """One sequence of token ids."""
    return torch.zeros(1, TOKENS, dtype=torch.int64)


def llama() -> Any:
    """A decoder with grouped keys and values. Without a cache its mask looks at values."""
    config = library.LlamaConfig(**TEXT, num_key_value_heads=2, use_cache=False)
    return library.LlamaForCausalLM(config), ids()


def mixtral() -> Any:
    """A mixture of four experts, two a token."""
    config = library.MixtralConfig(**TEXT, num_key_value_heads=2, num_local_experts=4)
    return library.MixtralForCausalLM(config), ids()


def bert() -> Any:
    """An encoder."""
    return library.BertForMaskedLM(library.BertConfig(**TEXT)), ids()


def mamba() -> Any:
    """A state-space model."""
    config = library.MambaConfig(hidden_size=64, num_hidden_layers=2, vocab_size=100)
    return library.MambaForCausalLM(config), ids()


def t5() -> Any:
    """An encoder and a decoder, called by name."""
    config = library.T5Config(d_model=64, d_ff=128, num_layers=2, num_heads=4, d_kv=16, vocab_size=100)
    return library.T5ForConditionalGeneration(config), None, {"input_ids": ids(), "decoder_input_ids": ids()}


def vit() -> Any:
    """A vision transformer on two images."""
    config = library.ViTConfig(**TEXT, image_size=32, patch_size=8)
    return library.ViTForImageClassification(config), torch.zeros(2, 3, 32, 32)


def convnext() -> Any:
    """A convolutional network."""
    config = library.ConvNextConfig(hidden_sizes=[16, 32, 32, 32], depths=[1, 1, 1, 1])
    return library.ConvNextForImageClassification(config), torch.zeros(1, 3, 64, 64)


PROGRAMS = {made.__name__: made for made in (llama, mixtral, bert, mamba, t5, vit, convnext)}
