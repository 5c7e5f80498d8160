"""What the chosen frameworks need beside them, filled in by uv where it is installed, and the result judged again."""

from __future__ import annotations

import re
import shutil
import tempfile
from pathlib import Path
from typing import TypeGuard

import msgspec
from packaging.version import Version

from raceline.measure.environment import Distribution
from raceline.measure.root import run
from raceline.present.errors import Message, message
from raceline.stack import facts
from raceline.stack.request import Pick, Solution
from raceline.stack.told import Told
from raceline.stack.versions import parse

TIME_LIMIT_S = 60
USUAL_GLIBC = Version("2.28")
QUIET = ("--no-header", "--no-annotate", "--quiet", "--no-python-downloads", "--color", "never")
_LINE = re.compile(r"([A-Za-z0-9][\w.-]{0,80})==([\w.!]{1,60})(?:\+([\w.]{1,60}))?")
_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-manylinux", ("linux", "aarch64"): "aarch64-manylinux",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc",
    ("macos", "arm64"): "aarch64-apple-darwin", ("macos", "x86_64"): "x86_64-apple-darwin",
}  # fmt: skip


def requirement_lines(solution: Solution) -> list[str]:
    """The picks as requirements, without builds that are in other indexes."""
    return [_line(pick) for pick in solution.picks]


def _line(pick: Pick) -> str:
    extras = f"[{','.join(pick.extras)}]" if pick.extras else ""
    return f"{pick.package}{extras}=={pick.version}" if pick.version else f"{pick.package}{extras}"


def filled(solution: Solution, uv: str | None = None) -> Solution:
    """The solution with all that its packages need, by ``uv pip compile``; as it was with a note where that fails."""
    program = uv or shutil.which("uv")
    if solution.conflict is not None or not solution.picks:
        return solution
    if program is None:
        return _partial(solution, message("stack.no_uv"))
    if any(pick.index_url for pick in solution.picks):
        return _partial(solution, message("stack.other_index"))
    done, text = _compile(program, solution)
    if not done:
        return _partial(solution, message("stack.uv_failed", reason=text))
    rest = tuple(_rest(text, solution))
    whole = msgspec.structs.replace(solution, rest=rest, is_complete=True)
    clash = _clash(whole)
    return (
        whole
        if clash is None
        else msgspec.structs.replace(whole, is_complete=False, notes=(*whole.notes, clash))
    )


def _partial(solution: Solution, note: Message) -> Solution:
    return msgspec.structs.replace(solution, notes=(*solution.notes, note))


def _compile(program: str, solution: Solution) -> tuple[bool, str]:
    platform = platform_of(solution)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.in").write_text(
            "\n".join(requirement_lines(solution)) + "\n", encoding="utf-8"
        )
        command = [
            program,
            "pip",
            "compile",
            "requirements.in",
            *QUIET,
            "--no-build",
            "--python-version",
            solution.python or "3.12",
        ]
        command += ["--python-platform", platform] if platform else []
        code, text, complaint = run(command, folder=folder, limit_s=TIME_LIMIT_S)
    return code == 0, text if code == 0 else _reason(complaint)


def platform_of(solution: Solution) -> str | None:
    """uv's name of the platform; on Linux with the C library that is known, else the one that the set needs."""
    machine = solution.request.machine
    name = _PLATFORMS.get((machine.os or "linux", machine.arch or "x86_64"))
    if name is None or machine.os not in (None, "linux"):
        return name
    glibc = machine.glibc if _is_known_glibc(machine.glibc) else glibc_floor(solution)
    return f"{name}_{glibc.replace('.', '_')}"


def glibc_floor(solution: Solution) -> str:
    """The newest C library that a pick's wheel asks for, at least the usual 2.28."""
    arch = "aarch64" if solution.request.machine.arch in ("aarch64", "arm64") else "x86_64"
    rows = [facts.release(pick.package, pick.version) for pick in solution.picks]
    floors = [parse(row.get(f"glibc_min_{arch}")) for row in rows if row is not None]
    return str(max([item for item in floors if item is not None] + [USUAL_GLIBC]))


def _is_known_glibc(glibc: str | None) -> TypeGuard[str]:
    return glibc is not None and glibc.startswith("2.") and 17 <= int(glibc.split(".")[1]) <= 40


def _reason(text: str) -> str:
    lines = [line.strip(" ×╰─▶├│") for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:300]


def _rest(text: str, solution: Solution) -> list[Pick]:
    chosen = {pick.package for pick in solution.picks}
    found = []
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is not None and (name := re.sub(r"[-_.]+", "-", match[1].lower())) not in chosen:
            found.append(Pick(name, match[2], match[3]))
    return found


def told_of(solution: Solution) -> Told:
    """The solution as a stack that rules can judge: its packages on its machine."""
    machine = solution.request.machine
    packages = tuple(
        Distribution(
            pick.package, pick.version or None, pick.label if pick.package == "torch" else None, "pip"
        )
        for pick in (*solution.picks, *solution.rest)
    )
    return Told(environment=msgspec.structs.replace(machine, python=solution.python, distributions=packages))


def _clash(solution: Solution) -> Message | None:
    """What the rules find in the filled set: two CUDA majors that own the same files, which uv accepts."""
    from raceline.stack.check import check

    broken = next((item for item in check(told_of(solution)).findings if item.verdict == "will_fail"), None)
    return None if broken is None else message("stack.filled_clash", finding=broken.text)
