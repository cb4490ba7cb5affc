"""`gapless unsubscribe`: end a durable subscription for good."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.terminal import say, visible


def unsubscribe(
    name: Annotated[str, typer.Argument(help="As `gapless subscriptions` lists it.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: Url = URL,
) -> None:
    """End a durable subscription for good: what was kept for it alone is released.

    Whoever is connected to it is told. Any broker of the network will do.
    """
    import asyncio

    asyncio.run(end(url, name))
    say(json.dumps({"unsubscribed": name}) if as_json else f"{visible(name)} is unsubscribed")


async def end(url: str, name: str) -> None:
    async with connected(url) as client:
        await client.unsubscribe(name)
