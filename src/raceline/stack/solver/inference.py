"""What stands on a framework: inference engines, attention kernels, runtimes, compilers of kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.solver.choices import (
    CUDA,
    CUDNN,
    ONNXRUNTIME,
    PYTHON,
    USUAL,
    Candidate,
    Need,
    Target,
    base,
    bounds_on,
    glibc_of,
    pythons_of,
)  # fmt: skip
from raceline.stack.versions import admits, at_least, label_of, major, minor, parse

_COMPANIONS = ("torchvision", "torchaudio", "xformers", "triton", "transformers", "flashinfer-python")
_VLLM_FROM, _AMPERE = "7.0", "8.0"  # rules vllm-gpu (Pascal has no kernels) and flash-attn-gpu
# rule bitsandbytes-cuda: the CUDA that libraries are shipped for, and the lowest capability in them
_BITSANDBYTES = (
    *((label_of(cuda), "6.0") for cuda in ("11.8", "12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6")),
    ("cu128", "7.0"), *((label_of(cuda), "7.5") for cuda in ("13.0", "13.1", "13.2")),
)  # fmt: skip


def _engine(name: str) -> Callable[[Target], Iterator[Candidate]]:
    """Packages whose wheels are of the usual CUDA build of the torch that they pin."""

    def make(target: Target) -> Iterator[Candidate]:
        if not target.is_nvidia or (name == "vllm" and not target.has_all(_VLLM_FROM)):
            return
        for version, row in facts.releases(name).items():
            needs = base(row, target)
            if needs is None or version.is_prerelease or not row["torch"]:
                continue
            yield Candidate(
                package=name,
                version=str(version),
                needs=(*needs, Need("torch", row["torch"], (USUAL,)), *bounds_on(row, _COMPANIONS)),
                facts=(facts.fact(name, row), facts.rule_fact("vllm-pin")),
                glibc=glibc_of(row, target),
                reason=message("stack.why_pins_torch", pin=row["torch"]),
            )

    return make


def xformers(target: Target) -> Iterator[Candidate]:
    """xformers, built for one torch; a release that takes newer ones is of the CUDA of its own time."""
    if target.vendor not in ("nvidia", "amd"):
        return
    for version, row in facts.releases("xformers").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease or not row["torch"]:
            continue
        labels = (USUAL,) if target.is_nvidia else ()
        cuda = None if row["torch"].startswith("==") else _cuda_on(row["release_date"])
        of_cuda = (Need(CUDA, versions=(cuda,)),) if cuda and target.is_nvidia else ()
        yield Candidate(
            package="xformers",
            version=str(version),
            needs=(*needs, Need("torch", row["torch"], labels), *of_cuda),
            facts=(facts.fact("xformers", row), facts.rule_fact("xformers-pin")),
            glibc=glibc_of(row, target),
            reason=message("stack.why_pins_torch", pin=row["torch"]),
        )


def _cuda_on(day: str) -> str | None:
    """The CUDA major of the newest torch of a day."""
    for row in facts.releases("torch").values():
        if row["release_date"] <= day and row["pypi_default_cuda"]:
            return str(major(row["pypi_default_cuda"]))
    return None


def flash_attn(target: Target) -> Iterator[Candidate]:
    """flash-attn by its prebuilt wheels, else compiled when it is installed."""
    if not target.is_nvidia or target.machine.os not in (None, "linux") or not target.has_all(_AMPERE):
        return
    torches = [str(version) for version in facts.releases("torch")]
    for row in facts.table("flash_attn"):
        rules = tuple(facts.rule_fact(id) for id in ("flash-attn-build", "flash-attn-gpu"))
        stands = (facts.fact("flash_attn", row), *rules)
        floor = row["glibc_min_x86_64"] or None
        pythons = pythons_of(row, target)
        fitting = tuple(item for item in torches if minor(item) in row["torch_minors"].split())
        if pythons and not (floor and at_least(target.machine.glibc, floor) is False):
            yield Candidate(
                package="flash-attn",
                version=row["version"],
                needs=(
                    Need(PYTHON, versions=pythons),
                    Need("torch", versions=fitting),
                    Need(CUDA, versions=tuple(row["cuda_majors"].split())),
                ),
                facts=stands,
                glibc=floor,
                reason=message("stack.why_prebuilt", torch=row["torch_minors"]),
            )
        yield Candidate(
            package="flash-attn",
            version=row["version"],
            label="source",
            needs=(Need("torch", ">=2.2"), Need(CUDA, versions=("12", "13"))),
            facts=stands,
            is_default=False,
            is_prebuilt=False,
            reason=message("stack.why_source"),
        )


def bitsandbytes(target: Target) -> Iterator[Candidate]:
    """bitsandbytes, which ships libraries for some CUDA minors, each with code from some capability on."""
    labels = tuple(label for label, floor in _BITSANDBYTES if target.has_all(floor))
    if target.is_nvidia and not labels:
        return
    for version, row in facts.releases("bitsandbytes").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease or not row["torch"]:
            continue
        yield Candidate(
            package="bitsandbytes",
            version=str(version),
            needs=(*needs, Need("torch", row["torch"], labels if target.is_nvidia else ())),
            facts=(facts.fact("bitsandbytes", row), facts.rule_fact("bitsandbytes-cuda")),
            glibc=glibc_of(row, target),
        )


def onnxruntime_gpu(target: Target) -> Iterator[Candidate]:
    """ONNX Runtime for CUDA: the wheel of the package index is of one CUDA major."""
    if not target.is_nvidia:
        return
    for version, row in facts.releases("onnxruntime-gpu").items():
        needs = base(row, target)
        if needs is None or not row["pypi_cuda"] or not row["pypi_cudnn"] or version.is_prerelease:
            continue
        whole, cudnn = row["pypi_cuda"].split(".")[0], int(row["pypi_cudnn"].split(".")[0])
        yield Candidate(
            package="onnxruntime-gpu",
            version=str(version),
            label=f"cu{whole}",
            extras=("cuda", "cudnn") if row["extra_cuda_runtime"] and row["extra_cudnn"] else (),
            needs=(
                *needs,
                Need(CUDA, versions=(whole,)),
                Need(CUDNN, f">={cudnn},<{cudnn + 1}"),
                _one("onnxruntime-gpu"),
            ),
            facts=(facts.fact("onnxruntime", row), facts.rule_fact("onnxruntime-gpu-cuda-major")),
            glibc=glibc_of(row, target),
            reason=message("stack.why_onnxruntime_cuda", cuda=row["pypi_cuda"]),
        )


def onnxruntime(target: Target) -> Iterator[Candidate]:
    """The CPU flavour; its Pythons and NumPy are those of the GPU flavour's release of the same number."""
    for version, row in facts.releases("onnxruntime-gpu").items():
        pythons = pythons_of(row, target)
        if pythons and not version.is_prerelease:
            numpy = (Need("numpy", row["numpy"]),) if row["numpy"] else ()
            needs = (Need(PYTHON, versions=pythons), *numpy, _one("onnxruntime"))
            yield Candidate("onnxruntime", str(version), needs=needs, facts=(facts.fact("onnxruntime", row),))


def _one(flavour: str) -> Need:
    """Every flavour is imported by one name: rule onnxruntime-one-flavour."""
    return Need(ONNXRUNTIME, versions=(flavour,))


@functools.cache
def flavours() -> tuple[str, ...]:
    """The distributions that install the import package onnxruntime."""
    return tuple(facts.rules()["onnxruntime-one-flavour"].providers)


def _flavour(name: str) -> Callable[[Target], Iterator[Candidate]]:
    def make(target: Target) -> Iterator[Candidate]:
        yield Candidate(name, "", needs=(_one(name),), facts=(facts.rule_fact("onnxruntime-one-flavour"),))

    return make


def deepspeed(target: Target) -> Iterator[Candidate]:
    """DeepSpeed, a source archive that compiles its operators for the torch that is there (>= 2.0 by its rule)."""
    rule = facts.rule_fact("deepspeed-nvcc-major")
    for version, row in facts.releases("deepspeed").items():
        if not version.is_prerelease:
            needs = (Need("torch", row["torch"]), Need("torch", ">=2.0"))
            stands = (facts.fact("deepspeed", row), rule)
            yield Candidate(
                "deepspeed", str(version), needs=needs, facts=stands, reason=message("stack.why_deepspeed")
            )


def tensorrt(target: Target) -> Iterator[Candidate]:
    """TensorRT of a CUDA major; from a support matrix on, no release goes back to GPUs that it leaves out."""
    if not target.is_nvidia:
        return
    for row in facts.table("tensorrt"):
        version, whole = parse(row["version"]), row["package"].removeprefix("tensorrt-cu")
        if row["kind"] != "pypi" or whole == row["package"] or version is None or version.is_prerelease:
            continue
        if version.release == (0, 0, 1) or not target.has_all(_tensorrt_floor(row["version"])):
            continue
        needs = (Need(CUDA, versions=(whole,)),)
        yield Candidate(
            "tensorrt", row["version"], f"cu{whole}", needs=needs, facts=(facts.fact("tensorrt", row),)
        )


@functools.cache
def _tensorrt_floor(version: str) -> str | None:
    floors = [
        row["compute_capability"].removesuffix(" and newer")
        for row in facts.table("tensorrt")
        if row["compute_capability"].endswith(" and newer") and at_least(version, row["version"])
    ]
    return max(floors, key=lambda item: parse(item) or 0, default=None)


def triton(target: Target) -> Iterator[Candidate]:
    """Triton, which torch on Linux pins."""
    for version, row in facts.releases("triton").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease:
            continue
        torches = tuple(torch for torch, pin in _pins() if admits(_bounds_of(pin), str(version)))
        if torches:
            yield Candidate(
                "triton",
                str(version),
                needs=(*needs, Need("torch", versions=torches, is_bound=True)),
                facts=(facts.fact("triton", row), facts.rule_fact("triton-pin")),
                glibc=glibc_of(row, target),
            )


def triton_windows(target: Target) -> Iterator[Candidate]:
    """Triton's Windows build, which follows the minor of the Triton that torch pins on Linux."""
    for version, row in facts.releases("triton-windows").items():
        needs = base(row, target)
        if needs is None or version.is_prerelease:
            continue
        short = f"{version.major}.{version.minor}"
        torches = tuple(torch for torch, pin in _pins() if minor(pin.lstrip("~=")) == short)
        yield Candidate(
            "triton-windows",
            str(version),
            needs=(*needs, Need("torch", versions=torches, is_bound=True)) if torches else needs,
            facts=(facts.fact("triton_windows", row), facts.rule_fact("triton-windows")),
        )


@functools.cache
def _pins() -> tuple[tuple[str, str], ...]:
    """Every torch with its pin on Triton."""
    rows = facts.releases("torch").items()
    return tuple((str(version), row["triton_pin"]) for version, row in rows if row["triton_pin"])


def _bounds_of(pin: str) -> str:
    return pin if pin[:1] in "~=<>" else f"=={pin}"


def neuron(target: Target) -> Iterator[Candidate]:
    """torch-neuronx, of which no table has releases: it comes with one release of its SDK, on Linux."""
    if target.machine.os in (None, "linux"):
        stands = (facts.rule_fact("neuron-lockstep"),)
        yield Candidate("torch-neuronx", "", facts=stands, reason=message("stack.why_neuron"))


MAKERS: dict[str, Callable[[Target], Iterator[Candidate]]] = {
    "vllm": _engine("vllm"), "sglang": _engine("sglang"), "xformers": xformers, "flash-attn": flash_attn,
    "bitsandbytes": bitsandbytes, **{name: _flavour(name) for name in flavours()}, "onnxruntime-gpu": onnxruntime_gpu,
    "onnxruntime": onnxruntime, "deepspeed": deepspeed, "tensorrt": tensorrt, "triton": triton,
    "triton-windows": triton_windows, "torch-neuronx": neuron,
}  # fmt: skip
# of these no table has releases, and no rule says what they go with
UNVERSIONED = frozenset(
    {
        "torch-neuronx",
        *(name for name in flavours() if name not in ("onnxruntime", "onnxruntime-gpu")),
    }
)
