"""Judge a stack by all rules: what will fail, what may, what is fine; what blocks first stands first."""

from __future__ import annotations

import msgspec

from raceline.stack.result import Finding, Fix
from raceline.stack.rules import all_rules
from raceline.stack.told import Told

_ORDER = {"will_fail": 0, "may_fail": 1, "fine": 2}


class Report(msgspec.Struct, frozen=True):
    """What was told, and the findings in order; `proposals` are their fixes, the first to try first."""

    told: Told
    findings: tuple[Finding, ...] = ()
    proposals: tuple[Fix, ...] = ()


def check(told: Told) -> Report:
    """All findings on a stack. What a message reported and what will fail stands before what may."""
    found = [finding for rule in all_rules() for finding in rule(told)]
    found.sort(key=_rank)
    proposals = tuple(dict.fromkeys(fix for item in found if item.verdict != "fine" for fix in item.fixes))
    return Report(told, tuple(found), proposals)


def _rank(item: Finding) -> tuple[int, bool, int]:
    return _ORDER[item.verdict], item.basis == "facts", item.blocks
