"""What went wrong, or what a person must know, as a value: an id and its parameters.

The text for an id stands in the message catalogue and is chosen by the shell that shows it.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True):
    """An error, warning or reason: `id` names a text in the catalogue, `params` fill it.

    The id's part before the first dot is its domain (the layer that speaks):
    ``estimate.exceeds_memory`` stands in ``messages/<language>/estimate.po``.
    """

    id: str
    params: dict[str, Any] = {}


def message(id: str, /, **params: Any) -> Message:
    """Make a Message: ``message("estimate.exceeds_memory", needed_gib=31.2, limit_gib=22.8)``."""
    return Message(id, params)


class RacelineError(Exception):
    """The family of all errors that raceline raises on purpose.

    `field` is the path of the input field at fault (``hardware.accelerator``), where one is.
    """

    def __init__(self, id: str, /, *, field: str | None = None, **params: Any) -> None:
        super().__init__(id, params)
        # a text may name the field that it is about
        self.message = Message(id, params if field is None else {**params, "field": field})
        self.field = field


class InputError(RacelineError):
    """The input can't be used: exit code 2."""


class MissingExtraError(InputError):
    """A library that an extra brings is not installed; params hold `extra` and `package`."""
