"""Callers of the HTTP door that speak HTTP by hand, for its tests."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gapless.core.events import Event

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    from gapless.broker.broker import Broker
    from gapless.client.subscription import Subscription


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]


class Caller:
    """Sends requests to one door, each on a connection of its own."""

    def __init__(
        self, address: str, token: str = "", tls: ssl.SSLContext | None = None, host: str = ""
    ) -> None:
        self.address = address
        self._tls = tls
        self._own = {"Host": host or address}
        if token:
            self._own["Authorization"] = f"Bearer {token}"

    @classmethod
    def of(cls, broker: Broker, token: str = "", tls: ssl.SSLContext | None = None) -> Caller:
        return cls(broker.doors.addresses["http"], token, tls)

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.address.split(":")
        return await asyncio.open_connection(host, int(port), ssl=self._tls, limit=1 << 24)

    def head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**self._own, **headers}.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes | str = b"",
        headers: Mapping[str, str] | None = None,
        **query: object,
    ) -> Answer:
        given = body.encode() if isinstance(body, str) else body
        path += f"?{urlencode(query)}" if query else ""
        own = {"Connection": "close", "Content-Length": str(len(given))}
        reader, writer = await self.open()
        try:
            writer.write(self.head(method, path, {**own, **(headers or {})}) + given)
            return await read_answer(reader)
        finally:
            writer.close()

    async def get(self, path: str, **query: object) -> Answer:
        return await self.ask("GET", f"{path}?{urlencode(query)}" if query else path)

    async def publish(self, topic: str, *events: Mapping[str, Any], **headers: str) -> Answer:
        """Events by their attributes."""
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = {"Content-Type": "application/json"}
        return await self.ask("POST", f"/topics/{topic}/events", json.dumps(events), kind | own)

    @asynccontextmanager
    async def stream(
        self, path: str, last: str = "", **query: object
    ) -> AsyncIterator[EventReader]:
        path += f"?{urlencode(query)}" if query else ""
        reader, writer = await self.open()
        try:
            writer.write(self.head("GET", path, {"Last-Event-ID": last} if last else {}))
            status, _ = await read_head(reader)
            assert status == 200, (status, await reader.read(1000))
            yield EventReader(reader, last)
        finally:
            writer.close()


async def next_event(subscription: Subscription) -> Event:
    item = await anext(subscription)
    assert isinstance(item, Event)
    return item


async def read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}


async def read_answer(reader: asyncio.StreamReader) -> Answer:
    """A whole answer; an `IncompleteReadError` if the door cuts it short."""
    status, headers = await read_head(reader)
    if "chunked" not in headers.get("transfer-encoding", ""):
        return Answer(
            status, headers, await reader.readexactly(int(headers.get("content-length", 0)))
        )
    body = b""
    async for piece in chunks(reader):
        body += piece
    return Answer(status, headers, body)


async def chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int(await reader.readuntil(b"\r\n"), 16):
        yield await reader.readexactly(size)
        await reader.readexactly(2)


@dataclass
class ServerSentEvent:
    """One event of a stream."""

    kind: str = "message"
    data: str = ""
    fields: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.data)


class EventReader:
    """What a browser's EventSource does with a stream: `last` is its last event ID."""

    def __init__(self, reader: asyncio.StreamReader, last: str) -> None:
        self.last = last
        self.retry = 0
        self.comments = 0
        self._reader = reader
        self._rest = b""

    async def begin(self) -> str:
        """The token that the stream begins with."""
        while not self.last:
            await self.block()
        return self.last

    async def next(self) -> ServerSentEvent:
        """The next event; `EOFError` at the end, also if that comes too soon."""
        while not (event := await self.block()).data:
            pass
        return event

    async def block(self) -> ServerSentEvent:
        """Lines up to an empty one, which may be no event."""
        while b"\n\n" not in self._rest:
            size = int(await self._reader.readuntil(b"\r\n"), 16)
            if not size:
                raise EOFError
            self._rest += (await self._reader.readexactly(size + 2))[:-2]
        block, _, self._rest = self._rest.partition(b"\n\n")
        return self._parse(block.decode())

    def _parse(self, block: str) -> ServerSentEvent:
        event = ServerSentEvent()
        for line in block.split("\n"):
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            match name:
                case "":
                    self.comments += 1
                case "id":
                    self.last = value
                case "retry":
                    self.retry = int(value)
                case "event":
                    event.kind = value
                case "data":
                    event.data += value
                case _:
                    raise AssertionError(line)
        return event

    async def events(self, count: int) -> list[ServerSentEvent]:
        return [await self.next() for _ in range(count)]
