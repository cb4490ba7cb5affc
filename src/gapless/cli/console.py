"""`gapless console`: one page for all brokers of a network."""

from __future__ import annotations

from typing import Annotated

import typer

from gapless.cli.terminal import say
from gapless.cli.where import DataOrNone, UrlOrNone  # noqa: TC001 - typer reads them
from gapless.cli.why import admin_credentials, ports


def console(
    urls: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[URL]...",
            help="Admin ports, as http://HOST:PORT. One finds the others of its data folder.",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the page is, on loopback.")
    ] = "127.0.0.1:7120",
    url: UrlOrNone = None,
    data: DataOrNone = None,
) -> None:
    """Show all brokers of a network on one page: health, links, rates, topics, lag.

    \b
    gapless console                                  the brokers that keep their data here
    gapless console http://127.0.0.1:7118            one, and those that it knows
    gapless console http://10.0.0.7:7118 http://10.0.0.8:7118

    Open the address that it prints in a browser. A broker that ends is shown as down, and as up
    when it is back. Ctrl-C ends the console. Brokers with security need --ca and --access-token;
    the page then asks for the same token.
    """
    import asyncio

    from gapless.broker.addresses import parse_address
    from gapless.broker.admin.network_console import AdminClient, NetworkConsole, open_console

    found = ports(urls, data, url)
    shown = admin_credentials(found)
    client = AdminClient(shown.token, shown.context()) if shown is not None else AdminClient()
    addresses = list(dict.fromkeys(bare(each) for each in found))

    async def run() -> None:
        async with NetworkConsole(addresses, client) as network:
            opened = open_console(network, parse_address(listen))
            say(f"the console is at http://{opened.address}/   (Ctrl-C ends it)")
            try:
                await asyncio.Event().wait()
            finally:
                await opened.close()

    asyncio.run(run())


def bare(url: str) -> str:
    """Host and port of an admin port's URL."""
    from gapless.client.why import ADMIN_PORT

    address = url.partition("://")[2] or url
    address = address.partition("/")[0]
    return address if ":" in address.rpartition("]")[2] else f"{address}:{ADMIN_PORT}"
