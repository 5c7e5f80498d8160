"""environment.yml: conda-forge's builds, held to one CUDA by cuda-version; what conda has not comes from pip."""

from __future__ import annotations

from raceline.present.errors import InputError, message
from raceline.present.text import render
from raceline.stack.request import Pick, Solution
from raceline.stack.writers.pins import index_of_torch, is_rocm, needs, pinned, why

# conda-forge's names of packages that it builds with and without a GPU
NAMES = {
    "torch": "pytorch",
    "torchvision": "torchvision",
    "torchaudio": "torchaudio",
    "tensorflow": "tensorflow",
    "tensorflow-cpu": "tensorflow",
    "jax": "jax",
    "numpy": "numpy",
    "onnxruntime": "onnxruntime",
    "triton": "triton",
    "deepspeed": "deepspeed",
    "bitsandbytes": "bitsandbytes",
    "xformers": "xformers",
    "protobuf": "protobuf",
    "flash-attn": "flash-attn",
    "vllm": "vllm",
}
# their builds for a GPU and without one, by the start of the build's name, as the recipes of conda-forge name them
_BY_BUILD = frozenset({"torch", "tensorflow", "tensorflow-cpu"})


def write(solution: Solution, language: str) -> dict[str, str]:
    """An environment file; with a GPU, `cuda-version` keeps every package on one CUDA major.

    Raises InputError for AMD's GPUs: conda-forge would put a CPU build in silently.
    """
    refuse_rocm(solution)
    lines = [f"# {line}" for line in (*needs(solution, language), *remarks(solution, language))]
    lines += ["name: my-project", "channels:", "  - conda-forge", "dependencies:"]
    lines.append(f"  - python={solution.python or '3.12'}.*")
    if solution.cuda:
        text = render(message("stack.file_cuda_version", cuda=whole(solution.cuda)), language)
        lines += [f"  # {text}", f"  - cuda-version={whole(solution.cuda)}.*"]
    for pick in solution.picks:
        if pick.package not in NAMES:
            continue
        lines += [f"  # {why(pick, language)}", f"  - {conda_spec(pick, solution)}"]
        if pick.package == "jax" and solution.cuda:
            lines.append("  - jaxlib=*=cuda*")
    lines += _pip([pick for pick in solution.picks if pick.package not in NAMES], solution, language)
    return {"environment.yml": "\n".join(lines) + "\n"}


def remarks(solution: Solution, language: str) -> list[str]:
    """What a user of conda-forge must know: it lags, and it looks for a driver when it makes the environment."""
    found = [render(message("stack.file_conda_lags"), language)]
    if solution.cuda:
        command = f"CONDA_OVERRIDE_CUDA={whole(solution.cuda)}.0"
        found.append(render(message("stack.file_conda_override", command=command), language))
    return found


def whole(cuda: str) -> str:
    """The major of a CUDA: conda-forge builds for few minors, and within a major any of them runs."""
    return cuda.split(".")[0]


def refuse_rocm(solution: Solution) -> None:
    """Raises InputError for AMD's GPUs, for which conda-forge builds no framework."""
    if is_rocm(solution):
        raise InputError("stack.no_rocm_in_conda", field="write")


def conda_spec(pick: Pick, solution: Solution) -> str:
    """conda's match of a pick; a GPU build is named, so that conda can't fall back to a CPU build."""
    if not pick.version:
        return NAMES[pick.package]
    build = build_of(pick, solution)
    return f"{NAMES[pick.package]}={pick.version}" + (f"={build}" if build else "")


def build_of(pick: Pick, solution: Solution) -> str | None:
    """The pattern of conda-forge's builds that a pick means, where it has several."""
    if pick.package not in _BY_BUILD:
        return None
    if pick.label == "cpu" or pick.package == "tensorflow-cpu":
        return "cpu*"
    return "cuda*" if solution.cuda else None


def _pip(picks: list[Pick], solution: Solution, language: str) -> list[str]:
    if not picks:
        return []
    lines = ["  - pip", "  - pip:"]
    if (index := index_of_torch(solution)) is not None:
        lines.append(f"      - --extra-index-url {index}")
    for pick in picks:
        lines += [f"      # {why(pick, language)}", f"      - {pinned(pick, solution)}"]
    return lines
