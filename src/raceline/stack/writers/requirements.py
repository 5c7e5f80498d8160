"""requirements.txt: what pip and uv read."""

from __future__ import annotations

from raceline.stack.request import Solution
from raceline.stack.writers.pins import (
    in_torch_index,
    index_of_torch,
    label_of_torch,
    needs,
    requirement,
    why,
)


def write(solution: Solution, language: str) -> dict[str, str]:
    """One pin a line under the comment that says why; builds of torch by label, their index as an extra one."""
    lines = [f"# {line}" for line in needs(solution, language)]
    index, label = index_of_torch(solution), label_of_torch(solution)
    if index is not None:
        lines.append(f"--extra-index-url {index}")
    for pick in solution.picks:
        text = requirement(pick)
        if in_torch_index(pick, solution) and pick.version:
            text = f"{text}+{label}"
        lines += ["", f"# {why(pick, language)}", text]
    if solution.rest:
        lines += ["", *(f"{pick.package}=={pick.version}" for pick in solution.rest)]
    return {"requirements.txt": "\n".join(lines) + "\n"}
