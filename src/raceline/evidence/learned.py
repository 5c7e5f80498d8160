"""A user's own measured runs: one line of JSON each, appended and taken back by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from raceline.evidence.rows import Measured
from raceline.present.errors import InputError

MOST_ENTRIES = 10_000
LARGEST_BYTES = 32 * 1024 * 1024


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario that somebody ran, and what was measured. `learned_on` is a date."""

    id: str
    scenario: dict[str, Any]
    measured: tuple[Measured, ...]
    learned_on: str
    note: str = ""


def entries(path: Path) -> tuple[Entry, ...]:
    """All entries of a store, the oldest first; none where there is no store yet. Raises InputError
    where the file isn't one."""
    if not path.exists():
        return ()
    if path.stat().st_size > LARGEST_BYTES:
        raise InputError(
            "evidence.store_large", field="store", given=str(path), limit_mib=LARGEST_BYTES // 2**20
        )
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            found.append(msgspec.json.decode(line, type=Entry))
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise InputError("evidence.store_unread", field="store", given=str(path), line=number) from None
    return tuple(found)


def next_id(known: Sequence[Entry]) -> str:
    """An id that no entry has."""
    taken = [int(entry.id[3:]) for entry in known if entry.id.startswith("own") and entry.id[3:].isdigit()]
    return f"own{max(taken, default=0) + 1}"


def add(path: Path, fresh: Sequence[Entry]) -> None:
    """Append entries; the file is replaced whole, so that nothing is half-written."""
    known = entries(path)
    if len(known) + len(fresh) > MOST_ENTRIES:
        raise InputError("evidence.store_full", field="store", given=str(path), limit=MOST_ENTRIES)
    _write(path, [*known, *fresh])


def remove(path: Path, name: str | None) -> Entry:
    """Take back one entry: the named one, or the newest. Raises InputError where there is none."""
    known = list(entries(path))
    chosen = known[-1:] if name is None else [entry for entry in known if entry.id == name]
    if not chosen:
        raise InputError(
            "evidence.entry_unknown",
            field="id",
            given=name or "-",
            known=", ".join(e.id for e in known[-8:]) or "-",
        )
    _write(path, [entry for entry in known if entry.id != chosen[0].id])
    return chosen[0]


def _write(path: Path, kept: Sequence[Entry]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(b"".join(msgspec.json.encode(entry) + b"\n" for entry in kept))
    fresh.replace(path)
