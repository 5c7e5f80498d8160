"""Z-Image (arXiv:2511.22699), in diffusers' fields: text and image as one sequence, after layers over each alone.

RMS norms stand before and behind attention and the feed-forward network. Scale and gate of a layer come from a
narrow embedding of the step. Without SigLIP's features, which only the editing variant reads.
"""

from __future__ import annotations

from raceline.models.families.conditioning import STEP_WIDTH, shared, squared_error
from raceline.models.families.images import whole_numbers
from raceline.models.families.layers import (
    AttentionNames,
    Heads,
    MlpNames,
    Part,
    attention,
    block,
    elementwise,
    join,
    linear,
    mlp,
    norm,
    residual,
    tensor,
)
from raceline.models.families.modulation import gated, modulated, modulation, scaled
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Extent, fixed
from raceline.present.errors import InputError

COMPONENT = "transformer"
_ATTENTION = AttentionNames("to_q", "to_k", "to_v", "to_out")
_MLP = MlpNames("w3", "w2", "w1")
_NARROW = 256
_STEP_INNER = 1024
_PATCH = 2


def z_image(fields: Fields, places: int, tokens: int) -> list[Block]:
    """Layers over the image and over the text alone, then over both."""
    _check(fields)
    width = fields.integer("dim", default=3840, maximum=65_536)
    heads = _heads(fields, width)
    step = min(width, _NARROW)
    image, text, both = fixed(places), fixed(tokens), fixed(places + tokens)
    alone = fields.integer("n_refiner_layers", default=2, maximum=10_000)
    layers = fields.integer("n_layers", default=30, maximum=10_000)
    channels = _PATCH**2 * fields.integer("in_channels", default=16, maximum=65_536)
    factors = modulation("attention", width, 4, step)
    return [
        block(
            "in",
            _image_in(channels, width, image),
            _text_in(fields.integer("cap_feat_dim", default=2560, maximum=65_536), width, text),
            _step(step),
            role="input",
            component=COMPONENT,
        ),
        _layer("image_layer", width, heads, image, alone, factors),
        _layer("text_layer", width, heads, text, alone, None),
        _layer("layer", width, heads, both, layers, factors),
        block(
            "out",
            tensor("last", width, both),
            modulation("out", width, 1, step),
            modulated("out", "last", "head_in", width, both),
            # the text goes through the projection too and is dropped behind it
            linear("linear", "head_in", width, channels, rows=both, bias=True, quantisable=False),
            squared_error(channels, image),
            role="output",
            component=COMPONENT,
        ),
    ]


def _check(fields: Fields) -> None:
    """Refuses what is not drawn here: other patches than 2 x 2, and SigLIP's features."""
    for name, wanted in (("all_patch_size", _PATCH), ("all_f_patch_size", 1)):
        given = whole_numbers(fields, name, [wanted], 64)
        if given != [wanted]:
            _refuse(fields, name, given, [wanted])
    if fields.integer("siglip_feat_dim", default=None) is not None:
        _refuse(fields, "siglip_feat_dim", fields.values["siglip_feat_dim"], None)


def _refuse(fields: Fields, name: str, given: object, known: object) -> None:
    field = fields.where + name
    raise InputError("models.block_unknown", field=field, given=str(given)[:60], known=str(known))


def _heads(fields: Fields, width: int) -> Heads:
    heads = fields.integer("n_heads", default=30, maximum=4096)
    if width % heads:
        field = fields.where + "n_heads"
        raise InputError("models.heads_not_divisor", field=field, heads=heads, hidden=width)
    return Heads(
        query=heads, kv=heads, dim=width // heads, causal=False, score_upcast=False,
        qk_norm="head" if fields.flag("qk_norm", default=True) else None, norm_kind="rms_t5",
    )  # fmt: skip


def _image_in(channels: int, width: int, rows: Extent) -> Part:
    """Patches, and the learned token that fills them up to a multiple of 32."""
    return join(
        tensor("latent", channels, rows),
        linear("x_embedder", "latent", channels, width, rows=rows, bias=True),
        elementwise("x_pad_token", width, width, rows=rows, parameters=width),
    )


def _text_in(given: int, width: int, rows: Extent) -> Part:
    return join(
        tensor("caption", given, rows),
        norm("cap_norm", "caption", "caption_normed", given, kind="rms_t5", rows=rows),
        linear("cap_embedder", "caption_normed", given, width, rows=rows, bias=True),
        elementwise("cap_pad_token", width, width, rows=rows, parameters=width),
    )


def _step(width: int) -> Part:
    return join(
        tensor("time", STEP_WIDTH, SAMPLE),
        linear("time_1", "time", STEP_WIDTH, _STEP_INNER, rows=SAMPLE, bias=True, out="time_up"),
        elementwise("time_silu", _STEP_INNER, _STEP_INNER, rows=SAMPLE, keeps=("time_up",)),
        tensor("time_hidden", _STEP_INNER, SAMPLE),
        linear("time_2", "time_hidden", _STEP_INNER, width, rows=SAMPLE, bias=True),
        shared("time_embedding", width, SAMPLE),
    )


def _layer(
    name: str, width: int, heads: Heads, rows: Extent, repeat: int, factors: Part | None
) -> Block:  # fmt: skip
    """One layer; `factors` None: the step neither scales nor gates it (text alone)."""
    inner, by = max(1, int(width / 3 * 8)), "attention" if factors else ""
    return block(
        name,
        tensor("input", width, rows),
        factors,
        _before("attention", "input", width, rows, by),
        attention("attention_in", width, heads, rows=rows, names=_ATTENTION),
        _behind("attention", "middle", width, rows, by),
        _before("mlp", "middle", width, rows, by),
        mlp("mlp_in", width, inner, rows=rows, names=_MLP),
        _behind("mlp", "output", width, rows, by),
        repeat=repeat,
        boundary="input",
        component=COMPONENT,
    )


def _before(prefix: str, given: str, width: int, rows: Extent, by: str) -> Part:
    if by:
        return scaled(prefix, given, f"{prefix}_in", width, rows, by=by)
    return norm(f"{prefix}_norm1", given, f"{prefix}_in", width, kind="rms_t5", rows=rows)


def _behind(prefix: str, out: str, width: int, rows: Extent, by: str) -> Part:
    normed = f"{prefix}_behind"
    return join(
        norm(f"{prefix}_norm2", f"{prefix}_out", normed, width, kind="rms_t5", rows=rows),
        gated(normed, by, width, rows) if by else None,
        residual(f"{prefix}_add", width, out, rows),
    )
