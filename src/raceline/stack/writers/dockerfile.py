"""A Dockerfile whose base is as small as the set allows: wheels bring their CUDA, so a CUDA image is needed only to
compile."""

from __future__ import annotations

from raceline.present.errors import InputError, message
from raceline.present.text import render
from raceline.stack.request import Solution
from raceline.stack.writers.pins import after_torch, index_of_torch, is_rocm, needs
from raceline.stack.writers.requirements import first_steps, variables
from raceline.stack.writers.requirements import write as write_requirements

# packages that compile with nvcc when they are installed or first used
COMPILE = frozenset({"deepspeed", "apex", "transformer-engine", "mamba-ssm", "causal-conv1d"})
_TOOLS = (
    "RUN apt-get purge -y 'cuda-compat-*' || true \\",
    " && rm -rf /usr/local/cuda*/compat /etc/ld.so.conf.d/*compat* \\",
    " && apt-get update \\",
    " && apt-get install -y --no-install-recommends build-essential ca-certificates curl \\",
    " && rm -rf /var/lib/apt/lists/* && ldconfig",
    "COPY --from=ghcr.io/astral-sh/uv:latest /uv /usr/local/bin/uv",
)


def write(solution: Solution, language: str) -> dict[str, str]:
    """Dockerfile and the requirements that it installs.

    Raises InputError for macOS, whose programs no container runs with a GPU.
    """
    if solution.request.machine.os == "macos":
        raise InputError("stack.no_container_for_macos", field="write")
    return {
        "Dockerfile": "\n".join(_lines(solution, language)) + "\n",
        "requirements.txt": write_requirements(solution, language)["requirements.txt"],
    }


def base_image(solution: Solution) -> str:
    """The image: Python's alone, or the CUDA development image of the set's CUDA where something compiles."""
    compiles = any(pick.package in COMPILE for pick in solution.picks)
    if compiles and solution.cuda is not None:
        cuda = solution.cuda if "." in solution.cuda else f"{solution.cuda}.0"
        return f"nvidia/cuda:{_patch(cuda)}-devel-ubuntu22.04"
    return f"python:{solution.python or '3.12'}-slim-bookworm"


def _patch(cuda: str) -> str:
    """The tag of a CUDA: images are named by the full version of a release (12.6.3, 13.0.1)."""
    from raceline.stack.limits import newest_update

    return newest_update(cuda)


def _lines(solution: Solution, language: str) -> list[str]:
    image = base_image(solution)
    is_cuda_image = image.startswith("nvidia/")
    lines = [f"# {line}" for line in needs(solution, language)]
    lines.append(
        "# " + render(message("stack.file_base_cuda" if is_cuda_image else "stack.file_base_plain"), language)
    )
    lines.append(f"FROM {image}")
    if is_cuda_image:
        lines += ["", "# " + render(message("stack.file_no_compat"), language), *_TOOLS]
    lines += ["", "RUN useradd --create-home app", "WORKDIR /home/app", "COPY --chown=app requirements.txt ."]
    lines += _install(solution, is_cuda_image)
    if solution.cuda:
        lines += [
            "",
            "# " + render(message("stack.file_runtime", floor=solution.driver_floor or "?"), language),
        ]
        lines += ["ENV NVIDIA_VISIBLE_DEVICES=all \\", "    NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
        lines += _required(solution, is_cuda_image, language)
    elif is_rocm(solution):
        lines += ["", "# " + render(message("stack.file_rocm_run"), language)]
    lines += ["", "COPY --chown=app . .", 'CMD ["python", "-c", "print(\'ready\')"]']
    return lines


def _required(solution: Solution, is_cuda_image: bool, language: str) -> list[str]:
    """The driver that the container runtime asks for before it starts: the floor of the set's CUDA major.

    CUDA images ask for their own minor, which refuses drivers that minor-version compatibility takes.
    """
    if not solution.driver_floor:
        return []
    text = "stack.file_require_image" if is_cuda_image else "stack.file_require"
    return [
        "# " + render(message(text), language),
        f'ENV NVIDIA_REQUIRE_CUDA="driver>={solution.driver_floor.split(".")[0]}"',
    ]


def _install(solution: Solution, is_cuda_image: bool) -> list[str]:
    """Commands that make the environment; the CUDA images' own Python is too old, so uv brings one."""
    venv = "/home/app/venv"
    if is_cuda_image:
        make = f"uv venv --python {solution.python} {venv}"
        install = f"uv pip install --no-cache --python {venv}/bin/python --index-strategy unsafe-best-match"
    else:
        make = f"python -m venv {venv}"
        install = f"{venv}/bin/pip install --no-cache-dir"
    steps = [make, *_first(solution, install)]
    late = after_torch(solution)
    words = [] if is_cuda_image else [*variables(solution)]
    words += [install, *(["--no-build-isolation"] if late else []), "-r requirements.txt"]
    steps.append(" ".join(words))
    if any(pick.package == "flash-attn" for pick in late):
        # a wheel that was not found would be made without kernels; this stops the build then
        steps.append(f"{venv}/bin/python -c 'import torch, flash_attn'")
    return ["USER app", "RUN " + " \\\n && ".join(steps), f'ENV PATH="{venv}/bin:$PATH"']


def _first(solution: Solution, install: str) -> list[str]:
    """Installs torch and the tools of a build, where a set-up imports them."""
    wanted = first_steps(solution)
    index = index_of_torch(solution)
    extra = f" --extra-index-url {index}" if index else ""
    return [f"{install}{extra} {' '.join(wanted)}"] if wanted else []
