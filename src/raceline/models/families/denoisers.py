"""Denoisers by diffusers' class name, alone or in their pipeline, whose other parts are left out with a note."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from raceline.models.families import crossed, single_stream, streams, z_image
from raceline.models.families.conditioning import text_tokens
from raceline.models.families.images import image_model
from raceline.models.families.latents import Made, positions, sides
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model
from raceline.present.errors import InputError

Blocks = Callable[[Fields, int, int], list[Block]]


class _Kind(NamedTuple):
    """Blocks from the config, the patches and the tokens of text; what they were made for."""

    blocks: Blocks
    tokens: int
    made: Made = Made()


KINDS: dict[str, _Kind] = {
    "QwenImageTransformer2DModel": _Kind(streams.qwen_image, 512),
    "LongCatImageTransformer2DModel": _Kind(streams.longcat_image, 512),
    "ChromaTransformer2DModel": _Kind(streams.chroma, 512),
    "AuraFlowTransformer2DModel": _Kind(streams.auraflow, 256),
    "HiDreamImageTransformer2DModel": _Kind(streams.hidream, 128),
    "LTXVideoTransformer3DModel": _Kind(crossed.ltx_video, 128, Made(161, 512, 704, 32, 1, 8)),
    "SanaTransformer2DModel": _Kind(crossed.sana, 300, Made(pixels=32, patch=1)),
    "SanaVideoTransformer3DModel": _Kind(crossed.sana_video, 300, Made(81, 480, 832)),
    "CosmosTransformer3DModel": _Kind(crossed.cosmos, 512),
    "Kandinsky5Transformer3DModel": _Kind(crossed.kandinsky5, 512, Made(121, 512, 768)),
    "ZImageTransformer2DModel": _Kind(z_image.z_image, 512),
    "Lumina2Transformer2DModel": _Kind(single_stream.lumina2, 256),
    "Krea2Transformer2DModel": _Kind(single_stream.krea2, 512),
    "ErnieImageTransformer2DModel": _Kind(single_stream.ernie_image, 512, Made(pixels=16, patch=1)),
    "HunyuanVideo15Transformer3DModel": _Kind(streams.hunyuan_video, 1000, Made(121, 480, 832, 16, 1)),
}


def build(fields: Fields, image_size: int | None = None) -> Model:
    """The denoiser of a config, or of a pipeline's `transformer`."""
    is_pipeline = isinstance(fields.values.get("transformer"), Mapping)
    part = fields.part("transformer") if is_pipeline else fields
    kind = _kind(part)
    tokens = text_tokens(fields, kind.tokens)
    blocks = kind.blocks(part, positions(part, image_size, kind.made), tokens)
    is_alone = is_pipeline or fields.flag("denoiser_alone")
    return image_model(
        fields,
        "diffusion",
        blocks,
        max(sides(part, image_size, kind.made)),
        objective="denoise",
        unit="sample" if kind.made.is_video else "image",
        hidden=_width(blocks),
        notes=("models.denoiser_alone",) if is_alone else (),
    )


def _kind(fields: Fields) -> _Kind:
    name = fields.text("_class_name")
    if name not in KINDS:
        field, known = fields.where + "_class_name", ", ".join(KINDS)
        raise InputError("models.block_unknown", field=field, given=name[:60], known=known)
    return KINDS[name]


def _width(blocks: list[Block]) -> int:
    """The width of what the last block reads."""
    return int(blocks[-1].tensors[0].width)
