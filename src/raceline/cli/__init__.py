"""The command line: `main` is the program, `run` its testable twin.

Exit codes: 0 answered, 1 nothing fits or some line failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line of this process and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; returns the exit code. Output goes to stdout, errors to stderr."""
    from raceline.cli.errors import BAD_INPUT, report_error, report_usage
    from raceline.cli.language import choose_language, take_language
    from raceline.present.errors import RacelineError

    as_json = "--json" in arguments
    language = choose_language(None, os.environ)
    try:
        wanted, rest = take_language(arguments)
        language = choose_language(wanted, os.environ)
        return _call(rest, language)
    except RacelineError as error:
        report_error(error, language, as_json)
        return BAD_INPUT
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # the reader has gone (`| head`); keep the interpreter from complaining while it closes stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        code = report_usage(error, language, as_json)
        if code is None:
            raise
        return code


def _call(arguments: list[str], language: str) -> int:
    import click

    from raceline.cli.group import raceline
    from raceline.cli.language import terminal_settings

    settings = terminal_settings(language, os.environ)
    try:
        # not `raceline.main`: it would answer a closed pipe and an interrupt itself
        with raceline.make_context("raceline", arguments, obj=settings) as context:
            code = raceline.invoke(context)
    except click.exceptions.Exit as end:
        code = end.exit_code
    except SystemExit as end:
        code = end.code
    sys.stdout.flush()
    return code if isinstance(code, int) else 0
