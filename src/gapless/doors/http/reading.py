"""Range reads over HTTP: the log between two tokens as NDJSON, Arrow or CloudEvents; long-poll.

Theory of operation
    Each answer says in `Gapless-Next` where to go on. Without a limit the end is known before the
    first byte, so the whole range is streamed, and read from the broker as the caller takes it.
    With a limit, or a wait, one page is read first: at most `limit` events, or the first of at
    least `PAGE_BYTES_MAX`. If a stream fails midway, its connection is cut, so that no caller
    takes a part for the whole.
    A page that is empty may wait: an anonymous subscription with the same condition says when to
    read again.

Deviation: what was released is a line of its own in NDJSON. Arrow and CloudEvents have no place for
it, so there it is an error: 410 before the first byte, a cut connection after it.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, replace
from io import RawIOBase
from typing import TYPE_CHECKING, Any, Self

from starlette.responses import Response

from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.client.json_values import delivery_fields
from gapless.core.errors import GaplessError, UsageError
from gapless.core.token import Token
from gapless.doors.http.cloud_events import show_structured
from gapless.doors.http.payloads import CLOUD_EVENTS, NDJSON
from gapless.doors.http.streams import GIVE_UP_S, first_of, gone, show_token

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from contextlib import AsyncExitStack

    from starlette.types import Receive, Scope, Send

    from gapless.client.client import Client
    from gapless.client.range_reads import RangeBatch

ARROW = "application/vnd.apache.arrow.stream"
FORMS = (NDJSON, ARROW, CLOUD_EVENTS)
NEXT = "Gapless-Next"
PAGE_EVENTS = 1_000
PAGE_EVENTS_MAX = 10_000
PAGE_BYTES_MAX = 4 << 20
PIECE_BYTES = 64 << 10
"""About how much is written at a time."""


@dataclass(frozen=True)
class RangeQuery:
    """What a caller asked for. `limit` of None: the whole range, streamed."""

    topic: str
    condition: str
    start: str
    """"earliest", "latest", or the JSON text of a token."""
    end: str
    limit: int | None
    form: str

    async def begin(self, client: Client) -> RangePage:
        """The first page; without a limit one that is read as it is taken."""
        positions = await client.positions(self.topic)
        low = {name: low for name, (low, _) in positions.items()}
        high = {name: high for name, (_, high) in positions.items()}
        start = parse_position(self.start, low, high)
        page = RangePage(self, client, start, parse_position(self.end, low, high))
        if self.limit is not None:
            await page.fill()
        return page


def parse_position(text: str, low: Mapping[str, int], high: Mapping[str, int]) -> Token:
    if text in ("earliest", "latest"):
        return Token(low if text == "earliest" else high)
    return Token.from_json(text)


class RangePage:
    """A part of a range, and the token to go on from."""

    def __init__(self, query: RangeQuery, client: Client, start: Token, end: Token) -> None:
        self._query = query
        self._client = client
        self._start = start
        self._end = end
        self.items: list[RangeBatch | Gap] = []
        self.next = start.join(end)

    async def fill(self) -> None:
        """Read it as a whole: at most `limit` events."""
        size, count, following = 0, 0, self._start
        async for item in self._read():
            following = following.join(Token({item.pubend: item.span.end}))
            if isinstance(item, Gap):
                self.items.append(item)
            elif len(item):
                self.items.append(item)
                size, count = size + len(item.run.data), count + len(item)
            if size >= PAGE_BYTES_MAX or count == self._query.limit:
                self.next = following
                return

    async def go_on(self) -> None:
        """Fill it again, with what has come since."""
        positions = await self._client.positions(self._query.topic)
        self._start = self.next
        self._end = Token({name: high for name, (_, high) in positions.items()})
        self.next = self._start.join(self._end)
        await self.fill()

    async def stream(self) -> AsyncIterator[RangeBatch | Gap]:
        for item in self.items:
            yield item
        if self._query.limit is None:
            async for each in self._read():
                yield each

    def _read(self) -> AsyncIterator[RangeBatch | Gap]:
        return self._client.read(
            self._query.topic,
            self._query.condition,
            start=self._start,
            end=self._end,
            limit=self._query.limit,
            gaps="yield" if self._query.form == NDJSON else "raise",
        )


async def read_when_there(
    client: Client, query: RangeQuery, wait_s: float, closing: asyncio.Event
) -> RangePage:
    """A page; if it would be empty, wait for an event that matches."""
    if query.end != "latest":
        raise UsageError("a read that ends somewhere has nothing to wait for", "Leave to out.")
    page = await replace(query, limit=query.limit or PAGE_EVENTS).begin(client)
    if page.items:
        return page
    async with client.subscribe(query.topic, query.condition, interruption="gap") as subscription:
        await page.go_on()  # what was published before the subscription began
        if page.items:
            return page
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await first_of(subscription.take(), closing.wait())
    await page.go_on()
    return page


class RangeResponse(Response):
    """A page, or a whole range that is read as the caller takes it."""

    def __init__(self, page: RangePage, form: str, resources: AsyncExitStack) -> None:
        headers = {NEXT: show_token(page.next), "Cache-Control": "no-store"}
        super().__init__(headers=headers, media_type=form)
        del self.headers["content-length"]
        self._resources = resources
        self._pieces = encode(page.stream(), form)
        self._first = b""

    async def begin(self) -> Self:
        """Have the first bytes ready: what is wrong is an error until then."""
        try:
            self._first = await anext(self._pieces, b"")
        except BaseException:
            await self._resources.aclose()
            raise
        return self

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            head = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **head})
            try:
                await first_of(self._write(send), gone(receive))
            except (GaplessError, TimeoutError):
                scope["state"]["connection"].end()  # nobody takes a part for the whole

    async def _write(self, send: Send) -> None:
        await put(send, self._first, more_body=True)
        async for piece in self._pieces:
            for at in range(0, len(piece), PIECE_BYTES):
                await put(send, piece[at : at + PIECE_BYTES], more_body=True)
        await put(send, b"", more_body=False)


async def put(send: Send, piece: bytes, *, more_body: bool) -> None:
    async with asyncio.timeout(GIVE_UP_S):
        await send({"type": "http.response.body", "body": piece, "more_body": more_body})


async def encode(items: AsyncIterator[RangeBatch | Gap], form: str) -> AsyncIterator[bytes]:
    """The bytes of an answer."""
    encoders = {NDJSON: encode_lines, ARROW: encode_arrow, CLOUD_EVENTS: encode_cloud_events}
    async for piece in encoders[form](items):
        if piece:
            yield piece


async def encode_lines(items: AsyncIterator[RangeBatch | Gap]) -> AsyncIterator[bytes]:
    async for item in items:
        deliveries: list[Any] = [item] if isinstance(item, Gap) else item.events()
        yield "".join(f"{json.dumps(delivery_fields(each))}\n" for each in deliveries).encode()


async def encode_cloud_events(items: AsyncIterator[RangeBatch | Gap]) -> AsyncIterator[bytes]:
    before = "["
    async for item in items:
        for event in events_of(item):
            yield f"{before}{json.dumps(show_structured(event))}".encode()
            before = ",\n"
    yield b"[]" if before == "[" else b"]"


async def encode_arrow(items: AsyncIterator[RangeBatch | Gap]) -> AsyncIterator[bytes]:
    import pyarrow as pa

    from gapless.client.columns import SCHEMA

    sink = ByteSink()
    writer = pa.ipc.new_stream(sink, SCHEMA)
    async for item in items:
        if isinstance(item, Gap):
            raise lost(item)
        writer.write_batch(item.to_arrow())
        yield sink.take()
    writer.close()
    yield sink.take()


class ByteSink(RawIOBase):
    """A file to write to, whose bytes are taken out piece by piece."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        return len(self._pieces[-1])

    def take(self) -> bytes:
        taken, self._pieces = b"".join(self._pieces), []
        return taken


def events_of(item: RangeBatch | Gap) -> list[Any]:
    if isinstance(item, Gap):
        raise lost(item)
    return item.events()


def lost(gap: Gap) -> LostError:
    return LostError(f"{gap.pubend} [{gap.span.start}, {gap.span.end})")
