"""Published reports of what fitted (``fit.yaml``): whether a run started, and its peak where that is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from raceline.evidence import exclusions
from raceline.evidence.fit_cases import scenario_of
from raceline.evidence.rows import Measured, Metric, Row

COLUMNS = frozenset(
    {"id", "source_url", "as_of", "evidence", "confidence", "workload", "hardware", "outcome"}
)
TABLE = "fit"
# Whose figure a framework prints: the allocator's peak in use, what the allocator took, else the driver's tool.
COUNTERS: dict[str, Metric] = {
    "litgpt": "memory_allocated_gib", "torchtune": "memory_allocated_gib", "detectron2": "memory_allocated_gib",
    "diffusers": "memory_allocated_gib", "torchtitan": "memory_reserved_gib",
}  # fmt: skip


def adapt(record: Mapping[str, Any]) -> Row:
    """One report as a row; raises InputError where it has a word that no rule knows."""
    case = scenario_of(dict(record))
    workload, hardware, outcome = record["workload"], record["hardware"], record["outcome"]
    unscored = exclusions.named(case.id)
    framework = str(workload.get("framework") or "")
    return Row(
        id=case.id, table=TABLE, source=publication(case.source_url), source_url=case.source_url,
        year=_year(str(record["as_of"])), model=str(workload["model"]), accelerator=str(hardware["gpu"]),
        framework=framework, note=str(outcome.get("note") or ""),
        scenario=None if unscored else case.scenario,
        measured=(Measured("fits", float(case.fits)), *_peak(framework, hardware, outcome)),
        assumed=case.assumed, unscored=unscored,
        doubtful="confidence" if record["confidence"] == "low" else None,
    )  # fmt: skip


def publication(url: str) -> str:
    """Who published a page: owner and name of a repository (the words of the other tables), a hub's owner and
    name, else the host."""
    place = urlsplit(url)
    folders = [part for part in place.path.split("/") if part]
    if place.netloc == "github.com":
        return "/".join(folders[:2])
    return "/".join((place.netloc, *folders[:2])) if place.netloc == "huggingface.co" else place.netloc or url


def _year(date: str) -> int | None:
    return int(date[:4]) if date[:4].isdigit() else None


def _peak(framework: str, hardware: Mapping[str, Any], outcome: Mapping[str, Any]) -> tuple[Measured, ...]:
    """The peak of one device, where the run fitted; a figure of all devices together is divided by them."""
    peak = outcome.get("peak_mem_gib")
    if not peak or not outcome["fits"]:
        return ()
    devices = hardware.get("gpus") or 1 if str(outcome.get("peak_is")).startswith("sum") else 1
    name = framework.split("+")[0].split()[0] if framework else ""
    return (Measured(COUNTERS.get(name, "memory_device_gib"), float(peak) / devices),)
