"""Reading a config's fields: typed, bounded, and with an error that names the field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from raceline.present.errors import InputError

LARGEST = 10**9
_REQUIRED: Any = object()


class Fields:
    """A view of a config mapping. The first of several names that is present wins.

    >>> Fields({"n_embd": 768}).integer("hidden_size", "n_embd")
    768
    """

    def __init__(self, values: Mapping[str, Any], where: str = "") -> None:
        self.values = values
        self.where = where

    def _find(self, names: tuple[str, ...], default: Any) -> tuple[str, Any]:
        for name in names:
            if self.values.get(name) is not None:
                return self.where + name, self.values[name]
        if default is _REQUIRED:
            raise InputError("models.field_missing", field=self.where + names[0])
        return self.where + names[0], default

    def integer(self, *names: str, default: Any = _REQUIRED, minimum: int = 1, maximum: int = LARGEST) -> Any:
        """A whole number in [minimum, maximum]; `default` (None too) where no name is present."""
        field, value = self._find(names, default)
        if value is default and default is not _REQUIRED:
            return value
        whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        if isinstance(value, bool) or not whole or not minimum <= value <= maximum:
            raise InputError(
                "models.field_not_integer", field=field, given=shown(value), minimum=minimum, maximum=maximum
            )
        return int(value)

    def number(
        self, *names: str, default: Any = _REQUIRED, minimum: float = 0.0, maximum: float = 1e12
    ) -> Any:
        """A finite number in [minimum, maximum]."""
        field, value = self._find(names, default)
        if value is default and default is not _REQUIRED:
            return value
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not math.isfinite(value) or not minimum <= value <= maximum:
            raise InputError(
                "models.field_not_number", field=field, given=shown(value), minimum=minimum, maximum=maximum
            )
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        field, value = self._find(names, default)
        if not isinstance(value, bool):
            raise InputError("models.field_not_flag", field=field, given=shown(value))
        return value

    def text(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A string."""
        field, value = self._find(names, default)
        if value is default and default is not _REQUIRED:
            return value
        if not isinstance(value, str) or len(value) > 1000:
            raise InputError("models.field_not_text", field=field, given=shown(value))
        return value

    def items(self, *names: str, default: Any = _REQUIRED, longest: int = 10_000) -> Any:
        """A list of at most `longest` items."""
        field, value = self._find(names, default)
        if value is default and default is not _REQUIRED:
            return value
        if not isinstance(value, (list, tuple)) or len(value) > longest:
            raise InputError("models.field_not_list", field=field, given=shown(value), longest=longest)
        return list(value)

    def part(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A nested mapping, as Fields."""
        field, value = self._find(names, default)
        if value is default and default is not _REQUIRED:
            return value
        if not isinstance(value, Mapping):
            raise InputError("models.field_not_mapping", field=field, given=shown(value))
        return Fields(value, field + ".")


def shown(value: Any) -> str:
    """A value as one short line."""
    text = " ".join(repr(value)[:200].split())
    return text if len(text) <= 60 else text[:57] + "..."
