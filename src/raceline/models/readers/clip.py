"""``clip:{...}``: a bundled video model at another number of frames, as one line of JSON: `model`, `frames`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from raceline.models import names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

PREFIX = "clip:"
# Frames that change every video model: more than one latent frame holds.
_MORE = 64


class Clip(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A video model and the frames of one sample; the sides come with the workload's image size."""

    model: str
    frames: Annotated[int, msgspec.Meta(ge=1, le=100_000)]


def reference(model: str, frames: int) -> str:
    """The reference of this model with clips of so many frames."""
    return PREFIX + msgspec.json.encode(Clip(model=model, frames=frames)).decode()


def _at(config: Mapping[str, Any], frames: int, image_size: int | None) -> Model:
    return registry.build_model(Fields({**config, "num_frames": frames}), image_size)


def read(text: str, image_size: int | None = None) -> Model:
    """The model of a reference without its prefix."""
    try:
        clip = msgspec.json.decode(text, type=Clip)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError("models.clip_unread", field="model", given=text[:60], reason=str(error)) from None
    found = names.find(clip.model)
    model = _at(found.config, clip.frames, image_size)
    if model.blocks == _at(found.config, clip.frames + _MORE, image_size).blocks:
        raise InputError("models.clip_without_frames", field="model", given=found.name)
    return msgspec.structs.replace(model, name=found.name, source=found.source)
