"""Diffusion pipelines: a denoiser with the text encoders and the autoencoder around it, as diffusers stores them.

Training touches the denoiser alone; the other parts are held, run forward once a sample and keep nothing.
Of the autoencoder the encoder runs in training and the decoder in inference; parameters count both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import msgspec

from raceline.models.families import clip, dit, mmdit, unet, vae
from raceline.models.families.conditioning import PIXELS_PER_LATENT, TEXT_TOKENS
from raceline.models.families.images import image_model, image_size_of
from raceline.models.families.layers import block, linear, tensor
from raceline.models.families.resblock import level_widths
from raceline.models.families.seq2seq import t5_encoder
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Model, fixed
from raceline.present.errors import InputError

Denoiser = Callable[[Fields, int, int, str], list[Block]]
ENCODERS = ("text_encoder", "text_encoder_2", "text_encoder_3")
_CLIP = ("CLIPTextModel", "CLIPTextModelWithProjection")
_T5 = ("T5EncoderModel", "UMT5EncoderModel")


class _Kind(NamedTuple):
    """A class of denoiser: its blocks, and the tokens of text that it reads from a pipeline."""

    blocks: Denoiser
    text_tokens: int = TEXT_TOKENS
    default_side: int = 1024


DENOISERS: dict[str, _Kind] = {
    "UNet2DConditionModel": _Kind(unet.denoiser, default_side=512),
    "SD3Transformer2DModel": _Kind(mmdit.sd3, mmdit.SD3_TEXT_TOKENS),
    "FluxTransformer2DModel": _Kind(mmdit.flux, mmdit.FLUX_TEXT_TOKENS),
    "PixArtTransformer2DModel": _Kind(dit.pixart, dit.PIXART_TEXT_TOKENS),
    "DiTTransformer2DModel": _Kind(dit.labelled, 0, 256),
}


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A pipeline from its index merged with the configs of its components."""
    name = next(
        (one for one in ("transformer", "unet") if isinstance(fields.values.get(one), Mapping)), "unet"
    )
    part = fields.part(name)
    kind = _denoiser(part)
    own = PIXELS_PER_LATENT * part.integer("sample_size", default=0, minimum=0, maximum=2048)
    side = image_size_of(fields, image_size, own or kind.default_side)
    tokens = fields.integer("max_sequence_length", default=kind.text_tokens, minimum=0, maximum=100_000)
    denoiser = kind.blocks(part, side, tokens, name)
    blocks = [
        *_encoders(fields, tokens),
        *_autoencoder(fields, side, "train"),
        *denoiser,
        *_autoencoder(fields, side, "infer"),
    ]
    layers = sum(one.repeat for one in denoiser if one.role == "body")
    hidden = _width(part)
    return image_model(fields, "diffusion", blocks, side, objective="denoise", layers=layers, hidden=hidden)


def _width(fields: Fields) -> int:
    """The widest level of a U-Net, or the width of a transformer."""
    if "block_out_channels" in fields.values:
        return max(level_widths(fields))
    heads = fields.integer("num_attention_heads", default=16, maximum=4096)
    return int(heads * fields.integer("attention_head_dim", default=72, maximum=4096))


def _denoiser(fields: Fields) -> _Kind:
    name = fields.text("_class_name", default="UNet2DConditionModel")
    if name not in DENOISERS:
        field, known = fields.where + "_class_name", ", ".join(DENOISERS)
        raise InputError("models.block_unknown", field=field, given=name[:60], known=known)
    return DENOISERS[name]


def _encoders(fields: Fields, tokens: int) -> list[Block]:
    """All text encoders whose config is there."""
    blocks: list[Block] = []
    for name in ENCODERS:
        part = fields.part(name, default=None) if isinstance(fields.values.get(name), Mapping) else None
        if part is not None:
            blocks += text_encoder(part, name, tokens)
    return [_frozen(one) for one in blocks]


def text_encoder(fields: Fields, component: str, tokens: int) -> list[Block]:
    """CLIP reads texts of its own fixed length, T5 of `tokens`."""
    kind = _class_of(fields)
    if kind in _T5:
        return [
            msgspec.structs.replace(one, component=component) for one in t5_encoder(fields, fixed(tokens))
        ]
    if kind not in _CLIP:
        field, known = fields.where + "_class_name", ", ".join((*_CLIP, *_T5))
        raise InputError("models.block_unknown", field=field, given=kind[:60], known=known)
    blocks = clip.text_tower(fields, component)
    if kind == _CLIP[1]:
        blocks.append(_projection(fields, component))
    return blocks


def build_text_encoder(fields: Fields, image_size: int | None = None) -> Model:
    """A text encoder alone."""
    blocks = text_encoder(fields, "", mmdit.FLUX_TEXT_TOKENS)
    hidden = fields.integer("hidden_size", "d_model")
    model = image_model(fields, "encoder", blocks, 0, objective="embed", unit="sample", hidden=hidden)
    return msgspec.structs.replace(model, image_size=None, vocabulary=fields.integer("vocab_size"))


def _class_of(fields: Fields) -> str:
    """The class of a component: diffusers' own field, or transformers' list."""
    names = fields.items("architectures", default=[])
    return str(fields.text("_class_name", default=None) or (names[0] if names else _CLIP[0]))


def _projection(fields: Fields, component: str) -> Block:
    """The text's last token in the width that both towers of CLIP share."""
    width = fields.integer("hidden_size")
    projected = fields.integer("projection_dim", default=512, maximum=65_536)
    return block(
        "text.projection",
        tensor("pooled", width, SAMPLE),
        linear("text_projection", "pooled", width, projected, rows=SAMPLE, quantisable=False),
        component=component,
    )


def _autoencoder(fields: Fields, side: int, task: Literal["train", "infer"]) -> list[Block]:
    """The half of the autoencoder that this task runs: one writes latents, the other reads them."""
    part = fields.part("vae", default=None) if isinstance(fields.values.get("vae"), Mapping) else None
    if part is None:
        return []
    half = vae.encoder if task == "train" else vae.decoder
    return [_frozen(one, task) for one in half(part, side)]


def _frozen(one: Block, task: Literal["both", "train", "infer"] = "both") -> Block:
    return msgspec.structs.replace(one, trained=False, passes="once", role="body", runs_in=task)
