"""protobuf: code that one compiler generated, and the runtime that loads it."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from raceline.measure.environment import Distribution
from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.fixes import moved
from raceline.stack.result import Action, ActionKind, Fact, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, parse


def protobuf_major(told: Told) -> Iterator[Finding]:
    """Generated code and protobuf's runtime must fit: by what a message says, and by TensorFlow's bounds."""
    said = told.symptom("protobuf_descriptors")
    tensorflow, protobuf = _tensorflow(told), told.installed("protobuf")
    row = facts.release("tensorflow", tensorflow.version if tensorflow else None)
    version = (protobuf.version if protobuf is not None else None) or (
        said.params.get("runtime") if said else None
    )
    bounds = row["protobuf"] if row is not None else ""
    outside = bool(bounds) and admits(bounds, version) is False
    is_uncapped = (
        row is not None and "<" not in bounds and at_least(version, "4") is True and _is_old(tensorflow)
    )
    if said is None and not outside and not is_uncapped:
        return
    to, name = _wanted(said, bounds if outside and not is_uncapped else "")
    text = message(
        "stack.protobuf_outside",
        protobuf=version or "?",
        package=f"tensorflow {tensorflow.version or ''}" if tensorflow else "?",
        bounds=to,
    )
    yield Finding(
        "protobuf_major",
        "will_fail" if said or is_uncapped else "may_fail",
        text,
        "protobuf-major",
        ("both" if outside or is_uncapped else "message") if said else "facts",
        33,
        ("protobuf",),
        _fixes(tensorflow, version, to),
        (
            facts.rule_fact(
                "protobuf-cross-version"
                if name or (said and said.params.get("gencode"))
                else "protobuf-major"
            ),
            *((facts.fact("protobuf_names", name),) if name is not None else ()),
            *_package_fact(tensorflow),
        ),
    )


def _package_fact(tensorflow: Distribution | None) -> tuple[Fact, ...]:
    return facts.package_fact("tensorflow", tensorflow.version) if tensorflow is not None else ()


def _tensorflow(told: Told) -> Distribution | None:
    return told.installed("tensorflow") or told.installed("tensorflow-cpu")


def _is_old(tensorflow: Distribution | None) -> bool:
    """Rule `protobuf-major`: releases before 2.10 have no cap and break with protobuf 4."""
    return tensorflow is not None and at_least(tensorflow.version, "2.10") is False


def _wanted(said: Symptom | None, declared: str) -> tuple[str, facts.Row | None]:
    """The protobuf that fits: as declared, as the message says, else before 4; and the row that it stands on."""
    name = said.params.get("name") if said is not None else None
    row = next((row for row in facts.table("protobuf_names") if row["name"] == name), None) if name else None
    if declared:
        return declared, row
    if row is not None:
        return (f">={row['first_version']}" if row["first_version"] else f"<{row['gone_in']}"), row
    made = parse(said.params.get("gencode") if said is not None else None)
    if made is not None:
        return f">={made},<{made.major + 1}", None
    return "<4", None


def _fixes(tensorflow: Distribution | None, version: str | None, to: str) -> tuple[Fix, ...]:
    """The patch release of TensorFlow that caps protobuf, the protobuf that fits, or the TensorFlow for the present
    one."""
    fixes: list[Fix] = []
    later = _capped_tensorflow(tensorflow.version) if tensorflow is not None else None
    if tensorflow is not None and later is not None:
        fixes.append((moved(tensorflow.name, tensorflow.version, later),))
    line = f'pip install "protobuf{to}"'
    fixes.append((Action(_kind(version, to), package="protobuf", from_=version, to=to, command=line),))
    other = _tensorflow_for(tensorflow, version) if tensorflow is not None and later is None else None
    if tensorflow is not None and other is not None:
        fixes.append((moved(tensorflow.name, tensorflow.version, other),))
    return tuple(fixes)


def _kind(version: str | None, to: str) -> ActionKind:
    now = parse(version)
    if now is None:
        return "upgrade" if to.startswith(">=") and "<" not in to else "downgrade"
    floor = max((item for item in map(_floor, to.split(",")) if item is not None), default=None)
    return "upgrade" if floor is not None and now < floor else "downgrade"


def _floor(part: str) -> Version | None:
    return parse(part.strip().removeprefix(">=")) if part.strip().startswith(">=") else None


def _capped_tensorflow(version: str | None) -> str | None:
    """For a release without a cap on protobuf: the next patch release of its minor that has one."""
    now, row = parse(version), facts.release("tensorflow", version)
    if now is None or (row is not None and "<" in row["protobuf"]):
        return None
    found = [
        known
        for known, row in facts.releases("tensorflow").items()
        if known.release[:2] == now.release[:2] and known > now and "<" in row["protobuf"]
    ]
    return str(min(found)) if found else None


def _tensorflow_for(tensorflow: Distribution, version: str | None) -> str | None:
    """The nearest later release that takes the protobuf that is there."""
    now = parse(tensorflow.version)
    if now is None or version is None:
        return None
    found = [
        known
        for known, row in facts.releases("tensorflow").items()
        if known > now
        and not _is_old(Distribution("tensorflow", str(known)))
        and admits(row["protobuf"], version)
    ]
    return str(min(found)) if found else None


RULES: tuple[Rule, ...] = (protobuf_major,)
