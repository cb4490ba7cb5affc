"""`gapless retire`: tell the network that a broker never returns."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.connection import URL, Url, connected
from gapless.cli.terminal import json_text, say, visible


def retire(
    name: Annotated[str, typer.Argument(help="The broker that never returns.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    url: Url = URL,
) -> None:
    """Tell the network that a broker never returns.

    Its subscriptions to reliable topics end everywhere, nothing is kept for it, and its neighbours
    take its place in their tree. Stop it first. Any broker of the network will do. It can return
    only under another name.
    """
    import asyncio

    asyncio.run(end(url, name))
    say(json_text({"retired": name}) if as_json else f"{visible(name)} is retired")


async def end(url: str, name: str) -> None:
    async with connected(url) as client:
        await client.retire(name)
