"""Scoring: every measured value predicted by constants that were fitted without its group."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from raceline.accuracy import fit
from raceline.accuracy.constants import Constants, pack, stored
from raceline.accuracy.folds import KINDS, folds, kinds_by_group, label
from raceline.accuracy.observations import Observation, Observations, observe
from raceline.accuracy.quantiles import Residuals
from raceline.accuracy.result import Scored, Scores, Unscored, Verdict
from raceline.estimate import constants
from raceline.estimate.calibration import UNSCALED, Calibration
from raceline.estimate.hardware import Catalogue
from raceline.estimate.ranges import verdict
from raceline.estimate.run import Read
from raceline.estimate.spread import Spread
from raceline.evidence import published
from raceline.evidence.exclusions import exclusions
from raceline.evidence.rows import Row
from raceline.present.text import render

Floats = NDArray[np.float64]


def published_rows() -> list[Row]:
    """All rows of the tables that ship."""
    return [row for table in published.tables() for row in published.rows(table)]


def observed(catalogue: Catalogue, read: Read, rows: Sequence[Row] | None = None) -> Observations:
    """The measured values of rows (all published ones), as physics alone predicts them."""
    return observe(published_rows() if rows is None else rows, catalogue, read, constants.physics())


def refitted(observations: Observations) -> Constants:
    """All constants fitted anew: of the whole evidence and of each fold."""
    found = fit.refit(observations, folds(observations.items, kinds_by_group(observations.items)))
    return pack(found.names, found.whole, found.folds)


def score_published(catalogue: Catalogue, read: Read, refit: bool = False) -> Scores:
    """The published tables, each value predicted without its own group."""
    started = time.perf_counter()
    rows = published_rows()
    observations = observed(catalogue, read, rows)
    known = refitted(observations) if refit else stored()
    scored, said, _ = score(observations, known)
    return _scores(rows, observations, scored, said, started)


def score(observations: Observations, known: Constants) -> tuple[list[Scored], list[Verdict], Residuals]:
    """Every measured value under each kind of fold that its group is cut by, what is said of runs that fitted or
    not without their source, and the residuals."""
    kinds = kinds_by_group(observations.items)
    cut = {
        kind: [i for i, item in enumerate(observations.items) if kind in kinds[item.group]] for kind in KINDS
    }
    count, scales = observations.prepared.count, [_whole(observations, known)]
    for kind, index in cut.items():
        scales.append(_left_out([observations.items[i] for i in index], count, known, kind))
    within, *left_out = observations.predicted_under(scales)
    chosen = {kind: [i for i in index if _is_timed(observations.items[i])] for kind, index in cut.items()}
    items = [observations.items[i] for index in chosen.values() for i in index]
    labels = [label(observations.items[i], kind) for kind, index in chosen.items() for i in index]
    at = [i for index in chosen.values() for i in index]
    predictions = [
        float(value) for found, index in zip(left_out, chosen.values(), strict=True) for value in found[index]
    ]
    residuals = _residuals(items, predictions, labels)
    scored = _with_ranges(items, labels, np.array(predictions), within[at], residuals, observations)
    reports = [item for item in observations.items if not _is_timed(item)]
    needed = left_out[KINDS.index("source")][[not _is_timed(item) for item in observations.items]]
    limits = observations.limit_gib(scales[0])[[item.at for item in reports]]
    ends = {name: residuals.verdict(name) for name in {label(item, "source") for item in reports}}
    spreads = [Spread(verdict=ends[label(item, "source")]) for item in reports]
    return scored, verdicts(reports, needed, limits, spreads), residuals


def _is_timed(item: Observation) -> bool:
    return item.metric != "fits"


def _residuals(
    items: Sequence[Observation], predictions: Sequence[float], labels: Sequence[str]
) -> Residuals:
    measured = np.array([item.measured for item in items])
    sign = np.array([item.sign for item in items])
    with np.errstate(divide="ignore", invalid="ignore"):
        return Residuals(items, sign * np.log(measured / np.array(predictions)), labels)


def _whole(observations: Observations, known: Constants) -> Floats:
    return observations.scale(known.calibration(None))


def _left_out(items: Sequence[Observation], count: int, known: Constants, kind: str) -> Floats:
    """The factors of `count` scenarios, with its own fold's constants where one is among `items`."""
    calibrations: dict[str, Calibration] = {}
    scale = np.tile(np.array(UNSCALED), (count, 1))
    for item in items:
        name = label(item, kind)
        if name not in known.folds:
            continue
        if name not in calibrations:
            calibrations[name] = known.calibration(name)
        scale[item.at] = calibrations[name].scale(item.keys)
    return scale


def _with_ranges(
    items: Sequence[Observation], labels: Sequence[str], predicted: Floats, within: Floats, residuals: Residuals,
    observations: Observations,
) -> list[Scored]:  # fmt: skip
    ends: dict[tuple[str, str, str], tuple[float, float]] = {}
    scored = []
    for index, (item, name) in enumerate(zip(items, labels, strict=True)):
        if not residuals.usable[index]:
            continue
        key = (item.group, item.keys.model_class, name)
        if key not in ends:
            ends[key] = residuals.ends(*key)
        low, high = ends[key]
        width = residuals.widths(name)[residuals.tiers[index]]
        mid = float(predicted[index])
        around = item.around(mid, low * width, high * width)
        scored.append(scored_of(item, observations, name, mid, around, float(within[index])))
    return scored


def scored_of(
    item: Observation, observations: Observations, fold: str, predicted: float, ends: tuple[float, float],
    within: float,
) -> Scored:  # fmt: skip
    """One record of the score."""
    row, choice = item.row, observations.prepared.choices[item.at]
    assert choice is not None
    return Scored(
        id=row.id,
        table=row.table,
        source=row.source,
        source_url=row.source_url,
        group=item.group,
        metric=item.metric,
        model=row.model,
        family=item.family,
        accelerator=item.keys.accelerator,
        framework=row.framework or item.keys.runtime,
        parameters_b=observations.parameters_b(item.at),
        measured=item.measured,
        predicted=predicted,
        low=float(ends[0]),
        high=float(ends[1]),
        in_sample=within,
        fold=fold,
        assumed=row.assumed,
        reason=row.doubtful,
    )


def score_files(paths: Sequence[str | Path], catalogue: Catalogue, read: Read) -> Scores:
    """Rows of files. One that stands in the evidence is predicted as there, without its group; any
    other by the constants that ship, with the range that an estimate of it would have."""
    started = time.perf_counter()
    rows = [row for path in paths for row in published.read(path)]
    known_ids = published.ids()
    own = [row for row in rows if (row.table, row.id) not in known_ids]
    scores = _score_own(own, catalogue, read, started)
    if len(own) == len(rows):
        return scores
    wanted = {(row.table, row.id) for row in rows if (row.table, row.id) in known_ids}
    return _joined(scores, score_published(catalogue, read), wanted, time.perf_counter() - started)


def _score_own(rows: Sequence[Row], catalogue: Catalogue, read: Read, started: float) -> Scores:
    observations = observed(catalogue, read, rows)
    calibration = constants.load().calibration
    scale = observations.scale(calibration)
    predicted = observations.predicted(scale)
    spread = constants.load().spread
    scored = []
    for item, value in zip(observations.items, predicted.tolist(), strict=True):
        if not _is_timed(item) or not np.isfinite(value) or item.measured <= 0:
            continue
        around = item.around(value, *spread.offsets(item.group, item.keys))
        scored.append(scored_of(item, observations, "none", value, around, value))
    is_report = [not _is_timed(item) for item in observations.items]
    reports = [item for item in observations.items if not _is_timed(item)]
    limits = observations.limit_gib(scale)[[item.at for item in reports]]
    said = verdicts(reports, predicted[is_report], limits, [spread] * len(reports))
    return _scores(rows, observations, scored, said, started)


def _joined(own: Scores, whole: Scores, wanted: set[tuple[str, str]], seconds: float) -> Scores:
    """The scores of a user's rows with those of the published rows that the files hold too."""
    return Scores(
        rows=own.rows + len(wanted),
        scored=(*own.scored, *(item for item in whole.scored if (item.table, item.id) in wanted)),
        verdicts=(*own.verdicts, *(item for item in whole.verdicts if (item.table, item.id) in wanted)),
        unscored=(*own.unscored, *(item for item in whole.unscored if (item.table, item.id) in wanted)),
        seconds=seconds,
    )


def _scores(
    rows: Sequence[Row], observations: Observations, scored: Sequence[Scored], said: Sequence[Verdict],
    started: float,
) -> Scores:  # fmt: skip
    return Scores(
        rows=len(rows),
        scored=tuple(scored),
        verdicts=tuple(said),
        unscored=tuple(unscored(rows, observations)),
        seconds=round(time.perf_counter() - started, 1),
    )


def unscored(rows: Sequence[Row], observations: Observations) -> list[Unscored]:
    """The rows without a score: by a rule of the data, or because `estimate` refuses the scenario."""
    rules = exclusions()
    found = []
    for row in rows:
        if row.unscored is not None:
            rule = rules.get(row.unscored)
            found.append(
                Unscored(
                    id=row.id,
                    table=row.table,
                    source=row.source,
                    rule=row.unscored,
                    reason=rule.reason if rule else row.unscored,
                )
            )
        elif row.id in observations.refused:
            error = observations.refused[row.id]
            found.append(
                Unscored(
                    id=row.id,
                    table=row.table,
                    source=row.source,
                    rule=error.message.id,
                    reason=render(error.message),
                )
            )
    return found


def verdicts(
    reports: Sequence[Observation], needed: Floats, limits: Floats, spreads: Sequence[Spread]
) -> list[Verdict]:
    """What is said of runs that are known to have fitted or not (GiB)."""
    return [
        Verdict(
            id=item.row.id, table=item.row.table, source=item.row.source, source_url=item.row.source_url,
            model=item.row.model, accelerator=item.keys.accelerator, framework=item.row.framework,
            ran=item.measured > 0, said=verdict(need, room, spread), needed_gib=need, limit_gib=room,
        )
        for item, need, room, spread in zip(reports, needed.tolist(), limits.tolist(), spreads, strict=True)
    ]  # fmt: skip
