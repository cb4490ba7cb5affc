"""The admin port: health, readiness, statistics and subscriptions as JSON, metrics; over HTTP.

It runs on the broker's own loop, so that it also tells whether that loop still turns. Without the
`console` extra there is no admin port, which is logged, and the broker works all the same.
With security it speaks TLS, and only to those who bring a token with the right to administer all
topics (`Authorization: Bearer TOKEN`). Probes need none for `/health` and `/ready`, which say a
word and nothing else; nor does `/metrics`, where that was chosen. Without security it answers
whoever reaches it and names it as it is named (`for_host`).
A port that is in use does not keep a broker from starting: it takes any free one and says so.
How many may be connected, and for how long: `broker.admin.connections`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from typing import TYPE_CHECKING, Any, Protocol, Self

from gapless.broker.addresses import show_endpoint
from gapless.broker.logs import logger
from gapless.core.errors import FilterError, UsageError
from gapless.doors.hosts import is_own_host

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Receive, Scope, Send

    from gapless.broker.admin.connections import AdminConnections
    from gapless.broker.admin.console import Console
    from gapless.broker.admin.inquiry import EventInquiry
    from gapless.broker.configuration import Reloading
    from gapless.broker.security.access import Access

BACKLOG = 128
"""Connections that the system holds until they are taken."""

TICK_DIGITS_MAX = 19
DESCRIBED_AT_ONCE = 100
"""Subscriptions that are looked at in one turn of the loop."""

HOST_SHOWN_MAX = 255
"""Characters of a `Host` that a refusal repeats."""

PATHS = {
    "/health": "200 while the loop turns",
    "/ready": "200 when it serves, 503 when it is stopping or has failed",
    "/statistics": "all figures as JSON",
    "/subscriptions": "the durable subscriptions that live here, as JSON",
    "/metrics": "what matters of the figures, for Prometheus",
}
COMMANDS = {
    "/backup?number=N": "the next bytes of a backup; X-Gapless-Backup is its number, 0 begins one",
    "POST /reload": "read network file, settings and certificates anew (?look=1: only compare)",
    "POST /drain": "give all named subscriptions to other brokers; what is still here",
}
INQUIRIES = {
    "/why?topic=T&pubend=P&tick=N&subscription=S": "what it knows of the way of an event",
    "/find?topic=T&where=CONDITION": "the newest events at this broker that match",
}


PROBES = frozenset({"/health", "/ready"})
"""What needs no token."""


class Subject(Protocol):
    """What is shown."""

    is_ready: bool
    inquiry: EventInquiry
    console: Console | None

    def reload(self, *, only_look: bool) -> Reloading: ...
    def give_away(self) -> dict[str, Any]: ...
    def back_up(self, number: int) -> tuple[int, bytes]: ...
    def statistics(self) -> dict[str, Any]: ...
    def subscription_names(self) -> list[str]: ...
    def subscriptions(self, names: Sequence[str]) -> list[dict[str, Any]]: ...
    def measured_subscriptions(self) -> list[str]: ...


class Admin:
    """The open admin port of one broker."""

    def __init__(self, connections: AdminConnections, listener: socket.socket) -> None:
        self.address = show_endpoint(*listener.getsockname()[:2])
        self._connections = connections
        connections.open(listener)

    @classmethod
    async def open(
        cls,
        subject: Subject,
        at: tuple[str, int],
        access: Access | None = None,
        check: Callable[[str, str], None] = lambda *_: None,
        hosts: Iterable[str] = (),
        *,
        is_metrics_open: bool = False,
    ) -> Self | None:
        """`check` raises if it may not listen there; `hosts`: names under which others reach it."""
        try:
            from gapless.broker.admin.connections import AdminConnections
            from gapless.broker.admin.console import PAGES

            app: ASGIApp = make_app(subject)
            known = frozenset(each.lower().rstrip(".") for each in (*hosts, at[0]))
            free = PROBES | {"/", *(f"/console/{name}" for name in PAGES)}
            free |= {"/metrics"} if is_metrics_open else set()
            if access is not None:
                app = guarded(app, judge_of(access), access.security.login_delay_s, free)
            else:
                app = for_host(app, known)
            connections = AdminConnections(app, access.tls.admin if access else None)
        except ModuleNotFoundError as error:
            remedy = "pip install 'gapless[broker]'"
            logger.warning("no admin port", extra={"reason": error, "remedy": remedy})
            return None
        return cls(connections, listen(at, check))

    async def close(self) -> None:
        await self._connections.close()


def listen(
    at: tuple[str, int], check: Callable[[str, str], None], option: str = "--admin"
) -> socket.socket:
    """A socket that listens there, or at any free port if that one is in use."""
    try:
        return listen_at(at, check, option)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and at[1]:
            with contextlib.suppress(OSError):
                return listen_at((at[0], 0), check, option)
        raise UsageError(
            f"cannot listen on {show_endpoint(*at)} for {option}: {error.strerror}",
            f"Stop what uses it, or give another address with {option} (port 0: any).",
        ) from error


def listen_at(at: tuple[str, int], check: Callable[[str, str], None], option: str) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in at[0] else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(at)
        check(show_endpoint(*listener.getsockname()[:2]), option)
        listener.listen(BACKLOG)  # now: who is told the address may ask at once
    except BaseException:
        listener.close()
        raise
    return listener


def judge_of(access: Access) -> Callable[[str], int]:
    """Judges the tokens of principals: 0 for one that may administer, else 401 or 403."""

    def judge(token: str) -> int:
        principal = access.by_proof(token)
        if principal is not None and principal.rights.administers:
            return 0
        access.refused_logins += 1
        return 401 if principal is None else 403

    return judge


def guarded(
    app: ASGIApp, judge: Callable[[str], int], delay_s: float, free: Collection[str]
) -> ASGIApp:
    """The same, for those whose token `judge` finds good (0); others get the status that it
    returns, and not at once. The paths in `free` are for everybody."""
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

    async def guard(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in free:
            await app(scope, receive, send)
            return
        kind, _, token = Headers(scope=scope).get("authorization", "").partition(" ")
        status = judge(token.strip() if kind.lower() == "bearer" else "")
        if not status:
            await app(scope, receive, send)
            return
        address = show_endpoint(*scope["client"]) if scope.get("client") else "?"
        logger.warning("admin request refused", extra={"address": address})
        await asyncio.sleep(delay_s)
        refusal = PlainTextResponse(
            "not admitted: give a token with the right to administer\n",
            status_code=status,
            headers={"WWW-Authenticate": "Bearer"},
        )
        await refusal(scope, receive, send)

    return guard


def for_host(app: ASGIApp, hosts: frozenset[str]) -> ASGIApp:
    """The same, for those who name us as we are named.

    A page of a stranger may have a name of its own lead here, and a browser would let it read what
    is answered to that name. So a name must be ours; an address cannot be lent.
    """
    from starlette.datastructures import Headers
    from starlette.responses import PlainTextResponse

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("host")
        if given is None or is_own_host(
            given, hosts
        ):  # HTTP/1.0 names nobody, and no browser speaks it
            await app(scope, receive, send)
            return
        refusal = PlainTextResponse(
            f"this admin port is not called {given[:HOST_SHOWN_MAX]!r}: ask by address, or as "
            "localhost, or start the broker with --admin-host NAME\n",
            status_code=421,
        )
        await refusal(scope, receive, send)

    return check


async def describe(subject: Subject, names: Sequence[str]) -> list[dict[str, Any]]:
    """The figures of many subscriptions, with room for other work in between."""
    shown: list[dict[str, Any]] = []
    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        shown += subject.subscriptions(names[start : start + DESCRIBED_AT_ONCE])
        await asyncio.sleep(0)
    return shown


def make_app(subject: Subject) -> Starlette:
    from prometheus_client.exposition import CONTENT_TYPE_LATEST
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.responses import Response as AnyResponse
    from starlette.routing import Route

    from gapless.broker.admin.console import ConsoleRequests, asset
    from gapless.broker.admin.metrics import written

    async def index(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return asset("index.html", "text/html")
        return PlainTextResponse(
            "".join(
                f"{path}  {what}\n" for path, what in {**PATHS, **INQUIRIES, **COMMANDS}.items()
            )
        )

    async def health(_: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def ready(_: Request) -> Response:
        if subject.is_ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", status_code=503)

    async def statistics(_: Request) -> Response:
        return await asyncio.to_thread(JSONResponse, subject.statistics())

    async def subscriptions(_: Request) -> Response:
        shown = await describe(subject, subject.subscription_names())
        return await asyncio.to_thread(JSONResponse, shown)

    async def metrics(_: Request) -> Response:
        shown = await describe(subject, subject.measured_subscriptions())
        figures = subject.statistics()
        text = await asyncio.to_thread(written, figures, shown)  # long with many pubends
        return AnyResponse(text, media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            *command_routes(subject),
            *inquiry_routes(subject),
            Route("/", index),
            Route("/health", health),
            Route("/ready", ready),
            Route("/statistics", statistics),
            Route("/subscriptions", subscriptions),
            Route("/metrics", metrics),
            *(ConsoleRequests(subject.console).routes() if subject.console is not None else ()),
        ]
    )


def inquiry_routes(subject: Subject) -> list[Route]:
    """Requests about single events."""
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.routing import Route

    async def why(request: Request) -> Response:
        asked = request.query_params
        names = ("topic", "pubend", "tick", "subscription")
        if missing := [each for each in names if not asked.get(each)]:
            return PlainTextResponse(f"give {', '.join(missing)}\n", status_code=400)
        if not asked["tick"].isdecimal() or len(asked["tick"]) > TICK_DIGITS_MAX:
            return PlainTextResponse("tick is a number\n", status_code=400)
        topic, pubend, tick, name = (asked[each] for each in names)
        return JSONResponse(subject.inquiry.way(topic, pubend, int(tick), name))

    async def find(request: Request) -> Response:
        asked = request.query_params
        try:
            matching = await subject.inquiry.find(asked.get("topic", ""), asked.get("where", ""))
        except FilterError as error:
            return PlainTextResponse(f"{error.problem}\n{error.caret()}\n", status_code=400)
        return JSONResponse(matching)

    return [Route("/why", why), Route("/find", find)]


def command_routes(subject: Subject) -> list[Route]:
    """Requests that change something. A page of a stranger cannot give our header."""
    from starlette.responses import JSONResponse, PlainTextResponse
    from starlette.responses import Response as AnyResponse
    from starlette.routing import Route

    def told(path: str, answer: Callable[[Request], dict[str, Any]]) -> Route:
        async def tell(request: Request) -> Response:
            if request.headers.get("x-gapless") != "command":
                return PlainTextResponse("give the header X-Gapless: command\n", status_code=403)
            return JSONResponse(answer(request))

        return Route(path, tell, methods=["POST"])

    def reload(request: Request) -> dict[str, Any]:
        return subject.reload(only_look=request.query_params.get("look") == "1").to_json()

    async def backup(request: Request) -> Response:
        number = request.query_params.get("number", "0")
        if not number.isdecimal() or len(number) > TICK_DIGITS_MAX:
            return PlainTextResponse("number is a number\n", status_code=400)
        try:
            current, data = await asyncio.to_thread(subject.back_up, int(number))
        except UsageError as error:
            return PlainTextResponse(f"{error}\n", status_code=409)
        return AnyResponse(data, headers={"X-Gapless-Backup": str(current)})

    commands = [told("/reload", reload), told("/drain", lambda _: subject.give_away())]
    return [*commands, Route("/backup", backup)]
