"""Readers of texts that people paste; `read_text` takes any of them, mixed and partial. Nothing read is executed."""

from __future__ import annotations

import re

from raceline.present.errors import InputError
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.documents import flattened, read_document, rest_of
from raceline.stack.readers.errors import read_errors
from raceline.stack.readers.lines import LONGEST_LINE, Scanner
from raceline.stack.told import Told

LARGEST_BYTES = 64 * 2**20
MOST_LINES = 20_000
MOST_CHARACTERS = 300_000  # that are read line by line; errors are looked for in all of a text
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|\x1b[@-_]")
_CONTROLS = bytes(32 if code in (*range(9), 11, 12, *range(14, 32), 127) else code for code in range(256))


def read_text(text: str | bytes) -> Told:
    """What a pasted text tells of a machine, its packages and what went wrong.

    Raises InputError where it is larger than LARGEST_BYTES.
    """
    if len(text) > LARGEST_BYTES:
        raise InputError("stack.text_too_large", limit_mib=LARGEST_BYTES / 2**20)
    clean = _plain(decoded(text) if isinstance(text, bytes) else text)
    clean = flattened(clean)
    found = Collected()
    is_document = read_document(clean, found)
    read_errors(clean, found)
    _read_lines(rest_of(clean) if is_document else clean, found)
    return found.told()


def _plain(text: str) -> str:
    """A text without colours and control characters, its lines ended by ``\\n`` alone."""
    shown = _ANSI.sub("", text) if "\x1b" in text else text
    # as bytes: turning characters one by one takes ten times as long
    data = shown.encode("utf-8", errors="replace").translate(_CONTROLS)
    return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8", errors="replace")


def _read_lines(text: str, found: Collected) -> None:
    scanner = Scanner(found)
    start, count, spent = 0, 0, 0
    while start < len(text) and count < MOST_LINES and spent < MOST_CHARACTERS:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if end - start <= LONGEST_LINE:
            line = text[start:end]
            if line.strip():
                spent += len(line)
                found.unread += not scanner.read(line)
        else:
            found.unread += 1
        start, count = end + 1, count + 1
    found.unread += text.count("\n", start) if start < len(text) else 0


def decoded(data: bytes) -> str:
    """Bytes as text: UTF-8 or UTF-16 by mark or look, GB 18030 where UTF-8 fails, broken characters replaced."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if data[:3] == b"\xef\xbb\xbf":
        data = data[3:]
    sample = data[:4000]
    if sample.count(0) > len(sample) // 4:
        return data.decode("utf-16-le" if sample[1:2] == b"\0" else "utf-16-be", errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        pass
    try:
        return data.decode("gb18030")
    except UnicodeDecodeError:
        return data.decode("utf-8", errors="replace")
