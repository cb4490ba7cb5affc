"""Streams: a subscription as server-sent events, and over a WebSocket.

Theory of operation
    Each server-sent event has as its `id` the token that holds once the event was read, so a
    browser that connects again says in `Last-Event-ID` where it was. A block with an `id` alone
    moves that position past events that do not match; it comes with the keep-alive comment.
    A stream writes only when the connection has room. If it has none for `STALL_S`, the feed is
    detached (`feed`); if it has none for `GIVE_UP_S`, the connection is closed. The reader may come
    back with its token.
    When the door closes, streams end by a `retry`, so that browsers come back soon after.

Invariants
    I1  at most one block of `BLOCK_BYTES` waits for a reader that does not read, beside what the
        connection has taken
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.websockets import WebSocketDisconnect

from gapless.client.delivery import Gap
from gapless.client.json_values import delivery_fields
from gapless.core.errors import GaplessError, UsageError
from gapless.core.token import Token
from gapless.doors.http.feed import MISSED
from gapless.doors.http.problems import problem_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from contextlib import AsyncExitStack

    from starlette.types import Receive, Scope, Send
    from starlette.websockets import WebSocket

    from gapless.client.delivery import Delivery
    from gapless.doors.http.feed import Feed

KEEP_ALIVE_S = 15.0
"""How often a stream without events says that it lives."""

STALL_S = 1.0
"""How long a connection may have no room before its feed is detached."""

GIVE_UP_S = 60.0
"""How long a connection may have no room before it is closed."""

BLOCK_BYTES = 32 << 10
"""About how much is written at a time."""

RETRY_MS = 1_000
"""How long a browser waits before it connects again."""

RETRY_ENDED_MS = 30_000
"""The same after a stream that ended because of an error: to come back soon would not help."""

RESTART = 1012
FAILED = 1011


class StalledError(Exception):
    """The reader has taken nothing for `GIVE_UP_S`."""


class SlowReader:
    """Writes to one reader, and detaches the feed of a reader that does not read."""

    def __init__(self, feed: Feed, put: Callable[[Any], Coroutine[Any, Any, None]]) -> None:
        self._feed = feed
        self._put = put

    async def write(self, piece: object) -> bool:
        """Write when there is room. False: that took long, and the feed was detached."""
        try:
            async with asyncio.timeout(STALL_S):
                await self._put(piece)
            return True
        except TimeoutError:
            await self._feed.detach()
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._put(piece)
        except TimeoutError:
            raise StalledError from None
        return False


class EventStream(Response):
    """A feed as server-sent events. `resources` are closed at its end; `closing` ends it."""

    media_type = "text/event-stream"

    def __init__(self, feed: Feed, resources: AsyncExitStack, closing: asyncio.Event) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._resources = resources
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def put(body: object) -> None:
            await send({"type": "http.response.body", "body": body, "more_body": True})

        async with self._resources:
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            try:
                last = await first_of(
                    self._write(SlowReader(self._feed, put)),
                    gone(receive),
                    self._end(),
                )
                if last is not None:
                    async with asyncio.timeout(STALL_S):
                        await send({"type": "http.response.body", "body": last})
            except (StalledError, TimeoutError):
                scope["state"]["connection"].end()

    async def _end(self) -> bytes:
        await self._closing.wait()
        return f"retry: {RETRY_MS}\n\n".encode()

    async def _write(self, reader: SlowReader) -> bytes:
        feed = self._feed
        shown = show_token(feed.token)
        await reader.write(f"retry: {RETRY_MS}\n\nid: {shown}\n\n".encode())
        try:
            while (items := await feed.take(KEEP_ALIVE_S)) is not None:
                if not items:
                    token, shown = shown, show_token(feed.token)
                    moved = f"id: {shown}\n" if token != shown else ""
                    await reader.write(f": alive\n{moved}\n".encode())
                for block in blocks(items, self._show):
                    if not await reader.write(block):
                        break  # the feed was detached: it goes on from its position
        except GaplessError as error:
            text = json.dumps(problem_of(error))
            return f"event: end\nretry: {RETRY_ENDED_MS}\ndata: {text}\n\n".encode()
        return b"event: end\ndata: {}\n\n"

    def _show(self, item: Delivery) -> str:
        kind = "event: gap\n" if isinstance(item, Gap) else ""
        data = json.dumps(item_fields(item, self._feed.topic))
        return f"{kind}id: {show_token(self._feed.advance(item))}\ndata: {data}\n\n"


def show_token(token: Token | dict[str, int]) -> str:
    """The text of a token in ASCII, as headers need it."""
    return json.dumps(dict(token), separators=(",", ":"))


def blocks(items: list[Delivery], show: Callable[[Delivery], str]) -> Iterator[bytes]:
    """The items as text, a block at a time; `show` is called when its block is next."""
    block: list[str] = []
    size = 0
    for item in items:
        block.append(show(item))
        size += len(block[-1])
        if size >= BLOCK_BYTES:
            yield "".join(block).encode()
            block, size = [], 0
    if block:
        yield "".join(block).encode()


def item_fields(item: Delivery, topic: str) -> dict[str, Any]:
    """A delivery as JSON; a gap that nobody can name has no span and no pubend."""
    if item is MISSED:
        return {"gap": None, "topic": topic, "pubend": None}
    return delivery_fields(item)


# --- WebSocket ------------------------------------------------------------------------------------


async def serve_socket(socket: WebSocket, feed: Feed, closing: asyncio.Event) -> None:
    """Send deliveries, take acknowledgements, until either side ends it."""
    reader = SlowReader(feed, socket.send_json)
    await socket.accept()
    try:
        code = await first_of(
            send_deliveries(feed, reader), take_acknowledgements(socket, feed), end_of(closing)
        )
        if code is not None:
            async with asyncio.timeout(STALL_S):
                await socket.close(code)
    except (StalledError, TimeoutError):
        socket.scope["state"]["connection"].end()


async def send_deliveries(feed: Feed, reader: SlowReader) -> int:
    shown = show_token(feed.token)
    try:
        await reader.write({"token": shown})
        while (items := await feed.take(KEEP_ALIVE_S)) is not None:
            if not items and shown != (shown := show_token(feed.token)):
                await reader.write({"token": shown})
            for item in items:
                fields = item_fields(item, feed.topic)
                message = fields if isinstance(item, Gap) else {"event": fields}
                shown = show_token(feed.advance(item))
                if not await reader.write({**message, "token": shown}):
                    break  # the feed was detached: it goes on from its position
    except GaplessError as error:
        await reader.write({"problem": problem_of(error)})
    return FAILED


async def take_acknowledgements(socket: WebSocket, feed: Feed) -> None:
    """Answer each `{"acknowledge": TOKEN}` with `{"acknowledged": TOKEN}`, or a problem."""
    while True:
        try:
            text = await socket.receive_text()
        except (WebSocketDisconnect, KeyError):  # the client left, or sent bytes
            return
        try:
            token = parse_acknowledgement(text)
            await feed.acknowledge(token)
            answer: dict[str, Any] = {"acknowledged": show_token(token)}
        except GaplessError as error:
            answer = {"problem": problem_of(error)}
        await socket.send_json(answer)


def parse_acknowledgement(text: str) -> Token:
    """The token, which is a text in JSON: numbers of JavaScript would not hold its ticks."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    given = found.get("acknowledge") if isinstance(found, dict) else None
    if not isinstance(given, str):
        raise UsageError("the message is not understood", 'Send {"acknowledge": "TOKEN"}.')
    return Token.from_json(given)


async def end_of(closing: asyncio.Event) -> int:
    await closing.wait()
    return RESTART


# --- both -----------------------------------------------------------------------------------------


async def gone(receive: Receive) -> None:
    """Until the reader has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def first_of(*coroutines: Coroutine[Any, Any, Any]) -> Any:
    """The result of the one that ends first; the others are cancelled, and have ended."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return next(task for task in tasks if task in done).result()
