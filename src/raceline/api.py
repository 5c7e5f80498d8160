"""The Python twins of the commands: they load facts and models and call the layers below."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from raceline.accuracy.report import By, Report
    from raceline.estimate.constants import Efficiency
    from raceline.estimate.hardware import Catalogue
    from raceline.estimate.result import Estimate
    from raceline.estimate.scenario import Scenario
    from raceline.evidence.learned import Entry
    from raceline.evidence.neighbours import Neighbours
    from raceline.measure.environment import Environment
    from raceline.models.graph import Model
    from raceline.plan.result import Plan
    from raceline.present.errors import RacelineError
    from raceline.stack.check import Report as StackReport
    from raceline.stack.request import Preference, Solution, StackRequest


def load_catalogue(own_file: str | Path | None = None) -> Catalogue:
    """The facts that ship with raceline, merged with a user's own YAML file where one is named."""
    from raceline.catalog import load, own, resolve
    from raceline.estimate.hardware import Catalogue

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
    return with_stack(make_plan(PlanRequest(model=found, **wish), known, load_constants(known)), known)


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


def stack_check(
    text: str | bytes | None = None,
    *,
    here: bool | None = None,
    for_plan: Mapping[str, Any] | None = None,
    environment: str | Path | None = None,
) -> StackReport:
    """What will fail, may fail or is fine in a software stack: this machine's, or the one that a text tells of.

    `text` is anything people paste (collect_env, nvidia-smi, pip freeze, a Dockerfile, an error log); `here` judges
    it on this machine. `for_plan` is a plan (`raceline plan --json`): is the machine ready for its first pick?
    `environment` is the folder of another Python environment than the active one.

    >>> raceline.stack_check("GPU: GTX 1080 Ti, torch==2.11.0").findings[0].cause

    Raises InputError where the text or the plan can't be read.
    """
    from raceline.stack.readers import read_text
    from raceline.stack.ready import judged
    from raceline.stack.told import Told, joined

    told = Told() if text is None else read_text(text)
    if here if here is not None else text is None:
        told = joined(told, _this_machine(environment))
    return judged(told, datetime.date.today(), None if for_plan is None else stack_request(for_plan))


def _this_machine(environment: str | Path | None = None) -> Environment:
    from raceline.measure.machine import read_environment
    from raceline.stack.gpus import with_capabilities

    return with_capabilities(read_environment(prefix=Path(environment) if environment else None))


def stack_solve(
    want: Iterable[str],
    *,
    gpu: str | None = None,
    driver: str | None = None,
    python: str | None = None,
    os: str | None = None,
    keep: str | bytes | None = None,
    prefer: Preference = "stable",
    with_uv: bool = True,
) -> Solution:
    """Versions of the wanted packages that work together on a machine; what is not said of it is this one's.

    `gpu` is a name (``RTX 3090``, ``gfx1100``) or ``none``; with a `gpu` the driver is free unless given. `os` is a
    system (``linux``, ``ubuntu 20.04``, ``windows``, ``macos 14``). `keep` is a text that lists what should stay.
    `with_uv` lets uv, where it is installed, fill in what the packages need beside them.

    >>> raceline.stack_solve(["torch", "vllm"], gpu="V100", driver="535").picks

    Raises InputError where a wish can't be read.
    """
    from raceline.stack.asked import request_of
    from raceline.stack.readers import read_text
    from raceline.stack.solver import solve

    kept = read_text(keep) if keep is not None else None
    asked = request_of(
        list(want), _this_machine(), gpu=gpu, driver=driver, python=python, os=os, keep=kept, prefer=prefer
    )
    return solve(asked, with_uv=with_uv)


def stack_request(plan: Plan | Mapping[str, Any], known: Catalogue | None = None) -> StackRequest:
    """The software that a plan's first pick needs, on its hardware, as a request to the solver.

    Raises InputError where the plan has no pick or its hardware is not known.
    """
    from raceline.catalog import load, resolve
    from raceline.stack.planned import planned

    name, count, runtime = _first_pick(plan)
    own = known.accelerators.get(name) if known is not None else None
    device = own if own is not None else resolve.device(name)
    found = load.runtimes().get(runtime)
    capability = getattr(device, "compute_capability", None)
    return planned(
        found.packages if found is not None else (),
        device.name,
        device.vendor,
        getattr(device, "kind", "cpu"),
        None if capability is None else f"{capability:.1f}",
        count,
    )


def _first_pick(plan: Plan | Mapping[str, Any]) -> tuple[str, int, str]:
    """Accelerator, count and runtime of a plan's first pick."""
    from raceline.present.errors import InputError

    if not isinstance(plan, Mapping):
        pick = plan.picks[0]
        return pick.accelerator, pick.count, pick.scenario.setup.runtime or ""
    try:
        told = plan["picks"][0]
        return str(told["accelerator"]), int(told["count"]), str(told["scenario"]["setup"]["runtime"])
    except (KeyError, IndexError, TypeError, ValueError):
        given = str(plan.get("schema", "JSON"))[:80]
        raise InputError("stack.not_a_plan", field="for", given=given) from None


def with_stack(plan: Plan, known: Catalogue | None = None) -> Plan:
    """The plan with a set of software that runs its first pick, where it has one whose packages are known."""
    from raceline.stack.solver import solve

    if not plan.picks:
        return plan
    request = stack_request(plan, known)
    return msgspec.structs.replace(plan, stack=solve(request)) if request.want else plan
