"""The one way in which commands answer: text for people, JSON for programs.

show(result, as_json=as_json)                 a result with a view() method
show(result, as_json=as_json, view=make)      its view made by `make`, called for text alone
show_line(result)                             one JSON line of several
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import click
import msgspec

from raceline.present.text import builtin, encodable, render
from raceline.present.views import View


class Settings(msgspec.Struct, frozen=True):
    """What the shell decided once: `language` (en, zh), `width_columns`, whether colours are shown."""

    language: str = "en"
    width_columns: int = 80
    has_colours: bool = False


@runtime_checkable
class Viewable(Protocol):
    """A result that says how it is shown."""

    def view(self) -> View: ...


def settings() -> Settings:
    """The settings of the running command; the defaults outside of one."""
    context = click.get_current_context(silent=True)
    found = context.find_object(Settings) if context else None
    return found or Settings()


def show(result: Any, *, as_json: bool = False, view: View | Callable[[], View] | None = None) -> None:
    """Write `result` to stdout: as JSON, or as the text of `view`, of its view(), or of itself as a view."""
    if as_json:
        sys.stdout.write(json.dumps(builtin(result), ensure_ascii=False, indent=2) + "\n")
        return
    from raceline.present import terminal

    chosen = view if view is not None else (result.view if isinstance(result, Viewable) else result)
    now = settings()
    shown: View = chosen() if callable(chosen) else chosen
    sys.stdout.write(terminal.render(shown, now.language, width=now.width_columns, colours=now.has_colours))


# json.dumps would make one a line
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def show_line(result: Any) -> None:
    """Write `result` as one line of JSON Lines."""
    try:
        line = msgspec.json.encode(encodable(result)).decode()
    except UnicodeEncodeError:  # half of a surrogate pair, which a JSON text may hold
        line = _ENCODER.encode(builtin(result))
    sys.stdout.write(line + "\n")


def progress(item: Any) -> None:
    """Write a Message to stderr, where it doesn't disturb the answer."""
    sys.stderr.write(render(item, settings().language) + "\n")
