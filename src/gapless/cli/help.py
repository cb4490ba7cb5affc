"""How the commands' help is laid out: as it was written.

Typer takes help texts for Rich markup, in which `[[cell]]` is a style and vanishes; it keeps the
line breaks of the source, which a narrow terminal breaks once more; and it shows flags as if they
took a value. `lay_out` mends all three for every command of an application, at once.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from typer.core import TyperCommand, TyperGroup

from gapless.cli.configuration import BASIC_MARK, basic_settings

if TYPE_CHECKING:
    import typer


class HelpfulCommand(TyperCommand):
    """One whose help is tidied when it is asked for, and only then."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tidy(self, ctx)
        super().format_help(ctx, formatter)


LABORATORY = ("demo", "experiment")
"""Commands of the package `gapless-lab`."""


class HelpfulGroup(TyperGroup):
    """The same for a command with commands below it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] in LABORATORY and args[0] not in self.commands:
            from gapless.core.errors import UsageError

            problem = f"'gapless {args[0]}' is a command of gapless-lab, which is not installed"
            raise UsageError(problem, "In the repository, run: make setup")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        tidy(self, ctx)
        super().format_help(ctx, formatter)


def lay_out(app: typer.Typer) -> None:
    """Show the help of all its commands, and of those below it, this way."""
    app.info.cls = HelpfulGroup
    for command in app.registered_commands:
        command.cls = HelpfulCommand
    for group in app.registered_groups:
        assert group.typer_instance is not None
        lay_out(group.typer_instance)


def tidy(command: TyperCommand | TyperGroup, ctx: Any) -> None:
    from rich.markup import escape

    command.help = escape(flow(command.help or ""))
    parameters: list[Any] = command.get_params(ctx)
    for each in parameters:
        if BASIC_MARK in (each.help or ""):
            each.help = each.help.replace(BASIC_MARK, ", ".join(basic_settings()))
        each.help = escape(each.help or "")
        if getattr(each, "is_flag", False):
            each.metavar = ""


def flow(text: str) -> str:
    """Paragraphs on one line each, for the terminal to break; those marked with \\b as they are."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        each.removeprefix("\b\n") if each.startswith("\b") else each.replace("\n", " ")
        for each in paragraphs
    )
