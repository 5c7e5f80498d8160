"""Vision-language models: an image tower, a projector, and a text decoder that reads both.

`seq_len` counts text and image tokens together; the tower runs once a sample, on one image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from raceline.models.families import registry
from raceline.models.families.layers import (
    Heads,
    Part,
    attention,
    block,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    tensor,
)
from raceline.models.families.transformer import describe, layer
from raceline.models.families.vision_towers import (
    Tower,
    TowerMaker,
    clip_tower,
    idefics_tower,
    intern_tower,
    llama4_tower,
    mllama_tower,
    qwen_tower,
    siglip_tower,
)
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model, fixed

PROJECTOR = "projector"
Project = Callable[[Fields, Tower, int], Part]


def _two_layers(fields: Fields, tower: Tower, width: int) -> Part:
    """LLaVA's: linear, GELU, linear."""
    rows = fixed(tower.positions)
    return join(
        tensor("image", tower.width, rows),
        linear("linear_1", "image", tower.width, width, rows=rows, bias=True, out="hidden"),
        elementwise("gelu", width, width, keeps=("hidden",), rows=rows),
        tensor("activated", width, rows),
        linear("linear_2", "activated", width, width, rows=rows, bias=True),
    )


def _one_layer(bias: bool) -> Project:
    def project(fields: Fields, tower: Tower, width: int) -> Part:
        rows = fixed(tower.positions)
        return join(
            tensor("image", tower.width, rows),
            linear("linear", "image", tower.width, width, rows=rows, bias=bias),
        )

    return project


def _gemma(fields: Fields, tower: Tower, width: int) -> Part:
    """Pooling to a fixed number of tokens, a norm, one matrix."""
    rows = fixed(fields.integer("mm_tokens_per_image", default=256))
    return join(
        tensor("pooled", tower.width, rows),
        norm("mm_soft_emb_norm", "pooled", "normed", tower.width, kind="rms_gemma", rows=rows),
        linear("mm_input_projection", "normed", tower.width, width, rows=rows),
    )


def _intern(fields: Fields, tower: Tower, width: int) -> Part:
    """Patches of 2 x 2 folded, a norm, two layers."""
    ratio = fields.number("downsample_ratio", default=0.5)
    wide, rows = round(tower.width / ratio**2), fixed(tower.positions * ratio**2)
    return join(
        tensor("folded", wide, rows),
        norm("layer_norm", "folded", "normed", wide, rows=rows),
        linear("linear_1", "normed", wide, width, rows=rows, bias=True, out="hidden"),
        elementwise("gelu", width, width, keeps=("hidden",), rows=rows),
        tensor("activated", width, rows),
        linear("linear_2", "activated", width, width, rows=rows, bias=True),
    )


def _folded(fields: Fields, tower: Tower, width: int) -> Part:
    """Idefics 3's: patches folded by `scale_factor`, one matrix."""
    factor = fields.integer("scale_factor", default=2, maximum=64)
    rows, wide = fixed(tower.positions / factor**2), tower.width * factor**2
    return join(tensor("folded", wide, rows), linear("proj", "folded", wide, width, rows=rows))


def _perceiver(fields: Fields, tower: Tower, width: int) -> Part:
    """Idefics 2's: a gated network into the text width, then latents that attend to the image."""
    part = fields.part("perceiver_config", default=Fields({}))
    latents = part.integer("resampler_n_latents", default=64)
    depth, count = (
        part.integer("resampler_depth", default=3, maximum=100),
        part.integer("resampler_n_heads", default=16),
    )
    heads = Heads(
        query=count,
        kv=part.integer("num_key_value_heads", default=4),
        causal=False,
        rotary=False,
        dim=part.integer("resampler_head_dim", default=96),
    )
    rows, seen = fixed(latents), fixed(latents + tower.positions)
    inner = fields.part("text_config").integer("intermediate_size")
    whole = mlp("image", tower.width, inner, rows=fixed(tower.positions), out_width=width, prefix="connector")
    each = [
        join(
            norm("input_latents_norm", "latents", f"latents{index}", width, kind="rms", rows=rows),
            norm(
                "input_context_norm",
                "context",
                f"context{index}",
                width,
                kind="rms",
                rows=fixed(tower.positions),
            ),
            attention(
                f"latents{index}",
                width,
                heads,
                rows=rows,
                memory=f"context{index}",
                memory_rows=seen,
                prefix=f"resampler{index}",
            ),
            norm("post_attention_layernorm", "latents", f"middle{index}", width, kind="rms", rows=rows),
            mlp(f"middle{index}", width, 4 * width, rows=rows, prefix=f"resampler_mlp{index}"),
        )
        for index in range(depth)
    ]
    end = norm("norm", "latents", "out", width, kind="rms", rows=rows)
    table = elementwise("latents", 0, 0, rows=rows, parameters=latents * width)
    image = join(
        tensor("image", tower.width, fixed(tower.positions)),
        tensor("latents", width, rows),
        tensor("context", width, fixed(tower.positions)),
    )
    return join(image, whole, table, *each, end)


class Kind(NamedTuple):
    """The tower and the projector of a model type (None: the tower's end is one), and the type of its
    text part where the config leaves it out."""

    tower: TowerMaker
    project: Project | None
    text: str


KINDS: dict[str, Kind] = {
    "llava": Kind(clip_tower, _two_layers, "llama"),
    "llava_next": Kind(clip_tower, _two_layers, "llama"),
    "gemma3": Kind(siglip_tower, _gemma, "gemma3_text"),
    "paligemma": Kind(idefics_tower, _one_layer(True), "gemma"),
    "qwen2_vl": Kind(qwen_tower, None, "qwen2"),
    "qwen2_5_vl": Kind(qwen_tower, None, "qwen2"),
    "idefics2": Kind(idefics_tower, _perceiver, "mistral"),
    "idefics3": Kind(idefics_tower, _folded, "llama"),
    "smolvlm": Kind(idefics_tower, _folded, "llama"),
    "llama4": Kind(llama4_tower, _one_layer(False), "llama4_text"),
    "mllama": Kind(mllama_tower, _one_layer(True), "llama"),
    "internvl": Kind(intern_tower, _intern, "qwen2"),
}
_TEXT_ALIASES = {"mllama_text_model": "llama", "qwen2_vl_text": "qwen2", "qwen2_5_vl_text": "qwen2"}


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A vision-language model; where its config states no image tower, the text part alone."""
    kind = KINDS[fields.text("model_type", default="llava")]
    text_fields = _text_fields(fields, kind)
    text = registry.build_model(text_fields)
    part = fields.part("vision_config", default=None)
    if part is None:
        vision: list[Block] = []
    else:
        tower = kind.tower(part, image_size)
        vision = list(tower.blocks)
        if kind.project:
            vision.append(
                block(
                    "projector", kind.project(fields, tower, text.hidden), role="input", component=PROJECTOR
                )
            )
    body = [msgspec.structs.replace(part, component=part.component or "text") for part in text.blocks]
    if fields.text("model_type", default="") == "mllama":
        body = _with_cross_attention(text_fields, body, vision)
    return describe(
        fields,
        "vlm",
        [*vision, *body],
        hidden=text.hidden,
        layers=text.layers,
        vocabulary=text.vocabulary,
        seq_len=text.seq_len,
        max_seq_len=text.max_seq_len,
        image_size=image_size or _own_size(part),
    )


def _own_size(part: Fields | None) -> int | None:
    size = part.values.get("image_size") if part is not None else None
    size = size[0] if isinstance(size, list) and size else size
    return size if isinstance(size, int) and not isinstance(size, bool) else None


def _text_fields(fields: Fields, kind: Kind) -> Fields:
    """The text part's own config; older files state it at the top level."""
    part = fields.part("text_config", "llm_config", default=None) or fields
    values = dict(part.values)
    own = values.get("model_type") if part is not fields else None
    values["model_type"] = _TEXT_ALIASES.get(str(own), own) or kind.text
    if fields.values.get("tie_word_embeddings") is not None and part is not fields:
        values["tie_word_embeddings"] = fields.values["tie_word_embeddings"]
    return Fields(values, part.where if part is not fields else fields.where)


def _with_cross_attention(fields: Fields, body: list[Block], vision: list[Block]) -> list[Block]:
    """Llama 3.2's text part: some layers attend to the image in place of the text."""
    count = len(fields.items("cross_attention_layers", default=[]))
    rows = fixed(max((op.rows.fixed for part in vision for op in part.ops), default=1.0))
    width, heads_count = fields.integer("hidden_size"), fields.integer("num_attention_heads")
    kv = fields.integer("num_key_value_heads", default=heads_count)
    heads = Heads(
        query=heads_count, kv=kv, dim=width // heads_count, causal=False, rotary=False, qk_norm="head"
    )
    inner = fields.integer("intermediate_size")
    crossed = layer(
        "layer.cross",
        width,
        lambda given, out: join(
            attention(given, width, heads, memory="image", memory_rows=rows, out=out),
            elementwise("gates", 0, 0, parameters=2),
        ),
        lambda given, out: mlp(given, width, inner, out=out),
        repeat=count,
        component="text",
    )
    kept = []
    for part in body:
        if part.role == "body":
            part = msgspec.structs.replace(part, repeat=part.repeat - count)
        kept.append(part)
    # eight more table entries stand for image tokens
    extra = block(
        "image_tokens",
        elementwise("image_tokens", 0, 0, parameters=8 * width),
        role="input",
        component="text",
    )
    return [extra, *kept[:-1], crossed, kept[-1]] if count else kept
