"""All candidates of a package on a target, and those of the things of which one environment has one: the Python, the
CUDA major and runtime, cuDNN, NCCL, and what is imported as onnxruntime."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from raceline.stack import facts, limits
from raceline.stack.result import Fact
from raceline.stack.solver import frameworks, inference
from raceline.stack.solver.choices import (
    CUDA,
    CUDNN,
    NCCL,
    ONNXRUNTIME,
    PYTHON,
    RUNTIME,
    Candidate,
    Need,
    Target,
    base,
    glibc_of,
)  # fmt: skip
from raceline.stack.versions import at_least, major, minor, parse

Maker = Callable[[Target], Iterator[Candidate]]
_EXACT_RUNTIME = (
    12  # up to this major wheels pin NVIDIA's runtime wheel; from 13 on the version of another package
)


@functools.lru_cache(maxsize=512)
def candidates(package: str, target: Target) -> tuple[Candidate, ...]:
    """All candidates of a package that fit the machine; one without a table has one of unknown version."""
    maker = MAKERS.get(package)
    if maker is not None:
        return tuple(maker(target))
    if facts.releases(package):
        return tuple(_plain(package, target))
    return (Candidate(package, ""),)


def is_known(package: str) -> bool:
    """Whether the tables have releases of the package."""
    return (package in MAKERS and package not in inference.UNVERSIONED) or bool(facts.releases(package))


def _plain(package: str, target: Target) -> Iterator[Candidate]:
    table = facts.PACKAGE_TABLES[package]
    for version, row in facts.releases(package).items():
        needs = base(row, target)
        if needs is None or version.is_prerelease:
            continue
        needs = tuple(item for item in needs if item.of != package)
        if row.get("torch"):
            needs = (*needs, Need("torch", row["torch"]))
        yield Candidate(
            package, str(version), needs=needs, facts=(facts.fact(table, row),), glibc=glibc_of(row, target)
        )


def _python(target: Target) -> Iterator[Candidate]:
    rows = {row["python"]: row for row in facts.table("python_eol")}
    for item in target.pythons:
        stands = (facts.fact("python_eol", rows[item]),) if item in rows else ()
        yield Candidate(PYTHON, item, facts=stands)


def _cuda_majors(target: Target) -> Iterator[Candidate]:
    majors = sorted({major(row["cuda"]) or 0 for row in facts.table("cuda_driver")}, reverse=True)
    for whole in majors:
        if whole >= 10 and (stands := cuda_stands(whole, target)):
            yield Candidate(CUDA, str(whole), facts=stands)


def cuda_stands(whole: int, target: Target) -> tuple[Fact, ...]:
    """The facts by which a CUDA major runs on the driver and the GPUs; empty where it does not."""
    starts = limits.driver_starts(target.machine, f"{whole}.0")
    if starts.holds is False:
        return ()
    for capability in target.capabilities:
        row, branch = limits.architecture_row(capability), limits.last_driver_branch(capability)
        if row is not None and row["last_cuda"] and whole > (major(row["last_cuda"]) or whole):
            return ()
        first = major(limits.first_toolkit(capability))
        if first is not None and whole < first:
            return ()
        if (
            branch is not None
            and starts.needed
            and at_least(branch["branch"], starts.needed.split(".")[0]) is False
        ):
            return ()
        if limits.driver_knows(target.machine, capability).holds is False:
            return ()
    return starts.facts or (facts.rule_fact("driver-cuda-major"),)


def _cudnns(target: Target) -> Iterator[Candidate]:
    seen: set[tuple[str, str]] = set()
    for row in facts.table("cudnn"):
        if row["kind"] == "pypi" and (key := (row["cudnn"], row["cuda_package"])) not in seen:
            seen.add(key)
            needs = (Need(CUDA, versions=(row["cuda_package"],)),)
            yield Candidate(CUDNN, row["cudnn"], needs=needs, facts=(facts.fact("cudnn", row),))


def _nccls(target: Target) -> Iterator[Candidate]:
    """Every NCCL that some release pins: a range that another has is judged on these."""
    pins: dict[str, Fact] = {}
    for table, column in (("torch", "nccl_pin"), ("tensorflow", "and_cuda_nccl")):
        for row in facts.table(table):
            if parse(row[column]) is not None:
                pins.setdefault(row[column], facts.fact(table, row))
    for version, stands in pins.items():
        yield Candidate(NCCL, version, facts=(stands,))


def _runtimes(target: Target) -> Iterator[Candidate]:
    """CUDA's runtime wheel: every version that a release pins, and each minor of a build whose pin is not known."""
    pins: dict[str, Fact] = {}
    for table, column in (("torch", "pypi_default_cuda"), ("tensorflow", "and_cuda_runtime")):
        for row in facts.table(table):
            if row[column].count(".") == 2 and parse(row[column]) is not None:
                pins.setdefault(row[column], facts.fact(table, row))
    for row in facts.table("torch"):
        for cuda in row["cuda_builds"].split():
            if not any(minor(known) == minor(cuda) for known in pins):
                pins[cuda] = facts.fact("torch", row)
    for version, stands in pins.items():
        whole = major(version) or 0
        if whole <= _EXACT_RUNTIME:
            yield Candidate(RUNTIME, version, needs=(Need(CUDA, versions=(str(whole),)),), facts=(stands,))


def _flavours(target: Target) -> Iterator[Candidate]:
    for name in inference.flavours():
        yield Candidate(ONNXRUNTIME, name, facts=(facts.rule_fact("onnxruntime-one-flavour"),))


MAKERS: dict[str, Maker] = {
    PYTHON: _python, CUDA: _cuda_majors, CUDNN: _cudnns, NCCL: _nccls, RUNTIME: _runtimes, ONNXRUNTIME: _flavours,
    **frameworks.MAKERS, **inference.MAKERS,
}  # fmt: skip
