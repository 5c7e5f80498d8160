"""How far apart measurements of the same scenario are: what no estimate can go below."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from raceline.accuracy.totals import median
from raceline.evidence.rows import Row


class Floor(msgspec.Struct, frozen=True, kw_only=True):
    """Scenarios of one group that were measured more than once. `spread`: the median over them of largest /
    smallest - 1; `across`: those that several sources measured, and `spread_across` theirs; `error`: the median
    |error| of the estimate that knows nothing but the scenario and says the middle of its values."""

    group: str
    scenarios: int
    values: int
    spread: float
    error: float
    across: int
    spread_across: float | None


def floors(rows: Iterable[Row], groups: Mapping[tuple[str, str], str]) -> tuple[Floor, ...]:
    """By group, from rows whose scenarios are the same but for their ids; `groups` is by row id and metric."""
    found: dict[str, list[list[tuple[str, float]]]] = defaultdict(list)
    for (group, _, _), values in _repeated(rows, groups).items():
        # the same figure of one source twice is one measurement, printed twice
        apart = sorted(set(values))
        if len(apart) > 1:
            found[group].append(apart)
    return tuple(_floor(group, found[group]) for group in sorted(found))


def _repeated(
    rows: Iterable[Row], groups: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str, str], list[tuple[str, float]]]:
    """Source and value by group, metric and scenario."""
    found: dict[tuple[str, str, str], list[tuple[str, float]]] = defaultdict(list)
    for row in rows:
        scenario = {name: value for name, value in (row.scenario or {}).items() if name != "id"}
        text = json.dumps(scenario, sort_keys=True, default=str)
        for value in row.measured:
            group = groups.get((row.id, value.metric))
            if group is not None and value.value > 0:
                found[group, value.metric, text].append((row.source, value.value))
    return found


def _floor(group: str, scenarios: Sequence[Sequence[tuple[str, float]]]) -> Floor:
    spreads = [_spread(values) for values in scenarios]
    across = [_spread(values) for values in scenarios if len({source for source, _ in values}) > 1]
    errors = [error for values in scenarios for error in _errors([value for _, value in values])]
    return Floor(
        group=group,
        scenarios=len(scenarios),
        values=sum(map(len, scenarios)),
        spread=median(spreads),
        error=median(errors),
        across=len(across),
        spread_across=median(across) if across else None,
    )


def _spread(values: Sequence[tuple[str, float]]) -> float:
    return max(value for _, value in values) / min(value for _, value in values) - 1.0


def _errors(values: Sequence[float]) -> list[float]:
    """|middle / value - 1| of each."""
    middle = median(values)
    return [abs(middle / value - 1.0) for value in values]
