"""`gapless publishers`, `producers` and `transactions`: the names that a topic remembers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.terminal import json_text, say, visible

if TYPE_CHECKING:
    from gapless.core.roster_messages import Roster, RosterEntry, RosterKind

Topic = Annotated[str, typer.Argument(help="The topic.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print them as JSON.")]


def publishers(
    topic: Topic,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove this publisher for good.")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """List the named publishers that a topic remembers, or remove one.

    \b
    gapless publishers trades                 at the broker that is asked
    gapless publishers trades --remove feed   make room for another name

    A removed publisher that still runs is refused. It must be opened again, and its numbers start
    from 0. With security you need the right `administer` on the topic.
    """
    _run(url, topic, "publishers", remove, 0, as_json=as_json)


def producers(
    topic: Topic,
    remove: Annotated[
        str | None, typer.Option(metavar="NAME", help="Remove this producer for good.")
    ] = None,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """List the producers of transactions that a topic remembers, or remove one.

    Remove a producer only if its job never runs again. If it does, a transaction that it repeats is
    published a second time.
    """
    _run(url, topic, "producers", remove, 0, as_json=as_json)


def transactions(
    topic: Topic,
    abort: Annotated[
        str | None, typer.Option(metavar="PRODUCER", help="Abort a transaction of this producer.")
    ] = None,
    number: Annotated[int, typer.Option(min=0, help="The number of the transaction to abort.")] = 0,
    as_json: AsJson = False,
    url: Url = URL,
) -> None:
    """List the open transactions of a topic, or abort one with everything that is staged.

    \b
    gapless transactions trades
    gapless transactions trades --abort nightly --number 17
    """
    _run(url, topic, "transactions", abort, number, as_json=as_json)


def _run(
    url: str, topic: str, of: RosterKind, name: str | None, number: int, *, as_json: bool
) -> None:
    import asyncio

    if name is not None:
        asyncio.run(_strike(url, topic, of, name, number))
        say(json_text({"removed": name}) if as_json else f"{name} is removed")
        return
    answer = asyncio.run(_list(url, topic, of))
    found = answer.entries
    if answer.more:
        say(f"these are the first {len(found)} of more", err=True)
    if as_json:
        say(json_text([_row(each) for each in found], indent=2))
        return
    if not found:
        say(f"there are no {of}", err=True)
    for each in found:
        say("  ".join(f"{key}={visible(value)}" for key, value in _row(each).items()))


def _row(entry: RosterEntry) -> dict[str, str | int | float]:
    return {
        "name": entry.name,
        "pubend": entry.pubend,
        "number": entry.number,
        "owner": entry.owner,
        "heard_s": round(entry.heard_us / 1e6, 3),
        "bytes": entry.bytes,
    }


async def _list(url: str, topic: str, of: RosterKind) -> Roster:
    from gapless.client.topics import roster

    async with connected(url) as client:
        return await roster(client, topic, of)


async def _strike(url: str, topic: str, of: RosterKind, name: str, number: int) -> None:
    from gapless.client.topics import strike

    async with connected(url) as client:
        await strike(client, topic, of, name, number)
