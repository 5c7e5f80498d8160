"""Judge a stack by all rules: what will fail, what may, what is fine; what blocks first stands first."""

from __future__ import annotations

import msgspec

from raceline.present.errors import Message
from raceline.stack.apply import apply
from raceline.stack.result import Finding, Fix
from raceline.stack.rules import all_rules
from raceline.stack.told import Told

_ORDER = {"will_fail": 0, "may_fail": 1, "fine": 2}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was told, and the findings in order; `proposals` are their fixes, the first to try first.

    `verdict` is that of the worst finding, None where nothing could be judged. `end_of_line` says which is the
    last stack for an old GPU; `unknown` what could not be judged and why; `notes` how the text was read and how
    old the facts are. `ready_for` names the plan that was checked against.
    """

    told: Told
    verdict: str | None = None
    findings: tuple[Finding, ...] = ()
    proposals: tuple[Fix, ...] = ()
    end_of_line: Message | None = None
    unknown: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()
    ready_for: str | None = None
    schema: str = "raceline.stack/1"


def check(told: Told) -> Report:
    """All findings on a stack. What a message reported and what will fail stands before what may.

    Of the fixes of a finding, those stand first after which the rules find the least left that will fail.
    """
    found = sorted(_findings(told), key=_rank)
    found = [_with_best_first(item, told) for item in found]
    proposals = tuple(dict.fromkeys(fix for item in found if item.verdict != "fine" for fix in item.fixes))
    end = next((item.text for item in found if item.cause == "end_of_line"), None)
    return Report(
        told=told,
        verdict=found[0].verdict if found else None,
        findings=tuple(found),
        proposals=proposals,
        end_of_line=end,
    )


def _findings(told: Told) -> list[Finding]:
    return [finding for rule in all_rules() for finding in rule(told)]


def _with_best_first(item: Finding, told: Told) -> Finding:
    if item.verdict == "fine" or len(item.fixes) < 2:
        return item
    left = {fix: _broken_after(told, fix) for fix in item.fixes}
    return msgspec.structs.replace(item, fixes=tuple(sorted(item.fixes, key=left.__getitem__)))


def _broken_after(told: Told, fix: Fix) -> int:
    weights = {"will_fail": 3, "may_fail": 1, "fine": 0}
    return sum(weights[finding.verdict] for finding in _findings(apply(told, fix)))


def _rank(item: Finding) -> tuple[int, bool, int]:
    return _ORDER[item.verdict], item.basis == "facts", item.blocks
