"""`raceline learn`: a user's own run, so that estimates of that machine shift and narrow."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from raceline.cli.output import show


@click.command("learn")
@click.argument("file", metavar="[FILE|-]", required=False)
@click.option("--step-time", type=float, help="Seconds of one optimizer step (or of one batch of inference).")
@click.option("--tokens-per-s", type=float, help="Tokens a second on one device.")
@click.option("--samples-per-s", type=float, help="Samples a second on one device.")
@click.option("--ttft", type=float, help="Milliseconds to the first token.")
@click.option("--tpot", type=float, help="Milliseconds per output token.")
@click.option("--peak-mem", type=float, help="GiB at the peak on one device, as the driver's tool shows it.")
@click.option("--log", "log", help="A line of a log; - reads it from standard input.")
@click.option("--list", "as_list", is_flag=True, help="Show what was learned.")
@click.option("--undo", is_flag=True, help="Take back the newest run.")
@click.option("--forget", metavar="ID", help="Take back the run with this id.")
@click.option(
    "--own", type=click.Path(dir_okay=False), help="YAML file with your own devices, links and prices."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: str | None, step_time: float | None, tokens_per_s: float | None, samples_per_s: float | None,
    ttft: float | None, tpot: float | None, peak_mem: float | None, log: str | None, as_list: bool, undo: bool,
    forget: str | None, own: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Learn from a run of yours: a scenario FILE with what was measured, or a table of runs.

    FILE is a scenario (YAML or JSON) together with figures or a log line, or a table in one of the formats
    that `raceline accuracy` reads. Later estimates of that machine shift towards it and get a narrower range.
    """
    from raceline import api
    from raceline.accuracy.learn import learned_view

    given = {
        "step_time_s": step_time, "tokens_per_s_per_device": tokens_per_s, "samples_per_s_per_device": samples_per_s,
        "ttft_ms": ttft, "tpot_ms": tpot, "memory_device_gib": peak_mem,
    }  # fmt: skip
    if as_list:
        found = api.learned_runs()
    elif undo or forget:
        found = (api.unlearn(forget),)
    else:
        text = sys.stdin.read(1_000_000) if log == "-" else log
        measured = {name: value for name, value in given.items() if value is not None}
        found = api.learn(Path(file) if file else None, measured=measured, log=text, own=own)
    show(found, as_json=as_json, view=lambda: learned_view(found, undone=bool(undo or forget)))
