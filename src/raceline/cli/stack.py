"""`raceline stack`: do driver, CUDA, frameworks, Python and system agree, and which set does?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from raceline.cli.output import progress, settings, show
from raceline.present.errors import InputError, message

LARGEST_BYTES = 64 * 2**20
WRITERS = ("requirements", "pylock", "pyproject-uv", "conda", "pixi", "dockerfile", "devcontainer")


@click.group("stack")
def command() -> None:
    """Check a software stack, solve one, write it down."""


@command.command("check")
@click.option(
    "--from", "source", metavar="FILE|-", help="Judge what this text tells; - reads standard input."
)
@click.option("--here", is_flag=True, help="Judge the text on this machine.")
@click.option(
    "--for", "plan", metavar="PLAN.json", help="Is it ready for this plan (raceline plan … --json)?"
)
@click.option(
    "--env", "environment", metavar="FOLDER", help="Another Python environment than the active one."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(source: str | None, here: bool, plan: str | None, environment: str | None, as_json: bool) -> None:
    """What will fail, what may and what is fine, with the fix: this machine's stack, or a text's.

    The text may be the output of torch.utils.collect_env, nvidia-smi, pip freeze, uv pip list or conda list, a
    requirements.txt, environment.yml, pyproject.toml or Dockerfile, an error log, or all of them mixed. Ends with
    1 where something will fail.
    """
    from raceline import api
    from raceline.stack.view import report_view

    wanted = _load_plan(plan) if plan else None
    text = _read(source) if source else None
    report = api.stack_check(text, here=here or None, for_plan=wanted, environment=environment)
    show(report, as_json=as_json, view=lambda: report_view(report))
    if report.verdict == "will_fail":
        sys.exit(1)


@command.command("solve")
@click.option("--want", required=True, multiple=True, help="Packages: torch,vllm,flash-attn or torch>=2.6.")
@click.option("--gpu", help='A GPU: "RTX 3090", V100, gfx1100; none for a CPU.')
@click.option("--driver", help="NVIDIA driver: 535.183.01.")
@click.option("--python", help="Python: 3.11, or some to choose from: 3.11,3.12.")
@click.option("--os", "system", help='System: linux, "ubuntu 20.04", windows, "macos 14".')
@click.option("--keep", metavar="FILE|-", help="Packages that should stay as they are (pip freeze).")
@click.option("--prefer", type=click.Choice(["stable", "newest", "least-change"]), default="stable")
@click.option("--write", "kind", type=click.Choice(WRITERS), help="Write the set as this kind of file.")
@click.option("--to", "folder", metavar="FOLDER|-", default=".", help="Write there; - prints it.")
@click.option("--force", is_flag=True, help="Write over what is there.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def solve(
    want: tuple[str, ...], gpu: str | None, driver: str | None, python: str | None, system: str | None,
    keep: str | None, prefer: Any, kind: str | None, folder: str, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Versions of the packages that work together on a machine: this one's facts where no option says others.

    Where uv is on the path, it fills in what the packages need beside them. Ends with 1 where no set works.
    """
    from raceline import api
    from raceline.stack.view import solution_view

    solution = api.stack_solve(
        want,
        gpu=gpu,
        driver=driver,
        python=python,
        os=system,
        keep=_read(keep) if keep else None,
        prefer=prefer,
    )
    if kind is not None and solution.conflict is None:
        _write(solution, kind, folder, force)
        if folder == "-":
            return
    show(solution, as_json=as_json, view=lambda: solution_view(solution))
    if solution.conflict is not None:
        sys.exit(1)


@command.command("refresh")
@click.argument("packages", nargs=-1)
@click.option("--look", is_flag=True, help="Only say what is new; ends with 1 where something is.")
@click.option("--all", "rereads", is_flag=True, help="Read rows that stand again, too.")
@click.option("--index", help="The package index; left out, the one that pip is set up with.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def refresh(packages: tuple[str, ...], look: bool, rereads: bool, index: str | None, as_json: bool) -> None:
    """Development: add rows of new releases to the fact tables, as far as the index's metadata tells them."""
    import datetime
    import os
    from importlib import resources

    from raceline.stack.pip_config import index_of_pip
    from raceline.stack.pypi import DEFAULT
    from raceline.stack.refresh import refresh as refreshed

    folder = Path(str(resources.files("raceline.stack").joinpath("data")))
    base = index or index_of_pip(os.environ, Path.home()) or DEFAULT
    report = refreshed(
        folder, packages, datetime.date.today().isoformat(), base=base, only_look=look, rereads=rereads,
        progress=lambda name: progress(message("stack.refreshing", package=name)),
    )  # fmt: skip
    show(report, as_json=as_json, view=report.view)
    if look and any((*report.new.values(), *report.changed.values())):
        sys.exit(1)


def _write(solution: Any, kind: str, folder: str, force: bool) -> None:
    from raceline.stack.writers import write, write_files

    files = write(solution, kind, settings().language)
    if folder == "-":
        sys.stdout.write("\n".join(files.values()))
        return
    for path in write_files(Path(folder), files, force=force):
        progress(message("stack.written", path=str(path)))


def _read(source: str) -> bytes:
    if source == "-":
        return sys.stdin.buffer.read(LARGEST_BYTES + 1)
    from raceline.present.documents import read_bytes

    return read_bytes(source, LARGEST_BYTES)


def _load_plan(source: str) -> dict[str, Any]:
    from raceline.present.documents import load_json

    plan = load_json(_read(source))
    if not isinstance(plan, dict):
        raise InputError("stack.not_a_plan", field="for", given=source[:80])
    return plan
