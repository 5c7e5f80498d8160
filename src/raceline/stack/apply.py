"""A stack as it would be once a fix has been applied: what rules judge to see that a fix leaves nothing broken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from raceline.measure.environment import Distribution, Environment, Gpu
from raceline.stack import facts, limits
from raceline.stack.result import Action, Fix
from raceline.stack.told import Told
from raceline.stack.versions import parse, specifier


def apply(told: Told, fix: Fix) -> Told:
    """What would be told after the fix: packages, driver, … changed, and the errors gone."""
    environment = told.environment
    for action in fix:
        environment = _CHANGES.get(action.action, _nothing)(environment, action)
    names = {action.package for action in fix if action.package}
    wanted = tuple(item for item in told.requirements if item.name not in names)
    return msgspec.structs.replace(
        told, environment=environment, symptoms=(), requirements=wanted, installers={}, index_labels=()
    )


def chosen_version(
    package: str | None, bounds: str | None, present: str | None, machine: Environment
) -> str | None:
    """The version that a bound leads to: the lowest known release above a floor, else the newest that is admitted."""
    if bounds is None:
        return None
    found = specifier(bounds)
    if found is None:
        return None
    known = [
        version for version, row in facts.releases(package or "").items()
        if version in found and not version.is_prerelease and limits.python_fits(machine, row) is not False
    ]  # fmt: skip
    if known:
        return str(min(known) if ">" in bounds else max(known))
    now = parse(present)
    if now is not None and now in found:
        return str(now)
    return _of_bound(bounds)


def _of_bound(bounds: str) -> str | None:
    parts = [item.strip() for item in bounds.split(",")]
    for sign in ("==", "<=", ">="):
        for part in parts:
            if part.startswith(sign):
                return part.removeprefix(sign).removesuffix(".*")
    for part in parts:
        if part.startswith("<") and (top := parse(part[1:])) is not None:
            return _below(top.release)
    return None


def _below(release: tuple[int, ...]) -> str:
    """A version just below: 2.11 is 2.10.99, 9 is 8.99."""
    last = max((index for index, part in enumerate(release) if part), default=0)
    return ".".join(map(str, (*release[:last], release[last] - 1, 99)))


def _install(environment: Environment, action: Action) -> Environment:
    name = action.package or ""
    if name in ("cudnn", "nccl", "tensorrt") and environment.distribution(name) is None:
        return msgspec.structs.replace(
            environment, **{name: chosen_version(name, action.to, None, environment)}
        )
    present = environment.distribution(name)
    version = chosen_version(name, action.to, present.version if present else None, environment)
    keeps = present is not None and (version in (None, present.version) or action.to is None)
    label = action.build or (present.label if present is not None and keeps else None)
    if version is None and present is not None and action.to is None and action.action == "install_build":
        version = present.version
    item = Distribution(name, version, label, "pip")
    rest = tuple(known for known in environment.distributions if known.name != name)
    return msgspec.structs.replace(environment, distributions=(*rest, item))


def _remove(environment: Environment, action: Action) -> Environment:
    changes: dict[str, Any] = {"shadows": ()}
    if action.package in ("cudnn", "nccl"):
        changes[action.package] = None
    if action.package == "cuda-compat":
        changes["has_cuda_compat"] = False
    kept = tuple(item for item in environment.distributions if item.name != action.package)
    shared = tuple(
        item for item in environment.shared_files if action.package not in (item.first, item.second)
    )
    return msgspec.structs.replace(environment, distributions=kept, shared_files=shared, **changes)


def _driver(environment: Environment, action: Action) -> Environment:
    bound = action.to or ""
    # of a branch that may not be reached, the one before
    floor = str(int(bound[1:]) - 1) if bound[:1] == "<" and bound[1:].isdigit() else _of_bound(bound)
    return msgspec.structs.replace(environment, driver=floor or environment.driver, driver_cuda=None)


def _toolkit(environment: Environment, action: Action) -> Environment:
    known = [row["cuda"] for row in facts.table("cuda_driver")]
    bounds = specifier(action.to or "")
    version = next(
        (item for item in known if bounds is not None and item in bounds), _of_bound(action.to or "")
    )
    image = version if environment.image_cuda else None
    return msgspec.structs.replace(environment, toolkit=version, image_cuda=image)


def _python(environment: Environment, action: Action) -> Environment:
    bounds = specifier(action.to or "")
    rows = [row["python"] for row in facts.table("python_eol")]
    fitting = [item for item in rows if bounds is not None and item in bounds]
    return msgspec.structs.replace(environment, python=fitting[-1] if fitting else _of_bound(action.to or ""))


def _system(environment: Environment, action: Action) -> Environment:
    text = (action.to or "").lower()
    if "wsl" in text:
        return msgspec.structs.replace(environment, os="linux", os_name=None, os_version=None, is_wsl=True)
    if "linux" in text:
        return msgspec.structs.replace(environment, os="linux", os_name=None, os_version=None)
    floor = _of_bound(text[text.find(">") :]) if ">" in text else None
    if text.startswith("glibc"):
        return msgspec.structs.replace(environment, glibc=floor, os_name=None, os_version=None)
    return msgspec.structs.replace(environment, os_version=floor or environment.os_version)


def _compiler(environment: Environment, action: Action) -> Environment:
    return msgspec.structs.replace(environment, gcc=_of_bound(action.to or ""))


def _variable(environment: Environment, action: Action) -> Environment:
    if action.name == "LD_LIBRARY_PATH":
        return msgspec.structs.replace(
            environment, library_path=(), shadows=(), cudnn=None, has_cuda_compat=None
        )
    if action.name == "HSA_OVERRIDE_GFX_VERSION":
        return msgspec.structs.replace(environment, gfx_override=action.to)
    if action.name == "PATH" and environment.other_toolkits:
        return msgspec.structs.replace(
            environment, toolkit=max(environment.other_toolkits, key=lambda x: parse(x) or 0)
        )
    if (
        settled := {"TRITON_PTXAS_PATH": "triton", "BNB_CUDA_VERSION": "bitsandbytes"}.get(action.name or "")
    ) is not None:
        kept = tuple(item for item in environment.distributions if item.name != settled)
        return msgspec.structs.replace(environment, distributions=kept)
    return environment


def _hardware(environment: Environment, action: Action) -> Environment:
    return msgspec.structs.replace(environment, gpus=(Gpu(name=action.to),) if action.to else ())


def _other(environment: Environment, action: Action) -> Environment:
    return _install(environment, action) if action.package else environment


def _nothing(environment: Environment, action: Action) -> Environment:
    return environment


_CHANGES: dict[str, Callable[[Environment, Action], Environment]] = {
    "install_build": _install, "upgrade": _install, "downgrade": _install, "pin": _install, "remove": _remove,
    "driver": _driver, "toolkit": _toolkit, "python": _python, "os_or_glibc": _system, "compiler": _compiler,
    "env_var": _variable, "hardware": _hardware, "other": _other,
}  # fmt: skip
