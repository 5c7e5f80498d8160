"""A model of timm by name: ``timm:resnet50``, built on the meta device (extra `timm`)."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

import msgspec

from raceline.models.graph import Model
from raceline.models.readers.torch_module import failed, model_of
from raceline.present.errors import InputError, MissingExtraError


def read(name: str, image_size: int | None = None) -> Model:
    """The model that timm builds under this name; no weights are downloaded."""
    timm, torch = _libraries()
    if name not in timm.list_models():
        near = get_close_matches(name[:80], timm.list_models(), n=5, cutoff=0.0)
        raise InputError("models.unknown_name", field="model", given=name[:80], nearest=", ".join(near))
    try:
        with torch.device("meta"):
            module = timm.create_model(name, pretrained=False)
    except Exception as error:  # what timm's constructors raise is not documented
        raise failed(f"timm:{name}", error) from error
    config: dict[str, Any] = getattr(module, "default_cfg", {}) or {}
    channels, side = (config.get("input_size") or (3, 224, 224))[:2]
    side = image_size or side
    image = torch.zeros(1, channels, side, side, device="meta")
    model = model_of(module, image, {}, f"timm:{name}", side)
    return msgspec.structs.replace(model, name=name)


def _libraries() -> tuple[Any, Any]:
    try:
        import timm
        import torch
    except ImportError:
        raise MissingExtraError("models.extra_missing", extra="timm", package="timm") from None
    return timm, torch
