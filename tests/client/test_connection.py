"""A connection to a broker that is played by hand: odd timing, odd bytes, no answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from errno import ECONNREFUSED
from socket import EAI_NONAME, gaierror
from typing import TYPE_CHECKING, cast

import pytest
import uvloop

from gapless.broker.listener import stop_listening
from gapless.client.address import parse_addresses
from gapless.client.client import connect
from gapless.client.connection import Connection, reason_of
from gapless.client.errors import LinkError
from gapless.core.client_messages import Deliveries, Subscribe, Subscribed
from gapless.core.errors import GaplessError
from gapless.core.events import Event, EventBatch
from gapless.core.identity import TopicName
from gapless.core.messages import Goodbye, Hello, Ping, Pong
from gapless.core.topic_messages import TopicList, TopicsQuery
from gapless.wire.events import encode_event
from gapless.wire.framing import Unframer
from gapless.wire.kinds import codec
from tests.broker.stage import run
from tests.client.desk import PUBEND

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gapless.core.messages import Message


@asynccontextmanager
async def played(answer: Callable[[Message], bytes]) -> AsyncIterator[str]:
    """A broker that says what `answer` makes of each message; its address."""

    loop, transports = asyncio.get_running_loop(), list[asyncio.Transport]()

    class Played(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transports.append(cast("asyncio.Transport", transport))  # uvloop's is none by class
            self.unframer = Unframer()

        def data_received(self, data: bytes) -> None:
            for payload in self.unframer.feed(data):
                message = codec().decode(payload)
                transports[-1].write(answer(message))  # type: ignore[arg-type]

    server = await loop.create_server(Played, "127.0.0.1", 0)
    try:
        yield f"gapless://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await stop_listening(server)
        for transport in transports:
            transport.abort()
    await asyncio.sleep(0)  # lets them close


def frames(*messages: Message) -> bytes:
    return bytes(codec().frames(messages))


def test_what_comes_right_behind_the_start_of_a_subscription_is_not_lost() -> None:
    def answer(message: Message) -> bytes:
        if isinstance(message, Hello):
            return frames(Hello())
        if isinstance(message, Subscribe):
            events = EventBatch((encode_event({"i": 1}),))
            first = Deliveries(TopicName("t"), 12, PUBEND, (11,), events, ((1,),))
            return frames(Subscribed(message.request, 1, {"t/0": 10}), first)
        return b""

    async def main() -> None:
        async with (
            played(answer) as url,
            connect(url) as client,
            client.subscribe("t") as subscription,
        ):
            event = await anext(subscription)
            assert isinstance(event, Event)
            assert event.tick == 11

    run(main())


async def open_connection(url: str, patience_s: float) -> None:
    (address,) = parse_addresses(url)
    await Connection.open(address, lambda _: None, lambda _: None, patience_s)


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "speaks HTTP, not gapless"),
        (frames(Subscribed(1, 1, {})), "no Hello"),
        (frames(Hello(version=9, version_min=9)), "no common protocol version"),
        (frames(Goodbye("go away", "Elsewhere.")), "go away"),
    ],
)
def test_what_is_no_broker_of_ours_is_told(said: bytes, problem: str) -> None:
    async def main() -> None:
        async with played(lambda _: said) as url:
            with pytest.raises(GaplessError, match=problem):
                await open_connection(url, 60.0)

    run(main())


def test_a_name_that_is_not_known_is_told_in_words() -> None:
    error = gaierror(EAI_NONAME, "Name or service not known")
    assert reason_of(error) == "Name or service not known"
    assert reason_of(ConnectionRefusedError(ECONNREFUSED, "")) == "Connection refused"
    assert reason_of(TimeoutError()) == "it takes too long"


def test_a_broker_that_says_nothing_is_given_up() -> None:
    async def main() -> None:
        async with played(lambda _: b"") as url:
            with pytest.raises(LinkError, match=r"no broker answers at .* takes too long"):
                await open_connection(url, 0.02)

    run(main())


def test_an_attempt_that_is_cancelled_as_the_connection_is_made_leaves_no_open_end() -> None:
    """uvloop closes the transport then and tells nobody: a ping would raise in the loop."""
    made: list[Connection] = []

    class Noted(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            made.append(self)

    async def main() -> None:
        async with played(lambda _: b"") as url:
            (address,) = parse_addresses(url)
            attempt = asyncio.create_task(Noted.open(address, lambda _: None, lambda _: None, 60.0))
            while not made:  # noqa: ASYNC110 - the very turn
                await asyncio.sleep(0)
            attempt.cancel()
            await asyncio.wait([attempt])
            assert made[0]._machine.is_over

    uvloop.run(main())


def test_a_publication_whose_receipt_never_came_says_that_it_is_in_doubt() -> None:
    def answer(message: Message) -> bytes:
        return frames(Hello()) if isinstance(message, Hello) else frames(Goodbye("bye"))

    async def main() -> None:
        async with played(answer) as url, connect(url) as client:
            with pytest.raises(LinkError, match="may be published or not"):
                await client.publish("t", {})

    run(main())


def test_a_broker_that_falls_silent_is_given_up_and_one_that_answers_pings_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.client.connection.LOOK_EVERY_S", 0.05)
    pings: list[int] = []

    def answer(message: Message) -> bytes:
        if isinstance(message, Hello):
            return frames(Hello())
        assert isinstance(message, Ping)
        pings.append(message.number)
        return frames(Pong(message.number)) if len(pings) <= 5 else b""

    async def main() -> GaplessError:
        lost: asyncio.Future[GaplessError] = asyncio.get_running_loop().create_future()
        async with played(answer) as url:
            (address,) = parse_addresses(url)
            await Connection.open(address, lambda _: None, lost.set_result, 60.0)
            return await lost

    assert "does not answer any more" in str(run(main()))
    assert len(pings) >= 7, "what is answered counts anew"
    assert pings[-2:] == [1, 2]


def test_a_broker_that_works_long_and_answers_pings_is_asked_once_and_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gapless.client.connection.LOOK_EVERY_S", 0.02)
    asked: list[TopicsQuery] = []
    pings: list[int] = []

    def answer(message: Message) -> bytes:
        match message:
            case Hello():
                return frames(Hello())
            case TopicsQuery():
                asked.append(message)
                return b""
            case Ping(number) if len(pings) < 10:  # many more than it would go without
                pings.append(number)
                return frames(Pong(number))
            case _:
                return frames(TopicList(asked[0].request, ()))

    async def main() -> None:
        async with played(answer) as url, connect(url) as client:
            assert await client.topics() == []

    run(main())
    assert len(asked) == 1
