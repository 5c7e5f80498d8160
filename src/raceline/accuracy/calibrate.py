"""Calibration: every constant fitted anew on the evidence, as the files that ship."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import msgspec

from raceline.accuracy.constants import Constants, encode
from raceline.accuracy.observations import Observations
from raceline.accuracy.quantiles import Residuals
from raceline.accuracy.result import Scored
from raceline.accuracy.score import observed, refitted, score
from raceline.estimate.constants import Fitted
from raceline.estimate.hardware import Catalogue
from raceline.estimate.neighbourhood import features_of
from raceline.estimate.run import Read
from raceline.evidence.neighbours import Index, build
from raceline.evidence.neighbours import encode as encode_index
from raceline.models import count
from raceline.present.errors import message
from raceline.present.views import Cell, Column, Table, View

SCHEMA = "raceline.calibration/1"


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration gives: the file that `estimate` reads, the folds' constants, the scores."""

    fitted: Fitted
    index: Index
    constants: Constants
    scored: tuple[Scored, ...]


def calibrate(catalogue: Catalogue, read: Read) -> Calibrated:
    """Fit on the evidence that ships, and take the ranges from the left-out residuals."""
    observations = observed(catalogue, read)
    known = refitted(observations)
    scored, _, residuals = score(observations, known)
    return Calibrated(
        fitted=_fitted(known, residuals), index=index_of(observations), constants=known, scored=tuple(scored)
    )


def index_of(observations: Observations) -> Index:
    """The measured values as the index of neighbours."""
    rows, parameters = [], dict[str, float]()
    for item in observations.items:
        choice = observations.prepared.choices[item.at]
        if choice is None or item.metric == "fits":
            continue
        name = choice.scenario.model
        if name not in parameters:
            parameters[name] = float(count.parameters_active(choice.model))
        setup = choice.scenario.setup
        batch = float(choice.concurrency if choice.task == "infer" else setup.micro_batch or 1)
        features = features_of(choice, parameters[name], batch)
        rows.append((item.row.id, item.metric, item.measured, item.row.source_url, features))
    return build(rows)


def _fitted(known: Constants, residuals: Residuals) -> Fitted:
    spread = residuals.spread()
    return Fitted(
        schema=SCHEMA,
        as_of=str(datetime.date.today()),
        constants=known.of(None),
        ranges=dict(spread.groups),
        widths=spread.widths,
        support=dict(spread.counts),
        verdict=spread.verdict,
    )


def write(found: Calibrated, package: Path) -> tuple[Path, ...]:
    """Write what ships into a package folder; returns the files' paths."""
    shipped = package / "estimate" / "data" / "calibration.json"
    shipped.write_bytes(msgspec.json.format(msgspec.json.encode(found.fitted), indent=1) + b"\n")
    neighbours = package / "evidence" / "data" / "neighbours.json.gz"
    neighbours.write_bytes(encode_index(found.index))
    folds = package / "accuracy" / "data" / "folds.json.gz"
    folds.write_bytes(encode(found.constants))
    return shipped, folds, neighbours


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What a calibration did."""

    constants: int
    scopes: int
    folds: int
    values: int
    files: dict[str, int]
    schema: str = "raceline.calibrated/1"


def summary_of(found: Calibrated, paths: Sequence[Path]) -> Summary:
    """How many constants were fitted on how many values, and the files with their bytes."""
    return Summary(
        constants=sum(len(kinds) for kinds in found.fitted.constants.values()),
        scopes=len(found.fitted.constants),
        folds=len(found.constants.folds),
        values=len(found.index.ids),
        files={path.name: path.stat().st_size for path in paths},
    )


def summary_view(summary: Summary) -> View:
    """The summary as one table."""
    rows: list[tuple[Cell, ...]] = [
        (message("accuracy.calibrated_constants"), f"{summary.constants:,}"),
        (message("accuracy.calibrated_scopes"), f"{summary.scopes:,}"),
        (message("accuracy.calibrated_folds"), f"{summary.folds:,}"),
        (message("accuracy.calibrated_values"), f"{summary.values:,}"),
        *((name, f"{size:,} bytes") for name, size in summary.files.items()),
    ]
    return Table((Column(""), Column("", align="right")), tuple(rows), has_header=False)
