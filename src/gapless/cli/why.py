"""`gapless why`: the way of an event to a named subscription, broker by broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gapless.cli.connection import check_unused, credentials
from gapless.cli.serve import DATA
from gapless.cli.terminal import json_text, say, visible
from gapless.cli.where import AdminPorts, DataOrNone, UrlOrNone, places
from gapless.client.json_values import to_json
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from gapless.client.credentials import Credentials
    from gapless.client.why import Explanation


def why(
    topic: Annotated[str, typer.Argument(help="The topic of the event.")],
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="[PUBEND:TICK] NAME", help="The event, and the name of the subscription."
        ),
    ],
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Instead of PUBEND:TICK: the newest that matches."),
    ] = None,
    url: UrlOrNone = None,
    data: DataOrNone = None,
    admin: AdminPorts = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Explain what became of an event on its way to a named subscription.

    \b
    gapless why trades trades/0:1838057598721694720 desk-7
    gapless why trades --where "symbol = 'IBM'" desk-7

    The answer says what each broker did with the event, and then what came of it: filtered, and
    by which part of the condition with the values it saw; on its way; waiting for a client; sent;
    acknowledged; released; never published. Receipts and events have their pubend and tick.
    The exit code is 0 if the event has reached a client, and 1 otherwise.
    """
    import asyncio

    event, name = split(words, where)
    found = asyncio.run(ask(ports(admin, data, url), topic, name, event, where))
    if as_json:
        say(json_text(found.to_json(), indent=2))
    else:
        show(found)
    if found.verdict not in ("sent", "acknowledged"):
        raise typer.Exit(1)


def split(words: list[str], where: str | None) -> tuple[str | None, str]:
    if where is not None and len(words) == 1:
        return None, words[0]
    if where is None and len(words) == 2:
        return words[0], words[1]
    raise UsageError(
        "which event, and which subscription?",
        "Write `gapless why TOPIC PUBEND:TICK NAME`, or --where CONDITION instead of PUBEND:TICK.",
    )


def ports(admin: list[str] | None, data: Path | None, url: str | None) -> dict[str, str]:
    """The admin ports to ask, each with what it is called."""
    found = {address: name for name, address in places(admin, data, url).items() if address}
    if not found:
        where = f"keeps its data in {data or DATA}" if url is None else f"is at {url}"
        remedy = "Say where to ask with --url, --data or --admin."
        raise UsageError(f"no broker with an admin port {where}", remedy)
    return found


async def ask(
    admin: Mapping[str, str], topic: str, name: str, event: str | None, where: str | None
) -> Explanation:
    from gapless.client.why import ask_why

    shown = admin_credentials(admin)
    return await ask_why(
        {url.partition("://")[2] or url: each for url, each in admin.items()},
        topic,
        name,
        event,
        where,
        token=shown.token if shown else "",
        context=shown.context() if shown else None,
    )


def admin_credentials(admin: Iterable[str]) -> Credentials | None:
    """What admin ports with security are shown; None for those without."""
    from gapless.client.credentials import find_credentials

    options = credentials.get()
    if any(each.startswith("https://") for each in admin) or options.get("ca"):
        return find_credentials(is_tls=True, **options)
    check_unused("https:// before the address, or give --ca")
    return None


def show(found: Explanation) -> None:
    if found.event:
        say(
            f"event {found.event}"
            + (f" {json_text(to_json(found.attributes))}" if found.attributes else "")
        )
    for step in found.steps:
        say(f"  {visible(step.broker)}: {visible(step.what)}")
    say(f"{found.verdict}: {visible(found.reason)}")
