"""What sets one decoder's design apart from another's, beside the sizes in its config: as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from raceline.models.families.layers import AttentionNames, MlpNames
from raceline.models.families.transformer import Arrangement

SEPARATE = AttentionNames()
GPT2_ATTENTION = AttentionNames(out="c_proj", fused="c_attn")
GPT2_MLP = MlpNames("c_fc", "c_proj", "")
NEOX_ATTENTION = AttentionNames(out="dense", fused="query_key_value")
NEOX_MLP = MlpNames("dense_h_to_4h", "dense_4h_to_h", "")
FC_ATTENTION = AttentionNames(out="out_proj")
FC_MLP = MlpNames("fc1", "fc2", "")
FUSED_MLP = MlpNames("gate_up_proj", "down_proj", "")

Windows = Literal["none", "stated", "flagged", "alternate", "pattern"]


class Design(msgspec.Struct, frozen=True, kw_only=True):
    """`qkv_bias`, `out_bias`, `mlp_bias`: where the config has no flag of that name. `flags`: names of
    the config's flags for the bias of (q k v and output, q k v alone, feed-forward).
    `learned_positions`: extra entries of a learned position table, None: there is none.
    `windows`: which layers see a sliding window. `pattern`: every n-th layer sees all."""

    norm: str = "rms"
    arrangement: Arrangement = "pre"
    gated: bool = True
    activation: str = "silu"
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    flags: tuple[str, str, str] = ("attention_bias", "qkv_bias", "mlp_bias")
    head_bias: bool = False
    qk_norm: str | None = None
    qk_norm_flag: str = ""
    rotary: bool = True
    learned_positions: int | None = None
    tied: bool = False
    final_norm: bool = True
    embedding_norm: bool = False
    attention: AttentionNames = SEPARATE
    mlp: MlpNames = MlpNames()
    ffn_divisor: int = 1
    ffn_multiple: int = 4
    dropout: float = 0.0
    windows: Windows = "none"
    pattern: int = 0
    alibi: bool = False
    score_upcast: bool = True
    softcap: bool = False


_GPT2 = Design(
    norm="layer",
    gated=False,
    activation="gelu_new",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    rotary=False,
    learned_positions=0,
    tied=True,
    attention=GPT2_ATTENTION,
    mlp=GPT2_MLP,
    dropout=0.1,
    score_upcast=False,
)
_NEOX = Design(
    norm="layer",
    arrangement="parallel_two_norms",
    gated=False,
    activation="gelu",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    attention=NEOX_ATTENTION,
    mlp=NEOX_MLP,
)
_GPTJ = Design(
    norm="layer",
    arrangement="parallel",
    gated=False,
    activation="gelu_new",
    mlp_bias=True,
    head_bias=True,
    attention=FC_ATTENTION,
    mlp=FC_MLP._replace(up="fc_in", down="fc_out"),
)
_OPT = Design(
    norm="layer",
    gated=False,
    activation="relu",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    rotary=False,
    learned_positions=2,
    tied=True,
    attention=FC_ATTENTION,
    mlp=FC_MLP,
    dropout=0.1,
    flags=("enable_bias", "", "enable_bias"),
)
_BLOOM = Design(
    norm="layer",
    gated=False,
    activation="bloom_gelu",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    rotary=False,
    tied=True,
    embedding_norm=True,
    attention=NEOX_ATTENTION,
    mlp=NEOX_MLP,
    alibi=True,
)
_FALCON = Design(
    norm="layer",
    arrangement="parallel",
    gated=False,
    activation="gelu",
    tied=True,
    attention=NEOX_ATTENTION,
    mlp=NEOX_MLP,
    flags=("bias", "", "bias"),
    score_upcast=False,
)
_MPT = Design(
    norm="layer_no_bias",
    gated=False,
    activation="gelu",
    rotary=False,
    tied=True,
    alibi=True,
    attention=AttentionNames(out="out_proj", fused="Wqkv"),
    mlp=MlpNames("up_proj", "down_proj", ""),
    flags=("", "", ""),
)
_PHI = Design(
    norm="layer",
    arrangement="parallel",
    gated=False,
    activation="gelu_new",
    qkv_bias=True,
    out_bias=True,
    mlp_bias=True,
    head_bias=True,
    attention=AttentionNames(out="dense"),
    mlp=FC_MLP,
)
_GEMMA = Design(norm="rms_gemma", activation="gelu_pytorch_tanh", tied=True)
_COHERE = Design(
    norm="layer_fp32",
    arrangement="parallel",
    tied=True,
    qk_norm_flag="use_qk_norm",
)
_OLMO2 = Design(norm="rms_fp32", arrangement="post", qk_norm="full", windows="stated")
_CHATGLM = Design(
    attention=NEOX_ATTENTION,
    mlp=MlpNames("dense_h_to_4h", "dense_4h_to_h", ""),
    flags=("", "add_qkv_bias", "add_bias_linear"),
)

DESIGNS: dict[str, Design] = {
    "llama": Design(),
    "mistral": Design(windows="stated"),
    "ministral": Design(windows="stated"),
    "mosaic_gpt": _MPT,
    "qwen": Design(
        qkv_bias=True,
        ffn_divisor=2,
        attention=AttentionNames(out="c_proj", fused="c_attn"),
        mlp=MlpNames("w1", "c_proj", "w2"),
        flags=("", "", ""),
    ),
    "qwen2": Design(qkv_bias=True, windows="flagged"),
    "qwen3": Design(qk_norm="head", windows="flagged"),
    "gemma": _GEMMA,
    "gemma2": msgspec.structs.replace(_GEMMA, arrangement="sandwich", windows="alternate", softcap=True),
    "gemma3_text": msgspec.structs.replace(
        _GEMMA, arrangement="sandwich", windows="pattern", pattern=6, qk_norm="head"
    ),
    "phi": _PHI,
    "phi3": Design(
        attention=AttentionNames(fused="qkv_proj"), mlp=FUSED_MLP, windows="stated", flags=("", "", "")
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gpt_neo": msgspec.structs.replace(
        _GPT2, qkv_bias=False, attention=FC_ATTENTION, dropout=0.0, flags=("", "", "")
    ),
    "gpt_neox": _NEOX,
    "gptj": _GPTJ,
    "codegen": msgspec.structs.replace(_GPTJ, attention=AttentionNames(out="out_proj", fused="qkv_proj")),
    "opt": _OPT,
    "bloom": _BLOOM,
    "falcon": _FALCON,
    "RefinedWeb": _FALCON,
    "RefinedWebModel": _FALCON,
    "mpt": _MPT,
    "stablelm": Design(norm="layer", flags=("", "use_qkv_bias", "")),
    "stablelm_epoch": Design(norm="layer", flags=("", "use_qkv_bias", "")),
    "starcoder2": Design(
        norm="layer",
        gated=False,
        activation="gelu_pytorch_tanh",
        qkv_bias=True,
        out_bias=True,
        mlp_bias=True,
        tied=True,
        mlp=MlpNames("c_fc", "c_proj", ""),
        windows="stated",
        flags=("use_bias", "", "use_bias"),
    ),
    "cohere": _COHERE,
    "cohere2": msgspec.structs.replace(_COHERE, windows="pattern", pattern=4),
    "olmo": Design(norm="layer_plain"),
    "olmo2": _OLMO2,
    "olmo3": _OLMO2,
    "internlm": Design(qkv_bias=True, out_bias=True, flags=("bias", "", "")),
    "internlm2": Design(flags=("bias", "", ""), attention=AttentionNames(out="wo", fused="wqkv")),
    "internlm3": Design(flags=("bias", "qkv_bias", "bias")),
    "chatglm": _CHATGLM,
    "glm": Design(qkv_bias=True, mlp=FUSED_MLP, flags=("", "attention_bias", "")),
    "glm4": Design(qkv_bias=True, mlp=FUSED_MLP, arrangement="sandwich", flags=("", "attention_bias", "")),
    "baichuan": Design(attention=AttentionNames(fused="W_pack"), flags=("", "", "")),
    "yi": Design(),
    "Yi": Design(),
    "granite": Design(),
    "smollm3": Design(),
    "nemotron": Design(norm="layer", gated=False, activation="relu2"),
    "arcee": Design(gated=False, activation="relu2"),
    "exaone4": Design(arrangement="post", qk_norm="head"),
    "seed_oss": Design(qkv_bias=True, flags=("", "attention_bias", "")),
    "hunyuan_v1_dense": Design(qk_norm="head"),
    "ernie4_5": Design(tied=True, flags=("use_bias", "", "use_bias")),
    "minicpm": Design(tied=True),
    "helium": Design(),
    "transfo-xl": Design(
        norm="layer",
        arrangement="post_add",
        gated=False,
        activation="relu",
        mlp_bias=True,
        tied=True,
        final_norm=False,
        rotary=False,
        attention=AttentionNames(out="o_net", fused="qkv_net"),
        mlp=FC_MLP,
        dropout=0.1,
        flags=("", "", ""),
    ),
    "palm": Design(
        norm="layer_no_bias",
        arrangement="parallel",
        tied=True,
        flags=("", "", ""),
    ),
}
"""By model_type. Sources: the modelling files of transformers, and for internlm, baichuan, chatglm and
qwen the code beside their published weights. PaLM: arXiv:2204.02311, section 2."""
