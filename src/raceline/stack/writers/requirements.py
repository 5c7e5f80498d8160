"""requirements.txt: what pip and uv read."""

from __future__ import annotations

from raceline.present.errors import message
from raceline.present.text import render
from raceline.stack.request import Solution
from raceline.stack.writers.pins import (
    AFTER_TORCH,
    BUILD_TOOLS,
    after_torch,
    index_of_torch,
    needs,
    pinned,
    why,
)


def write(solution: Solution, language: str) -> dict[str, str]:
    """One pin a line under the comment that says why; builds of torch by label, their index as an extra one."""
    lines = [f"# {line}" for line in (*needs(solution, language), *_commands(solution, language))]
    index = index_of_torch(solution)
    if index is not None:
        lines.append(f"--extra-index-url {index}")
    for pick in solution.picks:
        lines += ["", f"# {why(pick, language)}", pinned(pick, solution)]
    if solution.rest:
        lines += ["", *(f"{pick.package}=={pick.version}" for pick in solution.rest)]
    return {"requirements.txt": "\n".join(lines) + "\n"}


def first_steps(solution: Solution) -> tuple[str, ...]:
    """What is installed before the packages whose set-up imports torch: torch and the tools of their build."""
    torch = tuple(pinned(pick, solution) for pick in solution.picks if pick.package == "torch")
    return (*BUILD_TOOLS, *torch) if after_torch(solution) else ()


def variables(solution: Solution) -> tuple[str, ...]:
    """What is set while they install."""
    found = {key: value for pick in after_torch(solution) for key, value in AFTER_TORCH[pick.package].items()}
    return tuple(f"{key}={value}" for key, value in found.items())


def _commands(solution: Solution, language: str) -> list[str]:
    """How the file is installed, where ``pip install -r`` alone does not do it."""
    lines = []
    if index_of_torch(solution) is not None:
        # uv stops at the first index that has a package; torch's index has old releases of many others
        command = "uv pip install --index-strategy unsafe-best-match -r requirements.txt"
        lines.append(render(message("stack.file_with_uv", command=command), language))
    if after_torch(solution):
        names = ", ".join(pick.package for pick in after_torch(solution))
        first = " ".join(first_steps(solution))
        then = " ".join((*variables(solution), "pip install --no-build-isolation -r requirements.txt"))
        lines.append(render(message("stack.file_after_torch", packages=names, first=first), language))
        lines.append(render(message("stack.file_then", command=then), language))
    return lines
