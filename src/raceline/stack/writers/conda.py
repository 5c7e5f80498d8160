"""environment.yml: conda-forge's builds, held to one CUDA by cuda-version; what conda has not comes from pip."""

from __future__ import annotations

from raceline.present.errors import message
from raceline.present.text import render
from raceline.stack.request import Pick, Solution
from raceline.stack.writers.pins import index_of_torch, needs, requirement, why

# conda-forge's names of packages that it builds with and without a GPU
NAMES = {
    "torch": "pytorch",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "triton": "triton",
    "deepspeed": "deepspeed",
    "bitsandbytes": "bitsandbytes",
    "xformers": "xformers",
    "protobuf": "protobuf",
}


def write(solution: Solution, language: str) -> dict[str, str]:
    """An environment file; with a GPU, `cuda-version` keeps every package on one CUDA."""
    lines = [f"# {line}" for line in needs(solution, language)]
    lines.append("# " + render(message("stack.file_conda_lags"), language))
    lines += [
        "name: my-project",
        "channels:",
        "  - conda-forge",
        "dependencies:",
        f"  - python={solution.python or '3.12'}.*",
    ]
    if solution.cuda:
        lines += [
            "  # " + render(message("stack.file_cuda_version", cuda=solution.cuda), language),
            f"  - cuda-version={_minor(solution.cuda)}",
        ]
    conda = [pick for pick in solution.picks if pick.package in NAMES]
    pip = [pick for pick in solution.picks if pick.package not in NAMES]
    for pick in conda:
        lines += [f"  # {why(pick, language)}", f"  - {conda_spec(pick, solution)}"]
    lines += _pip(pip, solution, language)
    return {"environment.yml": "\n".join(lines) + "\n"}


def conda_spec(pick: Pick, solution: Solution) -> str:
    """conda's match of a pick; a GPU build of torch is named, so that conda can't fall back to a CPU build."""
    build = (
        "=cuda*"
        if pick.package == "torch" and solution.cuda
        else "=cpu*"
        if pick.package == "torch" and pick.label == "cpu"
        else ""
    )
    if not pick.version:
        return NAMES[pick.package]
    return f"{NAMES[pick.package]}={pick.version}{build}"


def _minor(cuda: str) -> str:
    return cuda if "." in cuda else f"{cuda}.*"


def _pip(picks: list[Pick], solution: Solution, language: str) -> list[str]:
    if not picks:
        return []
    lines = ["  - pip", "  - pip:"]
    if (index := index_of_torch(solution)) is not None:
        lines.append(f"      - --extra-index-url {index}")
    for pick in picks:
        lines += [f"      # {why(pick, language)}", f"      - {requirement(pick)}"]
    return lines
