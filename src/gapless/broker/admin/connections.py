"""The HTTP connections of the admin port: few at a time, and none of them keeps others out.

Theory of operation
    Whoever asks is answered within milliseconds, so a connection that has been here for long is of
    no use: it says nothing, speaks slowly, does not read its answer, or waits to be used again.
    When there is one too many, the one whose last request is longest ago makes room, or whose
    beginning, if it never made one. So a probe is answered, whatever else is connected. A
    connection also ends by itself: `IDLE_S` after its last answer, `ANSWER_S` after a request that
    is still being answered. Bytes that are no whole request do not count, however many come.
    With TLS a connection counts from its first byte: the handshake is a part of its time.

Invariants
    I1  at most `CONNECTIONS_MAX` connections are open, and each has a timer that ends it
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gapless.broker.logs import logger

if TYPE_CHECKING:
    import socket
    import ssl

    from starlette.types import ASGIApp

CONNECTIONS_MAX = 32
"""Connections to the admin port; they take descriptors, which the log and the links need, too."""

IDLE_S = 10.0
"""How long a connection may be open without a request that is being answered."""

ANSWER_S = 60.0
"""How long it may take to be answered, and to read the answer."""

CLOSE_S = 1.0
"""How long a stopping broker waits for those who have asked and do not read the answer."""

ACCEPT_AGAIN_S = 1.0
"""How long to wait where the system lets us take no connection."""

HEAD_BYTES_MAX = 16 * 1024
"""The longest head of a request: beyond it the answer is 400."""


class AdminConnections:
    """All connections of one admin port; the one that was used last stands last."""

    def __init__(self, app: ASGIApp, tls: ssl.SSLContext | None = None) -> None:
        self._config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            log_level="error",  # what strangers send is not worth a line each
            http=AdminProtocol,
            ws="none",
            h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        )
        self._config.load()
        self._state = ServerState()
        self._tls = tls
        self._present: dict[AdminConnection, None] = {}
        self._again: asyncio.TimerHandle | None = None  # while the system lets us take nobody

    def open(self, listener: socket.socket) -> None:
        """Take connections from now on; the listener is ours."""
        listener.setblocking(False)
        self._listener = listener
        self._listen()

    def _listen(self) -> None:
        self._again = None
        asyncio.get_running_loop().add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # who was there is gone
        except OSError as error:  # no more files may be open, mostly
            logger.warning("the admin port takes nobody", extra={"reason": error})
            loop = asyncio.get_running_loop()
            loop.remove_reader(self._listener)
            self._again = loop.call_later(ACCEPT_AGAIN_S, self._listen)
            return
        connection.setblocking(False)
        self._enter(AdminConnection(self, connection, self._tls))

    def __len__(self) -> int:
        return len(self._present)

    def _enter(self, connection: AdminConnection) -> None:
        self._present[connection] = None
        if len(self._present) > CONNECTIONS_MAX:
            next(iter(self._present)).end()

    def use(self, connection: AdminConnection) -> None:
        """It has made a request: all others make room before it."""
        if connection in self._present:
            del self._present[connection]
            self._present[connection] = None

    def leave(self, connection: AdminConnection) -> None:
        self._present.pop(connection, None)

    def protocol(self, connection: AdminConnection) -> AdminProtocol:
        return AdminProtocol(connection, self._config, self._state, {}, asyncio.get_running_loop())

    async def close(self) -> None:
        """Take nobody. Whoever is being answered may read it for a while."""
        asyncio.get_running_loop().remove_reader(self._listener)
        if self._again is not None:
            self._again.cancel()
        self._listener.close()
        for connection in list(self._present):
            if not connection.is_asking:
                connection.end()
        await self._wait_answered()
        for connection in list(self._present):
            connection.end()
        await self._wait_answered()  # they notice that nobody reads it any more

    async def _wait_answered(self) -> None:
        if self._state.tasks:
            await asyncio.wait(self._state.tasks, timeout=CLOSE_S)


class AdminConnection:
    """One connection, from its beginning to its end; a `AdminProtocol` speaks HTTP on it."""

    def __init__(
        self, connections: AdminConnections, connection: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self._connections = connections
        self._connection: socket.socket | None = connection  # until a transport has it
        self._timer: asyncio.TimerHandle | None = None
        self._beginning = asyncio.create_task(self._begin(tls))
        self.transport: asyncio.Transport | None = None
        self.is_asking = False
        self._wait(IDLE_S)

    async def _begin(self, tls: ssl.SSLContext | None) -> None:
        connection, self._connection = self._connection, None
        assert connection is not None
        loop, patience_s = asyncio.get_running_loop(), IDLE_S if tls is not None else None
        try:
            await loop.connect_accepted_socket(
                lambda: self._connections.protocol(self),
                connection,
                ssl=tls,
                ssl_handshake_timeout=patience_s,
            )
        except OSError:  # ssl.SSLError is one; the context logs it
            self.gone()

    def asks(self) -> None:
        self.is_asking = True
        self._connections.use(self)
        self._wait(ANSWER_S)

    def answered(self) -> None:
        self.is_asking = False
        self._wait(IDLE_S)

    def end(self) -> None:
        """Close at once."""
        self.gone()
        self._beginning.cancel()
        if self._connection is not None:
            self._connection.close()
        elif self.transport is not None:
            self.transport.abort()

    def gone(self) -> None:
        self._connections.leave(self)
        if self._timer is not None:
            self._timer.cancel()

    def _wait(self, patience_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(patience_s, self.end)


class AdminProtocol(H11Protocol):
    """HTTP on one connection; tells its connection when it asks, is answered, and leaves."""

    def __init__(self, connection: AdminConnection, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connection = connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._connection.transport = transport
        super().connection_made(transport)

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and not self.cycle.response_complete:
            self._connection.asks()

    def on_response_complete(self) -> None:
        self._connection.answered()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.gone()
        super().connection_lost(exc)
