"""The group of commands; a command's module is imported when it is called."""

from __future__ import annotations

import importlib

import click

from raceline import __version__
from raceline.cli.output import settings
from raceline.present.errors import message
from raceline.present.text import render

# name -> module:command; the help line of NAME is the text `cli.help_NAME`
COMMANDS = {
    "describe": "raceline.cli.describe:command",
    "estimate": "raceline.cli.estimate:command",
    "plan": "raceline.cli.plan:command",
    "stack": "raceline.cli.stack:command",
    "accuracy": "raceline.cli.accuracy:command",
    "learn": "raceline.cli.learn:command",
    "calibrate": "raceline.cli.calibrate:command",
    "catalog": "raceline.cli.catalog:command",
    "schema": "raceline.cli.schema:command",
}


class LazyGroup(click.Group):
    """Lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order in which a project needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, its module imported now."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        return command if isinstance(command, click.Command) else None

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the program is for, in the user's language."""
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(_text("cli.about"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line a command, from the message catalogue."""
        with formatter.section(_text("cli.commands")):
            formatter.write_dl([(name, _text(f"cli.help_{name}")) for name in COMMANDS])


def _text(id: str) -> str:
    return render(message(id), settings().language)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80})
@click.option("--lang", metavar="en|zh", help="Language of the answer.", expose_value=False)
@click.version_option(__version__, prog_name="raceline", message="%(prog)s %(version)s")
def raceline() -> None:
    """Plan AI hardware, framework and settings with evidence."""
