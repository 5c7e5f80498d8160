"""What stands in an environment: the build of torch, and every package that brings a CUDA of its own."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from raceline.measure.environment import Distribution
from raceline.stack import facts, limits
from raceline.stack.builds import Build, torch_build
from raceline.stack.result import Fact
from raceline.stack.told import Told
from raceline.stack.versions import admits, cuda_of, major, parse, specifier


class Standing(msgspec.Struct, frozen=True):
    """The torch of an environment. `is_assumed`: nobody said the build, the default of the platform is taken.

    `cuda` is None for a CPU build and where it is not known. `is_sure`: the build was said, or the package comes from
    pip, whose list would show another build's label.
    """

    version: str | None = None
    label: str | None = None
    cuda: str | None = None
    cuda_major: int | None = None
    build: Build | None = None
    is_assumed: bool = False
    is_sure: bool = True

    @property
    def shown(self) -> str:
        """As people write it: ``2.8.0+cu128``; without a version, the build alone."""
        if self.version is None:
            return f"({self.label})" if self.label else ""
        return f"{self.version}+{self.label}" if self.label and not self.is_assumed else self.version

    @property
    def is_cpu(self) -> bool:
        """Whether it is a build without GPU code."""
        return self.label == "cpu"


class CudaUser(msgspec.Struct, frozen=True):
    """A package and the CUDA that its build is of (a version, or a major as ``12``)."""

    package: str
    shown: str
    cuda: str
    facts: tuple[Fact, ...] = ()


def torch_of(told: Told) -> Standing | None:
    """The torch that is installed or will be, None where none is spoken of."""
    found = told.environment.distribution("torch")
    label = _label_of_index(told)
    wanted = told.requirement("torch")
    if found is None and wanted is not None:
        version = newest_admitted("torch", wanted.specifier, told)
        found = Distribution("torch", version, wanted.label or label)
    if found is None and (pin := torch_pin(told)) is not None:
        engine = told.environment.distribution("vllm")
        found = Distribution(
            "torch", pin, (engine.label if engine and cuda_of(engine.label) else None) or label
        )
    return None if found is None else _standing(found, told)


def _standing(found: Distribution, told: Told) -> Standing:
    build = torch_build(found.version, found.label, told.environment)
    label = found.label or (build.label if build is not None else None)
    cuda = cuda_of(label)
    whole = int(label[2:4]) if label and label[:2] == "cu" and label[2:4].isdigit() else None
    return Standing(
        version=found.version,
        label=label,
        cuda=cuda,
        cuda_major=major(cuda) if cuda else whole,
        build=build,
        is_assumed=found.label is None,
        is_sure=found.label is not None
        or found.installer == "pip"
        or told.environment.distribution("torch") is None,
    )


def _label_of_index(told: Told) -> str | None:
    labels = [item for item in told.index_labels if item != "auto"]
    return labels[0] if len(labels) == 1 else None


def torch_pin(told: Told) -> str | None:
    """The exact torch that vLLM, SGLang or xformers asks for, by their tables."""
    for package in ("vllm", "sglang", "xformers"):
        if not told.mentions(package):
            continue
        row = facts.release(package, version_of(package, told))
        if row is not None and row["torch"].startswith("=="):
            return row["torch"].removeprefix("==")
    return None


def version_of(package: str, told: Told) -> str | None:
    """The version that is installed, or that the default index would give for the requirement."""
    installed = told.environment.distribution(package)
    if installed is not None:
        return installed.version
    wanted = told.requirement(package)
    return None if wanted is None else newest_admitted(package, wanted.specifier, told)


def newest_admitted(package: str, bounds: str, told: Told) -> str | None:
    """The newest release in the tables that bounds, Python and platform admit: what an installer would take."""
    found = specifier(bounds)
    if found is None:
        return None
    for version, row in facts.releases(package).items():
        if version.is_prerelease or version not in found:
            continue
        if (
            limits.python_fits(told.environment, row) is False
            or limits.platform_fits(told.environment, row) is False
        ):
            continue
        if limits.glibc_fits(told.environment, row).holds is False:
            continue
        return str(version)
    if bounds.startswith("==") and "*" not in bounds and "," not in bounds:
        return bounds.removeprefix("==")  # not in the tables, but said
    return None


def cuda_users(told: Told) -> Iterator[CudaUser]:
    """Every package whose build brings or wants a CUDA, with that CUDA."""
    torch = torch_of(told)
    if torch is not None and (torch.cuda or torch.cuda_major):
        stands = torch.build.facts[:1] if torch.build is not None else ()
        yield CudaUser("torch", torch.shown, torch.cuda or str(torch.cuda_major), stands)
    yield from _vllm(told, torch)
    yield from _onnxruntime(told)
    yield from _tensorflow(told)
    yield from _jax(told)


def _vllm(told: Told, torch: Standing | None) -> Iterator[CudaUser]:
    version = version_of("vllm", told) if told.mentions("vllm") else None
    row = facts.release("vllm", version)
    if row is None or (installed := told.environment.distribution("vllm")) is None or torch is None:
        return
    label = installed.label
    if label is None and torch.cuda is None:
        # PyPI's wheels follow the default build of the torch that they pin
        build = torch_build(row["torch"].removeprefix("=="), None, told.environment)
        label = build.label if build is not None else None
    if (cuda := cuda_of(label)) is not None:
        yield CudaUser("vllm", installed.shown, cuda, (facts.fact("vllm", row), facts.rule_fact("vllm-pin")))


def _onnxruntime(told: Told) -> Iterator[CudaUser]:
    if not told.mentions("onnxruntime-gpu"):
        return
    version = version_of("onnxruntime-gpu", told)
    row = facts.release("onnxruntime-gpu", version)
    found = told.environment.distribution("onnxruntime-gpu")
    cuda = cuda_of(found.label) if found is not None else None
    if row is not None and (cuda or row["pypi_cuda"]):
        yield CudaUser(
            "onnxruntime-gpu", version or "", cuda or row["pypi_cuda"], (facts.fact("onnxruntime", row),)
        )


def _tensorflow(told: Told) -> Iterator[CudaUser]:
    wanted = told.requirement("tensorflow")
    if wanted is None or "and-cuda" not in wanted.extras:
        return
    version = version_of("tensorflow", told)
    row = facts.release("tensorflow", version)
    if row is not None and row["tested_cuda"]:
        yield CudaUser("tensorflow", version or "", row["tested_cuda"], (facts.fact("tensorflow", row),))


def _jax(told: Told) -> Iterator[CudaUser]:
    wanted = told.requirement("jax")
    extras = wanted.extras if wanted is not None else ()
    for whole in ("12", "13"):
        is_there = told.mentions(f"jax-cuda{whole}-plugin")
        if is_there or f"cuda{whole}" in extras or (whole == "12" and "cuda" in extras):
            shown = version_of(f"jax-cuda{whole}-plugin", told) or version_of("jax", told) or ""
            yield CudaUser("jax", shown, f"{whole}.0", facts.package_fact("jax", version_of("jax", told)))


def is_between(version: str | None, low: str, below: str) -> bool:
    """Whether a version is at least `low` and before `below`; False where it is not known."""
    found = parse(version)
    return found is not None and bool(admits(f">={low},<{below}", str(found)))
