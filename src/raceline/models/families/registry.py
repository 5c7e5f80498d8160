"""Which family builds which model type. Names map to ``module:function`` and load when used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from raceline.models.fields import Fields
from raceline.models.graph import Model

Build = Callable[[Fields, "int | None"], Model]

TEXT: dict[str, str] = {}
IMAGE: dict[str, str] = {}
OUTSIDE: dict[str, str] = {}


def register(model_type: str, target: str) -> None:
    """Add a family from outside: ``register("my_model", "my_package.families:build")``."""
    OUTSIDE[model_type] = target


def find(model_type: str) -> Build | None:
    """The build function for this model type, or None where no family knows it."""
    target = OUTSIDE.get(model_type) or TEXT.get(model_type) or IMAGE.get(model_type)
    if target is None:
        return None
    module, _, function = target.partition(":")
    build: Build = getattr(import_module(module), function)
    return build


def known() -> list[str]:
    """All model types that some family builds, sorted."""
    return sorted({*TEXT, *IMAGE, *OUTSIDE})
