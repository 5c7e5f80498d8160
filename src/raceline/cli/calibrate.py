"""`raceline calibrate`: fit every constant anew on the evidence, and write the files that ship."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import click

from raceline.cli.output import show


@click.command("calibrate")
@click.option(
    "--into",
    type=click.Path(file_okay=False, exists=True),
    help="Package folder to write into (default: this one).",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(into: str | None, as_json: bool) -> None:
    """Fit every constant anew on the published runs, and write them with the ranges and the neighbours.

    For development: takes minutes, and writes into the package.
    """
    from raceline import api
    from raceline.accuracy.calibrate import calibrate, summary_of, summary_view, write
    from raceline.models.read import read_listed

    target = Path(into) if into else Path(__file__).resolve().parent.parent
    click.echo("fitting on the published runs; this takes minutes", err=True)
    found = calibrate(api.load_catalogue(), cache(read_listed))
    paths = write(found, target)
    summary = summary_of(found, paths)
    show(summary, as_json=as_json, view=lambda: summary_view(summary))
