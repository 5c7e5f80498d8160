"""Compile the message catalogues (.po) to what the program reads (.mo), or say which are stale."""

from __future__ import annotations

import sys
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

FOLDER = Path(__file__).parent.parent / "src/raceline/present/messages"


def compiled(path: Path) -> bytes:
    """The .mo of a .po file; the same bytes for the same texts."""
    with path.open("rb") as file:
        catalogue = read_po(file, locale=path.parent.name, abort_invalid=True)
    out = BytesIO()
    write_mo(out, catalogue)
    return out.getvalue()


def stale() -> list[Path]:
    """The .po files whose .mo is missing or older in content."""
    return [
        path
        for path in sorted(FOLDER.glob("*/*.po"))
        if not (mo := path.with_suffix(".mo")).exists() or mo.read_bytes() != compiled(path)
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
