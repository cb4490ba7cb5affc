"""`gapless subscription`: change a durable subscription."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.connection import URL, Url, connected, with_credentials
from gapless.cli.terminal import json_text, say, visible

subscription = typer.Typer(
    name="subscription", help="Change a durable subscription.", no_args_is_help=True
)


@subscription.callback()
def group() -> None:
    """Change a durable subscription. `gapless subscriptions` lists them."""


@subscription.command()
@with_credentials
def alter(
    name: Annotated[str, typer.Argument(help="The name that `gapless subscriptions` lists.")],
    condition: Annotated[str, typer.Argument(help="The new condition; '' matches everything.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the ticks as JSON.")] = False,
    url: Url = URL,
) -> None:
    """Give a durable subscription another condition, from one tick of each pubend on.

    \b
    gapless subscription alter desk-7 "symbol = 'IBM' AND price > 95"

    Events before these ticks are delivered by the old condition, events from them on by the new
    one; none is lost or delivered twice. A client that is attached goes on. A client that comes
    later must give the new condition. Any broker of the network can do this.
    """
    import asyncio

    async def work() -> dict[str, int]:
        async with connected(url) as client:
            return dict(await client.alter_subscription(name, condition=condition))

    ticks = asyncio.run(work())
    if as_json:
        say(json_text({"altered": name, "condition": condition, "from": ticks}))
        return
    say(f"{visible(name)} is altered from these ticks on:")
    for pubend, tick in ticks.items():
        say(f"  {visible(pubend)}: {tick}")
