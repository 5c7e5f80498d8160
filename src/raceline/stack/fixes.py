"""Fixes as structured steps: builds of torch that run on what is known of a machine, drivers, commands."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator

from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.stack import facts, limits
from raceline.stack.builds import Build, torch_builds
from raceline.stack.result import Action, ActionKind, Fix
from raceline.stack.standing import Standing
from raceline.stack.told import Told
from raceline.stack.versions import parse

# packages that hold code compiled against one torch: they move with it
COMPILED = (
    "flash-attn",
    "xformers",
    "mmcv-full",
    "mmcv",
    "torch-scatter",
    "torch-sparse",
    "torch-cluster",
    "causal-conv1d",
    "mamba-ssm",
    "apex",
    "detectron2",
    "auto-gptq",
    "spconv",
    "torch-tensorrt",
)


def runs(build: Build, machine: Environment, is_strict: bool = True) -> bool:
    """Whether a build of torch runs on all that is known of a machine. With `is_strict`, a build whose compiled
    capabilities are not known does not count for a GPU whose capability is."""
    row = build.row
    if (
        row is None
        or limits.python_fits(machine, row) is False
        or limits.glibc_fits(machine, row).holds is False
    ):
        return False
    if build.rocm is not None:
        targets = (build.compiled or "").split()
        return all(item.gfx in targets for item in machine.gpus if item.gfx)
    if build.cuda is None:
        return build.label == "cpu"
    if limits.driver_starts(machine, build.cuda).holds is False:
        return False
    return all(
        _has_kernels(build, item.capability, machine, is_strict) for item in machine.gpus if item.capability
    )


def _has_kernels(build: Build, capability: str, machine: Environment, is_strict: bool) -> bool:
    if build.compiled is None:
        return (
            not is_strict
            and _toolkit_knows(build.cuda or "", capability)
            and is_bracketed(build.version, capability)
        )
    kernels = limits.kernels_for(capability, build.compiled)
    if kernels == "ptx":
        return limits.driver_takes_ptx(machine, build.cuda or "").holds is not False
    return kernels == "sass"


@functools.lru_cache(maxsize=512)
def is_bracketed(version: str, capability: str) -> bool:
    """Whether a release before and one after this one have builds that list code for the capability."""
    wanted = Version(version)
    before = after = False
    for row in facts.table("torch_arch"):
        if limits.kernels_for(capability, row["arch_list"]) == "sass":
            before = before or Version(row["torch"]) <= wanted
            after = after or Version(row["torch"]) >= wanted
    return before and after


def _toolkit_knows(cuda: str, capability: str) -> bool:
    row = limits.architecture_row(capability)
    if row is None:
        return False
    found = parse(cuda)
    first, last = parse(limits.first_toolkit(capability)), parse(row["last_cuda"] or None)
    return found is not None and first is not None and found >= first and (last is None or found <= last)


def torch_choices(
    told: Told,
    current: Standing | None = None,
    *,
    cuda_major: int | None = None,
    bounds: str = "",
    is_strict: bool = True,
) -> Iterator[Build]:
    """GPU builds of torch that run on the machine, the nearest to the present version first.

    Without a version: the newest first. `cuda_major` and `bounds` narrow the choice.
    """
    from raceline.stack.versions import admits

    machine = told.environment
    found = [
        build
        for build in torch_builds(machine.os or "linux", machine.arch or "x86_64")
        if build.cuda is not None
        and (cuda_major is None or build.cuda.startswith(f"{cuda_major}."))
        and (not bounds or admits(bounds, build.version))
        and runs(build, machine, is_strict)
    ]
    now = parse(current.version) if current is not None else None
    is_driver_known = bool(machine.driver or machine.driver_cuda)
    ranked = sorted(found, key=lambda build: _rank(build, now, current, is_driver_known))
    return iter(ranked)


def _rank(
    build: Build, now: Version | None, current: Standing | None, is_driver_known: bool
) -> tuple[object, ...]:
    version = Version(build.version)
    cuda = Version(build.cuda or "0")
    ordinal = version.major * 1000 + version.minor
    if now is None:
        # a driver that nobody told is not asked to be of the newest major
        return (
            cuda.major > 12 and not is_driver_known,
            -ordinal,
            -version.micro,
            not is_usual(build),
            -cuda.minor,
        )
    away = abs(ordinal - (now.major * 1000 + now.minor))
    is_same = version == now
    same_major = current is not None and current.cuda_major == cuda.major
    return (not is_same, away, -version.micro, not same_major, not is_usual(build), -cuda.minor)


def is_usual(build: Build) -> bool:
    """Whether a build is of the CUDA that the release is built with by default."""
    row = build.row
    return row is not None and bool(build.cuda) and row["pypi_default_cuda"].startswith(f"{build.cuda}.")


def install(build: Build, current: Standing | None = None) -> Action:
    """The step that installs a build of torch."""
    present = (
        current.shown if current is not None and current.shown and not current.shown.startswith("(") else None
    )
    return Action(
        "install_build",
        package="torch",
        from_=present,
        to=f"=={build.version}",
        build=build.label,
        command=install_command([f"torch=={build.version}"], build.label),
    )


def install_command(requirements: Iterable[str], label: str | None = None) -> str:
    """The pip command; a label chooses the index that has that build."""
    names = " ".join(f'"{item}"' if any(char in item for char in "<>!*[") else item for item in requirements)
    index = f" --index-url https://download.pytorch.org/whl/{label}" if label else ""
    return f"pip install {names}{index}"


def with_companions(build: Build, told: Told, current: Standing | None = None) -> Fix:
    """The step for torch, and those for torchvision, torchaudio and compiled extensions that stand beside it."""
    steps = [install(build, current)]
    row = build.row
    for name in ("torchvision", "torchaudio"):
        installed = told.environment.distribution(name)
        if installed is not None and row is not None and row[name]:
            steps.append(
                Action(
                    "install_build",
                    package=name,
                    from_=installed.shown,
                    to=f"=={row[name]}",
                    build=build.label,
                    command=install_command([f"{name}=={row[name]}"], build.label),
                )
            )
    for name in COMPILED:
        if not told.mentions(name):
            continue
        if name == "xformers" and (release := xformers_for(build.version)) is not None:
            steps.append(Action("install_build", package=name, to=f"=={release}", build=build.label))
        else:
            steps.append(Action("install_build", package=name, build=build.label))
    return tuple(steps)


def xformers_for(torch: str) -> str | None:
    """The newest xformers that pins this torch."""
    wanted = f"=={torch}"
    return next(
        (str(version) for version, row in facts.releases("xformers").items() if row["torch"] == wanted), None
    )


def raise_driver(told: Told, floor: str) -> Action:
    """The step that raises the driver to a floor."""
    return Action("driver", from_=told.environment.driver, to=f">={floor}")


def moved(package: str, present: str | None, to: str, *, command: bool = True) -> Action:
    """The step to an exact version: an upgrade, a downgrade, or an install where the present one is not known."""
    kind: ActionKind = "pin"
    now, then = parse(present), parse(to)
    if now is not None and then is not None:
        kind = "upgrade" if then > now else "downgrade"
    line = install_command([f"{package}=={to}"]) if command else None
    return Action(kind, package=package, from_=present, to=f"=={to}", command=line)


def driver_can_rise(told: Told, floor: str) -> bool:
    """Whether the GPUs have a driver of that branch: old ones have a last one."""
    wanted = parse(floor)
    for item in told.environment.gpus:
        row = limits.last_driver_branch(item.capability) if item.capability else None
        if row is not None and wanted is not None and wanted.major > int(row["branch"]):
            return False
    return True
