"""The binary interface of NumPy."""

from __future__ import annotations

from collections.abc import Iterator

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.fixes import install_command
from raceline.stack.result import Action, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.standing import torch_of
from raceline.stack.told import Told
from raceline.stack.versions import admits, at_least


def numpy_abi(told: Told) -> Iterator[Finding]:
    """What was built against NumPy 1 does not load under NumPy 2."""
    said = told.symptom("numpy_abi")
    numpy = told.installed("numpy")
    version = (numpy.version if numpy is not None else None) or (said.params.get("numpy") if said else None)
    is_two = at_least(version, "2") is True
    old = [name for name, first in _first_for_two().items() if _is_before(told, name, first)]
    if said is None and not (is_two and old):
        wanted = told.requirement("numpy")
        torch = torch_of(told)
        if (
            numpy is None
            and wanted is None
            and torch is not None
            and at_least(torch.version, "2.3") is False
            and _is_requirement(told, "torch")
        ):
            yield _unpinned_numpy(torch.version or "")
        return
    down = Action("downgrade", package="numpy", from_=version, to="<2", command='pip install "numpy<2"')
    fixes: list[Fix] = [(down,)]
    name = old[0] if old else next((item for item in ("opencv-python", "torch") if told.mentions(item)), None)
    if name is not None:
        found = told.installed(name)
        first = _first_for_two().get(name, "2.3.0")
        fixes.append(
            (
                Action(
                    "upgrade",
                    package=name,
                    from_=found.version if found else None,
                    to=f">={'2.4' if name == 'torch' else first}",
                    command=install_command([f"{name}>={first}"]),
                ),
            )
        )
    text = message("stack.numpy_too_new", numpy=version or "2", packages=", ".join(old) or name or "?")
    stands = (facts.rule_fact("numpy2-abi-torch"), *(fact for item in old for fact in _two_fact(item)))
    yield Finding(
        "numpy_abi",
        "will_fail",
        text,
        "numpy2-abi-torch",
        "both" if said and old and is_two else "message" if said else "facts",
        32,
        tuple(old) or ("numpy",),
        tuple(fixes),
        stands,
    )


def numpy_older(told: Told) -> Iterator[Finding]:
    """What was built against a newer NumPy does not load under an older one."""
    said = told.symptom("numpy_older")
    if said is None:
        return
    numpy = told.installed("numpy")
    version = numpy.version if numpy is not None else None
    row = _api_row(said.params.get("built"))
    first = row["first_version"] if row is not None else "2"
    line = f'pip install "numpy>={first}"'
    rise = Action("upgrade", package="numpy", from_=version, to=f">={first}", command=line)
    yield Finding(
        "numpy_abi",
        "will_fail",
        message("stack.numpy_too_old", numpy=version or "?", first=first),
        "numpy-c-api",
        "both" if at_least(version, first) is False else "message",
        32,
        ("numpy",),
        ((rise,),),
        (facts.rule_fact("numpy-c-api"), *((facts.fact("numpy_api", row),) if row is not None else ())),
    )


def _api_row(code: str | None) -> facts.Row | None:
    """The NumPy that brought a version of the C API, which messages give in hexadecimal."""
    if code is None:
        return None
    return next((row for row in facts.table("numpy_api") if int(row["api"]) == int(code, 16)), None)


def _is_requirement(told: Told, name: str) -> bool:
    return told.environment.distribution(name) is None and told.requirement(name) is not None


def _unpinned_numpy(torch: str) -> Finding:
    fix = (Action("pin", package="numpy", to="<2", command='pip install "numpy<2"'),)
    text = message("stack.numpy_unpinned", torch=torch)
    return Finding(
        "numpy_abi",
        "may_fail",
        text,
        "numpy2-abi-torch",
        "facts",
        45,
        ("torch", "numpy"),
        (fix,),
        (facts.rule_fact("numpy2-abi-torch"),),
    )


def _first_for_two() -> dict[str, str]:
    return {row["package"]: row["first_version"] for row in facts.table("numpy2_builds")}


def _two_fact(name: str) -> tuple[Fact, ...]:
    return tuple(
        facts.fact("numpy2_builds", row) for row in facts.table("numpy2_builds") if row["package"] == name
    )


def _is_before(told: Told, name: str, first: str) -> bool:
    found = told.installed(name)
    return found is not None and at_least(found.version, first) is False


def tensorflow_numpy(told: Told) -> Iterator[Finding]:
    """TensorFlow's range of NumPy."""
    tensorflow, numpy = (
        told.installed("tensorflow") or told.installed("tensorflow-cpu"),
        told.installed("numpy"),
    )
    row = facts.release("tensorflow", tensorflow.version if tensorflow else None)
    if (
        row is None
        or numpy is None
        or tensorflow is None
        or not row["numpy"]
        or admits(row["numpy"], numpy.version) is not False
    ):
        return
    fix = (
        Action(
            "pin",
            package="numpy",
            from_=numpy.version,
            to=row["numpy"],
            command=f'pip install "numpy{row["numpy"]}"',
        ),
    )
    text = message(
        "stack.outside_bounds",
        package="tensorflow",
        version=tensorflow.version or "",
        other="numpy",
        bounds=row["numpy"],
        has=numpy.version or "",
    )
    yield Finding(
        "tensorflow_numpy",
        "may_fail",
        text,
        "numpy-range-tensorflow",
        "facts",
        46,
        ("tensorflow", "numpy"),
        (fix,),
        (facts.fact("tensorflow", row), facts.rule_fact("numpy-range-tensorflow")),
    )


RULES: tuple[Rule, ...] = (
    numpy_abi,
    numpy_older,
    tensorflow_numpy,
)
