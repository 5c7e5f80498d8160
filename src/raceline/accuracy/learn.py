"""Learning from a user's own runs: factors of their own, on top of the evidence's, and a narrower range.

Each own run says how far the estimate of its machine was off. Two scopes learn from it: the accelerator with this
class of model and runtime, and, less, the accelerator as such. Both are pulled to what the evidence says, so one
run moves an estimate most of the way and three nearly all of it.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy.observations import Observations, observe
from raceline.estimate import constants
from raceline.estimate.calibration import KINDS, TIME_KINDS, Calibration, own_scopes
from raceline.estimate.constants import Efficiency
from raceline.estimate.figures import prepare
from raceline.estimate.hardware import Catalogue
from raceline.estimate.run import Read
from raceline.estimate.spread import support_names
from raceline.evidence import loglines, published
from raceline.evidence.learned import Entry, next_id
from raceline.evidence.rows import Measured, Row
from raceline.models.read import listed_name, read_listed
from raceline.present import documents
from raceline.present.errors import InputError, message
from raceline.present.views import Cell, Column, Group, Table, Text, View

Floats = NDArray[np.float64]
# Spread of repeated measurements of one setup, and how far one machine may lie from the evidence: the same
# card, class and runtime, and the card as such.
NOISE = 0.04
NEAR, WIDE = 0.3, 0.1
# A range never gets narrower than this share of the evidence's: settings differ between runs of one machine.
NARROWEST = 0.4


def learned(entries: Sequence[Entry], catalogue: Catalogue, read: Read, efficiency: Efficiency) -> Efficiency:
    """The constants with what these runs teach."""
    if not entries:
        return efficiency
    rows = [
        Row(
            id=entry.id,
            table="own",
            source="own",
            source_url="",
            scenario=entry.scenario,
            measured=entry.measured,
        )
        for entry in entries
    ]
    observations = observe(rows, catalogue, read, efficiency)
    if not len(observations):
        return efficiency
    return replace(
        efficiency,
        calibration=Calibration({**efficiency.calibration.by_scope, **_shifts(observations, efficiency)}),
        spread=replace(efficiency.spread, own=_narrower(observations)),
    )


def _shifts(observations: Observations, efficiency: Efficiency) -> dict[str, Floats]:
    """Log factors (arrays over KINDS) of the own scopes."""
    predicted, slopes = observations.sensitivity(observations.scale(efficiency.calibration))
    with np.errstate(divide="ignore", invalid="ignore"):
        target = observations.sign * np.log(observations.measured / predicted)
    names: list[tuple[str, int]] = []
    columns: list[Floats] = []
    widths: list[float] = []
    scopes = defaultdict[str, list[int]](list)
    for at, item in enumerate(observations.items):
        for scope in own_scopes(item.keys):
            scopes[scope].append(at)
    for scope, members in scopes.items():
        width = NEAR if scope.count("/") > 1 else WIDE
        for kind in (-1, *range(len(TIME_KINDS), len(KINDS))):
            values = slopes[:, : len(TIME_KINDS)].sum(axis=1) if kind < 0 else slopes[:, kind]
            column = np.zeros(len(observations))
            column[members] = values[members]
            names.append((scope, kind))
            columns.append(column)
            widths.append(width)
    found: dict[str, Floats] = {}
    for (scope, kind), value in zip(
        names, _solved(np.stack(columns, axis=1), target, np.array(widths)), strict=True
    ):
        logs = found.setdefault(scope, np.zeros(len(KINDS)))
        logs[: len(TIME_KINDS) if kind < 0 else None] += value if kind < 0 else 0.0
        if kind >= 0:
            logs[kind] += value
    return found


def _solved(x: Floats, target: Floats, widths: Floats) -> Floats:
    usable = np.isfinite(target)
    x, target = x[usable], target[usable]
    normal = x.T @ x / NOISE**2 + np.diag(widths**-2.0)
    return np.asarray(np.linalg.solve(normal, x.T @ target / NOISE**2))


def _narrower(observations: Observations) -> dict[str, float]:
    """How much narrower the range of each supported setup is: by the number of own runs of it."""
    counts = Counter(support_names(item.keys)[0] for item in observations.items)
    return {name: round(max(NARROWEST, (1.0 + count) ** -0.5), 3) for name, count in counts.items()}


def entries_of(
    what: str | Path | Mapping[str, Any] | None, measured: Mapping[str, float], log: str | None,
    known: Sequence[Entry], catalogue: Catalogue, read: Read,
) -> tuple[Entry, ...]:  # fmt: skip
    """What is to be kept: the runs of a table, or one scenario with its figures. Raises InputError where a
    scenario can't be estimated or nothing was measured."""
    if isinstance(what, (str, Path)) and _is_table(Path(what)):
        pairs, read = _runs_of(Path(what)), cache(read_listed)
    else:
        figures = (*_given(measured), *(loglines.figures(log) if log else ()))
        pairs = [(dict(_scenario(what)), figures, "")]
    if not any(figures for _, figures, _ in pairs):
        raise InputError("evidence.nothing_measured", field="FILE", given=(log or "-")[:60])
    first = int(next_id(known)[3:])
    today = str(datetime.date.today())
    fresh = [
        Entry(id=f"own{first + at}", scenario=scenario, measured=figures, learned_on=today, note=note)
        for at, (scenario, figures, note) in enumerate(pairs)
        if figures
    ]
    _check(fresh, catalogue, read)
    return tuple(fresh)


def _runs_of(table: Path) -> list[tuple[dict[str, Any], tuple[Measured, ...], str]]:
    """Scenario, figures and id of a table's runs. What it names as a model is never opened, fetched or run, now or
    when the kept run is read again: only listed models are kept, under their own names."""
    found = []
    for row in published.read(table):
        scenario = row.scenario or {}
        name = listed_name(str(scenario.get("model") or ""))
        if row.unscored is None and name is not None:
            figures = tuple(value for value in row.measured if value.metric != "fits")
            found.append(({**scenario, "model": name}, figures, row.id))
    return found


def _is_table(path: Path) -> bool:
    return path.suffix.lower() == ".csv"


def _scenario(what: str | Path | Mapping[str, Any] | None) -> Mapping[str, Any]:
    if isinstance(what, Mapping):
        return what
    if what is None:
        raise InputError("evidence.scenario_missing", field="FILE")
    path = Path(what)
    found = documents.load_json(path) if path.suffix == ".json" else documents.load_yaml(path)
    if not isinstance(found, Mapping):
        raise InputError("evidence.scenario_missing", field="FILE", given=str(path))
    return found


def _given(measured: Mapping[str, float]) -> tuple[Measured, ...]:
    for name, value in measured.items():
        if not 0 < value < 1e12:
            raise InputError("evidence.measured_wrong", field=name, given=f"{value:g}")
    return tuple(Measured(name, float(value)) for name, value in measured.items())  # type: ignore[arg-type]


def _check(fresh: Sequence[Entry], catalogue: Catalogue, read: Read) -> None:
    """Every scenario must be one that `estimate` answers."""
    prepared = prepare([entry.scenario for entry in fresh], catalogue, read, constants.physics())
    for error in prepared.errors.values():
        raise error


def learned_view(found: Sequence[Entry], undone: bool = False) -> View:
    """Own runs as a table."""
    columns = (
        Column(message("evidence.column_id")),
        Column(message("evidence.column_scenario")),
        Column(message("evidence.column_measured")),
        Column(message("evidence.column_date")),
    )
    rows: list[tuple[Cell, ...]] = [
        (entry.id, _named(entry), _figures(entry), entry.learned_on) for entry in found
    ]
    name = "evidence.undone" if undone else "evidence.learned" if rows else "evidence.nothing_learned"
    items: list[View] = [Text(message(name))]
    return Group((*items, Table(columns, tuple(rows))) if rows else tuple(items))


def _named(entry: Entry) -> str:
    hardware = entry.scenario.get("hardware") or {}
    return f"{entry.scenario.get('model')} · {hardware.get('count', 1)} × {hardware.get('accelerator')}"


def _figures(entry: Entry) -> str:
    return ", ".join(f"{value.metric} {value.value:,.4g}" for value in entry.measured)
