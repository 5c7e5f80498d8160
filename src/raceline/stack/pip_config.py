"""The package index that pip is set up with, so that a mirror works without being named again."""

from __future__ import annotations

import configparser
from collections.abc import Iterable, Mapping
from pathlib import Path

_LARGEST = 64 * 1024


def index_of_pip(environ: Mapping[str, str], home: Path) -> str | None:
    """The index by PIP_INDEX_URL, else by the last of pip's configuration files that names one; None: pip's default."""
    given = environ.get("PIP_INDEX_URL", "").strip()
    if given:
        return given
    named = [address for path in config_files(environ, home) if (address := _index_in(path))]
    return named[-1] if named else None


def config_files(environ: Mapping[str, str], home: Path) -> Iterable[Path]:
    """Where pip keeps its configuration: of all users, of this one, of the environment, and a file that is named."""
    shared = environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    yield from (Path(item) / "pip" / "pip.conf" for item in reversed(shared.split(":")) if item)
    yield Path("/etc/pip.conf")
    if "APPDATA" in environ:
        yield Path(environ["APPDATA"]) / "pip" / "pip.ini"
    yield home / ".pip" / "pip.conf"
    yield home / "Library" / "Application Support" / "pip" / "pip.conf"
    yield Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip" / "pip.conf"
    if "VIRTUAL_ENV" in environ:
        yield Path(environ["VIRTUAL_ENV"]) / "pip.conf"
    if "PIP_CONFIG_FILE" in environ:
        yield Path(environ["PIP_CONFIG_FILE"])


def _index_in(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(_LARGEST)
    except OSError:
        return None
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    return parser.get("global", "index-url", fallback="").strip() or None
