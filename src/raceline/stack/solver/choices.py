"""What can be chosen: a release of a package in one build, with what it needs of others, for one kind of machine."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Literal

import msgspec

from raceline.measure.environment import Environment
from raceline.present.errors import Message
from raceline.stack import limits
from raceline.stack.facts import Row
from raceline.stack.result import Fact
from raceline.stack.versions import admits, at_least

Vendor = Literal["nvidia", "amd", "apple", "none"]
# things of which one environment has one, beside packages
PYTHON, CUDA, CUDNN, NCCL = "python", "cuda-major", "cudnn", "nccl"
RUNTIME, ONNXRUNTIME = "cuda-runtime", "onnxruntime-import"
SLOTS = (PYTHON, CUDA, CUDNN, NCCL, RUNTIME, ONNXRUNTIME)
USUAL = "usual"  # in a need's labels: the build of the CUDA that a release of torch has by default


class Need(msgspec.Struct, frozen=True):
    """What a candidate needs of another: bounds on its version, one of some labels, or one of some versions.

    `is_bound`: it does not bring the other along, and counts only where that is wanted anyway.
    """

    of: str
    bounds: str = ""
    labels: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    is_bound: bool = False


class Candidate(msgspec.Struct, frozen=True):
    """One release of a package in one variant (`label`), with its needs and the facts that they stand on."""

    package: str
    version: str  # empty: no table knows its releases
    label: str | None = None
    index_url: str | None = None
    extras: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    facts: tuple[Fact, ...] = ()
    is_default: bool = True
    is_usual: bool = True  # of the CUDA that the release is built with by default
    is_sure: bool = True  # what decides whether it runs is in the tables
    is_prebuilt: bool = True  # a wheel: nothing is compiled when it is installed
    glibc: str | None = None  # the C library that its wheel needs
    reason: Message | None = None

    def meets(self, need: Need) -> bool:
        """Whether this candidate is what is needed; of an unknown version no bound is known not to hold."""
        if need.labels and self.label not in need.labels and not (self.is_usual and USUAL in need.labels):
            return False
        if need.versions and self.version not in need.versions:
            return False
        return not need.bounds or not self.version or admits(need.bounds, self.version) is True


class Target(msgspec.Struct, frozen=True):
    """What candidates are made for: a machine, whose GPUs are used, the Pythons to choose from, and builds of torch
    that are asked for by name."""

    machine: Environment
    vendor: Vendor
    pythons: tuple[str, ...]
    labels: tuple[str, ...] = ()

    @property
    def is_nvidia(self) -> bool:
        """Whether builds for NVIDIA's GPUs are wanted."""
        return self.vendor == "nvidia"

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The compute capabilities that are known of the GPUs."""
        return tuple(item.capability for item in self.machine.gpus if item.capability)

    def has_all(self, floor: str | None) -> bool:
        """Whether no GPU is known to be below a compute capability."""
        return floor is None or all(at_least(item, floor) is not False for item in self.capabilities)


def pythons_of(row: Row, target: Target) -> tuple[str, ...]:
    """The Pythons that a release has wheels for, so far as its row says."""
    key = tuple(sorted((name, value) for name, value in row.items() if "python" in name))
    return _pythons(key, target.pythons)


@functools.lru_cache(maxsize=4096)
def _pythons(key: tuple[tuple[str, str], ...], pythons: tuple[str, ...]) -> tuple[str, ...]:
    row = dict(key)
    return tuple(item for item in pythons if limits.python_fits(Environment(python=item), row) is not False)


def fits(row: Row, target: Target) -> bool:
    """Whether a release has wheels for the platform and its C library."""
    return (
        limits.platform_fits(target.machine, row) is not False
        and limits.glibc_fits(target.machine, row).holds is not False
    )


def glibc_of(row: Row, target: Target) -> str | None:
    """The C library that a release's wheel needs on Linux."""
    return limits.glibc_fits(target.machine, row).needed if target.machine.os in (None, "linux") else None


def base(row: Row, target: Target) -> tuple[Need, ...] | None:
    """The needs that every release has: its Pythons, NumPy and protobuf; None where it does not fit the machine."""
    pythons = pythons_of(row, target)
    if not pythons or not fits(row, target):
        return None
    needs = [Need(PYTHON, versions=pythons)]
    needs.extend(Need(name, row[name]) for name in ("numpy", "protobuf") if row.get(name))
    return tuple(needs)


def bounds_on(row: Row, names: Iterable[str]) -> tuple[Need, ...]:
    """A release's bounds on packages that count where those are wanted too."""
    return tuple(Need(name, row[name], is_bound=True) for name in names if row.get(name))
