"""The Python twins of the commands: they load facts and models and call the layers below."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raceline.estimate.hardware import Catalogue
from raceline.models.graph import Model

if TYPE_CHECKING:
    from raceline.accuracy.report import By, Report
    from raceline.estimate.constants import Efficiency
    from raceline.estimate.result import Estimate
    from raceline.estimate.scenario import Scenario
    from raceline.evidence.learned import Entry
    from raceline.evidence.neighbours import Neighbours
    from raceline.plan.result import Plan
    from raceline.present.errors import RacelineError


def load_catalogue(own_file: str | Path | None = None) -> Catalogue:
    """The facts that ship with raceline, merged with a user's own YAML file where one is named."""
    from raceline.catalog import load, own, resolve

    mine = own.load(Path(own_file)) if own_file else own.OwnCatalog()
    return Catalogue(
        accelerators={**load.accelerators(), **mine.accelerators},
        nodes={**load.nodes(), **mine.nodes},
        links={**load.links(), **mine.links},
        offers=(*load.offers(), *mine.offers),
        resolve=partial(resolve.accelerator_or_processor, own=mine),
        today=datetime.date.today(),
    )


def store_path() -> Path:
    """Where a user's own runs are kept: in the folder that RACELINE_HOME names, else in the user's data folder."""
    home = os.environ.get("RACELINE_HOME")
    if home:
        return Path(home) / "learned.jsonl"
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "raceline" / "learned.jsonl"


def load_constants(known: Catalogue) -> Efficiency:
    """The constants that ship, with what the user's own runs teach."""
    from raceline.estimate import constants
    from raceline.evidence import learned

    runs = learned.entries(store_path())
    if not runs:
        return constants.load()
    from raceline.accuracy.learn import learned as taught

    return taught(runs, known, cache(read_model), constants.load())


def learned_runs() -> tuple[Entry, ...]:
    """The user's own runs, the oldest first."""
    from raceline.evidence import learned

    return learned.entries(store_path())


def learn(
    what: str | Path | Mapping[str, Any] | None = None,
    *,
    measured: Mapping[str, float] | None = None,
    log: str | None = None,
    own: str | Path | None = None,
) -> tuple[Entry, ...]:
    """Keep a run: a scenario with figures or a log line, or every run of a table; returns what was kept.

    >>> raceline.learn({"model": "llama-3.1-8b", "hardware": {"accelerator": "h100-sxm"}}, log="1.42 s/it")

    Raises InputError where the scenario can't be estimated, or nothing measured is given.
    """
    from raceline.accuracy.learn import entries_of
    from raceline.evidence import learned

    path, known = store_path(), load_catalogue(own)
    fresh = entries_of(what, dict(measured or {}), log, learned.entries(path), known, cache(read_model))
    learned.add(path, fresh)
    return fresh


def unlearn(name: str | None = None) -> Entry:
    """Take back a run of the user's own: the one with this id, or the newest."""
    from raceline.evidence import learned

    return learned.remove(store_path(), name)


def measured_runs() -> Neighbours:
    """The index of published runs that an estimate names its neighbours from."""
    from raceline.evidence.neighbours import shipped

    return shipped()


def read_model(reference: str, image_size: int | None = None) -> Model:
    """A model by bundled name, file, folder, ``hf:ORG/NAME`` or ``module:function``."""
    from raceline.models import read

    return read.read_model(reference, image_size=image_size)


def estimate(scenario: Scenario | Mapping[str, Any], *, own: str | Path | None = None) -> Estimate:
    """The estimate of one scenario (a Scenario or a mapping like its YAML).

    >>> raceline.estimate({"model": "llama-3.1-8b", "hardware": {"accelerator": "h100-sxm"}}).fits

    Raises InputError where the scenario is wrong.
    """
    from raceline.estimate.run import estimate_one

    known = load_catalogue(own)
    return estimate_one(scenario, known, cache(read_model), load_constants(known), measured_runs())


def estimate_all(
    scenarios: Iterable[Scenario | Mapping[str, Any]], *, own: str | Path | None = None
) -> list[Estimate | RacelineError]:
    """Estimates in the order of the scenarios; an error stands in the place of one that failed."""
    from raceline.estimate.run import estimate_many

    known = load_catalogue(own)
    return estimate_many(
        list(scenarios), known, cache(read_model), load_constants(known), neighbours=measured_runs()
    )


def plan(model: str | Model, *, own: str | Path | None = None, **wish: Any) -> Plan:
    """Ranked hardware and settings for a model; `wish` takes the fields of `PlanRequest`.

    >>> raceline.plan("llama-3.1-8b", method="lora", tokens=100e6).picks[0].accelerator
    """
    from raceline.plan.make import make_plan
    from raceline.plan.request import PlanRequest

    found = read_model(model, wish.get("image_size")) if isinstance(model, str) else model
    wish.setdefault("today", datetime.date.today())
    known = load_catalogue(own)
    return make_plan(PlanRequest(model=found, **wish), known, load_constants(known))


def accuracy(
    files: str | Path | Iterable[str | Path] = (),
    *,
    by: By | None = None,
    worst: int = 10,
    refit: bool = False,
    own: str | Path | None = None,
) -> Report:
    """Errors on the published runs, or on the rows of files in the same formats; `by` breaks them down.

    >>> raceline.accuracy(by="accelerator").errors.median

    Raises InputError where a file can't be read, fits no format or holds no rows.
    """
    from raceline.accuracy.report import KEYS, report_of
    from raceline.accuracy.score import score_files, score_published
    from raceline.models.read import read_listed
    from raceline.present.errors import InputError

    paths = [files] if isinstance(files, (str, Path)) else list(files)
    if by is not None and by not in KEYS:
        raise InputError("accuracy.by_unknown", field="by", given=by, known=", ".join(KEYS))
    known, read = load_catalogue(own), cache(read_listed)
    scores = score_files(paths, known, read) if paths else score_published(known, read, refit=refit)
    if not scores.rows:
        raise InputError("accuracy.no_rows", field="FILE", given=", ".join(map(str, paths)))
    return report_of(scores, by, worst)


def catalog(kind: str = "accelerators", name: str | None = None) -> Any:
    """Rows of the catalogue by id, or the one that `name` means."""
    from raceline.catalog import load, resolve
    from raceline.present.errors import InputError

    tables = {
        "accelerators": load.accelerators, "cpus": load.cpus, "links": load.links, "storage": load.storage,
        "offers": load.offers, "runtimes": load.runtimes,
    }  # fmt: skip
    if kind not in tables:
        raise InputError("catalog.unknown_kind", field="kind", given=kind, known=", ".join(tables))
    if name is None:
        return tables[kind]()
    find = {
        "accelerators": lambda text: resolve.accelerator(text).accelerator, "cpus": resolve.cpu,
        "links": resolve.link, "storage": resolve.storage, "runtimes": resolve.runtime,
    }  # fmt: skip
    if kind == "offers":
        wanted = resolve.accelerator(name).accelerator.id
        return tuple(offer for offer in load.offers() if offer.accelerator == wanted)
    return find[kind](name)
