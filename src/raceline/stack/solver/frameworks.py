"""The frameworks: every release in every build that the tables know, with its CUDA, cuDNN, NCCL and NumPy."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.builds import Build, torch_builds
from raceline.stack.facts import Row
from raceline.stack.fixes import is_usual, runs
from raceline.stack.solver.choices import (
    CUDA,
    CUDNN,
    NCCL,
    PYTHON,
    RUNTIME,
    Candidate,
    Need,
    Target,
    base,
    fits,
    glibc_of,
    pythons_of,
)  # fmt: skip
from raceline.stack.versions import at_least, major, parse

JAX_LABELS = ("cuda12", "cuda13", "rocm7-local", "tpu")
_FIRST_WITH_PINS = "1.13"  # torch before it carries its CUDA libraries inside the wheel
_TORCH_LABEL = re.compile(r"cu\d|rocm|cpu")


def torch(target: Target) -> Iterator[Candidate]:
    """Builds of torch that run on the machine."""
    machine = target.machine
    for build in torch_builds(machine.os or "linux", arch_of(machine)):
        row = build.row
        if row is None or not _is_wanted(build, target) or not fits(row, target):
            continue
        pythons = pythons_of(row, target)
        is_sure = runs(build, machine)
        if not pythons or not (is_sure or (build.cuda is not None and runs(build, machine, is_strict=False))):
            continue
        if machine.os == "macos" and not _metal_runs(machine, build.version):
            continue
        reason = "stack.why_default_build" if build.is_default else "stack.why_index_build"
        yield Candidate(
            package="torch",
            version=build.version,
            label=build.label,
            index_url=build.index_url,
            needs=(Need(PYTHON, versions=pythons), *_needs_of_torch(build, row)),
            facts=build.facts,
            is_default=build.is_default,
            is_usual=build.is_default or is_usual(build),
            is_sure=is_sure,
            glibc=glibc_of(row, target),
            reason=message(reason if is_sure else "stack.why_not_listed", label=build.label or ""),
        )


def arch_of(machine: Environment) -> str:
    """The machine's architecture, or the usual one of its system."""
    return machine.arch or ("arm64" if machine.os == "macos" else "x86_64")


def _needs_of_torch(build: Build, row: Row) -> Iterator[Need]:
    if row["numpy_compat"] == "1.x only":
        yield Need("numpy", "<2")
    if build.cuda is None:
        return
    yield Need(CUDA, versions=(str(major(build.cuda)),))
    if not at_least(build.version, _FIRST_WITH_PINS):
        return
    if build.cudnn and build.cudnn in _wheels_of_cudnn():
        yield Need(CUDNN, f"=={build.cudnn}")
    if build.nccl:
        yield Need(NCCL, f"=={build.nccl}")
    if (major(build.cuda) or 0) <= 12:
        pin = row["pypi_default_cuda"] if build.is_default else f"{build.cuda}.*"
        yield Need(RUNTIME, f"=={pin}")


@functools.cache
def _wheels_of_cudnn() -> frozenset[str]:
    """The cuDNN that there are wheels of: another one is inside torch's own wheel, and clashes with none."""
    return frozenset(row["cudnn"] for row in facts.table("cudnn") if row["kind"] == "pypi")


def _metal_runs(machine: Environment, version: str) -> bool:
    from raceline.stack.rules.platform import metal_floor

    floor = metal_floor(version)
    return machine.os_version is None or floor is None or at_least(machine.os_version, floor) is not False


def _is_wanted(build: Build, target: Target) -> bool:
    asked = [label for label in target.labels if _TORCH_LABEL.match(label)]
    if asked:
        return build.label in asked
    if target.vendor == "nvidia":
        return build.cuda is not None
    return build.rocm is not None if target.vendor == "amd" else build.label == "cpu"


def _of_torch(name: str) -> Callable[[Target], Iterator[Candidate]]:
    def make(target: Target) -> Iterator[Candidate]:
        seen: dict[str, list[str]] = {}
        for version, row in facts.releases("torch").items():
            if row[name]:
                seen.setdefault(row[name], []).append(str(version))
        for paired, torches in seen.items():
            row = facts.releases("torch")[Version(torches[0])]
            reason = message("stack.why_pair", torch=torches[0])
            needs = (Need("torch", versions=tuple(torches)),)
            stands = (facts.fact("torch", row), facts.rule_fact("torch-vision-audio-pins"))
            yield Candidate(name, paired, needs=needs, facts=stands, reason=reason)

    return make


def tensorflow(target: Target) -> Iterator[Candidate]:
    """TensorFlow; with NVIDIA's GPUs by the extra that brings CUDA, which there is on Linux alone."""
    is_cuda = target.is_nvidia and target.machine.os in (None, "linux")
    if target.vendor == "amd" or (target.is_nvidia and not is_cuda):
        return
    for version, row in facts.releases("tensorflow").items():
        if version.is_prerelease or (is_cuda and not row["and_cuda_runtime"]):
            continue
        stands = (facts.fact("tensorflow", row),)
        for needs in _by_python(row, target):
            if not is_cuda:
                yield Candidate(
                    "tensorflow", str(version), "cpu", needs=needs, facts=stands, glibc=glibc_of(row, target)
                )
                continue
            whole = _major_in(row["and_cuda_runtime"])
            yield Candidate(
                package="tensorflow",
                version=str(version),
                label="and-cuda",
                extras=("and-cuda",),
                needs=(*needs, *_cuda_of_tensorflow(row, whole)),
                facts=(*stands, facts.rule_fact("one-cudnn-per-environment")),
                glibc=glibc_of(row, target),
                reason=message("stack.why_and_cuda", cuda=whole),
            )


def _cuda_of_tensorflow(row: Row, whole: str) -> Iterator[Need]:
    yield Need(CUDA, versions=(whole,))
    for slot, column in ((CUDNN, "and_cuda_cudnn"), (NCCL, "and_cuda_nccl"), (RUNTIME, "and_cuda_runtime")):
        if row[column]:
            yield Need(slot, row[column] if parse(row[column]) is None else f"=={row[column]}")


def _by_python(row: Row, target: Target) -> Iterator[tuple[Need, ...]]:
    """The needs of a release, once for each set of Pythons that its bounds on NumPy differ by."""
    needs = base({**row, "numpy": ""}, target)
    if needs is None:
        return
    groups: dict[str, list[str]] = {}
    for python in needs[0].versions:
        groups.setdefault(_numpy_for(row["numpy"], python), []).append(python)
    for bounds, pythons in groups.items():
        numpy = (Need("numpy", bounds),) if bounds else ()
        yield (Need(PYTHON, versions=tuple(pythons)), *needs[1:], *numpy)


def _numpy_for(text: str, python: str) -> str:
    """The bounds for a Python of ``<2,>=1.23 if python_version <= "3.11" | <2,>=1.26 if …``."""
    if " if " not in text:
        return text
    from packaging.markers import InvalidMarker, Marker

    for part in text.split("|"):
        bounds, _, marker = part.strip().partition(" if ")
        try:
            if not marker or Marker(marker).evaluate({"python_version": python}):
                return bounds
        except InvalidMarker:
            return bounds
    return ""


def _major_in(bounds: str) -> str:
    """The major that bounds on a runtime wheel mean: ``<13.0,>=12.5.82`` is 12, and so is ``12.5.82``."""
    lows = [part.lstrip("><=~ ") for part in bounds.split(",") if not part.startswith(("<", "!"))]
    return str(major(lows[0].removesuffix(".*")) or "") if lows else ""


def tensorflow_cpu(target: Target) -> Iterator[Candidate]:
    """The build without a GPU, which goes with TensorFlow's own numbers."""
    for version, row in facts.releases("tensorflow").items():
        if version.is_prerelease:
            continue
        for needs in _by_python(row, target):
            yield Candidate(
                "tensorflow-cpu",
                str(version),
                needs=needs,
                facts=(facts.fact("tensorflow", row),),
                glibc=glibc_of(row, target),
            )


def jax(target: Target) -> Iterator[Candidate]:
    """JAX with the plugin of a CUDA major, of ROCm, for TPUs where they are asked for, or none."""
    for version, row in facts.releases("jax").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease:
            continue
        for label in _jax_labels(row, target):
            extras = () if label == "cpu" else (label,)
            whole = label.removeprefix("cuda")
            is_cuda = whole != label
            yield Candidate(
                package="jax",
                version=str(version),
                label=label,
                extras=extras,
                needs=(*needs, *(_cuda_of_jax(row, whole) if is_cuda else ())),
                facts=(
                    facts.fact("jax", row),
                    *((facts.rule_fact("jax-rocm"),) if label.startswith("rocm") else ()),
                ),
                is_sure=bool(row["jaxlib_python_min"]),
                glibc=glibc_of(row, target),
                reason=message("stack.why_jax_cuda", cuda=whole) if is_cuda else None,
            )


def _jax_labels(row: Row, target: Target) -> Iterator[str]:
    is_linux = target.machine.os in (None, "linux")
    if "tpu" in target.labels:
        if row["libtpu"] and is_linux:
            yield "tpu"
    elif target.vendor in ("none", "apple"):
        yield "cpu"
    elif target.vendor == "amd" and is_linux:
        if row["rocm7_plugin"]:
            yield "rocm7-local"
    elif is_linux:
        for whole in ("13", "12"):
            if row[f"cuda{whole}_plugin"] and target.has_all(row[f"min_cc_cuda{whole}"] or None):
                yield f"cuda{whole}"


def _cuda_of_jax(row: Row, whole: str) -> Iterator[Need]:
    yield Need(CUDA, versions=(whole,))
    if row[f"cuda{whole}_cudnn"]:
        yield Need(CUDNN, row[f"cuda{whole}_cudnn"])
    if whole == "12" and row["cuda12_runtime"]:
        yield Need(RUNTIME, row["cuda12_runtime"])


def torch_xla(target: Target) -> Iterator[Candidate]:
    """torch_xla, which goes with the torch of the same minor."""
    for version, row in facts.releases("torch-xla").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease:
            continue
        yield Candidate(
            "torch-xla",
            str(version),
            needs=(*needs, Need("torch", f"=={version.major}.{version.minor}.*")),
            facts=(facts.fact("torch_xla", row), facts.rule_fact("torch-xla-lockstep")),
            glibc=glibc_of(row, target),
        )


MAKERS: dict[str, Callable[[Target], Iterator[Candidate]]] = {
    "torch": torch, "torchvision": _of_torch("torchvision"), "torchaudio": _of_torch("torchaudio"),
    "tensorflow": tensorflow, "tensorflow-cpu": tensorflow_cpu, "jax": jax, "torch-xla": torch_xla,
}  # fmt: skip
