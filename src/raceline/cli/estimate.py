"""`raceline estimate`: scenarios in, estimates out."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click

from raceline.cli.output import settings, show, show_line
from raceline.present.errors import RacelineError

# Scenarios evaluated together: enough for arrays to pay, few enough to answer early.
CHUNK = 4096


@click.command("estimate")
@click.argument("file", metavar="FILE|-")
@click.option(
    "--own", type=click.Path(dir_okay=False), help="YAML file with your own devices, links and prices."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; one line a scenario for several.")
@click.option("--explain", is_flag=True, help="Show the calculation.")
def command(file: str, own: str | None, as_json: bool, explain: bool) -> None:
    """Memory, time and cost of the scenarios in FILE: YAML or JSON for one, JSON Lines for several."""
    # nothing here is cyclic, and looking for cycles among many answers takes longer than making them
    gc.disable()
    from raceline import api
    from raceline.estimate.run import estimate_many, estimate_one
    from raceline.estimate.view import estimate_view, explain_view

    known = api.load_catalogue(own)
    several, scenarios = _scenarios(file)
    if not several:
        given = next(scenarios)
        one = estimate_one(given, known, api.read_model, api.load_constants(known), api.measured_runs())
        screen = (lambda: explain_view(one)) if explain else (lambda: estimate_view(one, _title(given)))
        show(one, as_json=as_json, view=screen)
        return
    failed, constants = False, api.load_constants(known)
    while chunk := list(islice(scenarios, CHUNK)):
        found = estimate_many(chunk, known, api.read_model, constants, neighbours=api.measured_runs())
        for item, outcome in zip(chunk, found, strict=True):
            failed |= isinstance(outcome, RacelineError)
            _line(item, outcome, as_json)
    if failed:
        sys.exit(1)


def _line(item: Any, outcome: Any, as_json: bool) -> None:
    """One answer of several, or the error in its place."""
    from raceline.estimate.view import estimate_view
    from raceline.present.text import error_data, render

    if not isinstance(outcome, RacelineError):
        if as_json:
            show_line(outcome)
        else:
            show(outcome, view=lambda: estimate_view(outcome, _title(item)))
        return
    name = item.get("id") if isinstance(item, dict) else None
    name = name if isinstance(name, str) else ""
    if as_json:
        show_line({"id": name, "error": error_data(outcome)})
    else:
        where = f"{name}: " if name else ""
        click.echo(f"{where}{render(outcome.message, settings().language)}", err=True)


def _title(given: Any) -> str:
    """The model and the hardware that a scenario names."""
    hardware = given.get("hardware") if isinstance(given, dict) else None
    if not isinstance(hardware, dict):
        return ""
    return f"{given.get('model')} · {hardware.get('count', 1)} × {hardware.get('accelerator')}"


def _scenarios(file: str) -> tuple[bool, Iterator[Any]]:
    """Whether there are several, and the scenarios as mappings (an error in the place of a bad line)."""
    from raceline.present import documents

    if file == "-":
        data = sys.stdin.buffer.read(documents.LARGEST_BYTES + 1)
        lines = [line for line in data.splitlines() if line.strip()]
        if len(lines) > 1 and lines[0].lstrip()[:1] == b"{" and lines[0].rstrip()[-1:] == b"}":
            return True, documents.iterate_jsonl(data)
        return False, iter([documents.load_yaml(data)])
    path = Path(file)
    if path.suffix in (".jsonl", ".ndjson"):
        return True, documents.iterate_jsonl(path)
    return False, iter([documents.load_json(path) if path.suffix == ".json" else documents.load_yaml(path)])
