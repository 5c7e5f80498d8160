"""`raceline catalog`: the facts that answers stand on, with their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from raceline.cli.output import show

KINDS = ("accelerators", "cpus", "links", "storage", "offers", "retail", "electricity", "runtimes")


@click.command("catalog")
@click.argument("kind", required=False, metavar=f"[{'|'.join(KINDS)}]")
@click.argument("name", required=False)
@click.option("--own", type=click.Path(dir_okay=False), help="YAML file with your own rows.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str | None, name: str | None, own: str | None, as_json: bool) -> None:
    """List accelerators, processors, links, storage, prices and runtimes; with a NAME, one in full."""
    from raceline.catalog import lookup
    from raceline.catalog.own import load as load_own

    mine = load_own(Path(own)) if own else None
    if kind is not None and kind not in KINDS:
        # `raceline catalog H100` means the accelerator
        kind, name = "accelerators", kind if name is None else f"{kind} {name}"
    found = lookup.overview(mine) if kind is None else lookup.look_up(kind, name, mine)
    _show(found, as_json)


def _show(found: Any, as_json: bool) -> None:
    show(found.data, as_json=as_json, view=found.view)
