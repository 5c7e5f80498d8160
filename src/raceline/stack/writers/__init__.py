"""Writers that turn a solution into files. A writer is a function of a solution and a language that gives file names
and texts; its module is named in WRITERS. Every pin says why it is that version."""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from raceline.present.errors import InputError
from raceline.stack.request import Solution

Writer = Callable[[Solution, str], dict[str, str]]

# kind -> module:function
WRITERS: Mapping[str, str] = {
    "requirements": "raceline.stack.writers.requirements:write",
    "pylock": "raceline.stack.writers.pylock:write",
    "pyproject-uv": "raceline.stack.writers.pyproject:write",
    "conda": "raceline.stack.writers.conda:write",
    "pixi": "raceline.stack.writers.pixi:write",
    "dockerfile": "raceline.stack.writers.dockerfile:write",
    "devcontainer": "raceline.stack.writers.devcontainer:write",
}


def write(solution: Solution, kind: str, language: str = "en") -> dict[str, str]:
    """The files of a kind by name. Raises InputError for an unknown kind, a conflict, or a kind that can't say it."""
    if kind not in WRITERS:
        raise InputError("stack.unknown_writer", field="write", given=kind[:40], known=", ".join(WRITERS))
    if solution.conflict is not None:
        raise InputError("stack.nothing_to_write", field="write")
    module, _, name = WRITERS[kind].partition(":")
    writer: Writer = getattr(importlib.import_module(module), name)
    return writer(solution, language)


def write_files(folder: Path, files: Mapping[str, str], *, force: bool = False) -> tuple[Path, ...]:
    """Write files into a folder, all or none: nothing is written over without `force`, nothing half-written.

    Raises InputError where a file is there already or can't be written.
    """
    targets = {folder / name: text for name, text in files.items()}
    there = next((path for path in targets if path.exists()), None)
    if there is not None and not force:
        raise InputError("stack.file_exists", field="to", path=str(there))
    made: list[tuple[Path, Path]] = []
    try:
        for path, text in targets.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(0o644)
            made.append((Path(temporary), path))
        for source, path in made:
            source.replace(path)
    except OSError as error:
        for source, _ in made:
            source.unlink(missing_ok=True)
        raise InputError(
            "stack.cannot_write", field="to", path=str(folder), reason=error.strerror or ""
        ) from None
    return tuple(targets)
