"""What the chosen frameworks need beside them, filled in by uv where it is installed, and the result judged again."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from raceline.measure.environment import Distribution
from raceline.measure.root import run
from raceline.present.errors import Message, message
from raceline.stack.request import Pick, Solution, StackRequest
from raceline.stack.solver.floors import USUAL_GLIBC, highest
from raceline.stack.told import Requirement, Told
from raceline.stack.versions import at_least

TIME_LIMIT_S = 60
QUIET = ("--no-header", "--no-annotate", "--quiet", "--no-python-downloads", "--color", "never")
MANYLINUX = ("2.17", USUAL_GLIBC, "2.40")  # the oldest, usual and newest C library that uv has a platform for
_LINE = re.compile(r"([A-Za-z0-9][\w.-]{0,80})==([\w.!]{1,60})(?:\+([\w.]{1,60}))?")
_NO_WHEEL = re.compile(r"[Bb]ecause ([a-z0-9-]{1,80})\S{0,60} has no (?:usable )?wheels?(?! with)")
_SOURCES = ("deepspeed", "flash-attn")  # what the package index has of these is a source archive
_USUAL_MACOS = "14.0"  # rule mps-macos: wheels of torch 2.12 and newer are tagged so
_CUDA_WHEEL = re.compile(r"nvidia-(?:cudnn|nccl)-cu(\d{2})")
_PLATFORMS = {
    ("linux", "x86_64"): "x86_64-manylinux", ("linux", "aarch64"): "aarch64-manylinux",
    ("windows", "x86_64"): "x86_64-pc-windows-msvc", ("macos", "arm64"): "aarch64-apple-darwin",
    ("macos", "x86_64"): "x86_64-apple-darwin",
}  # fmt: skip
Solve = Callable[[StackRequest], Solution | None]


def requirement_lines(solution: Solution) -> list[str]:
    """The picks as requirements, without the labels of builds that are in other indexes."""
    from raceline.stack.writers.pins import requirement

    return [requirement(pick) for pick in solution.picks]


def filled(solution: Solution, uv: str | None = None, solve: Solve | None = None) -> Solution:
    """The solution with all that its packages need, by ``uv pip compile``; as it was with a note where that fails.

    Where the filled set has wheels of two CUDA majors, which uv accepts, it is solved again on the other one.
    """
    program = uv or shutil.which("uv")
    if solution.conflict is not None or not solution.picks:
        return solution
    if program is None:
        return _noted(solution, message("stack.no_uv"))
    whole, failed = _filled(program, solution)
    if failed is not None:
        return _noted(solution, failed)
    clash = _clash(whole)
    if clash is None:
        return whole
    for major in sorted(cuda_majors(whole) - {_major(whole)}, reverse=True):
        again = solve(msgspec.structs.replace(solution.request, cuda_major=major)) if solve else None
        other, failed = _filled(program, again) if again is not None else (whole, clash)
        if failed is None and _clash(other) is None:
            return _noted(other, message("stack.solved_again", cuda=major))
    return _noted(msgspec.structs.replace(whole, is_complete=False), clash)


def _noted(solution: Solution, note: Message) -> Solution:
    return msgspec.structs.replace(solution, notes=(*solution.notes, note))


def _filled(program: str, solution: Solution) -> tuple[Solution, Message | None]:
    """The filled solution, or why it can't be. A package without a wheel is left out: nothing is built here."""
    left_out = [pick.package for pick in solution.picks if pick.package in _SOURCES]
    while True:
        code, text, complaint = _compiled(program, solution, left_out)
        if code == 0:
            break
        name = _without_wheel(complaint, solution)
        if name is None or name in left_out:
            return solution, message("stack.uv_failed", reason=_reason(complaint))
        left_out.append(name)
    whole = _with_rest(text, solution)
    if not left_out:
        return whole, None
    note = message("stack.no_wheel", packages=", ".join(left_out))
    return msgspec.structs.replace(_noted(whole, note), is_complete=False), None


def _compiled(program: str, solution: Solution, left_out: list[str]) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "requirements.in").write_text(
            "\n".join(_input(solution, left_out)) + "\n", encoding="utf-8"
        )
        variables = {"UV_PYTHON_DOWNLOADS": "never"}
        if solution.request.machine.os == "macos":
            variables["MACOSX_DEPLOYMENT_TARGET"] = solution.request.machine.os_version or _USUAL_MACOS
        line = command(program, solution)
        return run(line, folder=folder, limit_s=TIME_LIMIT_S, variables=variables)


def _without_wheel(complaint: str, solution: Solution) -> str | None:
    match = _NO_WHEEL.search(" ".join(complaint.split()))
    return match[1] if match and any(pick.package == match[1] for pick in solution.picks) else None


def command(program: str, solution: Solution) -> list[str]:
    """The call of uv for ``requirements.in`` in its folder."""
    line = [program, "pip", "compile", "requirements.in", *QUIET, "--no-build"]
    line += ["--python-version", solution.python or "3.12"]
    platform = platform_of(solution)
    line += ["--python-platform", platform] if platform else []
    return [*line, "--index-strategy", "unsafe-best-match"] if _indexes(solution) else line


def _indexes(solution: Solution) -> list[str]:
    return list(dict.fromkeys(pick.index_url for pick in solution.picks if pick.index_url))


def _input(solution: Solution, left_out: list[str]) -> list[str]:
    lines = [f"--extra-index-url {address}" for address in _indexes(solution)]
    for pick, line in zip(solution.picks, requirement_lines(solution), strict=True):
        if pick.package in left_out:
            continue
        lines.append(f"{line}+{pick.label}" if pick.index_url and pick.label else line)
    return lines


def platform_of(solution: Solution) -> str | None:
    """uv's name of the platform; on Linux with the C library that is known, else the one that the set needs."""
    machine = solution.request.machine
    arch = machine.arch or ("arm64" if machine.os == "macos" else "x86_64")
    name = _PLATFORMS.get((machine.os or "linux", arch))
    if name is None or machine.os not in (None, "linux"):
        return name
    oldest, usual, newest = MANYLINUX
    glibc = machine.glibc if at_least(machine.glibc, oldest) else highest((usual, solution.glibc_floor))
    return f"{name}_{(newest if at_least(glibc, newest) else glibc or usual).replace('.', '_')}"


def _reason(text: str) -> str:
    lines = [line.strip(" ×╰─▶├│") for line in text.splitlines() if line.strip()]
    return " ".join(lines)[:300]


def _with_rest(text: str, solution: Solution) -> Solution:
    """The solution with the versions that uv chose: of the rest, and of picks that were left to it."""
    chosen = {pick.package: pick for pick in solution.picks}
    rest = []
    for line in text.splitlines():
        match = _LINE.match(line.strip())
        if match is None:
            continue
        name = re.sub(r"[-_.]+", "-", match[1].lower())
        pick = chosen.get(name)
        if pick is None:
            rest.append(Pick(name, match[2], match[3]))
        elif pick.bounds or not pick.version:
            chosen[name] = msgspec.structs.replace(pick, version=match[2], bounds="", asked="")
    return msgspec.structs.replace(solution, picks=tuple(chosen.values()), rest=tuple(rest), is_complete=True)


def cuda_majors(solution: Solution) -> set[int]:
    """The CUDA majors whose cuDNN or NCCL wheels are in the set."""
    return {
        int(match[1])
        for pick in (*solution.picks, *solution.rest)
        if (match := _CUDA_WHEEL.fullmatch(pick.package)) is not None
    }


def _major(solution: Solution) -> int | None:
    return int(solution.cuda.split(".")[0]) if solution.cuda else None


def solution_told(solution: Solution) -> Told:
    """The solution as a stack that rules can judge: its packages on its machine."""
    packages = tuple(_installed(pick) for pick in (*solution.picks, *solution.rest))
    asked = tuple(
        Requirement(pick.package, f"=={pick.version}" if pick.version else "", extras=pick.extras)
        for pick in solution.picks
        if pick.extras
    )
    machine = msgspec.structs.replace(
        solution.request.machine, python=solution.python, distributions=packages
    )
    return Told(environment=machine, requirements=asked)


def _installed(pick: Pick) -> Distribution:
    # the labels of other packages name an extra or what their one wheel is of
    label = pick.label if pick.package == "torch" else None
    return Distribution(pick.package, pick.version or None, label, "pip")


def _clash(solution: Solution) -> Message | None:
    """What the rules find in the filled set: two CUDA majors that own the same files, which uv accepts."""
    from raceline.stack.check import check

    broken = next(
        (item for item in check(solution_told(solution)).findings if item.verdict == "will_fail"), None
    )
    return None if broken is None else message("stack.filled_clash", finding=broken.text)
