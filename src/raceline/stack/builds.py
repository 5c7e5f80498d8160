"""Builds: what can be installed of a package, each a release in one variant, with what it needs."""

from __future__ import annotations

import functools
from typing import Literal

import msgspec

from raceline.measure.environment import Distribution, Environment
from raceline.stack import facts, limits
from raceline.stack.facts import Row
from raceline.stack.result import Fact
from raceline.stack.versions import cuda_of, label_of, minor, parse, rocm_of

Index = Literal["pypi", "pytorch", "project"]


class Build(msgspec.Struct, frozen=True):
    """One release of a package in one variant.

    `label` is ``cu126``, ``cpu`` or ``rocm6.4``; `is_default`: what the plain package index gives on the platform.
    `compiled` lists the GPU capabilities with code in it, None where that is not known. `requires` are bounds on
    other packages as (name, specifier).
    """

    package: str
    version: str
    label: str | None = None
    is_default: bool = True
    index: Index = "pypi"
    cuda: str | None = None
    rocm: str | None = None
    compiled: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    triton: str | None = None
    has_cxx11_abi: bool | None = None
    requires: tuple[tuple[str, str], ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def shown(self) -> str:
        """The version as people write it: ``2.8.0+cu126``; a default build has no label."""
        return self.version if self.is_default or self.label is None else f"{self.version}+{self.label}"

    @property
    def row(self) -> Row | None:
        """The release's row in the tables."""
        return facts.release(self.package, self.version)

    @property
    def index_url(self) -> str | None:
        """The index that has it, where the default one does not."""
        return f"https://download.pytorch.org/whl/{self.label}" if self.index == "pytorch" else None


def torch_default(row: Row, machine: Environment) -> str | None:
    """The CUDA of the wheel that PyPI has for the machine: the table's on Linux x86_64, none ("cpu") on Windows
    and macOS; None where it is not known (Linux on ARM)."""
    if machine.os in ("windows", "macos"):
        return "cpu"
    if machine.arch not in (None, "x86_64"):
        return None
    return row["pypi_default_cuda"] or None


@functools.lru_cache(maxsize=32)
def torch_builds(os: str | None = "linux", arch: str | None = "x86_64") -> tuple[Build, ...]:
    """All builds of torch for a platform, the newest release first, the default build of each first."""
    machine = Environment(os=os, arch=arch)  # type: ignore[arg-type]
    found: list[Build] = []
    for version, row in facts.releases("torch").items():
        if limits.platform_fits(machine, row) is False:
            continue
        default = torch_default(row, machine)
        seen: set[str] = set()
        for cuda in filter(None, (default, *([] if os == "macos" else row["cuda_builds"].split()), "cpu")):
            label = "cpu" if cuda == "cpu" else label_of(cuda)
            if label not in seen:
                seen.add(label)
                is_default = default is not None and len(seen) == 1
                found.append(_torch_build(str(version), row, label, is_default, machine))
        if os == "linux":
            found.extend(
                _torch_build(str(version), row, f"rocm{item}", False, machine) for item in _rocms(row)
            )
    return tuple(found)


def torch_build(version: str | None, label: str | None, machine: Environment) -> Build | None:
    """The build of a release that a label names; without one, the default of the machine's platform."""
    row, found = facts.release("torch", version), parse(version)
    if row is None or found is None:
        return None
    default = torch_default(row, machine)
    if label is None:
        if default is None:
            return None
        label = "cpu" if default == "cpu" else label_of(default)
    is_default = default is not None and label == ("cpu" if default == "cpu" else label_of(default))
    return _torch_build(str(found), row, label, is_default, machine)


def installed_torch(installed: Distribution | None, machine: Environment) -> Build | None:
    """The build of torch that is installed; one without a label is taken for the default of its platform."""
    if installed is None:
        return None
    return torch_build(installed.version, installed.label, machine)


def _rocms(row: Row) -> list[str]:
    return row["rocm_builds"].split()


def _torch_build(version: str, row: Row, label: str, is_default: bool, machine: Environment) -> Build:
    cuda, rocm = cuda_of(label), rocm_of(label)
    arch = _compiled_row(version, cuda, limits.platform_of(machine) or "linux_x86_64")
    stands = [facts.fact("torch", row)]
    if arch is not None:
        stands.append(facts.fact("torch_arch", arch))
    has_pins = is_default and cuda is not None
    return Build(
        package="torch",
        version=version,
        label=label,
        is_default=is_default,
        index="pypi" if is_default else "pytorch",
        cuda=cuda,
        rocm=rocm,
        compiled=arch["arch_list"] if arch is not None else _rocm_targets(rocm),
        cudnn=(row["cudnn_pin"] or None) if has_pins else _cudnn(row, label),
        nccl=(row["nccl_pin"] or None) if has_pins else None,
        triton=row["triton_pin"] or None,
        has_cxx11_abi=_has_cxx11_abi(version, label),
        facts=tuple(stands),
    )


@functools.cache
def _compiled_rows() -> dict[tuple[str, str, str], Row]:
    return {(row["torch"], row["cuda_build"], row["platform"]): row for row in facts.table("torch_arch")}


def _compiled_row(version: str, cuda: str | None, platform: str) -> Row | None:
    """The capabilities of a build; Windows builds follow the Linux list where the table has no other."""
    if cuda is None:
        return None
    if platform.startswith("win"):
        platform = "linux_x86_64"
    return _compiled_rows().get((version, minor(cuda) or cuda, platform))


def _rocm_targets(rocm: str | None) -> str | None:
    if rocm is None:
        return None
    rows = [row for row in facts.table("rocm") if row["kind"] == "torch_wheel_index" and row["rocm"] == rocm]
    return rows[0]["gfx_targets"] if rows else None


def _cudnn(row: Row, label: str) -> str | None:
    pins = dict(item.split("=", 1) for item in row["cudnn_per_build"].split())
    return pins.get(label) or (pins.get("all") if label.startswith("cu") else None)


def _has_cxx11_abi(version: str, label: str) -> bool | None:
    """Rule `torch-cxx11-abi`: the C++11 ABI came with the 2.6.0 cu126 build and with every build from 2.7."""
    found = parse(version)
    if found is None:
        return None
    if found.release[:2] == (2, 6):
        return label == "cu126"
    return found.release[:2] > (2, 6)
