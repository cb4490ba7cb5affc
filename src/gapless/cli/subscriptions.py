"""`gapless subscriptions`: the durable subscriptions that the brokers of a data folder have."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gapless.cli.status import ask_all
from gapless.cli.terminal import (
    BOUNDS,
    is_terminal,
    json_text,
    make_table,
    pairs,
    say,
    show_size,
    show_span,
    show_table,
)
from gapless.cli.watch import state_of
from gapless.cli.where import AdminPorts, DataOrNone, UrlOrNone  # noqa: TC001 - typer reads them

COLUMNS = (
    "name", "broker", "topic", "condition", "state", "pending", "bytes", "oldest", "rate", "gaps",
    "kept",
)  # fmt: skip


def subscriptions(
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the durable subscriptions: their state and their lag.

    \b
    gapless subscriptions                          of the brokers that keep their data here
    gapless subscriptions --url 10.0.0.7           of one elsewhere

    \b
    pending   events that match and that the subscription has not got; ≥, ≤ or ≈ marks a bound
    bytes     their size; ≈ where it is an estimate
    oldest    how long ago the oldest of them was published
    rate      events a second that its client was sent, if it was asked before
    gaps      losses that its clients were told since the broker started
    kept      events that it has not acknowledged: they hold storage

    A subscription is live, catching up, reading (by range reads, as Spark does) or away. One that
    is away for good holds storage until `gapless unsubscribe` ends it. The exit code is 1 if no
    broker answers.
    """
    found = ask_all(admin, data, url, "subscriptions")
    for broker, answer in found.items():
        if not isinstance(answer, list):
            say(f"gapless: {broker} {f'has {answer}' if answer else 'does not answer'}", err=True)
            found[broker] = None
    if as_json:
        say(json_text(found, indent=2))
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
            "pending": f"{BOUNDS[each['pending_is']]}{each['pending']:,}",
            "bytes": show_size(each["pending_bytes"], each["pending_bytes_is"]),
            "oldest": show_span(each["oldest_pending_s"]),
            "rate": "-" if each["rate"] is None else f"{each['rate']:,.1f}/s",
            "gaps": f"{each['gaps']:,}",
            "kept": f"{each['unacknowledged']:,}",
        }
        for broker, answer in found.items()
        for each in answer or ()
    ]
