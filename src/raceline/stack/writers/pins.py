"""What every writer says of a pick: its requirement, its reason, its source."""

from __future__ import annotations

from collections.abc import Mapping

from raceline.present.errors import message
from raceline.present.text import render
from raceline.stack.request import Pick, Solution

TORCH_FAMILY = ("torch", "torchvision", "torchaudio")
# rule flash-attn-build: their set-up imports torch, so they install after it and without an environment of their own;
# the variables keep the set-up from asking for nvcc before it fetches a wheel that is built already
AFTER_TORCH: Mapping[str, Mapping[str, str]] = {
    "flash-attn": {"FLASH_ATTENTION_SKIP_CUDA_BUILD": "TRUE"},
    "mamba-ssm": {},
    "causal-conv1d": {},
    "transformer-engine": {},
}
BUILD_TOOLS = ("setuptools", "wheel", "packaging", "psutil", "ninja")


def requirement(pick: Pick) -> str:
    """``torch==2.13.0``, ``jax[cuda12]==0.10.2``; a package of unknown version as it was asked for, one that nobody
    asked for within what the others need of it."""
    extras = f"[{','.join(pick.extras)}]" if pick.extras else ""
    bounds = pick.bounds or (f"=={pick.version}" if pick.version else pick.asked)
    return f"{pick.package}{extras}{bounds}"


def pinned(pick: Pick, solution: Solution) -> str:
    """The requirement with the label of torch's build, where that is in an index of its own."""
    text = requirement(pick)
    return f"{text}+{label_of_torch(solution)}" if in_torch_index(pick, solution) and pick.version else text


def after_torch(solution: Solution) -> tuple[Pick, ...]:
    """The picks that install once torch is there."""
    return tuple(pick for pick in solution.picks if pick.package in AFTER_TORCH)


def is_rocm(solution: Solution) -> bool:
    """Whether some pick is a build for AMD's GPUs."""
    return any((pick.label or "").startswith("rocm") for pick in solution.picks)


def why(pick: Pick, language: str) -> str:
    """The reasons in one line, with the first source."""
    reasons = "; ".join(" ".join(render(item, language).split()) for item in pick.reasons)
    source = next((fact.source_url.split()[0] for fact in pick.facts if fact.source_url), "")
    return " ".join(part for part in (reasons, f"({source})" if source else "") if part)


def needs(solution: Solution, language: str) -> list[str]:
    """What the set needs of a machine, as comment lines without their mark."""
    lines = [render(message("stack.file_python", python=solution.python or "?"), language)]
    if solution.cuda and solution.driver_floor:
        lines.append(
            render(message("stack.file_driver", cuda=solution.cuda, floor=solution.driver_floor), language)
        )
    lines.extend(render(note, language) for note in solution.notes)
    return lines


def label_of_torch(solution: Solution) -> str | None:
    """The build of torch where it is in an index of its own."""
    return next((pick.label for pick in solution.picks if pick.package == "torch" and pick.index_url), None)


def index_of_torch(solution: Solution) -> str | None:
    """The index of torch's build, where it is not the default one."""
    return next(
        (pick.index_url for pick in solution.picks if pick.package == "torch" and pick.index_url), None
    )


def in_torch_index(pick: Pick, solution: Solution) -> bool:
    """Whether a pick comes from the index of torch's build: torch itself and what is built with it."""
    return index_of_torch(solution) is not None and pick.package in TORCH_FAMILY
