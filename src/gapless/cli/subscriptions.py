"""`gapless subscriptions`: the durable subscriptions that the brokers of a data folder have."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from gapless.cli.serve import DATA, Data
from gapless.cli.status import ask_all

COLUMNS = ("name", "broker", "topic", "condition", "state", "unacknowledged")


def subscriptions(
    admin: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Ask here, not those of the data folder."),
    ] = None,
    data: Data = DATA,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the durable subscriptions: who is attached, and how much is kept for each.

    \b
    gapless subscriptions                          of the brokers that keep their data here
    gapless subscriptions --admin 10.0.0.7:7118    of one elsewhere

    What a subscription has not acknowledged is kept for it: one that is away for good holds
    storage until `gapless unsubscribe` ends it. The exit code is 1 if no broker answers.
    """
    found = ask_all(admin, data, "subscriptions")
    for broker, answer in found.items():
        if answer is None:
            typer.echo(f"gapless: {broker} does not answer", err=True)
    if as_json:
        typer.echo(json.dumps(found, indent=2))
    if all(answer is None for answer in found.values()):
        raise typer.Exit(1)  # who knows?
    if as_json:
        return
    from rich.console import Console
    from rich.table import Table

    console, shown = Console(), rows(found)
    if not shown:
        typer.echo("there are no durable subscriptions", err=True)
    if not console.is_terminal or not shown:
        for row in shown:
            typer.echo("  ".join(f"{key}={value}" for key, value in row.items()))
        return
    table = Table(*COLUMNS)
    for row in shown:
        table.add_row(*row.values())
    console.print(table)


def rows(found: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {
            "name": each["name"],
            "broker": broker,
            "topic": each["topic"],
            "condition": each["condition"] or "(everything)",
            "state": state_of(each),
            "unacknowledged": show_span(each["behind_s"]),
        }
        for broker, answer in found.items()
        for each in answer or ()
    ]


def state_of(subscription: dict[str, Any]) -> str:
    if not subscription["attached"]:
        return "away"
    return "catching up" if subscription["catching_up"] else "level"


def show_span(seconds: float | None) -> str:
    """The time that the events kept for it span; None: from the oldest on."""
    if seconds is None:
        return "all"
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
