"""``sizes:{...}``: an image model by its parameters, multiply-adds and activations, as one line of JSON."""

from __future__ import annotations

import msgspec

from raceline.models.families.sized import Sizes, build
from raceline.models.graph import Model
from raceline.present.errors import InputError

PREFIX = "sizes:"


def reference(sizes: Sizes) -> str:
    """The reference of the model of these sizes."""
    return PREFIX + msgspec.json.encode(sizes).decode()


def read(text: str, image_size: int | None = None) -> Model:
    """The model of a reference without its prefix."""
    try:
        sizes = msgspec.json.decode(text, type=Sizes)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InputError("models.sizes_unread", field="model", given=text[:60], reason=str(error)) from None
    return build(sizes, image_size)
