"""What the shell decides once: the language, the width and whether there are colours."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping

from raceline.cli.output import Settings
from raceline.present.errors import InputError
from raceline.present.text import FALLBACK, LANGUAGES

_WIDEST_COLUMNS = 100


def take_language(arguments: list[str]) -> tuple[str | None, list[str]]:
    """The value of `--lang`, wherever it stands, and the arguments without it."""
    rest: list[str] = []
    wanted: str | None = None
    left = iter(arguments)
    for argument in left:
        if argument == "--":
            return wanted, [*rest, argument, *left]
        if argument == "--lang":
            wanted = next(left, "")
        elif argument.startswith("--lang="):
            wanted = argument.removeprefix("--lang=")
        else:
            rest.append(argument)
    if wanted is not None and _language_of(wanted) is None:
        raise InputError("cli.unknown_language", field="--lang", given=wanted, known=", ".join(LANGUAGES))
    return wanted, rest


def choose_language(flag: str | None, environment: Mapping[str, str]) -> str:
    """The flag, then RACELINE_LANG, then the locale (LC_ALL, LC_MESSAGES, LANG), else English."""
    names = ("RACELINE_LANG", "LC_ALL", "LC_MESSAGES", "LANG")
    for text in (flag, *(environment.get(name) for name in names)):
        if not text:
            continue
        if (found := _language_of(text)) is not None:
            return found
        if text is flag:
            continue
        # a locale in a language that has no catalogue decides too: it is English then
        return FALLBACK
    return FALLBACK


def _language_of(text: str) -> str | None:
    code = text.replace("-", "_").split("_")[0].split(".")[0].lower()
    return code if code in LANGUAGES else None


def terminal_settings(language: str, environment: Mapping[str, str]) -> Settings:
    """The terminal's width (80 where there is none, at most 100) and colours (never with NO_COLOR)."""
    is_terminal = sys.stdout.isatty()
    columns = min(shutil.get_terminal_size().columns, _WIDEST_COLUMNS) if is_terminal else 80
    colours = is_terminal and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
    return Settings(language=language, width_columns=max(columns, 40), has_colours=colours)
