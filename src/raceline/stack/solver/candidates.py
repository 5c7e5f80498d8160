"""What can be chosen: releases of packages in their builds, each with what it needs of the others.

Beside packages there are three things of which one environment has one: `python`, `cuda-major` and `cudnn`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.present.errors import Message, message
from raceline.stack import facts, limits
from raceline.stack.builds import torch_builds
from raceline.stack.facts import Row
from raceline.stack.fixes import is_usual, runs
from raceline.stack.result import Fact
from raceline.stack.versions import admits, at_least, major, minor, parse

PYTHON, CUDA, CUDNN = "python", "cuda-major", "cudnn"
_SERIES = ("vllm", "sglang", "xformers")


class Need(msgspec.Struct, frozen=True):
    """What a candidate needs of another: bounds on its version, one of some labels, or one of some versions."""

    of: str
    bounds: str = ""
    labels: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """One release of a package in one variant (`label`), with its needs and the facts that they stand on."""

    package: str
    version: str
    label: str | None = None
    index_url: str | None = None
    extras: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    facts: tuple[Fact, ...] = ()
    is_default: bool = True
    is_usual: bool = True  # of the CUDA that the release is built with by default
    is_sure: bool = True  # what decides whether it runs is in the tables
    reason: Message | None = None

    def meets(self, need: Need) -> bool:
        """Whether this candidate is what is needed."""
        if (
            need.labels
            and self.label not in need.labels
            and not (self.is_default and "default" in need.labels)
        ):
            return False
        if need.versions and self.version not in need.versions:
            return False
        return not need.bounds or admits(need.bounds, self.version) is True


class Target(msgspec.Struct, frozen=True):
    """What candidates are made for: a machine, whether GPU builds are wanted, and the Pythons to choose from."""

    machine: Environment
    has_gpu: bool
    pythons: tuple[str, ...]

    @property
    def is_nvidia(self) -> bool:
        """Whether the GPUs are NVIDIA's (or none is named)."""
        return self.has_gpu and not any(item.gfx for item in self.machine.gpus) and self.machine.os != "macos"


def candidates(package: str, target: Target) -> tuple[Candidate, ...]:
    """All candidates of a package that fit the machine; one without a table has one of unknown version."""
    maker = _MAKERS.get(package)
    if maker is not None:
        return tuple(maker(target))
    if facts.releases(package):
        return tuple(_plain(package, target))
    return (Candidate(package, ""),)


def is_known(package: str) -> bool:
    """Whether the tables have releases of the package."""
    return package in _MAKERS or bool(facts.releases(package))


def _pythons(row: Row, target: Target) -> tuple[str, ...]:
    machine = target.machine
    return tuple(
        item
        for item in target.pythons
        if limits.python_fits(msgspec.structs.replace(machine, python=item), row) is not False
    )


def _fits(row: Row, target: Target) -> bool:
    return (
        limits.platform_fits(target.machine, row) is not False
        and limits.glibc_fits(target.machine, row).holds is not False
    )


def _base(package: str, row: Row, target: Target) -> tuple[Need, ...] | None:
    """The needs that every release has: its Pythons and NumPy; None where it does not fit the machine."""
    pythons = _pythons(row, target)
    if not pythons or not _fits(row, target):
        return None
    needs = [Need(PYTHON, versions=pythons)]
    if row.get("numpy"):
        needs.append(Need("numpy", row["numpy"]))
    return tuple(needs)


def _python(target: Target) -> Iterator[Candidate]:
    rows = {row["python"]: row for row in facts.table("python_eol")}
    for item in target.pythons:
        stands = (facts.fact("python_eol", rows[item]),) if item in rows else ()
        yield Candidate(PYTHON, item, facts=stands)


def _cuda_majors(target: Target) -> Iterator[Candidate]:
    for whole in ("13", "12", "11", "10"):
        if limits.driver_starts(target.machine, f"{whole}.0").holds is not False:
            yield Candidate(CUDA, whole, facts=(facts.rule_fact("driver-cuda-major"),))


def _cudnns(target: Target) -> Iterator[Candidate]:
    seen: set[tuple[str, str]] = set()
    for row in reversed(facts.table("cudnn")):
        if row["kind"] == "pypi" and (key := (row["cudnn"], row["cuda_package"])) not in seen:
            seen.add(key)
            yield Candidate(
                CUDNN,
                row["cudnn"],
                needs=(Need(CUDA, versions=(row["cuda_package"],)),),
                facts=(facts.fact("cudnn", row),),
            )


def _torch(target: Target) -> Iterator[Candidate]:
    machine = target.machine
    for build in torch_builds(machine.os or "linux", machine.arch or "x86_64"):
        row = build.row
        if row is None or (pythons := _pythons(row, target)) == () or not _fits(row, target):
            continue
        if not _is_wanted_build(build.label or "", build.rocm, target):
            continue
        is_sure = build.cuda is None or runs(build, machine)
        if not is_sure and not runs(build, machine, is_strict=False):
            continue
        if build.rocm is not None and not runs(build, machine):
            continue
        if machine.os == "macos" and not _metal_runs(machine, build.version):
            continue
        needs = [Need(PYTHON, versions=pythons)]
        if row["numpy_compat"] == "1.x only":
            needs.append(Need("numpy", "<2"))
        if build.cuda is not None:
            needs.append(Need(CUDA, versions=(str(major(build.cuda)),)))
            if build.cudnn and at_least(build.version, "1.13"):
                needs.append(Need(CUDNN, f"=={build.cudnn}"))
        reason = (
            message("stack.why_default_build")
            if build.is_default
            else message("stack.why_index_build", label=build.label or "")
        )
        if not is_sure:
            reason = message("stack.why_not_listed", label=build.label or "")
        yield Candidate(
            package="torch",
            version=build.version,
            label=build.label,
            index_url=build.index_url,
            needs=tuple(needs),
            facts=build.facts,
            is_default=build.is_default,
            is_usual=build.is_default or is_usual(build),
            is_sure=is_sure,
            reason=reason,
        )


def _metal_runs(machine: Environment, version: str) -> bool:
    from raceline.stack.rules.platform import metal_floor

    floor = metal_floor(version)
    return machine.os_version is None or floor is None or at_least(machine.os_version, floor) is not False


def _is_wanted_build(label: str, rocm: str | None, target: Target) -> bool:
    if target.machine.os == "macos" or not target.has_gpu:
        return label == "cpu"
    if target.is_nvidia:
        return label.startswith("cu")
    return rocm is not None


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
            yield Candidate(name, paired, needs=needs, facts=(facts.fact("torch", row),), reason=reason)

    return make


def _pinned(name: str) -> Callable[[Target], Iterator[Candidate]]:
    """Packages whose wheels are of the default CUDA build of one torch."""

    def make(target: Target) -> Iterator[Candidate]:
        if not target.is_nvidia and name != "xformers":
            return
        for version, row in facts.releases(name).items():
            base = _base(name, row, target)
            if base is None or version.is_prerelease or not row["torch"] or not _has_kernels(name, target):
                continue
            labels = ("default",) if target.is_nvidia else ()
            reason = message("stack.why_pins_torch", pin=row["torch"])
            needs = (*base, Need("torch", row["torch"], labels))
            yield Candidate(name, str(version), needs=needs, facts=(facts.fact(name, row),), reason=reason)

    return make


def _has_kernels(name: str, target: Target) -> bool:
    return name != "vllm" or all(
        at_least(item.capability, "7.0") is not False for item in target.machine.gpus if item.capability
    )


def _tensorflow(target: Target) -> Iterator[Candidate]:
    is_cuda = target.is_nvidia and target.machine.os == "linux"
    if target.has_gpu and not is_cuda and target.machine.os != "macos":
        return
    for version, row in facts.releases("tensorflow").items():
        base = _base("tensorflow", row, target)
        if base is None or version.is_prerelease:
            continue
        if is_cuda:
            if not row["and_cuda_runtime"]:
                continue
            whole = _major_in(row["and_cuda_runtime"])
            needs = (
                *base,
                Need(CUDA, versions=(whole,)),
                *((Need(CUDNN, row["and_cuda_cudnn"]),) if row["and_cuda_cudnn"] else ()),
            )
            yield Candidate(
                "tensorflow", str(version), "and-cuda", None, ("and-cuda",), needs, (facts.fact("tensorflow", row),),
                reason=message("stack.why_and_cuda", cuda=whole),
            )  # fmt: skip
        else:
            yield Candidate(
                "tensorflow", str(version), "cpu", needs=base, facts=(facts.fact("tensorflow", row),)
            )


def _tensorflow_cpu(target: Target) -> Iterator[Candidate]:
    for version, row in facts.releases("tensorflow").items():
        base = _base("tensorflow", row, target)
        if base is not None and not version.is_prerelease:
            yield Candidate(
                "tensorflow-cpu", str(version), needs=base, facts=(facts.fact("tensorflow", row),)
            )


def _major_in(bounds: str) -> str:
    """The major that bounds on a runtime wheel mean: ``<13.0,>=12.5.82`` is 12."""
    lows = [part[2:] for part in bounds.split(",") if part.startswith((">=", "==", "~="))]
    return str(major(lows[0].removesuffix(".*")) or "") if lows else ""


def _jax(target: Target) -> Iterator[Candidate]:
    for version, row in facts.releases("jax").items():
        base = _base("jax", row, target)
        if base is None or version.is_prerelease:
            continue
        stands = (facts.fact("jax", row),)
        if not target.has_gpu or target.machine.os != "linux":
            if not target.has_gpu:
                yield Candidate("jax", str(version), "cpu", needs=base, facts=stands)
            continue
        if not target.is_nvidia:
            if row["rocm7_plugin"]:
                yield Candidate(
                    "jax",
                    str(version),
                    "rocm7-local",
                    None,
                    ("rocm7-local",),
                    base,
                    (*stands, facts.rule_fact("jax-rocm")),
                )
            continue
        for whole in ("13", "12"):
            if row[f"cuda{whole}_plugin"] and _jax_runs(row, whole, target.machine):
                needs = (*base, Need(CUDA, versions=(whole,)), Need(CUDNN, row[f"cuda{whole}_cudnn"]))
                reason = message("stack.why_jax_cuda", cuda=whole)
                yield Candidate(
                    "jax", str(version), f"cuda{whole}", None, (f"cuda{whole}",), needs, stands, reason=reason
                )


def _jax_runs(row: Row, whole: str, machine: Environment) -> bool:
    floor = row[f"min_cc_cuda{whole}"]
    if any(at_least(item.capability, floor) is False for item in machine.gpus if item.capability and floor):
        return False
    return limits.driver_starts(machine, f"{whole}.0").holds is not False


def _onnxruntime_gpu(target: Target) -> Iterator[Candidate]:
    if not target.is_nvidia:
        return
    for version, row in facts.releases("onnxruntime-gpu").items():
        base = _base("onnxruntime-gpu", row, target)
        if base is None or not row["pypi_cuda"] or version.is_prerelease:
            continue
        whole = str(major(row["pypi_cuda"]))
        if limits.driver_starts(target.machine, row["pypi_cuda"]).holds is False:
            continue
        nine = at_least(str(version), "1.19")
        extras = ("cuda", "cudnn") if row["extra_cuda_runtime"] and row["extra_cudnn"] else ()
        needs = (*base, Need(CUDA, versions=(whole,)), Need(CUDNN, ">=9,<10" if nine else ">=8,<9"))
        stands = (facts.fact("onnxruntime", row), facts.rule_fact("onnxruntime-gpu-cuda-major"))
        reason = message("stack.why_onnxruntime_cuda", cuda=row["pypi_cuda"])
        yield Candidate(
            "onnxruntime-gpu", str(version), f"cu{whole}", None, extras, needs, stands, reason=reason
        )


def _onnxruntime(target: Target) -> Iterator[Candidate]:
    """The CPU flavour; its Pythons and NumPy are those of the GPU flavour's release of the same number."""
    for version, row in facts.releases("onnxruntime-gpu").items():
        pythons = _pythons(row, target)
        if pythons and not version.is_prerelease:
            needs = (
                Need(PYTHON, versions=pythons),
                *((Need("numpy", row["numpy"]),) if row["numpy"] else ()),
            )
            yield Candidate("onnxruntime", str(version), needs=needs, facts=(facts.fact("onnxruntime", row),))


def _flash_attn(target: Target) -> Iterator[Candidate]:
    machine = target.machine
    if not target.is_nvidia or machine.os not in (None, "linux"):
        return
    if any(at_least(item.capability, "8.0") is False for item in machine.gpus if item.capability):
        return
    torches = [str(version) for version in facts.releases("torch")]
    for row in facts.table("flash_attn"):
        floor = row["glibc_min_x86_64"]
        pythons = _pythons(row, target)
        if not pythons or (floor and at_least(machine.glibc, floor) is False):
            continue
        fitting = tuple(item for item in torches if minor(item) in row["torch_minors"].split())
        needs = (
            Need(PYTHON, versions=pythons),
            Need("torch", versions=fitting),
            Need(CUDA, versions=tuple(row["cuda_majors"].split())),
        )  # fmt: skip
        stands = (
            facts.fact("flash_attn", row),
            facts.rule_fact("flash-attn-build"),
            facts.rule_fact("flash-attn-gpu"),
        )
        reason = message("stack.why_prebuilt", torch=row["torch_minors"])
        yield Candidate("flash-attn", row["version"], needs=needs, facts=stands, reason=reason)


def _bitsandbytes(target: Target) -> Iterator[Candidate]:
    for version, row in facts.releases("bitsandbytes").items():
        base = _base("bitsandbytes", row, target)
        if base is None or version.is_prerelease or not row["torch"]:
            continue
        labels = _BITSANDBYTES if target.is_nvidia else ()
        yield Candidate(
            "bitsandbytes",
            str(version),
            needs=(*base, Need("torch", row["torch"], labels)),
            facts=(facts.fact("bitsandbytes", row), facts.rule_fact("bitsandbytes-cuda")),
        )


# rule bitsandbytes-cuda: the CUDA minors that libraries are shipped for
_BITSANDBYTES = ("cu118", *(f"cu12{item}" for item in "01234568"), "cu130", "cu131", "cu132")


def _torch_xla(target: Target) -> Iterator[Candidate]:
    for version, row in facts.releases("torch-xla").items():
        base = _base("torch-xla", row, target)
        if base is not None and not version.is_prerelease:
            needs = (*base, Need("torch", f"=={version.major}.{version.minor}.*"))
            yield Candidate(
                "torch-xla",
                str(version),
                needs=needs,
                facts=(facts.fact("torch_xla", row), facts.rule_fact("torch-xla-lockstep")),
            )


def _deepspeed(target: Target) -> Iterator[Candidate]:
    needs = (Need("torch", ">=2.0"),)
    yield Candidate(
        "deepspeed",
        "",
        needs=needs,
        facts=(facts.rule_fact("deepspeed-nvcc-major"),),
        reason=message("stack.why_deepspeed"),
    )


def _tensorrt(target: Target) -> Iterator[Candidate]:
    if not target.is_nvidia:
        return
    for row in reversed(facts.table("tensorrt")):
        if (
            row["kind"] != "pypi"
            or not row["package"].startswith("tensorrt-cu")
            or (version := parse(row["version"])) is None
        ):
            continue
        if version.is_prerelease or version.release == (0, 0, 1):
            continue
        whole = row["package"].removeprefix("tensorrt-cu")
        needs = (Need(CUDA, versions=(whole,)),)
        yield Candidate(
            "tensorrt", row["version"], f"cu{whole}", needs=needs, facts=(facts.fact("tensorrt", row),)
        )


def _triton(target: Target) -> Iterator[Candidate]:
    for version, row in facts.releases("triton").items():
        base = _base("triton", row, target)
        if base is None or version.is_prerelease:
            continue
        torches = tuple(
            str(known) for known, other in facts.releases("torch").items()
            if other["triton_pin"] and admits(_bounds_of_pin(other["triton_pin"]), str(version))
        )  # fmt: skip
        if torches:
            yield Candidate(
                "triton",
                str(version),
                needs=(*base, Need("torch", versions=torches)),
                facts=(facts.fact("triton", row), facts.rule_fact("triton-pin")),
            )


def _bounds_of_pin(pin: str) -> str:
    return pin if pin[:1] in "~=<>" else f"=={pin}"


def _plain(package: str, target: Target) -> Iterator[Candidate]:
    table = facts.PACKAGE_TABLES[package]
    for version, row in facts.releases(package).items():
        base = _base(package, row, target)
        if base is None or version.is_prerelease:
            continue
        needs = [item for item in base if item.of != package]
        if row.get("torch"):
            needs.append(Need("torch", row["torch"]))
        yield Candidate(package, str(version), needs=tuple(needs), facts=(facts.fact(table, row),))


_MAKERS: dict[str, Callable[[Target], Iterator[Candidate]]] = {
    PYTHON: _python, CUDA: _cuda_majors, CUDNN: _cudnns, "torch": _torch, "torchvision": _of_torch("torchvision"),
    "torchaudio": _of_torch("torchaudio"), **{name: _pinned(name) for name in _SERIES}, "tensorflow": _tensorflow,
    "tensorflow-cpu": _tensorflow_cpu, "jax": _jax, "onnxruntime-gpu": _onnxruntime_gpu, "onnxruntime": _onnxruntime,
    "flash-attn": _flash_attn, "bitsandbytes": _bitsandbytes, "torch-xla": _torch_xla, "deepspeed": _deepspeed,
    "tensorrt": _tensorrt, "triton": _triton,
}  # fmt: skip
