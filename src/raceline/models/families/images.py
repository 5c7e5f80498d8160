"""What image families share beside their layers: sizes and classes from a config, and the Model around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from raceline.models.families.convnet import LARGEST_IMAGE, Feature
from raceline.models.families.transformer import describe
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model
from raceline.present.errors import InputError


def pixels(side: int | tuple[int, ...], channels: int = 3) -> Feature:
    """The input image (a square one where a single side is given)."""
    size = (side, side) if isinstance(side, int) else side
    if not all(1 <= length <= LARGEST_IMAGE for length in size):
        raise InputError("models.image_size_wrong", given=str(side), maximum=LARGEST_IMAGE)
    return Feature("pixels", channels, size)


def image_size_of(fields: Fields, image_size: int | None, default: int) -> int:
    """The image size in use: the workload's, else the config's, else the family's."""
    return image_size or int(fields.integer("image_size", default=default, maximum=LARGEST_IMAGE))


def patches_of(side: int, patch: int) -> int:
    """Patches along one side."""
    if side < patch:
        raise InputError("models.image_too_small", given=side, kernel=patch)
    return side // patch


def whole_numbers(fields: Fields, name: str, default: Sequence[int], maximum: int = 1_000_000) -> list[int]:
    """A list of whole numbers from 1 to `maximum`, each checked under its own name (``depths.2``)."""
    values = fields.items(name, default=list(default), longest=256)
    checked = Fields({f"{name}.{index}": value for index, value in enumerate(values)}, fields.where)
    return [int(checked.integer(key, maximum=maximum)) for key in checked.values]


def same_length(**lists: Sequence[Any]) -> None:
    """Refuses lists of a config that must be equally long (a value for each stage) and aren't."""
    names, lengths = list(lists), [len(values) for values in lists.values()]
    if len(set(lengths)) > 1 or not lengths[0]:
        raise InputError("models.lists_differ", fields=", ".join(names), given=", ".join(map(str, lengths)))


def classes_of(fields: Fields, default: int = 1000) -> int:
    """The number of classes under the names that transformers, timm and YOLO files use."""
    labels = fields.values.get("id2label")
    named = len(labels) if isinstance(labels, dict) and labels else default
    return int(fields.integer("num_labels", "num_classes", "nc", default=named, maximum=1_000_000))


def image_model(fields: Fields, family: str, blocks: Sequence[Block], side: int, **rest: Any) -> Model:
    """The Model around these blocks; `rest` are Model's own fields."""
    layers = sum(block.repeat for block in blocks if block.role == "body")
    rest = {"objective": "classify", "unit": "image", "layers": layers, **rest}
    model = describe(fields, family, blocks, seq_len=0, image_size=side, **rest)
    named = fields.text("architecture", "_class_name", default=None)
    return msgspec.structs.replace(model, max_seq_len=None, architecture=named or model.architecture)


def divisible(value: float, divisor: int = 8, limit: float = 0.9) -> int:
    """The nearest multiple of `divisor`, not below 90 % of the value (MobileNet's rule, arXiv:1801.04381)."""
    rounded = max(divisor, int(value + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < limit * value else rounded
