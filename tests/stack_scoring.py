"""Score a check against reported conflicts: is the cause named, is an accepted fix among the first two proposals?"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from raceline.present.documents import load_yaml
from raceline.stack import facts
from raceline.stack.check import Report, check
from raceline.stack.readers import read_text
from raceline.stack.result import Action

ROOT = Path(__file__).parents[1]
CASES = Path(os.environ.get("RACELINE_CASES") or ROOT.parent / "shared") / "cases" / "stack.yaml"
LOOKED_AT = 2


class Score(msgspec.Struct, frozen=True):
    """How one case came out; `first` is the cause of the first finding."""

    id: str
    kind: str
    causes: tuple[str, ...]
    is_first: bool
    is_named: bool
    is_fixed: bool
    proposals: tuple[tuple[Action, ...], ...]


def load_cases() -> list[dict[str, Any]]:
    """The cases, or none where they are not handed."""
    if not CASES.is_file():
        return []
    found = load_yaml(CASES)["cases"]
    assert isinstance(found, list)
    return found


def as_yaml(case: dict[str, Any]) -> str:
    """What a person knows of the case, as its entry is written: set-up and message."""
    lines = ["setup:"]
    for name, value in case["setup"].items():
        if name == "packages":
            lines.append("  packages:")
            lines.extend(f"    {package}: {version}" for package, version in value.items())
        else:
            lines.append(f"  {name}: {value}")
    return "\n".join([*lines, f"key_token: {case['key_token']}"]) + "\n"


def as_issue(case: dict[str, Any]) -> str:
    """The same as an issue is written: bullet points, versions as pip prints them where there are any, the error."""
    words = {"os": "OS", "gpu": "GPU", "cuda": "CUDA", "driver": "NVIDIA driver", "python": "Python"}
    lines = ["**Environment**", ""]
    for name, value in case["setup"].items():
        if name == "packages":
            for package, version in value.items():
                is_exact = re.fullmatch(r"\d+(\.\w+)+(\+\w+)?", str(version)) and package not in (
                    "cudnn",
                    "gcc",
                )
                lines.append(f"{package}=={version}" if is_exact else f"- {package}: {version}")
        else:
            lines.append(f"- {words.get(name, name)}: {value}")
    return "\n".join([*lines, "", "**Error**", "```", str(case["key_token"]), "```"]) + "\n"


def as_json(case: dict[str, Any]) -> str:
    """The same as a program would hand it over."""
    return json.dumps({name: case[name] for name in ("setup", "symptom", "key_token")})


def as_list(case: dict[str, Any]) -> str:
    """The same as a few lines in a chat: ``torch 2.8.0+cu128``, the message, what was seen."""
    lines = []
    for name, value in case["setup"].items():
        if name == "packages":
            lines.extend(f"{package} {version}" for package, version in value.items())
        else:
            lines.append(f"{name}: {value}")
    return "\n".join([*lines, "", str(case["key_token"]), str(case["symptom"])]) + "\n"


FORMS = {"yaml": as_yaml, "issue": as_issue, "json": as_json, "list": as_list}


def score(case: dict[str, Any], form: str = "yaml") -> Score:
    """How the check judges the case, told in that form."""
    report = check(read_text(FORMS[form](case)))
    causes = tuple(item.cause for item in report.findings if item.verdict != "fine")
    return Score(
        id=case["id"],
        kind=case["kind"],
        causes=causes,
        is_first=causes[:1] == (case["kind"],),
        is_named=case["kind"] in causes,
        is_fixed=_is_fixed(report, case["accepted"]),
        proposals=report.proposals[:LOOKED_AT],
    )


def _is_fixed(report: Report, accepted: list[list[dict[str, Any]]]) -> bool:
    return any(matches(proposal, wanted) for proposal in report.proposals[:LOOKED_AT] for wanted in accepted)


def matches(proposal: tuple[Action, ...], wanted: list[dict[str, Any]]) -> bool:
    """Whether a proposal does what an accepted fix does: the same steps, each within what is accepted."""
    left = list(proposal)
    for step in wanted:
        found = next((action for action in left if _is_within(action, step)), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _is_within(action: Action, step: dict[str, Any]) -> bool:
    if action.action != step["action"] or (step.get("package") and action.package != step["package"]):
        return False
    if action.action == "env_var" and step.get("name") and action.name != step["name"]:
        return False
    return _same_build(action.build, step.get("build")) and is_inside(
        action.to, step.get("to"), action.package
    )


def _same_build(ours: str | None, theirs: str | None) -> bool:
    if theirs is None or ours == theirs:
        return True
    return theirs in ("cu11", "cu12", "cu13") and bool(ours) and str(ours).startswith(theirs)


def is_inside(ours: str | None, theirs: str | None, package: str | None = None) -> bool:
    """Whether every version that `ours` admits is admitted by `theirs`; the known releases and both sides' own
    bounds are tried."""
    if theirs is None or ours == theirs:
        return True
    if ours is None:
        return False
    mine, yours = _bounds(ours), _bounds(theirs)
    if mine is None or yours is None:
        return _words(ours) == _words(theirs)
    tried = {*facts.releases(package or ""), *map(Version, re.findall(r"\d+(?:\.\d+)*", f"{ours} {theirs}"))}
    tried |= {
        Version(f"{item}.1")
        for item in tried
        if not item.is_prerelease and item.local is None and not item.is_postrelease
    }
    admitted = [item for item in tried if mine.contains(item, prereleases=True)]
    return bool(admitted) and all(yours.contains(item, prereleases=True) for item in admitted)


def _bounds(text: str) -> SpecifierSet | None:
    found = re.fullmatch(r"(?:glibc|macOS)?\s*([<>=!~].*)", text.strip(), re.IGNORECASE)
    try:
        return SpecifierSet(found[1]) if found else None
    except ValueError:
        return None


def _words(text: str) -> str:
    return re.sub(r"\W+", "", text).lower()
