"""What a source archive says of its release, read without building or running anything, bounded in size."""

from __future__ import annotations

import email.parser
import gzip
import io
import tarfile

LARGEST_UNPACKED = 512 * 2**20
MOST_FILES = 50_000
_LARGEST_TEXT = 256 * 1024


def metadata(archive: bytes) -> tuple[str, list[str]]:
    """Required Python and requirements as the archive's PKG-INFO states them, or its requires.txt where that has none.

    Empty where the archive has neither or can't be read: then nothing is known.
    """
    try:
        information, requirements = _texts(archive)
    except (tarfile.TarError, OSError, EOFError, ValueError):
        return "", []
    told = email.parser.HeaderParser().parsestr(information)
    lines = [str(line) for line in told.get_all("Requires-Dist") or []]
    return str(told.get("Requires-Python") or ""), lines or _unconditional(requirements)


def _texts(archive: bytes) -> tuple[str, str]:
    """The outermost PKG-INFO and requires.txt."""
    found: dict[str, tuple[int, str]] = {}
    with (
        gzip.GzipFile(fileobj=io.BytesIO(archive)) as plain,
        tarfile.open(fileobj=_Bounded(plain), mode="r|") as files,  # type: ignore[call-overload]
    ):
        for count, item in enumerate(files):
            if count >= MOST_FILES:
                break
            name, depth = item.name.rsplit("/", 1)[-1], item.name.count("/")
            if name not in ("PKG-INFO", "requires.txt") or not item.isfile() or item.size > _LARGEST_TEXT:
                continue
            if name not in found or depth < found[name][0]:
                content = files.extractfile(item)
                text = b"" if content is None else content.read(_LARGEST_TEXT)
                found[name] = depth, text.decode("utf-8", errors="replace")
    return found.get("PKG-INFO", (0, ""))[1], found.get("requires.txt", (0, ""))[1]


class _Bounded:
    """A stream that gives at most LARGEST_UNPACKED bytes: a small archive may unpack to any size."""

    def __init__(self, stream: gzip.GzipFile) -> None:
        self.stream, self.left = stream, LARGEST_UNPACKED

    def read(self, size: int) -> bytes:
        data = self.stream.read(min(size, self.left))
        self.left -= len(data)
        return data


def _unconditional(text: str) -> list[str]:
    """The requirements before the first section, which are those without an extra or a condition."""
    lines = []
    for line in text.splitlines():
        if line.startswith("["):
            break
        if line.strip():
            lines.append(line.strip())
    return lines
