"""Known errors in a log. Every pattern has a token that is looked for first, so a long text costs little."""

from __future__ import annotations

import functools
import re
from importlib import resources

import msgspec
from packaging.utils import canonicalize_name

from raceline.measure.environment import Distribution
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.private import redacted
from raceline.stack.versions import parse

MOST_HITS = 20
LINES_AFTER = 3  # a message may go on in them
_LIBRARY = re.compile(r"\.so|\.pyd|\.dll|^_|^lib|_cuda|nvinfer|^cu[db]", re.IGNORECASE)


class Pattern(msgspec.Struct, frozen=True):
    """A known wording of an error: `token` is in it in lower case, `pattern` reads its parts, `rule` explains it."""

    id: str
    token: str
    pattern: str
    rule: str | None = None


@functools.cache
def patterns() -> tuple[Pattern, ...]:
    """The known wordings."""
    data = resources.files("raceline.stack").joinpath("data", "symptoms.json").read_bytes()
    return tuple(msgspec.json.decode(data, type=list[Pattern]))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


def read_errors(text: str, found: Collected) -> None:
    """Keep the known errors that a text holds."""
    low = text.encode("ascii", "replace").decode().lower()  # of the same length, whatever the alphabet
    for item in patterns():
        start, hits = low.find(item.token), 0
        while start >= 0 and hits < MOST_HITS:
            # one line around the token, of a bounded length
            begin = max(text.rfind("\n", 0, start) + 1, start - 600)
            end = _line_end(text, start + len(item.token))
            end = min(end, start + 900)
            last = end
            for _ in range(LINES_AFTER):
                last = _line_end(text, last + 1)
            line = text[begin : min(last, start + 900)]
            for match in _compiled(item.pattern).finditer(line):
                params = _params(match.groupdict())
                if item.id == "requirement_broken":
                    _keep_installed(params, found)
                found.add_symptom(
                    item.id, params, redacted(match.string[max(0, match.start() - 40) : match.end() + 80])
                )
                found.note("error_log")
            hits += 1
            start = low.find(item.token, max(end, start + 1))


def _keep_installed(params: dict[str, str], found: Collected) -> None:
    """An installer that tells a broken requirement tells two installed packages with their versions."""
    for name, version in ((params["package"], params["version"]), (params["other"], params["has"])):
        public, _, label = version.partition("+")
        if parse(public) is not None:
            found.add_installed(Distribution(canonicalize_name(name), public, label or None, "pip"))


def _line_end(text: str, start: int) -> int:
    """Where the line that `start` is in ends."""
    found = text.find("\n", start) if start < len(text) else -1
    return len(text) if found < 0 else found


def _params(groups: dict[str, str | None]) -> dict[str, str]:
    """What the message says: a capability as 8.6, a library only where it is one."""
    found = {name: _clean(value) for name, value in groups.items() if value}
    for name in ("sm", "capability"):
        if found.get(name, "").isdigit():
            found[name] = f"{found[name][:-1]}.{found[name][-1]}"
    library = found.get("library", "")
    if library and not _LIBRARY.search(library):
        del found["library"]
    return found


def _clean(value: str) -> str:
    return redacted(value).rstrip(".,; ")
