"""Reading JSON, YAML and JSON Lines that somebody else wrote: bounded, strict, never executed.

Every loader limits size, nesting and the number of values before it builds anything, refuses
duplicate keys, and raises InputError with the file, the line where it is known, and the reason.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO

from raceline.present.errors import InputError

Source = str | Path | bytes

JSON_BYTES = 32 * 2**20
YAML_BYTES = 2**18
LINE_BYTES = 2**20
DEPTH = 100
JSON_VALUES = 2_000_000
YAML_VALUES = 12_000

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_KEEP_BRACKETS = bytes(2 if c in b"[{" else 0 for c in range(256))
_NOT_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def read_bytes(path: str | Path, limit_bytes: int = JSON_BYTES) -> bytes:
    """The content of a regular file of at most `limit_bytes`."""
    with open_file(path) as file:
        data = file.read(limit_bytes + 1)
    _check_size(len(data), limit_bytes, str(path))
    return data


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading: no folder, pipe or device, which could block or never end."""
    try:
        mode = Path(path).stat().st_mode
        if not stat.S_ISREG(mode):
            raise InputError("present.not_a_file", file=str(path))
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError("present.file_missing", file=str(path)) from None
    except (OSError, ValueError) as error:
        raise InputError("present.file_unreadable", file=str(path)[:200], reason=reason_of(error)) from None


def reason_of(error: Exception) -> str:
    """A library's complaint as one short line, to quote inside a message."""
    text = " ".join(str(getattr(error, "strerror", None) or error).split())
    return text if len(text) <= 160 else text[:157] + "..."


def load_json(source: Source, *, limit_bytes: int = JSON_BYTES, name: str | None = None) -> Any:
    """A JSON document from a path or from bytes. `name` stands for the bytes in errors."""
    data, name = _content(source, limit_bytes, name, "JSON")
    return parse_json(data, name)


def parse_json(data: bytes, name: str) -> Any:
    """JSON text as plain values. Nesting, the number of values and repeated keys are limited."""
    _check_shape(data, name)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            raise InputError("present.duplicate_key", file=name, key=_repeated([k for k, _ in pairs]))
        return result

    try:
        return json.loads(data.decode("utf-8-sig"), object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise InputError(
            "present.not_json", file=name, line=error.lineno, column=error.colno, reason=error.msg
        ) from None
    except UnicodeDecodeError:
        raise InputError("present.not_text", file=name) from None
    except (ValueError, RecursionError) as error:
        raise InputError("present.not_json", file=name, line=1, column=1, reason=reason_of(error)) from None


def _check_shape(data: bytes, name: str) -> None:
    """Refuse deep and huge documents by counting brackets, before the parser sees them."""
    opened = data.count(b"[") + data.count(b"{")
    if opened + data.count(b",") > JSON_VALUES:
        raise InputError("present.too_many_values", file=name, limit=JSON_VALUES)
    if opened <= DEPTH:
        return
    brackets = _STRINGS.sub(b"", data).translate(_KEEP_BRACKETS, _NOT_BRACKETS)
    if max(accumulate(map((-1, 0, 1).__getitem__, brackets)), default=0) > DEPTH:
        raise InputError("present.too_deep", file=name, limit=DEPTH)


def _repeated(keys: list[str]) -> str:
    seen: set[str] = set()
    return next((key[:80] for key in keys if key in seen or seen.add(key)), "")  # type: ignore[func-returns-value]


def _content(source: Source, limit_bytes: int, name: str | None, default: str) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        name = name or default
        _check_size(len(source), limit_bytes, name)
        return source, name
    return read_bytes(source, limit_bytes), name or str(source)


def _check_size(size_bytes: int, limit_bytes: int, name: str) -> None:
    if size_bytes > limit_bytes:
        raise InputError("present.too_large", file=name, limit_bytes=limit_bytes)


def iterate_jsonl(
    source: Source | BinaryIO, *, limit_bytes: int = LINE_BYTES, name: str | None = None
) -> Iterator[tuple[int, Any]]:
    """(line number, value) for each line that isn't blank, one at a time.

    A line that can't be read gives an InputError as its value, so that the caller can report it in
    its place and go on. A line longer than `limit_bytes` ends the iteration with an error.
    """
    if isinstance(source, (str, Path)):
        with open_file(source) as file:
            yield from _lines(file, limit_bytes, name or str(source))
    elif isinstance(source, bytes):
        from io import BytesIO

        yield from _lines(BytesIO(source), limit_bytes, name or "JSONL")
    else:
        yield from _lines(source, limit_bytes, name or "JSONL")


def _lines(file: BinaryIO, limit_bytes: int, name: str) -> Iterator[tuple[int, Any]]:
    number = 0
    while line := file.readline(limit_bytes + 1):
        number += 1
        _check_size(len(line), limit_bytes, f"{name}:{number}")
        if line.strip():
            try:
                yield number, parse_json(line, f"{name}:{number}")
            except InputError as error:
                yield number, error


def load_yaml(source: Source, *, limit_bytes: int = YAML_BYTES, name: str | None = None) -> Any:
    """A YAML 1.2 document (core schema: `no` is text, `1.0e9` a number, dates are text)."""
    return load_yaml_with_lines(source, limit_bytes=limit_bytes, name=name)[0]


def load_yaml_with_lines(
    source: Source, *, limit_bytes: int = YAML_BYTES, name: str | None = None
) -> tuple[Any, dict[str, int]]:
    """The document, and the line on which each field stands: ``{"offers[0].price_hour_usd": 12}``."""
    data, name = _content(source, limit_bytes, name, "YAML")
    if data.lstrip()[:1] == b"{":
        # JSON is YAML too, and its parser costs a hundredth of the time.
        try:
            return parse_json(data, name), {}
        except InputError as error:
            if error.message.id != "present.not_json":
                raise
    return _Builder(name).build(data)


_RESOLVED: tuple[tuple[re.Pattern[str], Callable[[str], Any]], ...] = (
    (re.compile(r"(?:|~|null|Null|NULL)\Z"), lambda text: None),
    (re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), lambda text: text.lower() == "true"),
    (re.compile(r"[-+]?[0-9]{1,400}\Z"), int),
    (re.compile(r"0o[0-7]{1,100}\Z"), lambda text: int(text[2:], 8)),
    (re.compile(r"0x[0-9a-fA-F]{1,100}\Z"), lambda text: int(text[2:], 16)),
    (re.compile(r"[-+]?(?:\.[0-9]{1,400}|[0-9]{1,400}(?:\.[0-9]{0,400})?)(?:[eE][-+]?[0-9]{1,9})?\Z"), float),
    (re.compile(r"[-+]?\.(?:inf|Inf|INF)\Z"), lambda text: float(text.replace(".", ""))),
    (re.compile(r"\.(?:nan|NaN|NAN)\Z"), lambda text: float("nan")),
)  # fmt: skip


def resolve_scalar(text: str) -> Any:
    """The value of a plain scalar by the core schema of YAML 1.2 (its section 10.3.2)."""
    for pattern, convert in _RESOLVED:
        if pattern.match(text):
            return convert(text)
    return text


class _Open:
    """A mapping or sequence that is being filled."""

    def __init__(self, value: Any, path: str, anchor: str | None, count: int) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.count_before = count
        self.key: Any = _NO_KEY


_NO_KEY: Any = object()


class _Builder:
    """Builds values from ruamel's parse events, which lets depth, aliases and size be limited
    before anything is built; ruamel's own constructors never run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack: list[_Open] = []
        self.lines: dict[str, int] = {}
        # Per anchor: its value, and how many values it stands for when written out.
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.count = 0
        self.documents = 0
        self.result: Any = None

    def build(self, data: bytes) -> tuple[Any, dict[str, int]]:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise InputError("present.not_text", file=self.name) from None
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                self._take(event)
        except YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            reason = reason_of(Exception(getattr(error, "problem", None) or error))
            line = mark.line + 1 if mark else 1
            raise InputError("present.not_yaml", file=self.name, line=line, reason=reason) from None
        except (ValueError, RecursionError, IndexError, AttributeError, TypeError) as error:
            # ruamel's scanner fails with these on some malformed input.
            raise InputError("present.not_yaml", file=self.name, line=1, reason=reason_of(error)) from None
        return self.result, self.lines

    def _take(self, event: Any) -> None:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise InputError("present.several_documents", file=self.name, line=line)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            self._open({} if kind[0] == "M" else [], event, line)
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            self._close()
        elif kind == "ScalarEvent":
            value = resolve_scalar(event.value) if event.implicit[0] else event.value
            self._add(self._tagged(event, value), line)
            if event.anchor:
                self.anchors[event.anchor] = (value, 1)
        elif kind == "AliasEvent":
            if event.anchor not in self.anchors:
                raise InputError("present.unknown_alias", file=self.name, line=line, alias=event.anchor[:80])
            value, size = self.anchors[event.anchor]
            self.count += size - 1
            self._add(value, line)

    def _tagged(self, event: Any, value: Any) -> Any:
        tag = str(event.tag) if event.tag else ""
        if tag in ("", "!", "tag:yaml.org,2002:str"):
            return value
        raise InputError(
            "present.tag_refused", file=self.name, line=event.start_mark.line + 1, tag=tag[:80]
        )

    def _open(self, value: Any, event: Any, line: int) -> None:
        if event.tag and not event.implicit:
            self._tagged(event, value)
        if len(self.stack) >= DEPTH:
            raise InputError("present.too_deep", file=self.name, limit=DEPTH)
        before = self.count
        path = self._add(value, line)
        self.stack.append(_Open(value, path, event.anchor, before))

    def _close(self) -> None:
        done = self.stack.pop()
        if done.anchor:
            self.anchors[done.anchor] = (done.value, self.count - done.count_before)

    def _add(self, value: Any, line: int) -> str:
        self.count += 1
        if self.count > YAML_VALUES:
            raise InputError("present.too_many_values", file=self.name, limit=YAML_VALUES)
        if not self.stack:
            self.result = value
            return ""
        parent = self.stack[-1]
        if isinstance(parent.value, list):
            path = f"{parent.path}[{len(parent.value)}]"
            parent.value.append(value)
        elif parent.key is _NO_KEY:
            parent.key = self._key(parent, value, line)
            return parent.path
        else:
            path = f"{parent.path}.{parent.key}" if parent.path else str(parent.key)
            parent.value[parent.key] = value
            parent.key = _NO_KEY
        self.lines[path] = line
        return path

    def _key(self, parent: _Open, value: Any, line: int) -> Any:
        if isinstance(value, (dict, list)):
            raise InputError("present.key_not_plain", file=self.name, line=line)
        if value in parent.value:
            raise InputError("present.duplicate_key_line", file=self.name, line=line, key=str(value)[:80])
        return value
