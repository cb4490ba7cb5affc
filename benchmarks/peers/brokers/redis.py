"""Redis 7: publish/subscribe (W1, W2) and streams (W3 to W5).

W2: a channel for each symbol; the client compares prices. Durable: a stream for each exchange, a
consumer group for each subscriber, `appendfsync always`: the answer to XADD follows the sync, one
for each turn of its event loop, so that pipelined commands share it.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from benchmarks.peers.adapter import HOST, Broker, Client, Peer
from benchmarks.peers.brokers.lean import LeanClient

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.adapter import Setting
    from benchmarks.peers.model import Event, Interest

READ_COUNT = 200


class Server(Broker):
    """redis-server."""

    def command(self) -> list[str]:
        options = {
            "bind": HOST,
            "port": self.setting.port,
            "dir": self.folder,
            "save": "",
            "client-output-buffer-limit": "pubsub 0 0 0",
            "maxclients": 5_000,
        }
        if self.setting.durable:
            options |= {
                "appendonly": "yes",
                "appendfsync": "always",
                "auto-aof-rewrite-percentage": 0,
            }
        pairs = ((f"--{name}", str(value)) for name, value in options.items())
        return ["redis-server", *(word for pair in pairs for word in pair)]

    def is_ready(self) -> bool:
        return self.answers(b"PING\r\n", b"+PONG")  # not while it reads its log


def encode(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def stream_of(interest: Interest) -> str:
    return f"st:{interest.exchange or 'all'}"


def stream_for(setting: Setting, event: Event) -> str:
    return "st:all" if setting.workload == "W4" else f"st:{event.exchange}"


def channel_of(interest: Interest) -> str:
    return f"s:{interest.symbol}" if interest.symbol else "all"


def channel_for(setting: Setting, event: Event) -> str:
    return f"s:{event.symbol}" if setting.workload == "W2" else "all"


def hand_out(body: bytes, interests: list[Interest]) -> None:
    """Of a message of publish/subscribe: attributes as a line, then the payload."""
    line_end = body.index(b"\n")
    for interest in interests:
        if not interest.symbol or float(body[6 : body.index(b" ", 6)]) > interest.price_above:
            interest.sink(body[line_end + 1 :])


class Lean(LeanClient):
    """RESP, parsed by hiredis."""

    async def open(self) -> None:
        import hiredis

        self._reader = hiredis.Reader()
        self._take: Callable[[Any], None] = self.answered
        self._tags: deque[int] = deque()
        self._done: list[int] = []
        self._channels: dict[bytes, list[Interest]] = {}
        self._draining: asyncio.Future[None] | None = None
        await self.dial()
        while True:
            self.send(b"PING\r\n")
            if not isinstance(await self.answer(), Exception):
                return
            await asyncio.sleep(0.05)  # it reads its log

    def feed(self, data: bytes) -> int:
        self._reader.feed(data)
        take, following = self._take, self._reader.gets
        while (message := following()) is not False:
            take(message)
        if self._done:
            done, self._done = self._done, []
            self.on_confirm(done)
        return len(data)

    # --- publishing ------------------------------------------------------------------------------

    async def start_publisher(self, *, confirmed: bool) -> None:
        self._take = self._confirmed if confirmed else _ignore

    def _confirmed(self, message: object) -> None:
        if isinstance(message, Exception):
            self.fail(str(message))
        else:
            self._done.append(self._tags.popleft())

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        if event.cache is None:
            event.cache = self._head(event, is_stream=tag is not None)
        if tag is not None:
            self._tags.append(tag)
        self.out.append(event.cache + payload + b"\r\n")

    def _head(self, event: Event, *, is_stream: bool) -> bytes:
        """The command up to the payload."""
        if not is_stream:
            channel, line = channel_for(self.setting, event).encode(), event.prefix()
            head = encode(b"PUBLISH", channel, b"")
            return head[: head.rindex(b"$0\r\n")] + b"$%d\r\n%s" % (len(line) + 250, line)
        words = [b"XADD", stream_for(self.setting, event).encode(), b"*"]
        words += [b"symbol", event.symbol.encode(), b"price", b"%.2f" % event.price]
        words += [b"volume", b"%d" % event.volume, b"exchange", event.exchange.encode()]
        head = encode(*words, b"data", b"")
        return head[: head.rindex(b"$0\r\n")] + b"$250\r\n"

    # --- subscribing -----------------------------------------------------------------------------

    async def subscribe(self, interests: list[Interest]) -> None:
        if interests[0].durable:
            (self._interest,) = interests
            stream, name = stream_of(self._interest).encode(), self._interest.name.encode()
            self.send(encode(b"XGROUP", b"CREATE", stream, name, b"0", b"MKSTREAM"))
            await self.answer()  # or it exists
            self._take = self._delivered
            self._from = b"0"  # first what was delivered and not acknowledged, then what is new
            self._read()
            return
        for interest in interests:
            self._channels.setdefault(channel_of(interest).encode(), []).append(interest)
        self._lacking = len(self._channels)
        self._take = self._published
        self.send(encode(b"SUBSCRIBE", *self._channels))
        await self.answer()

    def _published(self, message: Any) -> None:
        if message[0] == b"message":
            hand_out(message[2], self._channels[message[1]])
            return
        self._lacking -= 1
        if not self._lacking:
            self.answered()

    def _read(self, before: bytes = b"") -> None:
        stream, name = stream_of(self._interest).encode(), self._interest.name.encode()
        words = [b"XREADGROUP", b"GROUP", name, b"c", b"COUNT", b"%d" % READ_COUNT]
        self.send(before + encode(*words, b"BLOCK", b"1000", b"STREAMS", stream, self._from))

    def _delivered(self, message: Any) -> None:
        if isinstance(message, int):  # the answer to XACK
            return
        if isinstance(message, Exception):
            self.fail(str(message))
            return
        numbers = []
        for number, fields in message[0][1] if message else ():
            if fields:
                self._interest.sink(fields[-1])
            numbers.append(number)
        if self._from == b"0" and not numbers:
            self._from = b">"
        stream, name = stream_of(self._interest).encode(), self._interest.name.encode()
        acknowledgement = encode(b"XACK", stream, name, *numbers) if numbers else b""
        if self._draining is None:
            self._read(acknowledgement)
            return
        self.send(acknowledgement)
        if not self._draining.done():
            self._draining.set_result(None)

    async def close(self) -> None:
        if self._take == self._delivered and not self.gone.is_set():
            self._draining = asyncio.get_running_loop().create_future()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._draining, 3)
        await self.shut()


def _ignore(_: object) -> None:
    pass


class Library(Client):
    """redis-py on asyncio, with hiredis."""

    async def open(self) -> None:
        import redis.asyncio

        self._redis = redis.asyncio.Redis(
            host=HOST, port=self.setting.port, single_connection_client=True
        )
        await self._redis.ping()
        self._fresh: list[tuple[Event, bytes, int | None]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False

    def publish(self, event: Event, payload: bytes, tag: int | None) -> None:
        self._fresh.append((event, payload, tag))

    async def flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        pipeline = self._redis.pipeline(transaction=False)
        for event, payload, tag in fresh:
            if tag is None:
                event.cache = event.cache or event.prefix()
                pipeline.publish(channel_for(self.setting, event), event.cache + payload)
            else:
                event.cache = event.cache or {
                    "symbol": event.symbol,
                    "price": event.price,
                    "volume": event.volume,
                    "exchange": event.exchange,
                }
                pipeline.xadd(stream_for(self.setting, event), {**event.cache, "data": payload})
        await pipeline.execute()
        tags = [tag for _, _, tag in fresh if tag is not None]
        if tags:
            self.on_confirm(tags)

    async def subscribe(self, interests: list[Interest]) -> None:
        if interests[0].durable:
            self._task = asyncio.create_task(self._read_group(interests[0]))
            return
        channels: dict[bytes, list[Interest]] = {}
        for interest in interests:
            channels.setdefault(channel_of(interest).encode(), []).append(interest)
        listener = self._redis.pubsub()
        await listener.subscribe(*channels)
        for _ in channels:
            await listener.get_message(timeout=5)

        async def listen() -> None:
            async for message in listener.listen():
                if message["type"] == "message":
                    hand_out(message["data"], channels[message["channel"]])

        self._task = asyncio.create_task(listen())

    async def _read_group(self, interest: Interest) -> None:
        import redis

        stream, name, start = stream_of(interest), interest.name, "0"
        try:
            with suppress(redis.ResponseError):  # it exists
                await self._redis.xgroup_create(stream, name, "0", mkstream=True)
            while True:
                found = await self._redis.xreadgroup(
                    name, "c", {stream: start}, count=READ_COUNT, block=1_000
                )
                if isinstance(found, dict):  # as newer versions of the library answer
                    found = [(stream, found[stream.encode()][0])] if found else []
                messages = found[0][1] if found else []
                for _, fields in messages:
                    interest.sink(fields[b"data"])
                if messages:
                    await self._redis.xack(stream, name, *[number for number, _ in messages])
                elif start == "0":
                    start = ">"
        except redis.RedisError:
            if not self._is_closing:
                self.on_lost()

    async def close(self) -> None:
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
        await self._redis.aclose()


class Redis(Peer):
    """Redis."""

    name, port = "redis", 16379
    fsyncs = True
    filters = "channel; the client drops half"

    def is_installed(self) -> bool:
        return shutil.which("redis-server") is not None

    def broker(self, setting: Setting) -> Broker:
        return Server(setting)

    def client(self, setting: Setting, name: str) -> Client:
        return (Library if setting.client == "lib" else Lean)(setting, name)


PEER = Redis()
