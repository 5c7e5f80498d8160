"""CLIP: a text and an image tower, and a contrastive loss over the pairs of a batch."""

from __future__ import annotations

import msgspec

from raceline.models.families.encoder import plain_layers
from raceline.models.families.images import image_model, image_size_of, patches_of
from raceline.models.families.layers import Part, block, elementwise, linear, norm, tensor
from raceline.models.families.transformer import embedding
from raceline.models.families.vision_towers import clip_tower
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Attention, Block, Loss, Model, fixed

_TEXT = {
    "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12, "num_attention_heads": 8,
    "vocab_size": 49408, "max_position_embeddings": 77,
}  # fmt: skip
VISION = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "image_size": 224, "patch_size": 32,
}  # fmt: skip


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Both towers and their projections. A sample is one image with its text."""
    text = _part(fields, "text_config", _TEXT)
    vision = _part(fields, "vision_config", VISION)
    projected = fields.integer("projection_dim", default=512, maximum=65_536)
    side = image_size_of(vision, image_size, 224)
    patches_of(side, vision.integer("patch_size"))
    tower = clip_tower(vision, side)
    blocks = [*text_tower(text), *map(attending, tower.blocks)]
    blocks.append(contrastive_output(text.integer("hidden_size"), tower.width, projected))
    return image_model(
        fields,
        "clip",
        blocks,
        side,
        objective="contrastive",
        hidden=tower.width,
        vocabulary=text.integer("vocab_size"),
    )


def _part(fields: Fields, name: str, defaults: dict[str, int]) -> Fields:
    part = fields.part(name, default=None)
    return Fields({**defaults, **(part.values if part else {})}, f"{fields.where}{name}.")


def text_tower(fields: Fields, component: str = "text_tower") -> list[Block]:
    """CLIP's text encoder: causal layers over a text of fixed length."""
    hidden, layers = fields.integer("hidden_size"), fields.integer("num_hidden_layers", maximum=10_000)
    length = fields.integer("max_position_embeddings", maximum=1_000_000)
    rows = fixed(length)
    body = plain_layers(
        hidden,
        fields.integer("intermediate_size"),
        fields.integer("num_attention_heads"),
        layers,
        rows,
        activation=fields.text("hidden_act", default="quick_gelu"),
        component=component,
        name="text.layer",
    )
    first = block(
        "text.embedding",
        embedding("token_embedding", fields.integer("vocab_size"), hidden, rows=rows),
        embedding("position_embedding", length, hidden, rows=rows, split=False),
        role="input",
        component=component,
    )
    final = block(
        "text.final",
        tensor("last", hidden, rows),
        norm("final_layer_norm", "last", "normed", hidden, rows=rows),
        role="input",
        component=component,
    )
    return [first, attending(body, causal=True), final]


def attending(block: Block, causal: bool = False) -> Block:
    """Eager attention of transformers takes the softmax in fp32."""
    ops = [
        msgspec.structs.replace(op, causal=causal, score_upcast=True) if isinstance(op, Attention) else op
        for op in block.ops
    ]
    return msgspec.structs.replace(block, ops=tuple(ops))


def contrastive_output(text: int, vision: int, projected: int) -> Block:
    """Projections to one width, unit vectors, and the loss over the similarities of a batch (which are
    few beside all else: their number grows with the batch, not with the sample)."""
    return block(
        "output",
        tensor("text_pooled", text, SAMPLE),
        tensor("image_pooled", vision, SAMPLE),
        linear(
            "text_projection", "text_pooled", text, projected, rows=SAMPLE, out="text_out", quantisable=False
        ),
        linear(
            "visual_projection",
            "image_pooled",
            vision,
            projected,
            rows=SAMPLE,
            out="image_out",
            quantisable=False,
        ),
        elementwise(
            "normalise",
            4.0 * projected,
            2.0 * projected,
            rows=SAMPLE,
            keeps=("text_out", "image_out"),
            parameters=1,
        ),
        tensor("labels", 1, SAMPLE, "int64"),
        elementwise("similarity", 2.0 * projected, 2.0, rows=SAMPLE, keeps=("labels",)),
        Part((Loss(name="loss", rows=SAMPLE, classes=1),)),
        role="output",
    )
