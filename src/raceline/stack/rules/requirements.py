"""What an installer says that it broke: requirements of packages that no table may hold."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.utils import canonicalize_name

from raceline.present.errors import message
from raceline.stack import facts
from raceline.stack.result import Action, ActionKind, Finding
from raceline.stack.rules import Rule
from raceline.stack.told import Told
from raceline.stack.versions import admits, parse, specifier


def broken_requirements(told: Told) -> Iterator[Finding]:
    """pip tells which declared bounds an installation breaks and leaves it so; what a table holds is judged by it."""
    for said in told.symptoms:
        if said.id != "requirement_broken":
            continue
        package, other = (canonicalize_name(said.params[name]) for name in ("package", "other"))
        version, bounds, has = (said.params[name] for name in ("version", "bounds", "has"))
        row = facts.release(package, version)
        if (row is not None and row.get(other)) or admits(bounds, has) is not False:
            continue
        text = message(
            "stack.outside_bounds", package=package, version=version, other=other, bounds=bounds, has=has
        )
        line = f'pip install "{other}{bounds}"'
        step = Action(_kind(has, bounds), package=other, from_=has, to=bounds, command=line)
        yield Finding(
            "requirement_conflict",
            "may_fail",
            text,
            "declared-bounds",
            "message",
            50,
            (package, other),
            ((step,),),
            (facts.rule_fact("declared-requirements"),),
        )


def _kind(has: str, bounds: str) -> ActionKind:
    now, wanted = parse(has), specifier(bounds)
    if now is None or wanted is None:
        return "pin"
    floors = [parse(item.version) for item in wanted if item.operator in (">=", "==", "~=", ">")]
    return "upgrade" if any(floor is not None and now < floor for floor in floors) else "downgrade"


RULES: tuple[Rule, ...] = (broken_requirements,)
