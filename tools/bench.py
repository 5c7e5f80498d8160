"""Measure what users feel: CPU seconds of cold starts, estimates a second, configurations a second."""

from __future__ import annotations

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LINES = 2000
REPEATS = 5


def cpu_seconds(*arguments: str) -> float:
    """The least user + system CPU seconds of a fresh process over some repeats."""
    return min(_once(arguments) for _ in range(REPEATS))


def _once(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "raceline", *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode() or f"exit code {done.returncode}: {command}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def estimates_per_s() -> float:
    """Scenarios of one model a second through the command, start-up included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenarios.jsonl"
        path.write_text("".join(json.dumps(_scenario(index)) + "\n" for index in range(LINES)))
        start = time.perf_counter()
        _once(("estimate", str(path), "--json"))
        return LINES / (time.perf_counter() - start)


def _scenario(index: int) -> dict[str, object]:
    return {
        "id": str(index),
        "model": "llama-3.1-8b",
        "workload": {"task": "train", "method": "full", "seq_len": 1024 * (1 + index % 8), "tokens": 1.0e9},
        "hardware": {"accelerator": "h100-sxm", "count": 8},
        "setup": {"micro_batch": 1 + index % 4},
    }


def main() -> None:
    """Print a table of figures with the machine they were measured on."""
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(f"raceline --help             {cpu_seconds('--help'):6.3f} s CPU   limit 0.25")
    print(f"raceline plan llama-3.1-8b  {cpu_seconds('plan', 'llama-3.1-8b'):6.3f} s CPU   limit 1.0")
    print(f"estimate, one model         {estimates_per_s():6.0f} scenarios/s   limit 2000")
    start = time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-m", "raceline", "plan", "llama-3.1-8b", "--json"],
        stdout=subprocess.PIPE,
        check=True,
    )
    taken_s = time.perf_counter() - start
    evaluated = json.loads(told.stdout)["evaluated"]
    print(f"plan evaluates              {evaluated:6} configurations in {taken_s:.2f} s in all")


if __name__ == "__main__":
    main()
