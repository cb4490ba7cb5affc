"""Whatever clients do to a real broker, others are served, and its memory stays within a bound."""

from __future__ import annotations

import asyncio
import random
import socket
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.core.client_messages import Subscribe, Subscribed
from gapless.core.events import Event
from gapless.core.identity import SubscriptionName, TopicName
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import ONE, run
from tests.processes.crowd import dialled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gapless.client.client import Client
    from gapless.client.subscription import Subscription

T = TopicName("t")
DESK = SubscriptionName("desk")
MEBIBYTE = 1 << 20
CONNECTION_COUNT = 1_000
ASKED_COUNT = 100_000
SUBSCRIPTIONS_MAX = 5_000
has_proc = pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")


@asynccontextmanager
async def broker(**config: int) -> AsyncIterator[Processes]:
    async with Processes(ONE, config=config) as brokers:
        await brokers.start("b")
        yield brokers


@asynccontextmanager
async def guest(brokers: Processes) -> AsyncIterator[tuple[Client, Subscription]]:
    """A client that behaves, and its subscription to everything. Whatever a broker loads on first
    use is loaded then."""
    async with connect(brokers.url("b")) as client, client.subscribe("t") as subscription:
        await is_served(client, subscription)
        yield client, subscription


async def is_served(client: Client, subscription: Subscription, body: bytes = b"") -> None:
    """What it publishes comes back to it."""
    receipt = await client.publish("t", {"a": 1}, body)
    found = await anext(subscription)
    assert isinstance(found, Event)
    assert found.tick == receipt.tick


def memory(brokers: Processes) -> int:
    found = brokers.memory_bytes("b")
    assert found is not None
    return found


@pytest.mark.slow
def test_a_broker_that_is_fed_random_bytes_and_half_frames_serves_others() -> None:
    dice = random.Random(1)

    async def main() -> None:
        async with broker() as brokers, guest(brokers) as (client, subscription):
            for number in range(200):
                async with dialled(brokers, "b", greets=bool(number % 2)) as hostile:
                    size = dice.choice((0, 1, 7, 100, 50_000))
                    hostile.writer.write(dice.randbytes(size))
                    if number % 3 == 0:
                        hostile.writer.write(b"\xff\xff\xff\x7f")  # a frame without end
                    if number % 5 == 0:
                        with suppress(OSError):  # it may have closed it already
                            hostile.writer.write_eof()
                if number % 20 == 0:
                    await is_served(client, subscription)
            await is_served(client, subscription)
            assert "invariant" not in brokers.log("b")

    run(main())


@pytest.mark.slow
@has_proc
def test_a_thousand_connections_are_served_at_once_and_leave_nothing_behind() -> None:
    async def crowd(brokers: Processes, client: Client, subscription: Subscription) -> int:
        async with AsyncExitStack() as stack:
            peers = [
                await stack.enter_async_context(dialled(brokers, "b"))
                for _ in range(CONNECTION_COUNT)
            ]
            for peer in peers:
                peer.send(Subscribe(T, 1, 1, "a = 1"))
            await asyncio.gather(*(peer.read_until(Subscribed) for peer in peers))
            await is_served(client, subscription)
            received = await asyncio.gather(*(peer.reader.read(1) for peer in peers))
            assert all(received), "each gets the event"
            return memory(brokers)

    async def main() -> None:
        async with broker() as brokers, guest(brokers) as (client, subscription):
            first = await crowd(brokers, client, subscription)
            second = await crowd(brokers, client, subscription)
            assert second - first < CONNECTION_COUNT * 10_000, "the first left something behind"
            await is_served(client, subscription)

    run(main())


@pytest.mark.slow
def test_who_opens_all_connections_there_are_leaves_files_for_the_log() -> None:
    """The broker may open fewer files than there are connections, and needs one more itself."""
    body = b"x" * 1_000_000

    class Few(Processes):
        program = (
            "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96)); "
            + Processes.program
        )

    async def main() -> None:
        async with Few(ONE) as brokers:
            await brokers.start("b")
            async with guest(brokers) as (client, subscription), AsyncExitStack() as stack:
                for _ in range(150):
                    await stack.enter_async_context(dialled(brokers, "b"))
                for _ in range(40):  # some segments
                    await is_served(client, subscription, body)

    run(main())


@pytest.mark.slow
@has_proc
def test_a_client_that_subscribes_without_end_is_refused_and_others_are_served() -> None:
    """It never waits for an answer; most of its requests are refused at the broker's limit."""

    async def answers(reader: asyncio.StreamReader) -> None:
        while await reader.read(1 << 20):
            pass

    async def main() -> None:
        async with (
            broker(subscriptions_max=SUBSCRIPTIONS_MAX) as brokers,
            guest(brokers) as (client, subscription),
            dialled(brokers, "b") as greedy,
        ):
            reading = asyncio.create_task(answers(greedy.reader))
            at_limit = 0
            for first in range(0, ASKED_COUNT, 1_000):
                numbers = range(first + 1, first + 1_001)
                greedy.send(*(Subscribe(T, number, number, "a = 2") for number in numbers))
                await greedy.writer.drain()
                if first % 20_000 == 0:
                    await is_served(client, subscription)
                    at_limit = at_limit or (first and memory(brokers))
            await is_served(client, subscription)
            assert memory(brokers) - at_limit < 48 * MEBIBYTE
            reading.cancel()

    run(main())


@pytest.mark.slow
@has_proc
def test_subscribers_that_do_not_read_cost_bounded_memory_and_slow_nobody() -> None:
    """One reads nothing, nor does one with a name; one reads a little at a time. Each may hold
    8 MiB."""
    body = b"x" * 50_000

    async def main() -> None:
        async with (
            broker(client_queue_bytes_max=8 * MEBIBYTE, cache_bytes_max=8 * MEBIBYTE) as brokers,
            guest(brokers) as (client, subscription),
            dialled(brokers, "b") as deaf,
            dialled(brokers, "b") as named,
            dialled(brokers, "b") as slow,
        ):
            for peer in (deaf, named, slow):
                peer.send(Subscribe(T, 1, 1, name=DESK if peer is named else None))
                await peer.read_until(Subscribed)
            before, highest = memory(brokers), 0
            deaf.stop_reading()
            named.stop_reading()
            for number in range(1_500):
                await is_served(client, subscription, body)
                if number % 10 == 0:
                    await slow.reader.read(1_000)
                    highest = max(highest, memory(brokers) - before)
            assert highest < 40 * MEBIBYTE, "of 70 that were published to each"

    run(main())


def test_a_connection_that_is_reset_while_it_is_greeted_harms_nobody() -> None:
    async def main() -> None:
        async with broker() as brokers, guest(brokers) as (client, subscription):
            host, port = brokers.address("b").split(":")
            for _ in range(100):
                peer = socket.create_connection((host, int(port)))
                linger = b"\x01\0\0\0\0\0\0\0"  # on, for no time: closing resets
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                peer.close()
            await is_served(client, subscription)

    run(main())
