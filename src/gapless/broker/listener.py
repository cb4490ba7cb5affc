"""How a server stops to listen."""

from __future__ import annotations

import asyncio

SOON_S = 1e-9


async def stop_listening(server: asyncio.Server) -> None:
    """Take no more connections; all that were accepted are made now.

    asyncio makes a transport one turn of the loop after it has accepted a connection. If the server
    is closed between the two, it fails to make it, and leaves the socket open. A timer is served
    after the connections of a turn, so that the wait for it ends behind their transports.
    """
    await asyncio.sleep(SOON_S)
    server.close()
    await asyncio.sleep(0)  # in which `connection_made` is called
