"""The routes of the HTTP door.

Each request leases a client of its token, so that the broker checks its rights as those of any
client. A body is read within `BODY_S` and `BODY_BYTES_MAX`; bodies of all requests together have a
bound of their own. `openapi` describes each route for readers; a test compares both.
"""

from __future__ import annotations

import asyncio
import json
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute

from gapless.client.telemetry import continuing
from gapless.core.errors import GaplessError, UsageError
from gapless.core.token import Token
from gapless.doors.clients import BusyError
from gapless.doors.http.feed import Feed
from gapless.doors.http.guard import TOKEN, HttpGuard
from gapless.doors.http.openapi import POLICY, document, page
from gapless.doors.http.payloads import parse_body, parse_json
from gapless.doors.http.problems import HttpError, ProblemResponse
from gapless.doors.http.publishing import NamedPublishers, NameKey
from gapless.doors.http.reading import (
    FORMS,
    NEXT,
    PAGE_EVENTS_MAX,
    RangeQuery,
    RangeResponse,
    read_when_there,
)
from gapless.doors.http.streams import EventStream, serve_socket, show_token
from gapless.filters.filter import Filter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from starlette.requests import HTTPConnection, Request
    from starlette.types import ASGIApp, Receive, Scope, Send
    from starlette.websockets import WebSocket

    from gapless.client.client import Client
    from gapless.client.topics import TopicDescription
    from gapless.doors.clients import DoorClients
    from gapless.doors.http.payloads import Publication

    Directory = Callable[[str, str | None], list[dict[str, Any]]]

logger = logging.getLogger("gapless.broker")

BODY_BYTES_MAX = 8 << 20
"""The longest body of a request; beyond it the answer is 413."""

BODIES_BYTES_MAX = 64 << 20
"""Bodies of all requests that are being read or published; beyond it the answer is 503."""

BODY_S = 30.0
"""How long a body may take to arrive; beyond it the answer is 408."""

LONG_BODY = 64 << 10
"""A longer body is parsed beside the event loop, which serves others meanwhile."""

STREAMS_MAX = 1_000
"""Streams and long-polls; beyond it the answer is 503."""

WAIT_MAX_S = 60.0
"""How long a read may wait for an event."""

TOPIC_FIELDS = {
    "service", "pubends", "hosts", "ordered",
    "retention_seconds", "retention_bytes", "keep_seconds", "keep_bytes",
}  # fmt: skip
SUBSCRIPTION_FIELDS = {"topic", "where", "from"}
KINDS: dict[str, Any] = {
    "pubends": int,
    "hosts": list,
    "retention_seconds": int | float,
    "retention_bytes": int,
    "keep_seconds": int | float,
    "keep_bytes": int,
    "ordered": bool,
    "from": str | dict,
}
"""The types of fields that are no texts."""

DIGITS_MAX = 18
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")


class HttpApp:
    """What the routes share."""

    def __init__(self, clients: DoorClients, directory: Directory) -> None:
        """`directory`: the named subscriptions that the holder of a token may see; or one."""
        self.closing = asyncio.Event()
        self._clients = clients
        self._publishers = NamedPublishers(clients)
        self._directory = directory
        self._body_bytes = 0
        self._streams = 0

    def routes(self) -> list[Route | WebSocketRoute]:
        topic, name = "/topics/{topic}", "/subscriptions/{name}"
        return [
            Route("/", self.show_page),
            Route("/openapi.json", self.show_document),
            Route("/topics", self.list_topics),
            Route(topic, self.show_topic),
            Route(topic, self.create_topic, methods=["PUT"]),
            Route(topic, self.delete_topic, methods=["DELETE"]),
            only_get(f"{topic}/events", self.read),
            Route(f"{topic}/events", self.publish, methods=["POST"]),
            Route(f"{topic}/publishers/{{name}}", self.take_name, methods=["POST"]),
            only_get(f"{topic}/subscribe", self.subscribe),
            WebSocketRoute(f"{topic}/subscribe", self.subscribe_socket),
            Route("/subscriptions", self.list_subscriptions),
            Route(name, self.create_subscription, methods=["PUT"]),
            Route(name, self.delete_subscription, methods=["DELETE"]),
            Route(f"{name}/acknowledge", self.acknowledge, methods=["POST"]),
        ]

    async def close(self) -> None:
        """Let go of all publishers; call it when no request is being answered any more."""
        await self._publishers.close()

    # --- what this is -----------------------------------------------------------------------------

    async def show_page(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]):
            return HTMLResponse(page(), headers={"Content-Security-Policy": POLICY})

    async def show_document(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]):
            return JSONResponse(document())

    # --- topics -----------------------------------------------------------------------------------

    async def list_topics(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]) as client:
            return JSONResponse({"topics": [topic_fields(each) for each in await client.topics()]})

    async def show_topic(self, request: Request) -> Response:
        topic = parameter(request, "topic")
        async with self._clients.shared(request.scope[TOKEN]) as client:
            for each in await client.topics():
                if each.name == topic:
                    return JSONResponse(topic_fields(each))
        raise HttpError(404, f"there is no topic {topic!r:.80}", "Create it with PUT.")

    async def create_topic(self, request: Request) -> Response:
        fields = await self._fields(request, TOPIC_FIELDS)
        async with self._clients.shared(request.scope[TOKEN]) as client:
            await client.create_topic(parameter(request, "topic"), **fields)
        return await self.show_topic(request)

    async def delete_topic(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]) as client:
            await client.delete_topic(parameter(request, "topic"))
        return Response(status_code=204)

    # --- publishing -------------------------------------------------------------------------------

    async def publish(self, request: Request) -> Response:
        topic, headers = parameter(request, "topic"), request.headers
        media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        size = self._reserve(headers.get("content-length", ""))
        try:
            body = await read_body(request)
            if len(body) > LONG_BODY:
                events = await asyncio.to_thread(parse_body, media_type, headers, body)
            else:
                events = parse_body(media_type, headers, body)
            with continuing(headers):
                return await self._publish(request, topic, events)
        finally:
            self._body_bytes -= size

    async def _publish(
        self, request: Request, topic: str, events: Sequence[Publication]
    ) -> Response:
        headers, token = request.headers, request.scope[TOKEN]
        name, number = headers.get("gapless-publisher"), headers.get("gapless-sequence")
        if name is not None or number is not None:
            key = NameKey(token, topic, decode_text("Gapless-Publisher", name))
            first = parse_number("Gapless-Sequence", number)
            return JSONResponse((await self._publishers.send(key, first, events))._asdict())
        is_confirmed = parse_flag("confirmed", request.query_params.get("confirmed"))
        async with self._clients.shared(token) as client:
            receipts = await client.publish_many(topic, events, confirmed=is_confirmed)
        return JSONResponse({"receipts": [each._asdict() for each in receipts]})

    async def take_name(self, request: Request) -> Response:
        name = parameter(request, "name")
        key = NameKey(request.scope[TOKEN], parameter(request, "topic"), name)
        return JSONResponse({"publisher": name, "next": await self._publishers.position(key)})

    def _reserve(self, length: str) -> int:
        """Room for a body of this length; a body that does not say it may have any."""
        size = int(length) if length.isdecimal() and len(length) < 20 else BODY_BYTES_MAX
        if size > BODY_BYTES_MAX:
            raise too_long()
        if self._body_bytes + size > BODIES_BYTES_MAX:
            raise BusyError("too many bodies are being read at this door")
        self._body_bytes += size
        return size

    # --- reading ----------------------------------------------------------------------------------

    async def read(self, request: Request) -> Response:
        query, token = Query(request), request.scope[TOKEN]
        form = choose_form(request.headers.get("accept", ""))
        asked = RangeQuery(
            parameter(request, "topic"),
            query.condition(),
            query.get("from", "earliest"),
            query.get("to", "latest"),
            query.number("limit", 1, PAGE_EVENTS_MAX),
            form,
        )
        wait_s = query.seconds("wait", WAIT_MAX_S)
        query.check()
        async with AsyncExitStack() as stack:
            if wait_s:
                client = await stack.enter_async_context(self._stream(token))
                page_read = await read_when_there(client, asked, wait_s, self.closing)
            else:
                client = await stack.enter_async_context(self._clients.shared(token))
                page_read = await asked.begin(client)
            if wait_s and not page_read.items:
                return Response(status_code=204, headers={NEXT: show_token(page_read.next)})
            response = RangeResponse(page_read, form, stack.pop_all())
        return await response.begin()

    @asynccontextmanager
    async def _stream(self, token: str) -> AsyncIterator[Client]:
        """A client for a stream, which counts."""
        if self._streams >= STREAMS_MAX:
            raise BusyError(f"this door has {STREAMS_MAX} streams")
        self._streams += 1
        try:
            async with self._clients.own(token) as client:
                yield client
        finally:
            self._streams -= 1

    # --- subscriptions ----------------------------------------------------------------------------

    async def subscribe(self, request: Request) -> Response:
        async with AsyncExitStack() as stack:
            feed = await self._feed(request, stack)
            return EventStream(feed, stack.pop_all(), self.closing)

    async def subscribe_socket(self, socket: WebSocket) -> None:
        async with AsyncExitStack() as stack:
            try:
                feed = await self._feed(socket, stack)
            except GaplessError as error:
                await socket.send_denial_response(ProblemResponse(error))
                return
            await serve_socket(socket, feed, self.closing)

    async def _feed(self, request: HTTPConnection, stack: AsyncExitStack) -> Feed:
        """An open feed; the stack closes it."""
        query = Query(request)
        start = query.get("from", "latest")
        if last := request.headers.get("last-event-id"):
            start = decode_text("Last-Event-ID", last)
        topic, condition = parameter(request, "topic"), query.condition()
        name = query.get("name", "") or None
        query.check()
        client = await stack.enter_async_context(self._stream(request.scope[TOKEN]))
        feed = Feed(client, topic, condition, name, start)
        stack.push_async_callback(feed.close)
        await feed.open()
        return feed

    async def list_subscriptions(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]):
            found = self._directory(request.scope[TOKEN], None)
            shown = [{**each, "acknowledged": show_token(each["acknowledged"])} for each in found]
            return JSONResponse({"subscriptions": shown})

    async def create_subscription(self, request: Request) -> Response:
        name = parameter(request, "name")
        fields = await self._fields(request, SUBSCRIPTION_FIELDS)
        topic, condition = fields.get("topic", ""), fields.get("where", "")
        start = fields.get("from", "latest")
        if isinstance(start, dict):
            start = Token.from_json(json.dumps(start))
        async with self._clients.shared(request.scope[TOKEN]) as client:
            same = {"name": name, "topic": topic, "where": condition}
            found = self._directory(request.scope[TOKEN], name)
            if not any(same.items() <= each.items() for each in found):  # else leave its reader
                async with client.subscribe(topic, condition, name=name, start=start):
                    pass
        return JSONResponse(same)

    async def delete_subscription(self, request: Request) -> Response:
        async with self._clients.shared(request.scope[TOKEN]) as client:
            await client.unsubscribe(parameter(request, "name"))
        return Response(status_code=204)

    async def acknowledge(self, request: Request) -> Response:
        body = await self._body(request)
        token = Token.from_json(decode_text("the token", body.decode("latin-1")))
        async with self._clients.shared(request.scope[TOKEN]) as client:
            await client.acknowledge(parameter(request, "name"), token)
        return Response(status_code=204)

    # --- bodies -----------------------------------------------------------------------------------

    async def _fields(self, request: Request, known: set[str]) -> dict[str, Any]:
        """The fields of a JSON object, which may be missing."""
        body = await self._body(request)
        fields = parse_json(body, "the body") if body.strip() else {}
        if not isinstance(fields, dict) or fields.keys() - known:
            raise UsageError("the body is no JSON object of known fields", f"Use {sorted(known)}.")
        for name, value in fields.items():
            if not isinstance(value, KINDS.get(name, str)):
                raise UsageError(f"{name}={value!r:.80} is of the wrong type")
        return fields

    async def _body(self, request: Request) -> bytes:
        size = self._reserve(request.headers.get("content-length", ""))
        try:
            return await read_body(request)
        finally:
            self._body_bytes -= size


def only_get(path: str, endpoint: Callable[..., Any]) -> Route:
    """A route without `HEAD`: there is no head before the events are there."""
    route = Route(path, endpoint)
    route.methods = {"GET"}
    return route


async def read_body(request: Request) -> bytes:
    """The whole body; `HttpError` if it is too long, or too slow."""
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    raise too_long()
    except TimeoutError:
        raise HttpError(408, f"the body took longer than {BODY_S:.0f} s", "Send less.") from None
    return bytes(body)


def too_long() -> HttpError:
    problem = f"the body is longer than {BODY_BYTES_MAX} bytes"
    return HttpError(413, problem, "Send it in several requests.", {"Connection": "close"})


class Query:
    """The parameters of a request, each of which must be used."""

    def __init__(self, request: HTTPConnection) -> None:
        self._values = dict(request.query_params.multi_items())
        self._used: set[str] = set()

    def get(self, name: str, default: str) -> str:
        self._used.add(name)
        return self._values.get(name, default)

    def condition(self) -> str:
        text = self.get("where", "")
        Filter.parse(text)  # says where it is wrong
        return text

    def number(self, name: str, least: int, most: int) -> int | None:
        text = self.get(name, "")
        if not text:
            return None
        number = parse_number(name, text)
        if not least <= number <= most:
            raise UsageError(f"{name}={text:.80} is out of range", f"Give {least} to {most}.")
        return number

    def seconds(self, name: str, most: float) -> float:
        text = self.get(name, "0")
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= most:
            raise UsageError(f"{name}={text!r:.80} is out of range", f"Give 0 to {most:.0f}.")
        return seconds

    def check(self) -> None:
        """`UsageError` if a parameter means nothing here: it may be misspelt."""
        if unknown := sorted(self._values.keys() - self._used):
            known = ", ".join(sorted(self._used))
            raise UsageError(f"there is no parameter {unknown[0]!r:.80}", f"There are: {known}.")


def parameter(request: HTTPConnection, name: str) -> str:
    """A part of the path, decoded; `/` in a name is written %2F."""
    try:
        return unquote(str(request.path_params[name]), errors="strict")
    except UnicodeDecodeError:
        raise UsageError(f"the {name} in the path is no UTF-8") from None


def decode_text(what: str, given: str | None) -> str:
    """A header's text; headers are bytes, which Starlette shows as Latin-1."""
    if given is None:
        raise UsageError(f"{what} is missing", "Give Gapless-Publisher and Gapless-Sequence.")
    try:
        return given.encode("latin-1").decode()
    except UnicodeError:
        raise UsageError(f"{what} is no UTF-8") from None


def parse_number(what: str, text: str | None) -> int:
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > DIGITS_MAX:
        remedy = "Give a whole number: of the first event, counted from 0."
        raise UsageError(f"{what}={text!r:.80} is no number", remedy)
    return int(text)


def parse_flag(what: str, text: str | None) -> bool:
    if text not in (None, "true", "false"):
        raise UsageError(f"{what}={text!r:.80} is neither true nor false")
    return text == "true"


def choose_form(accept: str) -> str:
    """The first form that the caller accepts."""
    for part in (accept or "*/*").split(","):
        wanted = part.partition(";")[0].strip().lower()
        if wanted in ("*/*", "application/*", "application/json"):
            return FORMS[0]
        if wanted in FORMS:
            return wanted
    raise HttpError(406, f"events are not given as {accept:.80}", f"Accept {', '.join(FORMS)}.")


def topic_fields(topic: TopicDescription) -> dict[str, Any]:
    return {name: value for name, value in topic._asdict().items() if value is not None}


# --- the application ------------------------------------------------------------------------------


def make_app(
    app: HttpApp, *, is_secure: bool, hosts: Iterable[str], origins: Iterable[str]
) -> ASGIApp:
    """The routes behind the guard; pages of `origins` may use them."""
    routed: ASGIApp = Starlette(
        routes=app.routes(),
        exception_handlers={
            GaplessError: lambda _, error: ProblemResponse(error),
            HTTPException: show_http_exception,
            Exception: show_fault,
            ClientDisconnect: lambda *_: Response(status_code=400),
        },
    )
    allowed = tuple(origins)
    guarded: ASGIApp = HttpGuard(routed, is_secure=is_secure, hosts=hosts, origins=allowed)
    if allowed:
        guarded = CORSMiddleware(
            guarded,
            allow_origins=allowed,
            allow_methods=METHODS,
            allow_headers=["*"],
            expose_headers=[NEXT],
        )

    async def with_raw_path(scope: Scope, receive: Receive, send: Send) -> None:
        """A `/` that is a part of a name (%2F) divides no path."""
        await guarded({**scope, "path": scope["raw_path"].decode("ascii")}, receive, send)

    return with_raw_path


def show_fault(request: Request, error: Exception) -> Response:
    """A fault of ours: for the operator's eyes only."""
    logger.error("an HTTP request failed", extra={"path": request.scope["path"]}, exc_info=error)
    return ProblemResponse(HttpError(500, "the request failed", "See the broker's log."))


def show_http_exception(request: Request, error: Exception) -> Response:
    """Paths and methods that there are not."""
    assert isinstance(error, HTTPException)
    remedy = "See /openapi.json for what there is."
    path = request.scope["path"]
    problem = f"there is no {request.method} {path:.80}"
    return ProblemResponse(HttpError(error.status_code, problem, remedy, error.headers))
