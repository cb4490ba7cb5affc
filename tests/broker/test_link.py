"""Whatever a peer sends, its own link ends, with a reason, and nobody else's."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

import pytest
from msgspec import msgpack  # noqa: TID251 - what our codec would not write

from gapless.broker.link import DEAF
from gapless.core.broker_messages import Nack
from gapless.core.client_messages import Receipt, Subscribe, Subscribed
from gapless.core.identity import BrokerName, PubendName, TopicName
from gapless.core.messages import Goodbye, Hello, Message, Ping, Pong
from gapless.core.ticks import Span
from gapless.wire.codec import Codec
from gapless.wire.framing import frame
from gapless.wire.kinds import codec
from tests.broker.stage import (
    LINE,
    ByHand,
    connected,
    make_broker,
    publication,
    run,
    stage,
    wait_until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker

NACK = Nack(PubendName("t/0"), (Span(1, 2),))


class Wild(Message, frozen=True, tag="subscribe"):
    """What a `Subscribe` of ours does not let itself be."""

    topic: str
    request: int
    subscription: int
    name: str
    token: dict[str, int]


def wild(token: dict[str, int], subscription: int = 1) -> bytes:
    return bytes(Codec(Wild).frames([Wild("t", 1, subscription, "desk", token)]))


HOSTILE = {
    "random bytes": random.Random(1).randbytes(5_000),
    "a huge frame": b"\x7f\xff\xff\xff" + b"\0" * 100,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "a wrong checksum": b"\0\0\0\x05\0\0\0\0hello",
    "a tick below 0": wild({"t/0": -1}),
    "a tick beyond all": wild({"t/0": 1 << 63}),
    "a number beyond all": wild({}, 1 << 63),
}


async def goodbye(peer: ByHand) -> str:
    """Why the broker ended the link."""
    last = (await peer.read_all())[-1]
    assert isinstance(last, Goodbye), last
    return last.problem


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("greets", [False, True])
def test_bytes_that_are_no_message_end_that_link_only(
    tmp_path: Path, name: str, greets: bool
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            hostile = await ByHand.connect(broker, hello=Hello() if greets else None)
            hostile.writer.write(HOSTILE[name])
            assert await goodbye(hostile)
            assert (await client.publish("t", {"a": 1})).pubend == "t/0"

    run(main())


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (Hello(), "second Hello"),
        (NACK, "not for clients"),
        (Receipt(1, PubendName("t/0"), (1,)), "not for clients"),
        (publication(101), "101 events, the limit is 100"),
        (stage(101), "101 events, the limit is 100"),
    ],
)
def test_a_message_that_makes_no_sense_ends_that_link_only(
    tmp_path: Path, message: Hello, problem: str
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, publish_events_max=100)
        async with broker, connected(broker) as client:
            peer = await ByHand.connect(broker)
            peer.send(message)
            assert problem in await goodbye(peer)
            assert (await client.publish("t", {"a": 1})).pubend == "t/0"

    run(main())


@pytest.mark.parametrize(
    ("hello", "problem"),
    [
        (Hello(version=9, version_min=9), "no common protocol version"),
        (Hello(sender=BrokerName("stranger")), "'stranger' is not in the file that 'b' has"),
        (Hello(sender=BrokerName("b")), "has the name of this broker"),
    ],
)
def test_who_may_not_be_here_is_told_so(tmp_path: Path, hello: Hello, problem: str) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            assert problem in await goodbye(await ByHand.connect(broker, hello=hello))

    run(main())


def test_what_comes_before_the_hello_is_not_taken(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker, hello=None)
            peer.send(publication())
            assert "no Hello" in await goodbye(peer)
            assert figure(broker, "clients") == 0

    run(main())


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, hello_patience_s=0.5) as broker:
            silent = await ByHand.connect(broker, hello=None)
            greeting = await ByHand.connect(broker)
            greeting.send(Ping(7))
            assert "no Hello came" in await goodbye(silent)
            assert Pong(7) in await greeting.read_until(Pong)
            await greeting.close()

    run(main())


def test_one_connection_too_many_is_told_so(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, connections_max=1) as broker, connected(broker):
            assert "too many" in await goodbye(await ByHand.connect(broker))

    run(main())


def test_a_client_that_is_gone_is_forgotten_with_its_subscriptions(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)
            peer.send(Subscribe(TopicName("t"), 1, 1))
            await peer.read_until(Subscribed)
            assert broker.statistics()["subscriptions"] == 1
            await peer.close()
            await wait_until(lambda: broker.statistics()["subscriptions"] == 0)
            assert figure(broker, "clients") == 0

    run(main())


def test_a_client_that_asks_and_never_reads_is_not_read_from_any_more(tmp_path: Path) -> None:
    """Answers pile up to a bound; then its requests wait in its own socket."""
    bound = 64 << 10

    async def main() -> None:
        broker = make_broker(
            tmp_path, client_queue_bytes_high=bound, client_queue_bytes_max=64 * bound
        )
        async with broker, connected(broker) as client:
            deaf = await ByHand.connect(broker)
            deaf.stop_reading()
            burst = [Ping(number) for number in range(2_000)]
            while deaf.writer.transport.get_write_buffer_size() < 8 << 20:
                deaf.send(*burst)
                await client.publish("t", {"a": 1})  # others are served all the while
            sent = figure(broker, "bytes_in")
            await client.publish("t", {"a": 1})
            assert figure(broker, "bytes_in") - sent < 1 << 20
            await deaf.close()

    run(main())


def test_a_subscriber_that_never_reads_loses_its_link_and_nobody_else_waits(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = make_broker(
            tmp_path, client_queue_bytes_high=1 << 20, client_queue_bytes_max=2 << 20
        )
        async with broker, connected(broker) as client:
            deaf = await ByHand.connect(broker)
            deaf.send(Subscribe(TopicName("t"), 1, 1))
            await deaf.read_until(Subscribed)
            deaf.stop_reading()
            async with client.subscribe("t") as subscription:
                while figure(broker, "clients") == 2:
                    receipts = await client.publish_many("t", [({"a": 1}, b"x" * 100_000)] * 5)
                    for receipt in receipts:
                        assert (await anext(subscription)).tick == receipt.tick  # type: ignore[union-attr]
            await deaf.close()

    run(main())


def figure(broker: Broker, name: str) -> int:
    links = broker.statistics()["links"]
    assert isinstance(links, dict)
    return int(links[name])


def test_a_broker_that_reads_too_slowly_misses_messages_which_are_counted(tmp_path: Path) -> None:
    text = """
    [[cell]]
    name = "a"
    links = ["z"]
    brokers = [{ name = "z1", listen = "127.0.0.1:0" }]
    [[cell]]
    name = "z"
    subscribers = true
    brokers = [{ name = "a1", listen = "127.0.0.1:0" }]
    [[topic]]
    name = "t"
    pubends = ["z1"]
    """

    async def main() -> None:
        broker = make_broker(tmp_path, text, "z1", broker_queue_bytes_max=1 << 16)
        async with broker, connected(broker) as client:
            slow = await ByHand.connect(broker, hello=Hello(sender=BrokerName("a1")))
            slow.stop_reading()
            burst = [Ping(number) for number in range(2_000)]
            while figure(broker, "dropped") == 0:
                slow.send(*burst)
                await client.publish("t", {"a": 1})
            await slow.close()

    run(main())


def test_a_neighbour_that_falls_silent_is_let_go_and_one_that_speaks_is_kept(
    tmp_path: Path,
) -> None:
    """A link whose other end is gone without a word would else be waited for, for ever."""

    async def main() -> None:
        async with make_broker(tmp_path, LINE, "s", silence_s=1.0) as broker:
            silent = await ByHand.connect(broker, hello=Hello(sender=BrokerName("r1")))
            spoke = await ByHand.connect(broker, hello=Hello(sender=BrokerName("r2")))
            reading = asyncio.create_task(silent.read_all())
            while not reading.done():
                spoke.send(Ping(1))
                await asyncio.sleep(0.02)
            assert not isinstance((await reading)[-1], Goodbye), "nobody is there to be told"
            assert broker.statistics()["links"]["brokers_up"] == ["r2"]  # type: ignore[index]
            await spoke.close()

    run(main())


def test_a_client_whose_bytes_took_long_is_read_on_after_others_had_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless.broker.schedule.SHARE_S", 0.0)  # whatever comes takes long
    ping = bytes(codec().frames([Ping(1)]))

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)
            await peer.read_until(Hello)
            await wait_until(lambda: bool(broker._links.named))
            (link,) = broker._links.named.values()
            transport = link._transport
            assert isinstance(transport, asyncio.Transport)
            link.data_received(ping)
            assert not transport.is_reading()
            await asyncio.sleep(0)
            assert transport.is_reading()
            link.data_received(ping)
            link._hold(DEAF)
            await asyncio.sleep(0)
            assert not transport.is_reading()  # for it does not read itself
            link.resume_writing()
            assert transport.is_reading()
            link.stop_reading()
            link.data_received(ping)
            await asyncio.sleep(0)
            assert not transport.is_reading()
            await peer.close()

    run(main())


def test_messages_of_one_read_are_taken_in_order_over_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gapless.broker.schedule.SHARE_S", 0.0)  # one message is a share

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            peer = await ByHand.connect(broker)
            await peer.read_until(Hello)
            await wait_until(lambda: bool(broker._links.named))
            (link,) = broker._links.named.values()
            before = link.messages_in
            link.data_received(bytes(codec().frames([Ping(n) for n in range(100)])))
            assert link.messages_in == before + 1, "the others had their turn"
            numbers: list[int] = []
            while len(numbers) < 100:
                numbers += [
                    each.number for each in await peer.read_until(Pong) if isinstance(each, Pong)
                ]
            assert numbers == list(range(100))
            link.data_received(bytes(codec().frames([Ping(1), Ping(2)])) + b"x" * 100)
            said = await peer.read_all()
            assert [type(each) for each in said] == [Pong, Pong, Goodbye], "what was good counts"

    run(main())


@pytest.mark.parametrize("where", ["first", "last"])
def test_only_a_publication_may_be_large_and_the_rest_is_refused_before_it_is_decoded(
    tmp_path: Path, where: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, request_bytes_max=10_000) as broker:
            publisher = await ByHand.connect(broker)
            publisher.send(publication(1, body=b"x" * 100_000))
            assert [e for e in await publisher.read_until(Receipt) if isinstance(e, Receipt)]
            await publisher.close()
            hostile = await ByHand.connect(broker)
            said = {"topic": "t", "request": 1, "subscription": 1, "token": {"t/0": 1}}
            kind = {"kind": "subscribe"}
            filled = {**said, "condition": "x" * 10_000}
            whole = {**kind, **filled} if where == "first" else {**filled, "kind": "publish"}
            hostile.writer.write(frame(msgpack.encode(whole)))
            assert "bytes; the limit is 10000" in await goodbye(hostile)

    run(main())
