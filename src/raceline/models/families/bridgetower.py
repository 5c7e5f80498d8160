"""BridgeTower (arXiv:2206.08657): an image and a text tower whose top layers each feed a cross-modal layer.

From transformers' config fields, with the heads of contrastive training. A sample is one image with its text of
`text_length` tokens. Transforms between the towers that all bridges share hold their parameters once.
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceline.models.families import clip
from raceline.models.families.images import image_model, image_size_of, patches_of
from raceline.models.families.layers import (
    AttentionNames,
    Heads,
    MlpNames,
    Part,
    attention,
    block,
    dropout,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    residual,
    tensor,
)
from raceline.models.families.two_towers import TextTower, text_tower
from raceline.models.families.vision_towers import Tower, clip_tower
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, AnyOp, Block, Extent, Loss, Model, fixed

_HEAD = 64
_ATTENTION = AttentionNames("query", "key", "value", "dense")
_MLP = MlpNames("intermediate.dense", "output.dense", "")
_COMPONENT = "cross_modal"


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Both towers, the cross-modal layers of each, and the heads of contrastive training."""
    text, vision = fields.part("text_config"), fields.part("vision_config")
    words = text_tower(fields, Fields({"model_type": "roberta", **_ROBERTA, **_plain(text)}, text.where))
    tower, side = _image_tower(vision, image_size)
    width = fields.integer("hidden_size", default=768, maximum=65_536)
    layers = fields.integer("num_hidden_layers", default=6, maximum=10_000)
    seen = (words.rows, fixed(tower.positions + 1))
    blocks = [*words.blocks, *map(clip.attending, tower.blocks)]
    blocks += _bridges(fields, words, tower, width, layers)
    blocks += [
        _cross(text, f"cross.{name}", width, rows, other, layers)
        for name, rows, other in (("text", *seen), ("image", *seen[::-1]))
    ]
    projected = fields.integer("contrastive_hidden_size", default=512, maximum=65_536)
    blocks.append(_output(width, projected))
    return image_model(
        fields,
        "bridgetower",
        blocks,
        side,
        objective="contrastive",
        hidden=width,
        vocabulary=words.vocabulary,
    )


_ROBERTA = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1,
}  # fmt: skip


def _plain(text: Fields) -> dict[str, Any]:
    """The text's fields but for its model type, which names no family of its own."""
    return {name: value for name, value in text.values.items() if name != "model_type"}


def _image_tower(vision: Fields, image_size: int | None) -> tuple[Tower, int]:
    """CLIP's tower with heads of 64 and a feed-forward network four times as wide."""
    width = vision.integer("hidden_size", default=768, maximum=65_536)
    own = {
        "patch_size": 16, "image_size": 288, "num_hidden_layers": 12, **vision.values, "hidden_size": width,
        "intermediate_size": 4 * width, "num_attention_heads": max(1, width // _HEAD),
    }  # fmt: skip
    given = Fields(own, vision.where)
    side = image_size_of(given, image_size, 288)
    patches_of(side, given.integer("patch_size", maximum=1024))
    return clip_tower(given, side), side


def _bridges(fields: Fields, words: TextTower, tower: Tower, width: int, layers: int) -> list[Block]:
    """Before each cross-modal layer both towers' states are transformed; all but the first are added to what
    the layer before gave, and normed."""
    shares = fields.flag("share_cross_modal_transformer_layers", default=True)
    shares_links = fields.flag("share_link_tower_layers")
    blocks = []
    for name, given, rows in (
        ("text", words.width, words.rows),
        ("image", tower.width, fixed(tower.positions + 1)),
    ):
        first = join(_transform(name, given, width, rows, False), _normed(width, rows, False))
        types = elementwise("types", 0, 0, rows=rows, parameters=width)
        blocks.append(_bridge(f"bridge.{name}.0", first, types))
        if layers > 1:
            again = join(_transform(name, given, width, rows, shares), _normed(width, rows, shares_links))
            blocks.append(_bridge(f"bridge.{name}.1", again, repeat=layers - 1))
        if layers > 1 and shares_links:
            link = elementwise("link_norm", 0, 0, rows=rows, parameters=2 * width)
            blocks.append(_bridge(f"bridge.{name}.link", link))
    return blocks


def _bridge(name: str, *parts: Part, repeat: int = 1) -> Block:
    return block(name, *parts, role="input", component=_COMPONENT, repeat=repeat)


def _transform(name: str, given: int, width: int, rows: Extent, tied: bool) -> Part:
    return join(
        tensor("state", given, rows),
        linear(
            f"{name}_transform", "state", given, width, rows=rows, bias=True, tied=tied, out="transformed"
        ),
    )


def _normed(width: int, rows: Extent, tied: bool) -> Part:
    added = residual("link_add", width, "linked", rows)
    part = norm("link_norm", "linked", "link", width, rows=rows)
    return join(added, part._replace(ops=tuple(_tied(op, tied) for op in part.ops)))


def _tied(op: AnyOp, tied: bool) -> AnyOp:
    return msgspec.structs.replace(op, tied=tied)


def _cross(text: Fields, name: str, width: int, rows: Extent, other: Extent, layers: int) -> Block:
    """Attention to itself, to the other modality, and a feed-forward network, each normed after."""
    count = text.integer("num_attention_heads", default=12, maximum=4096)
    inner = text.integer("intermediate_size", default=3072, maximum=1_000_000)
    dropped = text.number("hidden_dropout_prob", default=0.1, maximum=1.0)
    heads = Heads(query=count, kv=count, dim=width // count, causal=False, rotary=False, score_upcast=False)
    bias = (True, True, True, True)

    def after(prefix: str, part: Part) -> Part:
        return join(
            part,
            dropout(f"{prefix}_dropout", width, dropped, rows),
            residual(f"{prefix}_add", width, f"{prefix}_sum", rows),
            norm(f"{prefix}_norm", f"{prefix}_sum", f"{prefix}_normed", width, rows=rows),
        )

    itself = attention("input", width, heads, rows=rows, bias=bias, names=_ATTENTION)
    crossed = attention(
        "attention_normed", width, heads, rows=rows, memory="other", memory_rows=other, bias=bias,
        names=_ATTENTION, prefix="cross", out="cross_out",
    )  # fmt: skip
    feed = mlp(
        "cross_normed",
        width,
        inner,
        activation_kind=text.text("hidden_act", default="gelu"),
        gated=False,
        bias=True,
        rows=rows,
        names=_MLP,
    )
    return block(
        name,
        tensor("input", width, rows),
        tensor("other", width, other),
        after("attention", itself),
        after("cross", crossed),
        after("mlp", feed),
        repeat=layers,
        boundary="input",
        component=_COMPONENT,
    )


def _output(width: int, projected: int) -> Block:
    """A pooler for each modality, three projections (of text, image and both together), and the loss."""
    parts: list[Part] = [tensor("first_tokens", 2 * width, SAMPLE), tensor("pooled", 2 * width, SAMPLE)]
    for name, given, wide in (
        ("text_pooler", width, width),
        ("image_pooler", width, width),
        ("itc_text_head", width, projected),
        ("itc_image_head", width, projected),
        ("itc_cross_modal_head", 2 * width, projected),
    ):
        source = "first_tokens" if name.endswith("pooler") else "pooled"
        parts.append(linear(name, source, given, wide, rows=SAMPLE, bias=True, quantisable=False))
    scale = elementwise("similarity", 6.0 * projected, 3.0, rows=SAMPLE, keeps=("labels",), parameters=1)
    labels = tensor("labels", 1, SAMPLE, "int64")
    loss = Part((Loss(name="loss", rows=SAMPLE, classes=1),))
    return block("output", *parts, scale, labels, loss, role="output")
