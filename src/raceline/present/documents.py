"""Reading JSON, YAML and JSON Lines that somebody else wrote: bounded, strict, never executed.

Every loader limits size, nesting and the number of values before it builds anything, refuses
duplicate keys, and raises InputError with one clear line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import accumulate, count, islice
from pathlib import Path
from typing import Any, BinaryIO

from raceline.present.errors import InputError, Message, message

Source = str | Path | bytes

LARGEST_BYTES = 32 * 2**20
LARGEST_YAML_BYTES = 2**18
LARGEST_LINE_BYTES = 2**20
DEEPEST = 100
MOST_LINES = 1_000_000
MOST_VALUES = 1_500_000
MOST_KEYS = 300_000
MOST_NODES = 12_000
_LONGEST_NUMBER = 400

_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# The end of a key: no opening quote and no escaped one stands after such a character. Quick, and misses some keys.
_SURE_KEYS = re.compile(rb'[^\\\[,:{\s"]":')
_BRACKETS = bytes(2 if c in b"[{" else 0 for c in range(256))
_NOT_BRACKETS = bytes(c for c in range(256) if c not in b"[]{}")


def read_bytes(source: Source, largest: int = LARGEST_BYTES) -> bytes:
    """The bytes of a regular file, at most `largest`; bytes are only checked for their size."""
    if isinstance(source, bytes):
        data = source
    else:
        with open_file(source) as file:
            data = file.read(largest + 1)
    if len(data) > largest:
        raise InputError("present.too_large", limit_mib=largest / 2**20)
    return data


def open_file(path: str | Path) -> BinaryIO:
    """Open a regular file for reading: no folder, pipe or device, which could block or never end."""
    try:
        if not Path(path).is_file():
            raise InputError("present.not_a_file", given=str(path)[:200])
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError("present.unreadable", given=str(path)[:200], reason=reason) from None


def load_json(source: Source) -> Any:
    """A JSON document from a path or bytes: size, depth and count bounded, duplicate keys refused.

    ``Infinity`` is read (configs of state-space models hold it), ``NaN`` is refused."""
    return _json(read_bytes(source))


def iterate_jsonl(source: Source) -> Iterator[Any]:
    """Values of a JSON Lines file; in the place of a line that can't be read stands its InputError."""
    with BytesIO(source) if isinstance(source, bytes) else open_file(source) as file:
        for number in count(1):
            line = file.readline(LARGEST_LINE_BYTES + 1)
            if not line:
                return
            if number > MOST_LINES:
                raise InputError("present.too_many_lines", limit=MOST_LINES)
            if line.strip():
                yield _line(line, number)
            if len(line) > LARGEST_LINE_BYTES:
                return


def _line(line: bytes, number: int) -> Any:
    try:
        return _json(read_bytes(line, LARGEST_LINE_BYTES))
    except InputError as error:
        return InputError("present.bad_line", field=f"line {number}", line=number, reason=error.message)


def load_yaml(source: Source) -> Any:
    """A YAML 1.2 document, so JSON too (core schema: `no` is text, `1.0e9` a number, dates are text)."""
    return load_yaml_with_lines(source)[0]


def load_yaml_with_lines(source: Source) -> tuple[Any, dict[str, int]]:
    """The document, and the line on which each field stands: ``{"offers[0].price_hour_usd": 12}``.

    Aliases are read, but what they write out to counts against MOST_NODES; tags are refused.
    A document that is JSON has no lines."""
    data = read_bytes(source, LARGEST_YAML_BYTES)
    if data.lstrip()[:1] in (b"{", b"["):
        # JSON is YAML too, and its parser costs a hundredth of the time.
        try:
            return _json(data), {}
        except InputError as error:
            if error.message.id != "present.bad_json":
                raise
    return _Builder().build(_text(data))


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("present.not_utf8", position=error.start) from None


def _json(data: bytes) -> Any:
    _check_shape(data)
    try:
        return json.loads(_text(data), object_pairs_hook=_unique, parse_constant=_constant, parse_int=_whole)
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


def _constant(name: str) -> float:
    if name == "NaN":
        raise InputError("present.not_a_number", given=name)
    return float(name)


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise InputError("present.number_too_long", given=digits[:12])
    return int(digits)


def _check_shape(data: bytes) -> None:
    """Refuse deep and huge documents by counting brackets and commas, before a parser sees them."""
    opened = data.count(b"[") + data.count(b"{")
    if opened + data.count(b",") > MOST_VALUES:
        raise InputError("present.too_many_nodes", limit=MOST_VALUES)
    if opened <= DEEPEST and data.count(b":") <= MOST_KEYS:
        return
    sure = sum(1 for _ in islice(_SURE_KEYS.finditer(data), MOST_KEYS + 1))
    outside = b"" if sure > MOST_KEYS else _STRINGS.sub(b"", data)
    if max(sure, outside.count(b":")) > MOST_KEYS:
        raise InputError("present.too_many_nodes", limit=MOST_KEYS)
    brackets = outside.translate(_BRACKETS, _NOT_BRACKETS)
    if max(accumulate(map((-1, 0, 1).__getitem__, brackets)), default=0) > DEEPEST:
        raise InputError("present.too_deep", limit=DEEPEST)


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

    def __init__(self) -> None:
        self.stack: list[_Open] = []
        self.lines: dict[str, int] = {}
        # Per anchor: its value, and how many values it stands for when written out.
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.count = 0
        self.documents = 0
        self.result: Any = None

    def build(self, text: str) -> tuple[Any, dict[str, int]]:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import YAMLError

        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                self._take(event)
        except YAMLError as error:
            mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
            problem = getattr(error, "problem", None) or getattr(error, "context", None) or error
            raise _bad(mark.line + 1 if mark else 1, " ".join(str(problem).split())[:120]) from None
        except (ValueError, RecursionError, IndexError, AttributeError, TypeError, OverflowError) as error:
            # ruamel's scanner fails with these on some malformed input.
            raise _bad(1, type(error).__name__) from None
        return self.result, self.lines

    def _take(self, event: Any) -> None:
        kind = type(event).__name__
        line = event.start_mark.line + 1
        if kind == "DocumentStartEvent":
            self.documents += 1
            if self.documents > 1:
                raise _bad(line, message("present.yaml_several"))
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
                raise _bad(line, message("present.yaml_alias", given=event.anchor[:80]))
            value, size = self.anchors[event.anchor]
            self.count += size - 1
            self._add(value, line)

    def _tagged(self, event: Any, value: Any) -> Any:
        tag = str(event.tag) if event.tag else ""
        if tag in ("", "!", "tag:yaml.org,2002:str"):
            return value
        raise _bad(event.start_mark.line + 1, message("present.yaml_tag", given=tag[:80]))

    def _open(self, value: Any, event: Any, line: int) -> None:
        if event.tag and not event.implicit:
            self._tagged(event, value)
        if len(self.stack) >= DEEPEST:
            raise InputError("present.too_deep", limit=DEEPEST)
        before = self.count
        path = self._add(value, line)
        self.stack.append(_Open(value, path, event.anchor, before))

    def _close(self) -> None:
        done = self.stack.pop()
        if done.anchor:
            self.anchors[done.anchor] = (done.value, self.count - done.count_before)

    def _add(self, value: Any, line: int) -> str:
        self.count += 1
        if self.count > MOST_NODES:
            raise InputError("present.too_many_nodes", limit=MOST_NODES)
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
            raise _bad(line, message("present.yaml_key"))
        if value in parent.value:
            raise _bad(line, message("present.duplicate_key", key=str(value)[:100]))
        return value


def _bad(line: int, problem: str | Message) -> InputError:
    return InputError("present.bad_yaml", line=line, problem=problem)
