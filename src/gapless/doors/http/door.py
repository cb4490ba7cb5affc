"""The HTTP door of one broker: its listening socket, and its life from start to stop.

A broker binds the door with its port, opens it when it serves, and closes it before it stops. Then
streams end by a `retry`, requests that are being answered have a moment, and no new one comes in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.doors.http.app import HttpApp, make_app
from gapless.doors.http.connections import HttpConnections

if TYPE_CHECKING:
    import socket

    from gapless.doors.surroundings import DoorSurroundings


class HttpDoor:
    """An HTTP door; it listens at `http`."""

    def __init__(
        self, surroundings: DoorSurroundings, hosts: tuple[str, ...], origins: tuple[str, ...]
    ) -> None:
        self._app = HttpApp(surroundings.clients, surroundings.subscriptions)
        is_secure = surroundings.tls is not None
        guarded = make_app(self._app, is_secure=is_secure, hosts=hosts, origins=origins)
        self._connections = HttpConnections(guarded, surroundings.tls)

    async def open(self, listeners: dict[str, socket.socket]) -> None:
        """Take connections from now on; the listener is the door's."""
        await self._connections.open(listeners.pop("http"))

    async def close(self, *, at_once: bool = False) -> None:
        """`at_once`: the broker has failed, and nothing more can be answered."""
        self._app.closing.set()
        await self._connections.close(at_once=at_once)
        await self._app.close()
