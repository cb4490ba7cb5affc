"""Clients that mean no good, spoken by hand, for the tests against real processes."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gapless.core.messages import Hello
from tests.broker.stage import ByHand

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.testing.processes.brokers import Processes


async def dial(brokers: Processes, name: str, *, greets: bool = True) -> ByHand:
    """A connection with small buffers of its own, so that a broker soon feels who does not read."""
    host, port = brokers.address(name).split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
    peer = ByHand(*await asyncio.open_connection(sock=connection))
    if greets:
        peer.send(Hello())
    return peer


@asynccontextmanager
async def dialled(brokers: Processes, name: str, *, greets: bool = True) -> AsyncIterator[ByHand]:
    peer = await dial(brokers, name, greets=greets)
    try:
        yield peer
    finally:
        await peer.close()
