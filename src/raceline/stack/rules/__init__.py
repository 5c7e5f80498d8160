"""Rules that judge a stack. A rule is a function of what was told that yields findings; its module lists it in
RULES. A rule says nothing where it can't know."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator

from raceline.stack.result import Finding
from raceline.stack.told import Told

Rule = Callable[[Told], Iterator[Finding]]

MODULES: tuple[str, ...] = (
    "driver", "architecture", "platform", "wheels", "toolchain", "libraries", "pairs", "lockstep", "abi", "extensions",
    "generated", "inference", "quantised", "tensorflow", "declared", "requirements",
)  # fmt: skip


def all_rules() -> tuple[Rule, ...]:
    """Every rule of every module, in the order of the modules."""
    return tuple(
        rule for name in MODULES for rule in importlib.import_module(f"raceline.stack.rules.{name}").RULES
    )
