"""Two ready towers under one contrastive loss: transformers' VisionTextDualEncoder.

The image tower is CLIP's or a ViT, the text tower an encoder of the BERT family. A sample is one image with its
text of `text_length` tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from raceline.models.families import clip, encoder, vit
from raceline.models.families.images import image_model, image_size_of, patches_of
from raceline.models.families.layers import block, linear, norm, tensor
from raceline.models.families.vision_towers import COMPONENT, clip_tower
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, AnyOp, Attention, Block, Extent, Model, fixed
from raceline.present.errors import InputError

_TEXT_LENGTH = 128


class TextTower(NamedTuple):
    """An encoder over texts of fixed length."""

    blocks: tuple[Block, ...]
    width: int
    vocabulary: int
    rows: Extent


def build(fields: Fields, image_size: int | None = None) -> Model:
    """Both towers and their projections."""
    text = text_tower(fields, fields.part("text_config"))
    blocks, width, side = _image_tower(fields.part("vision_config"), image_size)
    projected = fields.integer("projection_dim", default=512, maximum=65_536)
    return image_model(
        fields,
        "two_towers",
        [*text.blocks, *blocks, clip.contrastive_output(text.width, width, projected)],
        side,
        objective="contrastive",
        hidden=width,
        vocabulary=text.vocabulary,
    )


def text_tower(fields: Fields, text: Fields) -> TextTower:
    """The encoder that the text's config describes."""
    kind = text.text("model_type", default="bert")
    if kind not in encoder.ENCODERS:
        raise InputError(
            "models.unknown_architecture", field=f"{text.where}model_type", given=kind[:60],
            readers=", ".join(encoder.ENCODERS),
        )  # fmt: skip
    model = encoder.build(text)
    length = fields.integer("text_length", default=_TEXT_LENGTH, maximum=1_000_000)
    blocks = tuple(_at_length(block, length) for block in model.blocks)
    return TextTower(blocks, model.hidden, model.vocabulary, fixed(length))


def _at_length(whole: Block, length: int) -> Block:
    """The block with its tokens as a fixed number of positions."""
    return msgspec.structs.replace(
        whole,
        name=f"text.{whole.name}",
        component="text_tower",
        role="body" if whole.role == "body" else "input",
        ops=tuple(_op_at_length(op, length) for op in whole.ops),
        tensors=tuple(
            msgspec.structs.replace(tensor, rows=fixed(tensor.rows.positions(length)))
            for tensor in whole.tensors
        ),
    )


def _op_at_length(op: AnyOp, length: int) -> AnyOp:
    rows = fixed(op.rows.positions(length))
    if isinstance(op, Attention):
        return msgspec.structs.replace(op, rows=rows, kv_rows=fixed(op.kv_rows.positions(length)))
    return msgspec.structs.replace(op, rows=rows)


def _image_tower(vision: Fields, image_size: int | None) -> tuple[list[Block], int, int]:
    """Blocks, width and image size of CLIP's tower, or of a ViT with its pooler."""
    if vision.text("model_type", default="clip_vision_model") in ("clip_vision_model", "clip"):
        given = vision.part("vision_config", default=vision)
        own = Fields({**clip.VISION, **given.values}, given.where)
        side = image_size_of(own, image_size, 224)
        patches_of(side, own.integer("patch_size"))
        tower = clip_tower(own, side)
        return [clip.attending(part) for part in tower.blocks], tower.width, side
    model = vit.build(vision, image_size)
    width, rows = model.hidden, model.blocks[1].ops[0].rows
    final = block(
        "vision.final",
        tensor("last", width, rows),
        norm("layernorm", "last", "normed", width, rows=rows),
        linear("pooler", "normed", width, width, rows=SAMPLE, bias=True, quantisable=False),
        role="input",
        component=COMPONENT,
    )
    return [*model.blocks[:2], final], width, image_size_of(vision, image_size, 224)
