"""The calculation behind a plan, as a view of the same result."""

from __future__ import annotations

from raceline.estimate.view import explain_view
from raceline.plan.result import Plan
from raceline.plan.view import hardware, plan_view
from raceline.present.views import Group, Heading, View


def explained(plan: Plan) -> View:
    """The plan's screen, then each pick's calculation."""
    parts: list[View] = [plan_view(plan)]
    for pick in plan.picks:
        parts.append(Group((Heading(hardware(pick), level=2), explain_view(pick.estimate, pick.scenario))))
    if plan.shortfall and plan.shortfall.estimate:
        parts.append(explain_view(plan.shortfall.estimate))
    return Group(tuple(parts))
