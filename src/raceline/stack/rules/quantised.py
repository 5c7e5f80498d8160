"""bitsandbytes: a wheel holds one native library for each CUDA that it was built for."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.result import Action, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import Standing, torch_of
from raceline.stack.told import Told
from raceline.stack.versions import admits, label_of, major, minor, parse


def bitsandbytes(told: Told) -> Iterator[Finding]:
    """bitsandbytes loads the library of torch's CUDA; a wheel without it, or for another system, has none to load."""
    said = told.symptom("bnb_setup")
    found = told.installed("bitsandbytes")
    torch = torch_of(told)
    version = found.version if found is not None else None
    if said is None and (found is None or version is None or (torch is not None and torch.is_cpu)):
        return
    lacks_windows = told.environment.os == "windows" and _has_windows(version) is False
    row = _libraries(told, version)
    cuda = torch.cuda if torch is not None else None
    loads = None if row is None or cuda is None else _library_for(cuda, row) is not None
    if said is None and not lacks_windows and loads is not False:
        if loads and row is not None:
            text = message("stack.bitsandbytes_fits", version=version or "", cuda=cuda or "")
            yield Finding(
                "bitsandbytes_binary", "fine", text, "bitsandbytes-cuda",
                facts=(facts.fact("bitsandbytes_cuda", row),),
            )  # fmt: skip
        return
    is_shown = lacks_windows or loads is False
    text = message(
        "stack.bitsandbytes_no_library",
        version=version or "",
        os=told.environment.os or "?",
        cuda=cuda or "?",
    )
    yield Finding(
        "bitsandbytes_binary",
        "will_fail" if said or lacks_windows or (torch is not None and torch.is_sure) else "may_fail",
        text,
        "bitsandbytes-cuda",
        ("both" if is_shown else "message") if said else "facts",
        34,
        ("bitsandbytes",),
        _fixes(told, version, torch, row, lacks_windows),
        _stands(version, row),
    )


def _stands(version: str | None, row: facts.Row | None) -> tuple[Fact, ...]:
    libraries = (facts.fact("bitsandbytes_cuda", row), facts.rule_fact("bitsandbytes-nearest")) if row else ()
    return (*facts.package_fact("bitsandbytes", version), *libraries, facts.rule_fact("bitsandbytes-cuda"))


def _has_windows(version: str | None) -> bool | None:
    """Whether the release has a wheel for Windows; one that is not known is taken for one from before there were any
    only by a message that says so."""
    row = facts.release("bitsandbytes", version)
    return "win_amd64" in row["platforms"].split() if row is not None else False if version is None else None


def _libraries(told: Told, version: str | None) -> facts.Row | None:
    platform = limits.platform_of(told.environment) or "linux_x86_64"
    return next(
        (
            row
            for row in facts.table("bitsandbytes_cuda")
            if row["platform"] == platform and parse(row["version"]) == parse(version)
        ),
        None,
    )


def _library_for(cuda: str, row: facts.Row) -> str | None:
    """The CUDA of the library that is loaded under a torch of this CUDA."""
    there = row["cuda"].split()
    if minor(cuda) in there:
        return minor(cuda)
    near = [item for item in there if major(item) == major(cuda)]
    return _nearest(cuda, near) if row["takes_nearest"] == "yes" and near else None


def _nearest(cuda: str, there: list[str]) -> str:
    """The newest that is not above the wanted one, else the oldest."""
    below = [item for item in there if Version(item) <= Version(cuda)]
    return max(below, key=Version) if below else min(there, key=Version)


def _fixes(
    told: Told, version: str | None, torch: Standing | None, row: facts.Row | None, lacks_windows: bool
) -> tuple[Fix, ...]:
    """A release with the library, another library of the release that is there, or Linux."""
    fixes: list[Fix] = []
    fitting = [known for known in sorted(facts.releases("bitsandbytes")) if _fits(known, told, torch)]
    now = parse(version)
    later = [known for known in fitting if now is None or known > now]
    if later:
        first = later[0] if lacks_windows or row is not None else later[-1]
        fixes.append((_moved("upgrade", version, _range(first, later[-1])),))
    elif fitting:
        fixes.append((_moved("downgrade", version, f">={fitting[0]},<={fitting[-1]}"),))
    if lacks_windows:
        fixes.append((Action("os_or_glibc", from_="native Windows", to="Linux"),))
    cuda = torch.cuda if torch is not None else None
    near = [item for item in row["cuda"].split() if cuda and major(item) == major(cuda)] if row else []
    if cuda and row is not None and _library_for(cuda, row) is not None:
        fixes.append((Action("env_var", name="LD_LIBRARY_PATH"),))
    elif cuda and near:
        code = label_of(_nearest(cuda, near))[2:]
        line = f"export BNB_CUDA_VERSION={code}"
        fixes.append((Action("env_var", name="BNB_CUDA_VERSION", to=code, command=line),))
    return tuple(fixes)


def _range(first: Version, last: Version) -> str:
    if first == last:
        return f"=={first}"
    is_newest = last == next(iter(facts.releases("bitsandbytes")))
    return f">={first}" if is_newest else f">={first},<={last}"


def _moved(kind: str, version: str | None, bounds: str) -> Action:
    line = f'pip install "bitsandbytes{bounds}"'
    return Action(kind, package="bitsandbytes", from_=version, to=bounds, command=line)  # type: ignore[arg-type]


def _fits(known: Version, told: Told, torch: Standing | None) -> bool:
    """Whether a release has a library for torch's CUDA, and wheels for the Python and the platform."""
    release = facts.releases("bitsandbytes")[known]
    row = _libraries(told, str(known))
    if row is None or limits.python_fits(told.environment, release) is False:
        return False
    if torch is None:
        return True
    if torch.version is not None and admits(release["torch"], torch.version) is False:
        return False
    return torch.cuda is None or _library_for(torch.cuda, row) is not None


RULES: tuple[Rule, ...] = (bitsandbytes,)
