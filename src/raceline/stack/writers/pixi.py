"""pixi.toml: conda-forge's builds with the CUDA that the system must have."""

from __future__ import annotations

from raceline.stack.request import Solution
from raceline.stack.writers.conda import NAMES, build_of, refuse_rocm, remarks, whole
from raceline.stack.writers.pins import index_of_torch, needs, why

_PLATFORMS = {
    ("linux", "x86_64"): "linux-64", ("linux", "aarch64"): "linux-aarch64", ("windows", "x86_64"): "win-64",
    ("macos", "arm64"): "osx-arm64", ("macos", "x86_64"): "osx-64",
}  # fmt: skip


def write(solution: Solution, language: str) -> dict[str, str]:
    """A workspace for pixi; packages that conda-forge does not build stand under `pypi-dependencies`.

    Raises InputError for AMD's GPUs.
    """
    refuse_rocm(solution)
    machine = solution.request.machine
    platform = _PLATFORMS.get((machine.os or "linux", machine.arch or "x86_64"), "linux-64")
    lines = [f"# {line}" for line in (*needs(solution, language), *remarks(solution, language))]
    lines += [
        "[workspace]",
        'name = "my-project"',
        'channels = ["conda-forge"]',
        f'platforms = ["{platform}"]',
    ]
    if solution.cuda:
        lines += ["", "[system-requirements]", f'cuda = "{whole(solution.cuda)}"']
    lines += ["", "[dependencies]", f'python = "{solution.python or "3.12"}.*"']
    if solution.cuda:
        lines.append(f'cuda-version = "{whole(solution.cuda)}.*"')
    for pick in solution.picks:
        if pick.package in NAMES:
            lines += [
                f"# {why(pick, language)}",
                _conda(NAMES[pick.package], pick.version, build_of(pick, solution)),
            ]
            if pick.package == "jax" and solution.cuda:
                lines.append(_conda("jaxlib", "", "cuda*"))
    pip = [pick for pick in solution.picks if pick.package not in NAMES]
    if pip:
        lines += ["", "[pypi-dependencies]"]
    for pick in pip:
        extras = (
            f", extras = [{', '.join(repr(item) for item in pick.extras)}]".replace("'", '"')
            if pick.extras
            else ""
        )
        version = f"=={pick.version}" if pick.version else "*"
        lines += [f"# {why(pick, language)}", f'{pick.package} = {{ version = "{version}"{extras} }}']
    if pip and (index := index_of_torch(solution)) is not None:
        lines += ["", "[pypi-options]", f'extra-index-urls = ["{index}"]']
    return {"pixi.toml": "\n".join(lines) + "\n"}


def _conda(name: str, version: str, build: str | None) -> str:
    wanted = f"=={version}" if version else "*"
    return f'{name} = {{ version = "{wanted}", build = "{build}" }}' if build else f'{name} = "{wanted}"'
