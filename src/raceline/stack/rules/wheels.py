"""Wheels against Python and the C library."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.builds import torch_builds
from raceline.stack.facts import Row
from raceline.stack.fixes import install, moved
from raceline.stack.result import Action, Basis, Finding, Fix, Verdict
from raceline.stack.rules import Rule
from raceline.stack.told import Told
from raceline.stack.versions import at_least, minor, parse

_LAST_INTEL_MAC = "2.2.2"  # rule macos-intel


_JUDGED = (
    "torch",
    "tensorflow",
    "jax",
    "vllm",
    "sglang",
    "onnxruntime-gpu",
    "xformers",
    "bitsandbytes",
    "numpy",
    "triton",
)


def no_wheel(told: Told) -> Iterator[Finding]:
    """A release has wheels for a window of Pythons; an index has builds of some CUDA only."""
    said = told.symptom("no_matching_distribution")
    seen = False
    for package in _JUDGED:
        version = _asked(package, told, said)
        row = facts.release(package, version)
        if (
            version is None
            or row is None
            or (told.environment.os == "macos" and package == "torch" and _is_dropped(told, version))
        ):
            continue
        is_named = said is not None and said.params.get("package", "").lower() in (package, "")
        if limits.python_fits(told.environment, row) is False:
            seen = True
            yield _python_finding(told, package, version, row, is_named)
        elif package == "torch" and (finding := _wrong_label(told, version, said is not None)) is not None:
            seen = True
            yield finding
        elif (
            is_named
            and said is not None
            and said.params.get("package")
            and not _is_too_old_for_glibc(told, package, row)
        ):
            seen = True
            yield _python_finding(told, package, version, row, True)
    if (
        not seen
        and said is not None
        and said.params.get("package")
        and not any(_asked(item, told, said) for item in _JUDGED)
    ):
        yield _unknown_package(told, said.params["package"], said.params.get("version"))


def _is_dropped(told: Told, version: str) -> bool:
    return told.environment.arch == "x86_64" and at_least(_LAST_INTEL_MAC, version) is False


def _asked(package: str, told: Told, said: object) -> str | None:
    params = getattr(said, "params", {})
    if params.get("package", "").lower().replace("_", "-") == package and params.get("version"):
        return str(params["version"])
    found = told.environment.distribution(package)
    if found is not None:
        return found.version
    wanted = told.requirement(package)
    if wanted is not None and wanted.specifier.startswith("==") and "," not in wanted.specifier:
        return wanted.specifier.removeprefix("==").removesuffix(".*")
    return None


def _window(row: Row) -> tuple[str | None, str | None]:
    low = row.get("python_min") or row.get("wheel_python_min") or row.get("jaxlib_python_min")
    high = row.get("python_max") or row.get("wheel_python_max") or row.get("jaxlib_python_max")
    return low or None, high or None


def _python_finding(told: Told, package: str, version: str, row: Row, is_said: bool) -> Finding:
    machine = told.environment
    low, high = _window(row)
    python = minor(machine.python)
    if high is not None and python == high and is_said:
        # the table speaks of all platforms; the index said that there is none for this Python here
        first, last = high.split(".")
        high = f"{first}.{int(last) - 1}"
    fixes: list[Fix] = []
    later = _release_for(machine, package, version)
    if later is not None:
        fixes.append((moved(package, version, later),))
    if low and high:
        fixes.append((Action("python", from_=machine.python, to=f">={low},<={high}"),))
    text = message(
        "stack.no_wheel_for_python",
        package=package,
        version=version,
        python=machine.python or "?",
        low=low or "?",
        high=high or "?",
    )
    fits = limits.python_fits(machine, row)
    basis: Basis = "facts" if not is_said else "both" if fits is False else "message"
    return Finding(
        "no_wheel_for_python",
        "will_fail",
        text,
        "python-wheel-window",
        basis,
        18,
        (package,),
        tuple(fixes),
        (*facts.package_fact(package, version), facts.rule_fact("python-wheel-window")),
    )


def _release_for(machine: Environment, package: str, version: str) -> str | None:
    """The nearest release that surely has a wheel for this Python: one whose window reaches beyond it."""
    now, python = parse(version), minor(machine.python)
    found: list[Version] = []
    for known, row in facts.releases(package).items():
        if known.is_prerelease or known == now or limits.python_fits(machine, row) is False:
            continue
        if limits.glibc_fits(machine, row).holds is False or limits.platform_fits(machine, row) is False:
            continue
        if now is not None and known > now and (python is None or limits.python_fits(machine, row)):
            found.append(known)
    return str(min(found)) if found else None


def _wrong_label(told: Told, version: str, is_said: bool) -> Finding | None:
    """A build that was never published: ``2.10.0`` from cu131."""
    wanted = told.requirement("torch")
    found = told.environment.distribution("torch")
    label = (wanted.label if wanted else None) or (found.label if found else None)
    if label is None or not label.startswith("cu") or len(label) < 5:
        return None
    machine = told.environment
    os = "linux" if machine.os is None else machine.os
    builds = [
        item
        for item in torch_builds(os, machine.arch or "x86_64")
        if item.version == str(parse(version)) and item.cuda
    ]
    row = facts.release("torch", version)
    if not builds or row is None or not row["cuda_builds"] or any(item.label == label for item in builds):
        return None
    near = sorted(
        builds,
        key=lambda item: abs(int((item.label or "cu0")[2:]) - int(label[2:])) if label[2:].isdigit() else 0,
    )
    fixes = tuple(
        (msgspec.structs.replace(install(item), from_=label),)
        for item in near
        if limits.driver_starts(machine, item.cuda or "").holds is not False
    )
    text = message(
        "stack.no_such_build",
        version=version,
        label=label,
        known=" ".join(item.label or "" for item in builds),
    )
    return Finding(
        "no_wheel_for_python",
        "will_fail",
        text,
        "python-wheel-window",
        "both" if is_said else "facts",
        18,
        ("torch",),
        fixes[:3],
        (facts.fact("torch", row),),
    )


def _unknown_package(told: Told, package: str, version: str | None) -> Finding:
    text = message(
        "stack.no_wheel_unknown",
        package=package,
        version=version or "",
        python=told.environment.python or "?",
    )
    return Finding(
        "no_wheel_for_python",
        "will_fail",
        text,
        "python-wheel-window",
        "message",
        18,
        (package,),
        ((Action("upgrade", package=package),),),
        (facts.rule_fact("python-wheel-window"),),
    )


def _is_too_old_for_glibc(told: Told, package: str, row: Row) -> bool:
    return limits.glibc_fits(told.environment, row).holds is False


def glibc_too_old(told: Told) -> Iterator[Finding]:
    """Linux wheels need a C library; two packages need more than their tag says."""
    machine = told.environment
    if machine.os not in (None, "linux"):
        return
    said = told.symptom("glibc_not_found")
    yield from _flash_attn_glibc(told)
    vllm = _vllm_glibc(told)
    if vllm is not None:
        yield vllm
        return
    for package in ("torch", "tensorflow", "onnxruntime-gpu", "sglang", "xformers", "jax"):
        version = _asked(package, told, None)
        row = facts.release(package, version)
        if row is None or version is None:
            continue
        needs = limits.glibc_fits(machine, row)
        if needs.holds is False:
            fixes = _glibc_fixes(told, package, version, needs.needed or "")
            text = message(
                "stack.glibc_below",
                package=package,
                version=version,
                floor=needs.needed or "?",
                has=machine.glibc or "?",
            )
            yield Finding(
                "glibc_too_old",
                "will_fail",
                text,
                "manylinux-glibc",
                "both" if said else "facts",
                19,
                (package,),
                fixes,
                (*facts.package_fact(package, version), *needs.facts),
            )
    if said is not None and not told.mentions("flash-attn"):
        floor = said.params.get("version", "")
        fix = (
            Action(
                "os_or_glibc", from_=f"glibc {machine.glibc}" if machine.glibc else None, to=f"glibc>={floor}"
            ),
        )
        text = message(
            "stack.glibc_said", floor=floor, has=machine.glibc or "?", library=said.params.get("library", "?")
        )
        yield Finding(
            "glibc_too_old",
            "will_fail",
            text,
            "manylinux-glibc",
            "message",
            19,
            fixes=(fix,),
            facts=(facts.rule_fact("manylinux-glibc"),),
        )


def _glibc_fixes(told: Told, package: str, version: str, floor: str) -> tuple[Fix, ...]:
    machine = told.environment
    now = parse(version)
    older = next(
        (
            str(known)
            for known, row in facts.releases(package).items()
            if now is not None
            and known < now
            and not known.is_prerelease
            and limits.glibc_fits(machine, row).holds
            and limits.python_fits(machine, row) is not False
        ),
        None,
    )
    rise = (Action("os_or_glibc", from_=f"glibc {machine.glibc}", to=f"glibc>={floor}"),)
    return (rise,) if older is None else ((moved(package, version, older),), rise)


def _flash_attn_glibc(told: Told) -> Iterator[Finding]:
    """Rule flash-attn-glibc: prebuilt wheels from 2.8.0 need glibc 2.32 though no tag says so."""
    installed = told.installed("flash-attn")
    said = told.symptom("glibc_not_found")
    if installed is None or installed.label == "source" or at_least(installed.version, "2.8.0") is False:
        return
    is_old = at_least(told.environment.glibc, "2.32") is False
    if not is_old and said is None:
        return
    if installed.version is None and said is None:
        return
    floor = said.params.get("version", "2.32") if said is not None else "2.32"
    fixes: tuple[Fix, ...] = (
        (moved("flash-attn", installed.version, "2.7.4.post1"),),
        (
            Action(
                "install_build",
                package="flash-attn",
                build="source",
                command="pip install flash-attn --no-build-isolation --no-binary flash-attn",
            ),
        ),
        (Action("os_or_glibc", from_=f"glibc {told.environment.glibc}", to=f"glibc>={floor}"),),
    )
    text = message(
        "stack.flash_attn_glibc",
        version=installed.version or "",
        floor=floor,
        has=told.environment.glibc or "?",
    )
    verdict: Verdict = "will_fail" if said or installed.label else "may_fail"
    yield Finding(
        "glibc_too_old",
        verdict,
        text,
        "flash-attn-glibc",
        "both" if said and is_old else "message" if said else "facts",
        19,
        ("flash-attn",),
        fixes,
        (facts.rule_fact("flash-attn-glibc"),),
    )


def _vllm_glibc(told: Told) -> Finding | None:
    """vLLM pins a torch whose wheel may need a newer C library than vLLM's own tag says."""
    version = _asked("vllm", told, None)
    row = facts.release("vllm", version)
    machine = told.environment
    if row is None or version is None or machine.glibc is None:
        return None
    needed = _vllm_needs(row)
    if needed is None or at_least(machine.glibc, needed) is not False:
        return None
    pinned = row["torch"].removeprefix("==")
    older = next((item for item in facts.releases("vllm").items() if _fits_glibc(item[1], machine)), None)
    fixes: list[Fix] = []
    if older is not None:
        torch = older[1]["torch"].removeprefix("==")
        present = told.installed("torch")
        steps = (
            moved("vllm", version, str(older[0])),
            moved("torch", (present.version if present else None) or pinned, torch),
        )
        fixes.append(steps if present is not None else steps[:1])
    fixes.append((Action("os_or_glibc", from_=f"glibc {machine.glibc}", to=f"glibc>={needed}"),))
    said = told.symptom("no_matching_distribution", "glibc_not_found")
    text = message("stack.glibc_below", package="vllm", version=version, floor=needed, has=machine.glibc)
    return Finding(
        "glibc_too_old",
        "will_fail",
        text,
        "vllm-glibc",
        "both" if said else "facts",
        18,
        ("vllm", "torch"),
        tuple(fixes),
        (facts.fact("vllm", row), facts.rule_fact("vllm-glibc")),
    )


def _vllm_needs(row: Row) -> str | None:
    torch = facts.release("torch", row["torch"].removeprefix("=="))
    floors = [
        parse(item)
        for item in (row["glibc_min_x86_64"], torch["glibc_min_x86_64"] if torch is not None else None)
    ]
    known = [item for item in floors if item is not None]
    return str(max(known)) if known else None


def _fits_glibc(row: Row, machine: Environment) -> bool:
    needed = _vllm_needs(row)
    return (
        needed is not None
        and row["torch"].startswith("==")
        and at_least(machine.glibc, needed) is True
        and limits.python_fits(machine, row) is not False
    )


def python_end_of_life(told: Told) -> Iterator[Finding]:
    """A Python that gets no more fixes."""
    python = minor(told.environment.python)
    row = next((item for item in facts.table("python_eol") if item["python"] == python), None)
    if row is not None and row["status"] == "end-of-life":
        text = message("stack.python_ended", python=python or "", day=row["end_of_life"])
        fix = (Action("python", from_=told.environment.python, to=">=3.11"),)
        yield Finding(
            "python_end_of_life",
            "may_fail",
            text,
            "python-wheel-window",
            "facts",
            90,
            fixes=(fix,),
            facts=(facts.fact("python_eol", row),),
        )


RULES: tuple[Rule, ...] = (
    no_wheel,
    glibc_too_old,
    python_end_of_life,
)
