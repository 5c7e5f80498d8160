"""What decides whether a build runs on a machine: driver floors, compiled kernels, platform, Python.

Each answers True, False or None (not known), with the facts it stands on; rules and solver ask the same functions.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec
from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.stack import facts
from raceline.stack.facts import Row
from raceline.stack.result import Fact
from raceline.stack.versions import admits, at_least, major, minor, parse

Kernels = Literal["sass", "ptx", "none"]


class Judgement(msgspec.Struct, frozen=True):
    """Whether a bound holds (None: not known), what it needs, what is there, and the facts it stands on."""

    holds: bool | None
    needed: str | None = None
    has: str | None = None
    facts: tuple[Fact, ...] = ()


def is_windows_driver(machine: Environment) -> bool:
    """Whether the driver's number is a Windows one: on Windows, and in WSL, whose driver is the host's."""
    return machine.os == "windows" or bool(machine.is_wsl)


@functools.cache
def toolkit(cuda: str) -> Row | None:
    """The row of a toolkit's first release (``12.8``, ``12.8.90``), which is what a floor is stated for."""
    wanted = minor(cuda)
    found = [row for row in facts.table("cuda_driver") if row["cuda"] == wanted]
    return found[-1] if found else None


def newest_update(cuda: str) -> str:
    """The full version of a toolkit's newest release: 12.6 is 12.6.3, as images are named."""
    rows = [row for row in facts.table("cuda_driver") if row["cuda"] == minor(cuda)]
    update = rows[0]["update"].removeprefix("Update ") if rows else "GA"
    return f"{minor(cuda)}.{update if update.isdigit() else '0'}"


def driver_floor(cuda: str, is_windows: bool = False) -> str | None:
    """The lowest driver that starts programs of this CUDA (minor-version compatibility from CUDA 11 on)."""
    row = toolkit(cuda)
    if row is None:
        return None
    # 13.x wheels on Windows have the floor of the major alone
    return (row["min_driver_windows"] if is_windows else "") or row["min_driver_linux"] or None


def packaged_driver(cuda: str, is_windows: bool = False) -> str | None:
    """The driver that came with this toolkit: what its PTX needs."""
    row = toolkit(cuda)
    return (
        None
        if row is None
        else row["driver_packaged_windows" if is_windows else "driver_packaged_linux"] or None
    )


def reaches(driver: str, floor: str | None) -> bool | None:
    """Whether a driver reaches a floor; one told by its branch alone (``525``) is taken for the newest of it."""
    if "." not in driver and floor is not None:
        return at_least(driver, floor.split(".")[0])
    return at_least(driver, floor)


def driver_starts(machine: Environment, cuda: str) -> Judgement:
    """Whether the machine's driver starts programs of this CUDA, by its number, else by the CUDA it carries."""
    is_windows = is_windows_driver(machine)
    floor, row = driver_floor(cuda, is_windows), toolkit(cuda)
    stands = () if row is None else (facts.fact("cuda_driver", row), facts.rule_fact("driver-cuda-major"))
    if machine.driver is not None:
        return Judgement(reaches(machine.driver, floor), floor, machine.driver, stands)
    carried = major(machine.driver_cuda)
    if carried is None or row is None:
        return Judgement(None, floor, None, stands)
    needed = major(cuda)
    holds = (
        carried >= needed
        if needed is not None and needed >= 11
        else at_least(machine.driver_cuda, minor(cuda))
    )
    return Judgement(holds, floor, machine.driver_cuda, stands)


def gpu_driver_floor(capability: str) -> str | None:
    """The first driver branch for a GPU of this capability, where that is stated: of Blackwell and newer the one that
    came with the first toolkit for it (rule blackwell-first-stack)."""
    found, first = parse(capability), first_toolkit(capability)
    if found is None or found.major < 10 or first is None:
        return None
    packaged = packaged_driver(first)
    return packaged.split(".")[0] if packaged else None


def driver_knows(machine: Environment, capability: str) -> Judgement:
    """Whether the driver is of a branch that knows a GPU of this capability."""
    floor = gpu_driver_floor(capability)
    stands = () if floor is None else (facts.rule_fact("blackwell-first-stack"),)
    if floor is None or machine.driver is None:
        return Judgement(None, floor, machine.driver, stands)
    return Judgement(reaches(machine.driver, floor), floor, machine.driver, stands)


def driver_takes_ptx(machine: Environment, cuda: str) -> Judgement:
    """Whether the driver compiles PTX of this toolkit: it must be at least the one packaged with it."""
    floor, row = packaged_driver(cuda, is_windows_driver(machine)), toolkit(cuda)
    stands = () if row is None else (facts.fact("cuda_driver", row), facts.rule_fact("driver-minor-ptx"))
    if machine.driver is not None:
        return Judgement(reaches(machine.driver, floor), floor, machine.driver, stands)
    holds = at_least(machine.driver_cuda, minor(cuda)) if machine.driver_cuda else None
    return Judgement(holds, floor, machine.driver_cuda, stands)


def kernels_for(capability: str, compiled: str) -> Kernels:
    """What a list of compiled capabilities (``7.5 8.0 8.6 9.0+PTX``) has for a GPU.

    Machine code runs on the same major at an equal or higher minor; PTX on any equal or higher capability.
    A list may also be written as ``sm_75 sm_80 compute_90``.
    """
    wanted = parse(capability)
    if wanted is None:
        return "none"
    best: Kernels = "none"
    for code, is_ptx, is_sass in compiled_list(compiled):
        if is_sass and (code.major == wanted.major and code.minor <= wanted.minor):
            return "sass"
        if is_ptx and code <= wanted:
            best = "ptx"
    return best


@functools.lru_cache(maxsize=1024)
def compiled_list(text: str) -> tuple[tuple[Version, bool, bool], ...]:
    """The capabilities of a list, each with whether there is PTX and whether there is machine code of it."""
    found = []
    for item in re.findall(r"[\w.]+(?:\+PTX)?", text):
        name = item.removesuffix("+PTX").removeprefix("sm_").removeprefix("compute_").rstrip("af")
        if "." not in name and name.isdigit() and len(name) >= 2:
            name = f"{name[:-1]}.{name[-1]}"
        version = parse(name)
        if version is not None:
            found.append(
                (version, item.endswith("+PTX") or item.startswith("compute_"), not item.startswith("c"))
            )
    return tuple(found)


def architecture_row(capability: str) -> Row | None:
    """The row of a compute capability: first and last CUDA toolkit, architecture."""
    return next((row for row in facts.table("cuda_arch") if row["compute_capability"] == capability), None)


def first_toolkit(capability: str) -> str | None:
    """The first CUDA whose code runs on a GPU of this capability: the first that knows its major at a minor that is
    not higher."""
    wanted = parse(capability)
    found = [
        first
        for row in facts.table("cuda_arch")
        if wanted is not None
        and (known := parse(row["compute_capability"])) is not None
        and (known.major, known.pre) == (wanted.major, None)
        and known.minor <= wanted.minor
        and (first := parse(row["first_cuda"])) is not None
    ]
    return str(min(found)) if found else None


def last_driver_branch(capability: str) -> Row | None:
    """The last driver branch for a GPU of this capability, where there is one."""
    return next(
        (row for row in facts.table("driver_branch") if capability in row["last_for_cc"].split()), None
    )


def python_fits(machine: Environment, row: Row) -> bool | None:
    """Whether a release (a row with ``python_min`` and ``python_max`` or their ``wheel_`` twins) has a wheel for
    the Python. One whose lowest and highest tag are the same old version is a stable-ABI wheel: no upper end."""
    low = row.get("python_min") or row.get("wheel_python_min") or row.get("jaxlib_python_min")
    high = row.get("python_max") or row.get("wheel_python_max") or row.get("jaxlib_python_max")
    python = minor(machine.python)
    if python is None:
        return None
    bounds = row.get("requires_python") or ""
    if bounds and admits(bounds, machine.python) is False:
        return False
    if machine.is_free_threaded and "python_freethreaded" in row:
        return f"{python}t" in row["python_freethreaded"].split()
    if "<" in bounds:
        return True  # a release that states an upper end has wheels up to it, be it by the stable ABI
    if not low or not high:
        return True if bounds else None
    is_stable = low == high and "wheel_python_min" in row
    return bool(at_least(python, low)) and (is_stable or bool(at_least(high, python)))


def platform_of(machine: Environment) -> str | None:
    """The machine's platform in the words of the tables: ``linux_x86_64``, ``macos_arm64``, ``win_amd64``."""
    if machine.os is None:
        return None
    prefix = {"linux": "linux", "windows": "win", "macos": "macos"}[machine.os]
    arch = machine.arch or ("arm64" if machine.os == "macos" else "x86_64")
    if machine.os == "windows":
        arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(arch, arch)
    if machine.os == "macos":
        arch = {"aarch64": "arm64"}.get(arch, arch)
    return f"{prefix}_{arch}"


def platform_fits(machine: Environment, row: Row) -> bool | None:
    """Whether a release has a wheel for the platform."""
    platform = platform_of(machine)
    offered = (row.get("pypi_platforms") or row.get("platforms") or "").split()
    if platform is None or not offered:
        return None
    return platform in offered or "any" in offered


def glibc_fits(machine: Environment, row: Row) -> Judgement:
    """Whether the C library is new enough for a release's Linux wheel."""
    arch = "aarch64" if machine.arch in ("aarch64", "arm64") else "x86_64"
    floor = row.get(f"glibc_min_{arch}") or None
    if machine.os not in (None, "linux") or floor is None:
        return Judgement(None, floor, machine.glibc)
    return Judgement(
        at_least(machine.glibc, floor), floor, machine.glibc, (facts.rule_fact("manylinux-glibc"),)
    )
