"""The one boundary to a real machine: files under a root folder, the environment's variables, and short commands."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LARGEST = 256 * 1024
MOST_ENTRIES = 20_000
TIME_LIMIT_S = 2.0


class Root:
    """A machine's files, variables and commands; another folder stands in for a machine of another kind.

    What can't be read is None or empty: unknown, not an error.
    """

    def __init__(self, folder: str | Path = "/", variables: Mapping[str, str] | None = None) -> None:
        self.folder = Path(folder)
        self.is_real = str(folder) == "/"
        self.variables = dict(os.environ if variables is None else variables)

    def path(self, name: str) -> Path:
        """A file of the machine by its absolute name."""
        return self.folder / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """The start of a file as text."""
        try:
            with self.path(name).open("rb") as file:
                return file.read(LARGEST).decode("utf-8", errors="replace")
        except OSError:
            return None

    def exists(self, name: str) -> bool:
        """Whether a file or folder is there."""
        try:
            return self.path(name).exists()
        except OSError:
            return False

    def names(self, name: str) -> list[str]:
        """The names in a folder, sorted, at most MOST_ENTRIES."""
        try:
            with os.scandir(self.path(name)) as entries:
                found = [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
        except OSError:
            return []
        return sorted(found)

    def output(self, *command: str) -> str | None:
        """What a command prints, on the real machine alone, within TIME_LIMIT_S."""
        program = shutil.which(command[0], path=self.variables.get("PATH")) if self.is_real else None
        if program is None:
            return None
        code, text, _ = run([program, *command[1:]], limit_s=TIME_LIMIT_S)
        return text if code == 0 else None


def run(
    command: list[str],
    *,
    folder: Path | None = None,
    limit_s: float,
    variables: Mapping[str, str] | None = None,
) -> tuple[int, str, str]:
    """Exit code and what a command printed and complained about, each bounded; code -1 where it did not start or end
    within the limit, and it is ended then. `variables` come on top of this process's own."""
    try:
        whole = {**os.environ, **(variables or {})}
        process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, env=whole, **_PIPES)
    except OSError as error:
        return -1, "", error.strerror or type(error).__name__
    with process:
        try:
            out, complaint = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return -1, "", f"{limit_s:g} s"
    return process.returncode, _decoded(out), _decoded(complaint)


_PIPES: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}


def _decoded(data: bytes) -> str:
    return data[:LARGEST].decode("utf-8", errors="replace")
