"""The model of a table's row: the bundled one, or one by the sizes that the row prints."""

from __future__ import annotations

import re
from collections.abc import Mapping

from raceline.models import names
from raceline.models.families.sized import Sizes
from raceline.models.readers import sizes

# Words in the names of image networks whose layers are attention and MLPs over tokens.
_TOKENS = re.compile(
    r"vit(?!amin)|deit|beit|eva|cait|xcit|twins|nest|mixer|mlp|hiera|volo|davit|sequencer|swin|focalnet|mvit|crossvit"
)


def model_of(record: Mapping[str, str]) -> str | None:
    """The reference of a row's model; None where it is neither bundled nor described by its sizes."""
    name = record["model"]
    if names.is_bundled(name):
        return name
    known = [record.get(column) or "" for column in ("params_m", "gmacs", "mactivations_m")]
    if not all(known) or not record.get("image_size"):
        return None
    parameters, macs, activations = (float(value) for value in known)
    kind = "transformer" if _TOKENS.search(name) else "convolution"
    side = int(record["image_size"])
    return sizes.reference(
        Sizes(
            parameters_m=parameters,
            gmacs=macs,
            mactivations_m=activations,
            image_size=side,
            kind=kind,
            name=name,
        )
    )
