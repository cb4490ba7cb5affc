"""`gapless subscribe`: print what matches, as it comes."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url
from gapless.cli.terminal import say
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.cli.token_file import DeliveryJournal, TokenFile
    from gapless.client.subscription_options import Start


TokenPath = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Keep the token in this file, not at the broker."),
]
JournalPath = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Append every delivery to this file, as JSON lines."),
]
Beginning = Annotated[
    str,
    typer.Option(help="Where a new one begins: latest, earliest, a token or a time (ISO 8601)."),
]
ShareBy = Annotated[
    str,
    typer.Option(
        metavar="ATTRIBUTE",
        help="Join the group NAME: each event goes to one member, by the value of this.",
    ),
]
Attempts = Annotated[
    int, typer.Option(min=0, help="Of a group: how often an event is tried; 0 is for ever.")
]
DeadLetters = Annotated[
    str, typer.Option(metavar="TOPIC", help="Of a group: where an event goes after that.")
]


def subscribe(
    topic: Annotated[str, typer.Argument(help="The topic; or several, with commas between.")],
    condition: Annotated[
        str, typer.Argument(help="A SQL condition over attributes; without it, all events.")
    ] = "",
    name: Annotated[
        str, typer.Option(help="A durable subscription: run again, it goes on where it was.")
    ] = "",
    start: Beginning = "latest",
    token_file: TokenPath = None,
    journal: JournalPath = None,
    share_by: ShareBy = "",
    attempts_max: Attempts = 0,
    dead_letters: DeadLetters = "",
    count: Annotated[int, typer.Option(min=0, help="Stop after this many events; 0 is never.")] = 0,
    total: Annotated[
        bool, typer.Option("--total", help="One order over all publishers of all its topics.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    url: Url = URL,
) -> None:
    """Print every event that matches from now on, until Ctrl-C.

    \b
    gapless subscribe trades "symbol = 'IBM' AND price > 90"
    gapless subscribe trades --json --count 1
    gapless subscribe trades "price > 90" --name desk-7
    gapless subscribe trades --name desk-7 --token-file desk-7.token --journal desk-7.jsonl
    gapless subscribe orders --name billing --share-by customer
    gapless subscribe trades,orders --name desk-8 --total

    Without a name, the command reconnects after a lost connection and reports what it missed as a
    gap. With a name it misses nothing, however long you are away; `gapless unsubscribe` ends the
    subscription for good. With a token file and a journal, each event is in the journal once, even
    if this command is killed. With --share-by, run it several times: each event is printed by one
    of them, and is finished when the next one is printed.
    """
    import asyncio

    from gapless.cli.condition import notes
    from gapless.cli.deliveries import GroupRequest, Output, print_all, print_share
    from gapless.cli.token_file import DeliveryJournal, TokenFile
    from gapless.filters.filter import Filter

    if token_file is not None and not name:
        raise UsageError("a token is of a named subscription", "Give --name, too.")
    if share_by and (token_file is not None or total):
        raise UsageError("a group has no token, and order by key", "Leave --share-by out.")
    if not share_by and (attempts_max or dead_letters):
        raise UsageError("--attempts-max and --dead-letters are for groups", "Give --share-by.")
    if share_by and "," in topic:
        problem = "a group is on one topic: its order is that of keys in it"
        raise UsageError(problem, "Run it for each topic, or leave --share-by out.")
    for note in notes(Filter.parse(condition)):
        say(note, err=True)
    opened = DeliveryJournal(journal) if journal else None
    try:
        kept = TokenFile(token_file) if token_file else None
        begin = where_from(start, kept, opened)
        output = Output(opened, kept, count, as_json=as_json)
        if share_by:
            group = GroupRequest(
                topic, condition, name, begin, share_by, attempts_max or None, dead_letters or None
            )
            asyncio.run(print_share(url, group, output))
        else:
            asyncio.run(print_all(url, topic, condition, name, begin, output, total=total))
    finally:
        if opened is not None:
            opened.close()


def where_from(start: str, kept: TokenFile | None, journal: DeliveryJournal | None) -> Start:
    """The token file wins, and what the journal has beyond it."""
    from gapless.core.token import Token

    token = kept.read() if kept is not None else None
    if token is not None:
        return token.join(Token(journal.positions)) if journal is not None else token
    if start in ("latest", "earliest") or start.lstrip().startswith("{"):
        return start
    try:
        return as_time(start)
    except ValueError:
        raise UsageError(
            f"{start!r} is no place to start",
            "Use latest, earliest, a token, or a time such as 2026-01-31T12:00:00Z.",
        ) from None


def as_time(text: str) -> datetime:
    """ISO 8601; without a zone it is the time of this machine. `ValueError` if it is none."""
    return datetime.fromisoformat(text).astimezone()
