"""Brokers in this process and peers that speak to them by hand, for the tests of the broker."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.broker.broker import Broker
from gapless.broker.listener import stop_listening
from gapless.broker.settings import Settings
from gapless.client.client import connect
from gapless.core.client_messages import Publish
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ProducerName, TopicName
from gapless.core.messages import Hello
from gapless.core.transaction_messages import Stage
from gapless.node.network import parse_network
from gapless.wire.codec import Unknown
from gapless.wire.events import encode_event
from gapless.wire.framing import Unframer
from gapless.wire.kinds import codec
from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from gapless.client.client import Client
    from gapless.core.messages import Message
    from gapless.node.config import Config

Result = TypeVar("Result")

ONE = """
[[cell]]
name = "all"
subscribers = true
brokers = [{ name = "b", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["b"]
[[topic]]
name = "two"
pubends = ["b", "b"]
"""

THREE = """
[[cell]]
name = "publishers"
links = ["relays"]
brokers = [{ name = "p", listen = "127.0.0.1:0" }]
[[cell]]
name = "relays"
brokers = [{ name = "r", listen = "127.0.0.1:0" }]
[[cell]]
name = "subscribers"
links = ["relays"]
subscribers = true
brokers = [{ name = "s", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["p"]
"""

LINE = """
[[cell]]
name = "publishers"
links = ["relays"]
brokers = [{ name = "p", listen = "127.0.0.1:0" }]
[[cell]]
name = "relays"
brokers = [{ name = "r1", listen = "127.0.0.1:0" }, { name = "r2", listen = "127.0.0.1:0" }]
[[cell]]
name = "subscribers"
links = ["relays"]
subscribers = true
brokers = [{ name = "s", listen = "127.0.0.1:0" }]
[[cell]]
name = "others"
links = ["relays"]
subscribers = true
brokers = [{ name = "o", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["p"]
"""


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine; one that hangs fails."""

    async def bounded() -> Result:
        async with asyncio.timeout(PATIENCE_S):
            result = await main
        await asyncio.sleep(0)  # a turn of the loop in which connections that were closed are gone
        return result

    return asyncio.run(bounded())


def make_broker(
    folder: Path,
    text: str = ONE,
    name: str = "b",
    config: Config | None = None,
    **settings: Any,
) -> Broker:
    settings = {"admin": None, "check_every_s": 0.001, **settings}
    made = Settings(data=folder, **settings)
    return Broker(BrokerName(name), parse_network(text), made, config)


@asynccontextmanager
async def connected(broker: Broker) -> AsyncIterator[Client]:
    async with connect(f"gapless://{broker.address}", patience_s=PATIENCE_S) as client:
        yield client


async def wait_until(condition: Callable[[], bool]) -> None:
    """Until something has come about; the test's own bound ends a wait for what never does."""
    while not condition():  # noqa: ASYNC110 - what is waited for is in another process or task
        await asyncio.sleep(0.005)


@asynccontextmanager
async def served(
    handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]],
) -> AsyncIterator[str]:
    """A port at which each connection is handled so; its address."""
    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"{host}:{port}"
    finally:
        await stop_listening(server)
        await asyncio.sleep(0)  # the last ones are being handled


class ByHand:
    """A peer that sends whatever bytes it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._unframer = Unframer()

    @classmethod
    async def connect(cls, broker: Broker, *, hello: Hello | None = Hello()) -> ByHand:  # noqa: B008
        host, port = broker.address.split(":")
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)  # fills up soon
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (host, int(port)))
        peer = cls(*await asyncio.open_connection(sock=connection))
        if hello is not None:
            peer.send(hello)
        return peer

    def send(self, *messages: Message) -> None:
        self.writer.write(bytes(codec().frames(messages)))

    async def read_all(self) -> list[Message]:
        """Everything until the broker closes the connection."""
        found: list[Message] = []
        while True:
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                await self.close()
                return found
            found += self._decode(data)

    async def read_until(self, *kinds: type[Message]) -> list[Message]:
        """Everything until a message of each of these kinds has come, in whichever order."""
        found: list[Message] = []
        while not all(any(isinstance(message, kind) for message in found) for kind in kinds):
            data = await self.reader.read(1 << 16)
            assert data, f"closed after {found}"
            found += self._decode(data)
        return found

    async def read_some(self) -> list[Message]:
        """What comes next, if only a part of a message."""
        data = await self.reader.read(1 << 16)
        assert data, "closed"
        return self._decode(data)

    def _decode(self, data: bytes) -> list[Message]:
        found = [codec().decode(payload) for payload in self._unframer.feed(data)]
        return [message for message in found if not isinstance(message, Unknown)]

    def stop_reading(self) -> None:
        self.writer.transport.pause_reading()  # type: ignore[attr-defined]

    async def close(self) -> None:
        self.writer.transport.abort()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)


def stage(count: int) -> Stage:
    place = (TopicName("t"), 1, ProducerName("job"), 1, "p", 0)
    return Stage(*place, publication(count).events)


def publication(count: int = 1, request: int = 1, body: bytes = b"") -> Publish:
    events = tuple(encode_event({"i": number}, body) for number in range(count))
    return Publish(TopicName("t"), request, EventBatch(events))
