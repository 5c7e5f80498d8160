"""`raceline accuracy`: how far estimates are from measured runs, published ones or the reader's own."""

from __future__ import annotations

import sys
from typing import Any

import click

from raceline.cli.output import progress, show
from raceline.present.errors import message


@click.command("accuracy")
@click.argument("files", metavar="[FILE…]", nargs=-1, type=click.Path(dir_okay=False))
@click.option(
    "--by",
    type=click.Choice(["source", "accelerator", "model", "task", "framework"]),
    help="Break the errors down by this.",
)
@click.option("--worst", type=click.IntRange(0, 1000), default=10, help="Show this many of the worst rows.")
@click.option("--refit", is_flag=True, help="Fit the constants of every fold anew (minutes).")
@click.option(
    "--own", type=click.Path(dir_okay=False), help="YAML file with your own devices, links and prices."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(files: tuple[str, ...], by: Any, worst: int, refit: bool, own: str | None, as_json: bool) -> None:
    """How far estimates are from measured runs: the published ones, or those in FILE.

    FILE is a table in one of the published formats (CSV: training, inference, serving, …; YAML:
    reports of what fitted). Every prediction is computed anew, by constants fitted without the run's
    source. Ends with 1 where no row of a FILE can be scored.
    """
    from raceline import api
    from raceline.accuracy.view import accuracy_view

    if not files:
        progress(message("accuracy.scoring"))
    report = api.accuracy(files, by=by, worst=worst, refit=refit, own=own)
    show(report, as_json=as_json, view=lambda: accuracy_view(report))
    if not report.values and not report.fit:
        sys.exit(1)
