"""The HTTP door of one broker: its listening socket, and its life from start to stop.

A broker binds the door with its port, opens it when it serves, and closes it before it stops. Then
streams end by a `retry`, requests that are being answered have a moment, and no new one comes in.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gapless.doors.clients import DoorClients
from gapless.doors.http.app import HttpApp, make_app
from gapless.doors.http.connections import HttpConnections

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class DoorSurroundings:
    """What a door has of its broker."""

    url: str
    """Where the door is a client, as any other."""
    ca: Path | None
    """The authority of the broker's certificate; None without security."""
    tls: ssl.SSLContext | None
    """What the door shows its callers; None without security."""
    subscriptions: Callable[[str, str | None], list[dict[str, Any]]]
    """The named subscriptions that the holder of a token may see; or the one of a name."""


class HttpDoor:
    """An open HTTP door."""

    def __init__(
        self, surroundings: DoorSurroundings, hosts: tuple[str, ...], origins: tuple[str, ...]
    ) -> None:
        clients = DoorClients(surroundings.url, surroundings.ca)
        self._app = HttpApp(clients, surroundings.subscriptions)
        is_secure = surroundings.ca is not None
        guarded = make_app(self._app, is_secure=is_secure, hosts=hosts, origins=origins)
        self._connections = HttpConnections(guarded, surroundings.tls)

    async def open(self, listener: socket.socket) -> None:
        """Take connections from now on; the listener is the door's."""
        await self._connections.open(listener)

    async def close(self, *, at_once: bool = False) -> None:
        """`at_once`: the broker has failed, and nothing more can be answered."""
        self._app.closing.set()
        await self._connections.close(at_once=at_once)
        await self._app.close()
