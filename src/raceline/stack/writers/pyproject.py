"""pyproject.toml for uv: explicit indexes, sources, the Python and the platform that were solved for."""

from __future__ import annotations

from raceline.stack.request import Pick, Solution
from raceline.stack.writers.pins import (
    in_torch_index,
    index_of_torch,
    label_of_torch,
    needs,
    requirement,
    why,
)

_SYSTEMS = {"linux": "linux", "windows": "win32", "macos": "darwin"}


def write(solution: Solution, language: str) -> dict[str, str]:
    """A project that `uv sync` installs; builds of torch come from an index that serves them alone."""
    machine = solution.request.machine
    python = solution.python or "3.12"
    major, minor = python.split(".")[:2]
    lines = [f"# {line}" for line in needs(solution, language)]
    lines += [
        "[project]",
        'name = "my-project"',
        'version = "0.1.0"',
        f'requires-python = ">={python},<{major}.{int(minor) + 1}"',
    ]
    lines.append("dependencies = [")
    for pick in solution.picks:
        lines += [f"    # {why(pick, language)}", f'    "{requirement(pick)}",']
    lines.append("]")
    lines += ["", "[tool.uv]", f"environments = [\"sys_platform == '{_SYSTEMS[machine.os or 'linux']}'\"]"]
    lines += _index(solution)
    return {"pyproject.toml": "\n".join(lines) + "\n"}


def _index(solution: Solution) -> list[str]:
    url, label = index_of_torch(solution), label_of_torch(solution)
    if url is None or label is None:
        return []
    name = f"pytorch-{label}"
    family: list[Pick] = [pick for pick in solution.picks if in_torch_index(pick, solution)]
    lines = [
        "",
        "[[tool.uv.index]]",
        f'name = "{name}"',
        f'url = "{url}"',
        "explicit = true",
        "",
        "[tool.uv.sources]",
    ]
    return lines + [f'{pick.package} = {{ index = "{name}" }}' for pick in family]
