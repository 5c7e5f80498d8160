"""Pack the published tables of `evidence/` into the package, byte for byte the same each time."""

from __future__ import annotations

import gzip
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "raceline" / "evidence" / "data"


def packed(source: Path) -> bytes:
    """The file's content, compressed without a name or a time."""
    return gzip.compress(source.read_bytes(), compresslevel=9, mtime=0)


def main() -> None:
    """Write one packed file for each table."""
    for source in sorted((ROOT / "evidence").iterdir()):
        if source.suffix in (".csv", ".yaml"):
            target = TARGET / f"{source.name}.gz"
            target.write_bytes(packed(source))
            print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
