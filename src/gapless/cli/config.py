"""`gapless config show`: which settings a broker would start with, and where each comes from."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gapless.cli.configuration import (
    FILE,
    OPTIONS,
    Limits,
    basic_settings,
    kinds_of_settings,
    read_file,
    read_limits,
)
from gapless.cli.terminal import is_terminal, json_text, make_table, pairs, say, show_table

if TYPE_CHECKING:
    from collections.abc import Iterator

config = typer.Typer(name="config", help="Look at the settings of a broker.", no_args_is_help=True)


@config.callback()
def group() -> None:
    """Keeps `show` a command of its own."""


@config.command()
def show(
    file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A settings file.",
            show_default="./gapless.toml, if it is there",
        ),
    ] = None,
    limits: Limits = None,
    changed: Annotated[bool, typer.Option(help="Only what is not the default.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Also settings that few operators need.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show the settings that a broker would start with here: value, default, where it comes from.

    \b
    gapless config show                        the settings that most operators need
    gapless config show --changed              what your gapless.toml changes
    gapless config show --all --set idle_silence=50000

    A file or a value that a broker would refuse is refused here in the same words. Connects to
    nothing: a broker that runs has read its settings when it started.
    """
    found = file or (FILE if FILE.exists() else None)
    rows = list(_rows(found, limits))
    basic = basic_settings()
    if changed:
        rows = [row for row in rows if row["from"] != "default"]
    elif not every:
        rows = [row for row in rows if row["name"] in basic or row["from"] != "default"]
    if as_json:
        say(json_text(rows))
    elif not is_terminal():
        for row in rows:
            say(pairs(row))
    elif rows:
        show_table(make_table("setting", "value", "default", "from", rows=map(dict.values, rows)))
    if not rows and not as_json:
        say("everything has its default", err=True)


def _rows(file: Path | None, limits: list[str] | None) -> Iterator[dict[str, Any]]:
    from gapless.broker.settings import Settings
    from gapless.node.config import Config

    values = read_file(file) if file is not None else {}
    node, process = read_limits(limits, file)
    for name in OPTIONS:
        if name in values:
            yield {"name": name, "value": values[name], "default": None, "from": str(file)}
    asked = {pair.partition("=")[0] for pair in limits or ()}
    defaults = {each.name: each.default for each in (*fields(Settings), *fields(Config))}
    for name in kinds_of_settings():
        value = process.get(name, defaults[name])
        if hasattr(node, name):
            value = getattr(node, name)
        source = "--set" if name in asked else str(file) if name in values else "default"
        yield {"name": name, "value": value, "default": defaults[name], "from": source}
