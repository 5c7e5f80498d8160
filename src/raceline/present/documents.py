"""Reading JSON, YAML and JSON Lines that somebody else wrote: bounded in size, depth and time.

Every loader takes a path or bytes and raises InputError with one clear line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from raceline.present.errors import InputError

LARGEST_BYTES = 64 * 2**20
LARGEST_YAML_BYTES = 4 * 2**20
DEEPEST = 100
MOST_LINES = 1_000_000
MOST_NODES = 200_000


def read_bytes(source: Path | str | bytes, largest: int = LARGEST_BYTES) -> bytes:
    """The bytes of a file, at most `largest`."""
    if isinstance(source, bytes):
        data = source
    else:
        path = Path(source)
        try:
            if not path.is_file():
                raise InputError("present.not_a_file", given=str(source)[:200])
            with path.open("rb") as file:
                data = file.read(largest + 1)
        except OSError as error:
            raise InputError(
                "present.unreadable", given=str(source)[:200], reason=error.strerror or ""
            ) from None
    if len(data) > largest:
        raise InputError("present.too_large", limit_mib=largest / 2**20)
    return data


def load_json(source: Path | str | bytes) -> Any:
    """A JSON document: depth bounded, duplicate keys and numbers that are none refused."""
    return _json(read_bytes(source))


def iterate_jsonl(source: Path | str | bytes) -> Iterator[Any]:
    """Values of a JSON Lines file; in the place of a line that can't be read stands its InputError."""
    for number, line in enumerate(read_bytes(source).splitlines(), 1):
        if not line.strip():
            continue
        if number > MOST_LINES:
            raise InputError("present.too_many_lines", limit=MOST_LINES)
        try:
            yield _json(line)
        except InputError as error:
            yield InputError("present.bad_line", field=f"line {number}", line=number, reason=error.message)


def load_yaml(source: Path | str | bytes) -> Any:
    """A YAML 1.2 document (so JSON too) as plain values; aliases are refused, and so are tags."""
    data = read_bytes(source, LARGEST_YAML_BYTES)
    if data.lstrip()[:1] in (b"{", b"["):
        return _json(data)
    return _yaml(_text(data))


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("present.not_utf8", position=error.start) from None


def _json(data: bytes) -> Any:
    text = _text(data)
    _check_depth(text)
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise InputError("present.bad_json", line=error.lineno, column=error.colno) from None
    except RecursionError:
        raise InputError("present.too_deep", limit=DEEPEST) from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InputError("present.duplicate_key", key=key[:100])
            seen.add(key)
    return found


def _no_constant(name: str) -> Any:
    raise InputError("present.not_a_number", given=name)


def _whole(digits: str) -> int:
    if len(digits) > 30:
        raise InputError("present.number_too_long", given=digits[:12])
    return int(digits)


def _check_depth(text: str) -> None:
    """Refuse nesting beyond DEEPEST before a recursive parser sees it; brackets in strings don't count."""
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth, in_string, escaped = 0, False, False
    for character in text:
        if in_string:
            if escaped:
                escaped = False
            elif character == "\\":
                escaped = True
            elif character == '"':
                in_string = False
        elif character == '"':
            in_string = True
        elif character in "[{":
            depth += 1
            if depth > DEEPEST:
                raise InputError("present.too_deep", limit=DEEPEST)
        elif character in "]}":
            depth -= 1


def _yaml(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.events import AliasEvent, MappingStartEvent, SequenceStartEvent

    loader = YAML(typ="safe", pure=True)
    loader.version = (1, 2)
    try:
        depth = nodes = 0
        for event in loader.parse(text):
            nodes += 1
            if isinstance(event, AliasEvent):
                raise InputError("present.yaml_alias", line=event.start_mark.line + 1)
            if isinstance(event, (MappingStartEvent, SequenceStartEvent)):
                depth += 1
            elif type(event).__name__ in ("MappingEndEvent", "SequenceEndEvent"):
                depth -= 1
            if depth > DEEPEST:
                raise InputError("present.too_deep", limit=DEEPEST)
            if nodes > MOST_NODES:
                raise InputError("present.too_many_nodes", limit=MOST_NODES)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(
            "present.bad_yaml", line=mark.line + 1 if mark else 1, problem=_problem(error)
        ) from None
    except (YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise InputError("present.bad_yaml", line=1, problem=type(error).__name__) from None


def _problem(error: Any) -> str:
    return " ".join(str(error.problem or error.context or "").split())[:120]
