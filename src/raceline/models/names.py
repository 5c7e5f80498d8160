"""Bundled models by name: forgiving look-up over the data files, one line a model.

A file is scanned as text and only the line that is found is decoded.
"""

from __future__ import annotations

import difflib
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from raceline.present.errors import InputError

FILES = ("text.jsonl", "image.jsonl")
_LONGEST_NAME = 200


class BundledModel(msgspec.Struct, frozen=True):
    """A model that comes with raceline. `source`: where its config's values stand.

    A config whose shape was not published holds `assumed_shape`: one of the stated size stands in.
    """

    name: str
    config: dict[str, Any]
    source: str = ""
    aliases: tuple[str, ...] = ()


class _Names(msgspec.Struct):
    name: str
    aliases: tuple[str, ...] = ()


def find(name: str) -> BundledModel:
    """The bundled model that `name` means: ``llama-3.1-8b``, ``meta-llama/Llama-3.1-8B``,
    ``Llama 3.1 8B`` and ``Llama-3.1-8B-Instruct`` are the same.

    Raises InputError (`models.unknown_name`, with the nearest names) where none matches.
    """
    line = _line_with(name.strip()[:_LONGEST_NAME].lower())
    if line is not None:
        return msgspec.json.decode(line, type=BundledModel)
    index = _index()
    for key in keys(name):
        if key in index:
            return msgspec.json.decode(index[key], type=BundledModel)
    given, like = name[:_LONGEST_NAME], ", ".join(nearest(name))
    if not like:
        raise InputError("models.unlike_any_name", given=given)
    raise InputError("models.unknown_name", given=given, nearest=like)


def is_bundled(name: str) -> bool:
    """Whether `find` would find it."""
    if _line_with(name.strip()[:_LONGEST_NAME].lower()) is not None:
        return True
    return any(key in _index() for key in keys(name))


def all_names() -> list[str]:
    """The names of all bundled models, sorted."""
    return sorted({msgspec.json.decode(line, type=_Names).name for line in _lines()}, key=str.lower)


def nearest(name: str, count: int = 5) -> list[str]:
    """The bundled names most like `name`, best first."""
    wanted = plain(name[:_LONGEST_NAME])
    by_key = {plain(short(known)): known for known in reversed(all_names())}
    close = difflib.get_close_matches(wanted, by_key, count, 0.4)
    inside = [key for key in by_key if len(wanted) >= 3 and wanted in key and key not in close]
    return [by_key[key] for key in (close + sorted(inside, key=len))[:count]]


def keys(name: str) -> list[str]:
    """The keys to try for a name, from the exact one to forgiving ones."""
    name = name.strip()[:_LONGEST_NAME]
    whole, last = plain(name), plain(short(name))
    found = [whole, last]
    for key in (whole, last):
        found += [_without_suffix(key), _without_prefix(key), _without_prefix(_without_suffix(key))]
    return list(dict.fromkeys(key for key in found if key))


def plain(name: str) -> str:
    """Letters and digits only, lower case; a point between digits stays, since 1.5b is not 15b."""
    return re.sub(r"[^a-z0-9.]|(?<!\d)\.|\.(?!\d)", "", name.lower())


def short(name: str) -> str:
    """The part after the organisation."""
    return name.rstrip("/").rpartition("/")[2]


_SUFFIX = re.compile(r"(instruct|chat|base|hf|it|v\d\.\d|nvfp4|fp8|bf16|awq|gptq|int4|gguf|bnb4bit|\d{4})$")
_PREFIX = re.compile(r"^(meta(?=llama)|timm|the)")


def _without_suffix(key: str) -> str:
    """The key without words that name a fine-tune or a file format of the same architecture."""
    while (shorter := _SUFFIX.sub("", key)) != key and shorter:
        key = shorter
    return key


def _without_prefix(key: str) -> str:
    return _PREFIX.sub("", key)


@cache
def _contents() -> tuple[bytes, ...]:
    folder = Path(__file__).with_name("data")
    return tuple((folder / name).read_bytes() for name in FILES if (folder / name).is_file())


def _lines() -> list[bytes]:
    return [line for content in _contents() for line in content.splitlines() if line]


def _line_with(name: str) -> bytes | None:
    """The line whose name or alias is `name` to the letter: a plain text search, since building the index
    takes ten times as long. Names stand before `source` in a line."""
    quoted = msgspec.json.encode(name)
    for content in _contents():
        lower, at = content.lower(), -1
        while (at := lower.find(quoted, at + 1)) >= 0:
            start, end = lower.rfind(b"\n", 0, at) + 1, lower.find(b"\n", at)
            if at < lower.find(b'"source":', start):
                return content[start : end if end >= 0 else len(content)]
    return None


@cache
def _index() -> dict[str, bytes]:
    """Every key of every model, with the model's line. A model's own names win over those that only
    follow from leaving a suffix out."""
    exact: dict[str, bytes] = {}
    loose: dict[str, bytes] = {}
    decode = msgspec.json.Decoder(_Names).decode
    for line in _lines():
        names = decode(line)
        for name in (names.name, *names.aliases):
            key = plain(name)
            exact.setdefault(key, line)
            last = plain(short(name))
            exact.setdefault(last, line)
            loose.setdefault(_without_suffix(last), line)
            loose.setdefault(_without_prefix(_without_suffix(last)), line)
    return {**loose, **exact}
