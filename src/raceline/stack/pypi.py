"""The package index: files and metadata of releases, bounded in size and time. The only part of the layer that uses
the network.

The Simple API (PEP 691) lists files with their dates; a wheel's metadata stands beside it (PEP 658) or is read out of
the wheel by ranges, since some wheels of several GB have none beside them.
"""

from __future__ import annotations

import base64
import email.parser
import io
import json
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from collections.abc import Iterable
from typing import IO, Any

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from raceline.present.errors import InputError
from raceline.stack import sources

DEFAULT = "https://pypi.org/simple"
LARGEST_BYTES = 64 * 2**20
LARGEST_RANGES = 32 * 2**20
TIME_LIMIT_S = 30.0  # without a byte
LONGEST_ANSWER_S = 300.0
_CHUNK = 256 * 1024
_ACCEPT = "application/vnd.pypi.simple.v1+json"

File = dict[str, Any]


def files(name: str, base: str = DEFAULT) -> dict[Version, list[File]]:
    """The files of a project by release. Raises InputError where the index can't be read."""
    address = f"{base.rstrip('/')}/{name}/"
    page = _json(_get(address, {"Accept": _ACCEPT}), address)
    found: dict[Version, list[File]] = {}
    for item in page.get("files") or []:
        version = _version_of(str(item.get("filename", ""))) if isinstance(item, dict) else None
        if version is not None:
            item["url"] = urllib.parse.urljoin(address, str(item.get("url", "")))
            found.setdefault(version, []).append(item)
    return found


def metadata(listed: Iterable[File]) -> tuple[str, list[str]]:
    """Required Python and requirements of a release, by its wheel for Linux where it has one, else by any; by its
    source archive where it has no wheel."""
    listed = list(listed)
    wheels = [item for item in listed if str(item.get("filename", "")).endswith(".whl")]
    if not wheels:
        source = next((item for item in listed if str(item.get("filename", "")).endswith(".tar.gz")), None)
        return ("", []) if source is None else sources.metadata(_get(str(source["url"]), {}))
    chosen = min(
        wheels,
        key=lambda item: (
            "linux" not in item["filename"],
            "x86_64" not in item["filename"],
            item["filename"],
        ),
    )
    text = _beside(chosen) or _inside(chosen)
    message = email.parser.HeaderParser().parsestr(text)
    return str(message.get("Requires-Python") or ""), [
        str(line) for line in message.get_all("Requires-Dist") or []
    ]


def _version_of(name: str) -> Version | None:
    try:
        return parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, ValueError):
        return None


def _beside(item: File) -> str | None:
    """The metadata file that the index serves beside a wheel, where it says that it does."""
    if not (item.get("core-metadata") or item.get("data-dist-info-metadata")):
        return None
    return _get(f"{item['url']}.metadata", {}).decode("utf-8", errors="replace")


def _inside(item: File) -> str:
    """The metadata out of the wheel itself, of which only the needed parts are fetched."""
    address = str(item["url"])
    try:
        with zipfile.ZipFile(_Ranges(address, int(item.get("size") or 0))) as archive:
            name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            return archive.read(name)[:_CHUNK].decode("utf-8", errors="replace")
    except (zipfile.BadZipFile, StopIteration, KeyError, ValueError) as error:
        raise _unreadable(address, type(error).__name__) from None


class _Ranges(io.RawIOBase):
    """A remote file that is read by ranges, in chunks, of which at most LARGEST_RANGES bytes are fetched."""

    def __init__(self, address: str, size: int) -> None:
        self.address, self.place, self.fetched = address, 0, 0
        self.size = size or _size(address)
        self.chunks: dict[int, bytes] = {}

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.place, io.SEEK_END: self.size}[whence]
        self.place = max(0, start + offset)
        return self.place

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.size, self.place + size)
        parts = []
        while self.place < end:
            index = self.place // _CHUNK
            chunk = self._chunk(index)
            part = chunk[self.place - index * _CHUNK : end - index * _CHUNK]
            if not part:
                break
            parts.append(part)
            self.place += len(part)
        return b"".join(parts)

    def _chunk(self, index: int) -> bytes:
        if index not in self.chunks:
            if self.fetched >= LARGEST_RANGES:
                raise _unreadable(self.address, f"> {LARGEST_RANGES} B")
            last = min(self.size, (index + 1) * _CHUNK) - 1
            self.chunks[index] = _get(self.address, {"Range": f"bytes={index * _CHUNK}-{last}"}, _CHUNK)
            self.fetched += len(self.chunks[index])
        return self.chunks[index]


def _size(address: str) -> int:
    request = _request(address, {}, "HEAD")
    try:
        with urllib.request.urlopen(request, timeout=TIME_LIMIT_S) as answer:
            return int(answer.headers.get("Content-Length") or 0)
    except (OSError, ValueError) as error:
        raise _unreadable(address, type(error).__name__) from None


def _get(address: str, headers: dict[str, str], largest: int = LARGEST_BYTES) -> bytes:
    request = _request(address, headers)
    try:
        with urllib.request.urlopen(request, timeout=TIME_LIMIT_S) as answer:
            data = _read(answer, largest + 1)
    except urllib.error.HTTPError as error:
        raise _unreadable(address, str(error.code)) from None
    except (OSError, ValueError) as error:
        raise _unreadable(
            address, str(getattr(error, "reason", None) or type(error).__name__)[:100]
        ) from None
    if len(data) > largest:
        raise _unreadable(address, f"> {largest} B")
    return data


def _read(answer: IO[bytes], largest: int) -> bytes:
    """What an answer says, up to a size and within a time: one that comes drop by drop is given up, too."""
    last = time.monotonic() + LONGEST_ANSWER_S
    parts, size = [], 0
    while size < largest and (part := answer.read(min(_CHUNK, largest - size))):
        parts.append(part)
        size += len(part)
        if time.monotonic() > last:
            raise TimeoutError(f"> {LONGEST_ANSWER_S} s")
    return b"".join(parts)


def _request(address: str, headers: dict[str, str], method: str = "GET") -> urllib.request.Request:
    """A request; what an address says of a user goes to its own host alone, also when that sends on elsewhere."""
    if not address.startswith(("https://", "http://")):
        raise _unreadable(address, "http")
    user, has_user, rest = address.partition("://")[2].partition("/")[0].rpartition("@")
    bare = address.replace(f"{user}@{rest}", rest, 1) if has_user else address
    request = urllib.request.Request(bare, method=method, headers={"User-Agent": "raceline", **headers})
    if has_user:
        told = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {told}")
    return request


def _json(data: bytes, address: str) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _unreadable(address, "JSON")
    return found


def _unreadable(address: str, reason: str) -> InputError:
    parts = urllib.parse.urlsplit(address)
    shown = f"{parts.scheme}://{parts.hostname or ''}{parts.path}"[:120]
    return InputError("stack.index_unreadable", field="index", address=shown, reason=reason)
