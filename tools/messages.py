"""Compile the message catalogues (.po) to what the program reads (.mo), or say which are stale."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import read_mo, write_mo
from babel.messages.pofile import read_po

FOLDER = Path(__file__).parent.parent / "src/raceline/present/messages"
DATE = datetime(2026, 1, 1, tzinfo=UTC)


def compiled(path: Path) -> bytes:
    """The .mo of a .po file; the same bytes for the same texts."""
    with path.open("rb") as file:
        catalogue = read_po(file, locale=path.parent.name, abort_invalid=True)
    # Babel writes the present date where the file has none
    catalogue.creation_date = catalogue.revision_date = DATE
    out = BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def texts(mo: bytes) -> dict[str, str]:
    """What a .mo holds; the bytes around it differ from compiler to compiler."""
    return {entry.id: entry.string for entry in read_mo(BytesIO(mo)) if entry.id}


def stale() -> list[Path]:
    """The .po files whose .mo is missing or holds other texts."""
    return [
        path
        for path in sorted(FOLDER.glob("*/*.po"))
        if not (mo := path.with_suffix(".mo")).exists() or texts(mo.read_bytes()) != texts(compiled(path))
    ]


def main() -> None:
    """Compile what is stale; with --check only list it and exit 1."""
    found = stale()
    for path in found:
        print(path.relative_to(FOLDER.parents[3]))
        if "--check" not in sys.argv:
            path.with_suffix(".mo").write_bytes(compiled(path))
    sys.exit(1 if found and "--check" in sys.argv else 0)


if __name__ == "__main__":
    main()
