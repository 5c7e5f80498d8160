"""Errors as one line on stderr, or as JSON on stdout where the command was asked for JSON."""

from __future__ import annotations

import json
import sys

import click

from raceline.present.errors import RacelineError, message
from raceline.present.text import error_data, one_line, render

BAD_INPUT = 2


def report_error(error: RacelineError, language: str, as_json: bool) -> None:
    """``error: hardware.accelerator: …`` in the user's language, or ``{"error": {…}}``."""
    if as_json:
        sys.stdout.write(json.dumps({"error": error_data(error)}, ensure_ascii=False) + "\n")
        return
    text = one_line(render(error.message, language))
    start = render(message("cli.error"), language)
    where = f"{error.field}: " if error.field and error.field not in text else ""
    sys.stderr.write(f"{start}: {where}{text}\n")


def report_usage(error: Exception, language: str, as_json: bool) -> int | None:
    """Say in one line how the command was called wrongly; None where `error` is not of that kind."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        sys.stdout.write(error.format_message() + "\n")
        return BAD_INPUT
    if isinstance(error, click.Abort):
        return 130
    if not isinstance(error, click.ClickException):
        return None
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "raceline"
    usage = RacelineError("cli.usage", reason=one_line(error.format_message()), command=command)
    report_error(usage, language, as_json)
    return BAD_INPUT
