"""The admin port: health, readiness, statistics and subscriptions as JSON, metrics; over HTTP.

It runs on the broker's own loop, so that it also tells whether that loop still turns. Without the
`console` extra there is no admin port, which is logged, and the broker works all the same.
With security it speaks TLS, and only to those who bring a token with the right to administer all
topics (`Authorization: Bearer TOKEN`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any, Protocol, Self

from gapless.broker.address import show_endpoint
from gapless.broker.logs import logger
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Receive, Scope, Send

    from gapless.broker.access import Access


CLOSE_S = 1
"""How long a stopping broker waits for those who have asked and do not read the answer."""

CONNECTIONS_MAX = 32
"""Connections to the admin port; beyond it a new one is closed."""

LIFE_S = 60.0
"""How long one lasts at most, whatever it does; whoever asks again makes another."""

PATHS = {
    "/health": "200 while the loop turns",
    "/ready": "200 when it serves, 503 when it is stopping or has failed",
    "/statistics": "all figures as JSON",
    "/subscriptions": "the durable subscriptions that live here, as JSON",
    "/metrics": "what matters of the figures, for Prometheus",
}


class Subject(Protocol):
    """What is shown."""

    is_ready: bool

    def statistics(self) -> dict[str, Any]: ...
    def subscriptions(self) -> list[dict[str, Any]]: ...


class Admin:
    """The open admin port of one broker."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self.address = show_endpoint(*listener.getsockname()[:2])
        self._server = server
        self._task = asyncio.create_task(server.serve([listener]), name="admin")

    @classmethod
    async def open(
        cls,
        subject: Subject,
        at: tuple[str, int],
        access: Access | None = None,
        check: Callable[[str, str], None] = lambda *_: None,
    ) -> Self | None:
        """`check` raises if it may not listen there."""
        try:
            app: ASGIApp = make_app(subject)
            server = make_server(guarded(app, access) if access else app, access)
        except ImportError as error:
            logger.warning(
                "no admin port", extra={"reason": error, "remedy": "pip install gapless[console]"}
            )
            return None
        family = socket.AF_INET6 if ":" in at[0] else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(at)
            check(show_endpoint(*listener.getsockname()[:2]), "--admin")
            listener.listen()  # now: who is told the address may ask at once
        except UsageError:
            listener.close()
            raise
        except OSError as error:
            listener.close()
            raise UsageError(
                f"cannot listen on {show_endpoint(*at)} for the admin port: {error.strerror}",
                "Stop what uses it, or give another address with --admin (port 0: any).",
            ) from error
        return cls(server, listener)

    async def close(self) -> None:
        self._server.should_exit = True
        await self._task


def guarded(app: ASGIApp, access: Access) -> ASGIApp:
    """The same, for those who may administer; others get a refusal, and not at once."""
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("authorization", "")
        kind, _, token = given.partition(" ")
        principal = access.by_proof(token.strip()) if kind.lower() == "bearer" else None
        if principal is not None and principal.rights.administers:
            await app(scope, receive, send)
            return
        access.refused_logins += 1
        address = show_endpoint(*scope["client"]) if scope.get("client") else "?"
        logger.warning("admin request refused", extra={"address": address})
        await asyncio.sleep(access.security.login_delay_s)
        refusal = PlainTextResponse(
            "not admitted: give a token with the right to administer\n",
            status_code=401 if principal is None else 403,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    return guard


def make_server(app: ASGIApp, access: Access | None = None) -> uvicorn.Server:
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals are the broker's business

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        log_level="warning",
        timeout_graceful_shutdown=CLOSE_S,
        http=bounded_protocol(),
        ws="none",
    )
    if access is not None:
        config.load()
        config.ssl = access.tls.admin
    return Server(config)


def bounded_protocol() -> type[asyncio.Protocol]:
    """HTTP for few at a time, and not for long: connections take descriptors, which the log and
    the broker's links need, too."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Bounded(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            loop = asyncio.get_running_loop()
            self._end = loop.call_later(LIFE_S, transport.abort)
            if len(self.connections) > CONNECTIONS_MAX:
                transport.abort()

        def connection_lost(self, exc: Exception | None) -> None:
            self._end.cancel()
            super().connection_lost(exc)

    return Bounded


def make_app(subject: Subject) -> Starlette:
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.responses import Response as AnyResponse
    from starlette.routing import Route

    from gapless.broker.metrics import written

    async def index(_: Request) -> Response:
        return PlainTextResponse("".join(f"{path}  {what}\n" for path, what in PATHS.items()))

    async def health(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> Response:
        if subject.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", status_code=503)

    async def statistics(_: Request) -> Response:
        return JSONResponse(subject.statistics())

    async def subscriptions(_: Request) -> Response:
        return JSONResponse(subject.subscriptions())

    async def metrics(_: Request) -> Response:
        text = await asyncio.to_thread(written, subject.statistics())  # long with many pubends
        return AnyResponse(text, media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/", index),
            Route("/health", health),
            Route("/ready", ready),
            Route("/statistics", statistics),
            Route("/subscriptions", subscriptions),
            Route("/metrics", metrics),
        ]
    )
