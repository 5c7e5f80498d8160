"""`raceline estimate`: scenarios in, estimates out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from raceline.cli.output import show, show_line
from raceline.present.errors import RacelineError


@click.command("estimate")
@click.argument("file", metavar="FILE|-")
@click.option(
    "--own", type=click.Path(dir_okay=False), help="YAML file with your own devices, links and prices."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; one line a scenario for several.")
@click.option("--explain", is_flag=True, help="Show the calculation.")
def command(file: str, own: str | None, as_json: bool, explain: bool) -> None:
    """Memory, time and cost of the scenarios in FILE: YAML or JSON for one, JSON Lines for several."""
    from raceline import api
    from raceline.estimate.run import estimate_many, estimate_one
    from raceline.estimate.view import estimate_view, explain_view

    several, scenarios = _scenarios(file)
    known = api.load_catalogue(own)
    if not several:
        found = estimate_one(scenarios[0], known, api.read_model)
        show(found, as_json=as_json, view=lambda: (explain_view if explain else estimate_view)(found))
        return
    failed = False
    for item, outcome in zip(scenarios, estimate_many(scenarios, known, api.read_model), strict=True):
        failed |= isinstance(outcome, RacelineError)
        _line(item, outcome, as_json)
    if failed:
        sys.exit(1)


def _line(item: Any, outcome: Any, as_json: bool) -> None:
    from raceline.estimate.view import estimate_view
    from raceline.present.text import render

    if not isinstance(outcome, RacelineError):
        show_line(outcome) if as_json else show(outcome, view=lambda: estimate_view(outcome))
        return
    name = item.get("id", "") if isinstance(item, dict) else ""
    error = {
        "id": name if isinstance(name, str) else str(name),
        "error": {
            "field": outcome.field, "message": render(outcome.message, "en"), "message_id": outcome.message.id,
            "params": outcome.message.params,
        },
    }  # fmt: skip
    show_line(error) if as_json else click.echo(f"{name}: {error['error']['message']}", err=True)


def _scenarios(file: str) -> tuple[bool, list[Any]]:
    """Whether there are several, and the scenarios as mappings (an error in the place of a bad line)."""
    from raceline.present import documents

    if file == "-":
        data = sys.stdin.buffer.read(documents.LARGEST_BYTES + 1)
        stripped = data.lstrip()
        lines = [line for line in stripped.splitlines() if line.strip()]
        if stripped.startswith(b"{") and len(lines) > 1 and lines[0].rstrip().endswith(b"}"):
            return True, list(documents.iterate_jsonl(data))
        return False, [documents.load_yaml(data)]
    path = Path(file)
    if path.suffix in (".jsonl", ".ndjson"):
        return True, list(documents.iterate_jsonl(path))
    return False, [documents.load_json(path) if path.suffix == ".json" else documents.load_yaml(path)]
