"""pyproject.toml for uv: explicit indexes, sources, the Python and the platform that were solved for."""

from __future__ import annotations

from raceline.present.errors import message
from raceline.present.text import render
from raceline.stack import facts
from raceline.stack.request import Pick, Solution
from raceline.stack.versions import at_least
from raceline.stack.writers.pins import (
    AFTER_TORCH,
    after_torch,
    in_torch_index,
    index_of_torch,
    is_rocm,
    label_of_torch,
    needs,
    requirement,
    why,
)

_SYSTEMS = {"linux": "linux", "windows": "win32", "macos": "darwin"}
_MACHINES = {("windows", "x86_64"): "AMD64", ("windows", "aarch64"): "ARM64", ("macos", "aarch64"): "arm64"}
# rule torch-rocm-triton: from Triton 3.6 on its build for ROCm has another name
_TRITON_ROCM = ("3.6", "triton-rocm", "pytorch-triton-rocm")


def write(solution: Solution, language: str) -> dict[str, str]:
    """A project that `uv sync` installs; builds of torch come from an index that serves them alone."""
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
    if (triton := _triton(solution)) is not None:
        source = facts.rules()["torch-rocm-triton"].source_url
        lines.append(f"    # {render(message('stack.file_triton_rocm'), language)} ({source})")
        lines.append(f'    "{triton}",')
    lines.append("]")
    lines += ["", "[tool.uv]", f'environments = ["{_environment(solution)}"]']
    lines += [*_builds(solution, language), *_index(solution)]
    return {"pyproject.toml": "\n".join(lines) + "\n"}


def _environment(solution: Solution) -> str:
    """The marker of the machine: wheels of other systems and processors are not looked for."""
    machine = solution.request.machine
    system = machine.os or "linux"
    marker = f"sys_platform == '{_SYSTEMS[system]}'"
    if machine.arch is None:
        return marker
    return f"{marker} and platform_machine == '{_MACHINES.get((system, machine.arch), machine.arch)}'"


def _triton(solution: Solution) -> str | None:
    """The Triton of a ROCm build, which only torch's index has: uv looks there for packages that are named."""
    torch = next((pick for pick in solution.picks if pick.package == "torch"), None)
    row = facts.release("torch", torch.version) if torch is not None and is_rocm(solution) else None
    if row is None or not row["triton_pin"]:
        return None
    first, name, before = _TRITON_ROCM
    return name if at_least(row["triton_pin"], first) else before


def _builds(solution: Solution, language: str) -> list[str]:
    """How uv builds what imports torch in its set-up: with the torch of the project."""
    picks = after_torch(solution)
    if not picks:
        return []
    names = ", ".join(pick.package for pick in picks)
    tools = '{ requirement = "torch", match-runtime = true }, "packaging", "psutil", "wheel", "ninja"'
    lines = ["", "# " + render(message("stack.file_built_with_torch", packages=names), language)]
    lines.append("[tool.uv.extra-build-dependencies]")
    lines += [f"{pick.package} = [{tools}]" for pick in picks]
    variables = {pick.package: AFTER_TORCH[pick.package] for pick in picks if AFTER_TORCH[pick.package]}
    if variables:
        lines += ["", "[tool.uv.extra-build-variables]"]
    for package, values in variables.items():
        table = ", ".join(f'{key} = "{value}"' for key, value in values.items())
        lines.append(f"{package} = {{ {table} }}")
    return lines


def _index(solution: Solution) -> list[str]:
    url, label = index_of_torch(solution), label_of_torch(solution)
    if url is None or label is None:
        return []
    name = f"pytorch-{label}"
    picks: list[Pick] = [pick for pick in solution.picks if in_torch_index(pick, solution)]
    family = [pick.package for pick in picks]
    if (triton := _triton(solution)) is not None:
        family.append(triton)
    lines = [
        "",
        "[[tool.uv.index]]",
        f'name = "{name}"',
        f'url = "{url}"',
        "explicit = true",
        "",
        "[tool.uv.sources]",
    ]
    return lines + [f'{package} = {{ index = "{name}" }}' for package in family]
