"""``megatron:{...}``: a model by the arguments of its Megatron-LM launch, as one line of JSON.

The same arguments in the same order are the same model to whoever groups by reference: `reference` writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from raceline.models.families import megatron
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

PREFIX = "megatron:"
# The arguments that decide the model; how it is run stands in the setup.
SHAPE = frozenset((
    "script", "num-layers", "encoder-num-layers", "decoder-num-layers", "hidden-size", "ffn-hidden-size",
    "num-attention-heads", "kv-channels", "group-query-attention", "num-query-groups", "swiglu",
    "normalization", "disable-bias-linear", "add-qkv-bias", "qk-layernorm", "position-embedding-type",
    "max-position-embeddings", "seq-length", "hidden-dropout", "attention-dropout",
    "untie-embeddings-and-output-weights", "vocab-size", "vocab-extra-ids", "padded-vocab-size",
    "make-vocab-size-divisible-by",
    "tensor-model-parallel-size", "num-experts", "moe-router-topk", "moe-ffn-hidden-size",
    "moe-shared-expert-intermediate-size", "moe-layer-freq", "moe-grouped-gemm", "mtp-num-layers",
    "multi-latent-attention", "q-lora-rank", "kv-lora-rank", "qk-head-dim", "qk-pos-emb-head-dim",
    "v-head-dim", "hybrid-layer-pattern", "mamba-state-dim", "mamba-head-dim", "mamba-num-groups",
))  # fmt: skip


def reference(arguments: Mapping[str, Any]) -> str:
    """The reference of the model that these arguments describe: sorted, without what doesn't decide it."""
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    shape = {name: named[name] for name in sorted(SHAPE & named.keys())}
    return PREFIX + msgspec.json.encode(shape).decode()


def read(text: str, image_size: int | None = None) -> Model:
    """The model of a reference without its prefix."""
    try:
        arguments = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError):
        raise InputError("models.megatron_wrong", field="model", given=text[:60]) from None
    return msgspec.structs.replace(megatron.build(Fields(arguments)), name="megatron", source="")
