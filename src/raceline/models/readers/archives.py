"""One member of a zip file, bounded: no bomb is unpacked, nothing is written to disk."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from raceline.present.documents import LARGEST_BYTES, open_file
from raceline.present.errors import InputError

_LARGEST_DIRECTORY_BYTES = 4 * 2**20
_END = struct.Struct("<4s4H2LH")
_LONGEST_COMMENT_BYTES = 65535
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def read_members(path: Path, wanted: Callable[[str], bool], largest: int = LARGEST_BYTES) -> dict[str, bytes]:
    """The members whose name is wanted, at most `largest` bytes in all."""
    found: dict[str, bytes] = {}
    left = largest
    with open_file(path) as file:
        _check_directory(file, path.name)
        try:
            with zipfile.ZipFile(file) as archive:
                for entry in archive.infolist():
                    if not wanted(entry.filename):
                        continue
                    if entry.compress_type not in _METHODS:
                        # LZMA takes as much memory for its dictionary as the file asks for
                        raise InputError(
                            "models.archive_damaged",
                            given=path.name,
                            reason=f"compression {entry.compress_type}",
                        )
                    if entry.file_size > left:
                        raise InputError("present.too_large", limit_mib=largest / 2**20)
                    with archive.open(entry) as member:
                        data = member.read(left + 1)
                    left -= len(data)
                    if left < 0:
                        raise InputError("present.too_large", limit_mib=largest / 2**20)
                    found[entry.filename] = data
        except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError, OSError, ValueError,
                struct.error, UnicodeDecodeError) as error:  # fmt: skip
            raise InputError("models.archive_damaged", given=path.name, reason=type(error).__name__) from None
    return found


def _check_directory(file: BinaryIO, name: str) -> None:
    """Refuse a file whose list of members is huge, before it is read. Layout: PKWARE APPNOTE 4.3.16."""
    size_bytes = file.seek(0, 2)
    file.seek(max(0, size_bytes - _END.size - _LONGEST_COMMENT_BYTES))
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + _END.size:
        raise InputError("models.archive_damaged", given=name, reason="BadZipFile")
    directory_bytes = _END.unpack_from(tail, at)[5]
    if directory_bytes == 0xFFFFFFFF:
        # zip64: the record that says more stands before; its size of the directory is at byte 40
        record = tail.rfind(b"PK\6\6", 0, at)
        directory_bytes = struct.unpack_from("<Q", tail, record + 40)[0] if 0 <= record <= at - 48 else 2**63
    if directory_bytes > _LARGEST_DIRECTORY_BYTES:
        raise InputError("present.too_large", limit_mib=_LARGEST_DIRECTORY_BYTES / 2**20)
    file.seek(0)
