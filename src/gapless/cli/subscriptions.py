"""`gapless subscriptions`: the durable subscriptions that the brokers of a data folder have."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from gapless.cli.status import DataOrNone, ask_all
from gapless.cli.terminal import is_terminal, make_table, pairs, say, show_table

COLUMNS = ("name", "broker", "topic", "condition", "state", "unacknowledged")


def subscriptions(
    admin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ask this admin port instead of the brokers of the data folder; repeatable.",
        ),
    ] = None,
    data: DataOrNone = None,
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
            say(f"gapless: {broker} does not answer", err=True)
    if as_json:
        say(json.dumps(found, indent=2))
    if all(answer is None for answer in found.values()):
        raise typer.Exit(1)  # who knows?
    if as_json:
        return
    shown = rows(found)
    if not shown:
        say("there are no durable subscriptions", err=True)
    elif is_terminal():
        show_table(make_table(*COLUMNS, rows=(row.values() for row in shown)))
    else:
        for row in shown:
            say(pairs(row))


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
    if group := subscription.get("group"):
        return f"group of {group['members']}"
    return "catching up" if subscription["catching_up"] else "level"


def show_span(seconds: float | None) -> str:
    """The time that the events kept for it span; None: from the oldest on."""
    if seconds is None:
        return "all"
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.1f} s"
