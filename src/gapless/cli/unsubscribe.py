"""`gapless unsubscribe`: end a durable subscription for good."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.terminal import json_text, say, visible


def unsubscribe(
    name: Annotated[str, typer.Argument(help="The name that `gapless subscriptions` lists.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: Url = URL,
) -> None:
    """End a durable subscription for good, and release the events that were kept for it alone.

    A client that is attached to it gets an error. Any broker of the network can do this.
    """
    import asyncio

    asyncio.run(end(url, name))
    say(json_text({"unsubscribed": name}) if as_json else f"{visible(name)} is unsubscribed")


async def end(url: str, name: str) -> None:
    async with connected(url) as client:
        await client.unsubscribe(name)
