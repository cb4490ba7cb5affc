"""The HTTP connections of the door: a bounded number, none of which may idle for long.

Theory of operation
    uvicorn speaks HTTP and WebSocket on each connection; this counts and times them. A connection
    ends when it has been open for `IDLE_S` without a whole request, or after its last answer. While
    a request is being answered there is no timer here: bodies and streams have their own.
    When there are too many, the connection that has been idle for longest makes room. If all are
    being answered, the new one is closed.

Invariants
    I1  at most `CONNECTIONS_MAX` connections are open
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

if TYPE_CHECKING:
    import socket
    import ssl

    import h11
    from starlette.types import ASGIApp

CONNECTIONS_MAX = 2_000
"""Connections to the door; they take descriptors, which the log and the links need, too."""

IDLE_S = 30.0
"""How long a connection may be open without a request that is being answered."""

CLOSE_S = 2.0
"""How long a stopping broker waits for requests that are being answered."""

HEAD_BYTES_MAX = 64 * 1024
"""The longest head of a request; beyond it the answer is 400. A token of a topic with hundreds of
pubends fits in."""

SOCKET_MESSAGE_BYTES_MAX = 1 << 20
"""The longest message over a WebSocket to the door; a token, mostly."""

PING_S = 20.0
"""How often a WebSocket is pinged, and how long the answer may take."""


class HttpConnections:
    """All connections of one door; those that idle, by how long they do."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None) -> None:
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            log_level="critical",  # what strangers send is not worth a line each
            http=HttpProtocol,
            ws=SocketProtocol,
            ws_max_size=SOCKET_MESSAGE_BYTES_MAX,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            server_header=False,
            timeout_keep_alive=int(IDLE_S),
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._config.load()
        self._state = ServerState()
        self._state.default_headers = [(b"x-content-type-options", b"nosniff")]
        self._tls = tls
        self._present: set[HttpConnection] = set()
        self._idle: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None

    async def open(self, listener: socket.socket) -> None:
        """Take connections from now on; the listener is ours."""
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol,
            sock=listener,
            ssl=self._tls,
            ssl_handshake_timeout=IDLE_S if self._tls is not None else None,
        )

    def __len__(self) -> int:
        return len(self._present)

    def _protocol(self) -> HttpProtocol:
        return HttpProtocol(HttpConnection(self), self._config, self._state)

    def enter(self, connection: HttpConnection) -> bool:
        """Whether there is room for one more."""
        if len(self._present) >= CONNECTIONS_MAX:
            if not self._idle:
                return False
            next(iter(self._idle)).end()
        self._present.add(connection)
        self._idle[connection] = None
        return True

    def begin(self, connection: HttpConnection) -> None:
        """A request is being answered."""
        self._idle.pop(connection, None)

    def rest(self, connection: HttpConnection) -> None:
        if connection in self._present:
            self._idle[connection] = None

    def leave(self, connection: HttpConnection) -> None:
        self._present.discard(connection)
        self._idle.pop(connection, None)

    async def close(self, *, at_once: bool = False) -> None:
        """Take no connection. Requests that are being answered have a while to end, or none."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._idle):
            connection.end()
        if self._state.tasks and not at_once:
            await asyncio.wait(self._state.tasks, timeout=CLOSE_S)
        for connection in list(self._present):
            connection.end()
        for task in list(self._state.tasks):
            task.cancel()
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=CLOSE_S)


class HttpConnection:
    """One connection, from its beginning to its end. A request finds it in its scope's state."""

    def __init__(self, connections: HttpConnections) -> None:
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None

    def begin(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        if self._connections.enter(self):
            self._wait()
        else:
            transport.abort()

    def asks(self) -> None:
        self._connections.begin(self)
        self._stop_timer()

    def answered(self) -> None:
        self._connections.rest(self)
        self._wait()

    def end(self) -> None:
        """Close at once."""
        self.gone()
        if self.transport is not None:
            self.transport.abort()

    def gone(self) -> None:
        self._connections.leave(self)
        self._stop_timer()

    def _wait(self) -> None:
        self._stop_timer()
        self._timer = asyncio.get_running_loop().call_later(IDLE_S, self.end)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class HttpProtocol(H11Protocol):
    """HTTP on one connection; tells its connection when it asks, is answered, and leaves."""

    def __init__(
        self, connection: HttpConnection, config: uvicorn.Config, state: ServerState
    ) -> None:
        own = {"connection": connection}
        super().__init__(config, state, own, asyncio.get_running_loop())
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection.begin(transport)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._connection.asks()

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self._connection.asks()
        super().handle_websocket_upgrade(event)

    def on_response_complete(self) -> None:
        self._connection.answered()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.gone()
        super().connection_lost(exc)


class SocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket on a connection that began with HTTP."""

    def connection_lost(self, exc: Exception | None) -> None:
        connection: Any = self.app_state["connection"]
        connection.gone()
        super().connection_lost(exc)
