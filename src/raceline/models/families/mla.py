"""DeepSeek's decoders: multi-head latent attention, with dense first layers and then experts."""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.decoder import Sizes, assemble, sizes
from raceline.models.families.designs import DESIGNS
from raceline.models.families.layers import Heads, Part, attend, elementwise, join, linear, norm, tensor
from raceline.models.families.moe import MoeDesign, expert_blocks
from raceline.models.families.transformer import Make
from raceline.models.fields import Fields
from raceline.models.graph import TOKENS, Model

_DESIGN = MoeDesign(decoder=DESIGNS["llama"])


class Latent(NamedTuple):
    """Sizes of latent attention: ranks of the compressed queries (None: not compressed) and keys, and
    a head's dimensions without position, with rotary position, and of its values."""

    query_rank: int | None
    rank: int
    plain: int
    rotary: int
    value: int


def latent(fields: Fields) -> Latent:
    """Read them."""
    return Latent(
        fields.integer("q_lora_rank", default=None),
        fields.integer("kv_lora_rank"),
        fields.integer("qk_nope_head_dim"),
        fields.integer("qk_rope_head_dim"),
        fields.integer("v_head_dim"),
    )


def latent_attention(given: str, out: str, width: int, heads: int, spec: Latent, bias: bool = False) -> Part:
    """Multi-head latent attention (arXiv:2405.04434, section 2.1) as transformers runs it: keys and
    values are expanded for every head. The cache holds the compressed vector and the rotary key."""
    dim = spec.plain + spec.rotary
    shape = Heads(query=heads, kv=heads, dim=dim, value_dim=spec.value)
    expanded = heads * (spec.plain + spec.value)
    return join(
        _queries(given, width, heads * dim, spec, bias),
        linear("kv_a_proj_with_mqa", given, width, spec.rank + spec.rotary, bias=bias, out="compressed"),
        norm("kv_a_layernorm", "compressed", "kv_latent", spec.rank, kind="rms"),
        linear("kv_b_proj", "kv_latent", spec.rank, expanded, split="column"),
        elementwise("attention_rotary", 2.0 * heads * dim, 2.0 * heads * dim, split=True),
        # values are a view into the expanded projection, which stays with them
        tensor("expanded_keys", heads * spec.plain, split=True, eager=True),
        attend(shape, TOKENS, TOKENS, cached=spec.rank + spec.rotary, extra=("expanded_keys",)),
        linear("o_proj", "attention_core", heads * spec.value, width, bias=bias, split="row", out=out),
    )


def _queries(given: str, width: int, n: int, spec: Latent, bias: bool) -> Part:
    if spec.query_rank is None:
        return linear("q_proj", given, width, n, split="column")
    return join(
        linear("q_a_proj", given, width, spec.query_rank, bias=bias, out="query_compressed"),
        norm("q_a_layernorm", "query_compressed", "query_latent", spec.query_rank, kind="rms"),
        linear("q_b_proj", "query_latent", spec.query_rank, n, split="column"),
    )


def _indexer(given: str, width: int, rank: int, heads: int, dim: int) -> Part:
    """DeepSeek V3.2's lightning indexer: scores every key by small heads, to choose which are attended."""
    return join(
        linear("indexer.wq_b", "query_latent", rank, heads * dim),
        linear("indexer.wk", given, width, dim, out="index_key"),
        norm("indexer.k_norm", "index_key", "index_normed", dim),
        linear("indexer.weights_proj", given, width, heads, quantisable=False),
    )


def _maker(fields: Fields, size: Sizes) -> Make:
    spec, bias = latent(fields), fields.flag("attention_bias")
    chosen, dim = fields.integer("index_n_heads", default=None), fields.integer("index_head_dim", default=128)

    def make(given: str, out: str) -> Part:
        main = latent_attention(given, out, size.hidden, size.heads, spec, bias)
        if chosen is None or spec.query_rank is None:
            return main
        return join(main, _indexer(given, size.hidden, spec.query_rank, chosen, dim))

    return make


def build(fields: Fields, image_size: int | None = None) -> Model:
    """DeepSeek V2 and V3, Kimi K2 and their like."""
    # the head's dimension follows from the latent ones, and hidden need not divide by the heads
    values = {**fields.values, "head_dim": fields.integer("qk_rope_head_dim")}
    fields = Fields(values, fields.where)
    size = sizes(fields, _DESIGN.decoder)
    mixer_of: dict[int | None, Make] = {None: _maker(fields, size)}
    body = expert_blocks(fields, _DESIGN, size, mixer_of, [None] * size.layers)
    return assemble(fields, _DESIGN.decoder, "mla", body, size)
