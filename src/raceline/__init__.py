"""raceline: plan AI hardware, framework and settings with evidence.

    import raceline
    raceline.describe("llama-3.1-8b")
    raceline.estimate({"model": "llama-3.1-8b", "hardware": {"accelerator": "h100-sxm"}})
    raceline.plan("llama-3.1-8b", method="lora", tokens=1e8)
    raceline.accuracy("my-runs.csv")
    raceline.catalog("accelerators")
    raceline.stack_check("GPU: GTX 1080 Ti, torch==2.11.0")
    raceline.stack_solve(["torch", "vllm"], gpu="RTX 3090", driver="535")

Nothing is imported until it is used.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# name -> where it is defined
_PUBLIC = {
    "describe": "raceline.models.describe:describe",
    "estimate": "raceline.api:estimate",
    "plan": "raceline.api:plan",
    "accuracy": "raceline.api:accuracy",
    "catalog": "raceline.api:catalog",
    "stack_check": "raceline.api:stack_check",
    "stack_solve": "raceline.api:stack_solve",
    "InputError": "raceline.present.errors:InputError",
    "MissingExtraError": "raceline.present.errors:MissingExtraError",
    "RacelineError": "raceline.present.errors:RacelineError",
}
# These are packages too: `raceline.plan(...)` and `raceline.plan.request` both work.
_CALLABLE = frozenset({"accuracy", "catalog", "estimate", "plan"})

__all__ = ["InputError", "MissingExtraError", "RacelineError", "__version__", "describe"]


def _public(name: str) -> Any:
    module, attribute = _PUBLIC[name].split(":")
    return getattr(importlib.import_module(module), attribute)


class _CallablePackage(ModuleType):
    """A package of raceline that answers a call with the public function of its name."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return _public(self.__name__.rpartition(".")[2])(*arguments, **options)


class _Raceline(ModuleType):
    """The import system sets a package as attribute here: the moment to make it callable."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _CALLABLE and isinstance(value, ModuleType):
            value.__class__ = _CallablePackage
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Raceline


def __getattr__(name: str) -> Any:
    """The public function or error of that name, imported now."""
    if name in _CALLABLE:
        return importlib.import_module(f"raceline.{name}")
    if name in _PUBLIC:
        return _public(name)
    raise AttributeError(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_PUBLIC})
