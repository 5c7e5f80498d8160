"""Measure what users feel: CPU seconds of cold starts, estimates a second, configurations a second.

python tools/bench.py            print the table; exit 1 where a limit is missed
python tools/bench.py --write    also write docs/performance.md
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

LINES = 8000
REPEATS = 5
PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"


class Figure(NamedTuple):
    """A measured figure, its limit and whether it keeps it."""

    name: str
    value: float
    unit: str
    limit: float
    is_most: bool

    @property
    def holds(self) -> bool:
        """Whether the limit is kept."""
        return self.value <= self.limit if self.is_most else self.value >= self.limit

    def row(self) -> str:
        """A line of the table."""
        sign = "≤" if self.is_most else "≥"
        shown = f"{self.value:,.0f}" if self.value >= 100 else f"{self.value:.2f}"
        return f"| {self.name} | {shown} {self.unit} | {sign} {self.limit:,g} | {'yes' if self.holds else 'NO'} |"


def best(measure: Callable[[], float]) -> float:
    """The least of several runs: what the program needs when the machine lets it."""
    return min(measure() for _ in range(REPEATS))


def cpu_s(*arguments: str) -> float:
    """User + system CPU seconds of a fresh process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "raceline", *arguments]
    # as installed: modules are compiled once and kept, and not anew at every start
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, capture_output=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr.decode() or f"exit code {done.returncode}: {command}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scenarios_per_s() -> float:
    """Scenarios of one model a CPU second through the command: reading, estimating and printing."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenarios.jsonl"
        path.write_text("".join(json.dumps(scenario(index)) + "\n" for index in range(LINES)))
        return LINES / best(lambda: cpu_s("estimate", str(path), "--json"))


def scenario(index: int) -> dict[str, object]:
    """One of many scenarios of a model."""
    return {
        "id": str(index),
        "model": "llama-3.1-8b",
        "workload": {"task": "train", "method": "full", "seq_len": 1024 + index, "tokens": 1.0e9},
        "hardware": {"accelerator": "h100-sxm", "count": 8},
        "setup": {"micro_batch": 1 + index % 4, "recompute": "selective", "global_batch": 96},
    }


def configurations_per_s() -> tuple[float, int]:
    """Configurations with memory and step time computed, a CPU second of one process, and how many."""
    from raceline import api
    from raceline.estimate import constants
    from raceline.estimate.layout import tabulate
    from raceline.plan.candidates import candidates
    from raceline.plan.request import PlanRequest, training_job
    from raceline.plan.search import search
    from raceline.plan.training import training_space

    model = api.read_model("llama-3.1-8b")
    request = PlanRequest(model=model, method="pretrain", tokens=1e13, today=datetime.date.today())
    job, efficiency = training_job(request), constants.load()
    table = tabulate(model, job.method, job.lora_rank)
    found = candidates(request, api.load_catalogue(), 1e30)
    rates = []
    for _ in range(REPEATS):
        start = time.process_time()
        space = training_space(request, table, job, found, efficiency)
        count = search(table, space, efficiency).evaluated
        rates.append(count / (time.process_time() - start))
    return max(rates), count


def figures() -> list[Figure]:
    """All figures."""
    rate, count = configurations_per_s()
    return [
        Figure("`raceline --help`, cold", best(lambda: cpu_s("--help")), "s CPU", 0.25, True),
        Figure(
            "`raceline plan llama-3.1-8b`, cold",
            best(lambda: cpu_s("plan", "llama-3.1-8b")),
            "s CPU",
            1.0,
            True,
        ),
        Figure("`raceline stack check`, cold", best(lambda: cpu_s("stack", "check")), "s CPU", 0.5, True),
        Figure(
            "`raceline stack solve --want torch,vllm,flash-attn,tensorrt`, cold",
            best(
                lambda: cpu_s("stack", "solve", "--want", "torch,vllm,flash-attn,tensorrt", "--gpu", "H100")
            ),
            "s CPU",
            1.0,
            True,
        ),
        Figure("`raceline estimate FILE.jsonl --json`", scenarios_per_s(), "scenarios/s", 2000, False),
        Figure(
            f"search of {count:,} configurations, building included", rate, "configurations/s", 1e6, False
        ),
    ]


def main() -> None:
    """Print the table, write it when asked, and fail where a limit is missed."""
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    found = figures()
    head = ["| what | measured | limit | holds |", "| --- | ---: | ---: | --- |"]
    rows = [*head, *(figure.row() for figure in found)]
    print("\n".join(rows))
    if "--write" in sys.argv:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        about = f"Written by `make bench` on {datetime.date.today()} ({machine}); the best of {REPEATS} runs."
        notes = [
            "CPU seconds of one process and one thread. A configuration counts where its memory and its step",
            "time were computed; layouts whose states can't fit are dropped before and not counted.",
        ]
        PAGE.write_text(
            "\n".join(["# Performance", "", about, "", *rows, "", *notes]) + "\n", encoding="utf-8"
        )
    if not all(figure.holds for figure in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
