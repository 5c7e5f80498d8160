"""pylock.toml (PEP 751): a lock needs addresses and hashes, which uv reads from the index."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from raceline.measure.root import run
from raceline.present.errors import InputError
from raceline.stack.request import Solution
from raceline.stack.solver.fill import QUIET, TIME_LIMIT_S, platform_of
from raceline.stack.writers.pins import index_of_torch, needs, why
from raceline.stack.writers.requirements import write as write_requirements


def write(solution: Solution, language: str) -> dict[str, str]:
    """The lock as uv makes it from the pins, headed by the reasons.

    Raises InputError where uv is not installed or can't lock the set.
    """
    program = shutil.which("uv")
    if program is None:
        raise InputError("stack.pylock_needs_uv", field="write")
    head = [
        f"# {line}"
        for line in (
            *needs(solution, language),
            *(f"{pick.package}: {why(pick, language)}" for pick in solution.picks),
        )
    ]
    return {"pylock.toml": "\n".join(head) + "\n" + _locked(program, solution, language)}


def _locked(program: str, solution: Solution, language: str) -> str:
    pins = write_requirements(solution, language)["requirements.txt"]
    command = [
        program,
        "pip",
        "compile",
        "requirements.in",
        "--format",
        "pylock.toml",
        "-o",
        "pylock.toml",
        *QUIET,
    ]
    command += ["--python-version", solution.python or "3.12"]
    if (platform := platform_of(solution)) is not None:
        command += ["--python-platform", platform]
    if index_of_torch(solution) is not None:
        command += ["--index-strategy", "unsafe-best-match"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.in").write_text(pins, encoding="utf-8")
        code, _, complaint = run(command, folder=folder, limit_s=TIME_LIMIT_S * 3)
        if code != 0:
            raise InputError("stack.uv_failed", field="write", reason=" ".join(complaint.split())[:300])
        return (folder / "pylock.toml").read_text(encoding="utf-8")
