"""Where a Python environment keeps its packages: folders by their names, nothing is run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_NAMES = ("site-packages", "dist-packages")
_PATTERNS = (
    "local/lib*/python3.*/*-packages",  # Debian and Fedora put what pip installs beside the system's own
    "lib/python3.*/*-packages",
    "lib64/python3.*/*-packages",
    "Lib/site-packages",
)
_DEBIAN = "lib/python3/dist-packages"


def prefix_of(path: Path) -> Path:
    """The environment that a path names: its folder, or the Python in it (``env/bin/python``)."""
    if not path.is_file():
        return path
    return path.parent.parent if path.parent.name in ("bin", "Scripts") else path.parent


def site_folders(prefix: Path) -> tuple[Path, ...]:
    """The folders of packages of one Python in an environment, the one that is imported from first in front."""
    if prefix.name in _NAMES:
        return (prefix,)
    if prefix == Path(sys.prefix):
        found = [Path(entry) for entry in sys.path if Path(entry).name in _NAMES]
    else:
        found = _of_one_python(
            prefix, [path for pattern in _PATTERNS for path in sorted(prefix.glob(pattern))]
        )
    kept: dict[Path, Path] = {}
    for path in found:
        if path.is_dir() and path.name in _NAMES:
            kept.setdefault(path.resolve(), path)
    return tuple(kept.values())


def _of_one_python(prefix: Path, found: list[Path]) -> list[Path]:
    """Of several Pythons under one folder, the one that the environment says it is of, else the newest."""
    said = re.match(r"3\.\d+", configured(prefix) or "")
    versions = {
        path: match[0] for path in found if (match := re.search(r"(?<=python)3\.\d+", path.parent.name))
    }
    newest = max(versions.values(), key=lambda version: int(version[2:]), default=None)
    wanted = said[0] if said and said[0] in versions.values() else newest
    return [path for path in found if versions.get(path, wanted) == wanted] + [prefix / _DEBIAN]


def configured(prefix: Path) -> str | None:
    """The Python that a virtual environment says it is of."""
    try:
        text = (prefix / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")[:4000]
    except OSError:
        return None
    match = re.search(r"^version(?:_info)?\s*=\s*(\d\.\d+(?:\.\d+)?)", text, re.MULTILINE)
    return match[1] if match else None
