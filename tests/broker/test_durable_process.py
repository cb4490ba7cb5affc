"""Named subscribers of real broker processes, which are killed: each event once, none missing."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import LINE, run, wait_until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription

MORE = 50
"""Events to be seen after each blow."""


class Reader:
    """Keeps all that a subscription hands out."""

    def __init__(self, subscription: Subscription) -> None:
        self.events: list[Event] = []
        self.gaps: list[Gap] = []
        self.task = asyncio.create_task(self._read(subscription))

    async def _read(self, subscription: Subscription) -> None:
        async for item in subscription:
            if isinstance(item, Gap):
                self.gaps.append(item)
            elif isinstance(item, Event):
                self.events.append(item)

    @property
    def numbers(self) -> list[int]:
        return [int(event.attributes["i"]) for event in self.events]

    def has_seen(self, number: int) -> bool:
        if self.task.done():
            self.task.result()
        return bool(self.events) and int(self.events[-1].attributes["i"]) >= number


async def publish_on(publisher: Publisher, stop: asyncio.Event, count: int = 20) -> None:
    """Publish all the time, at most `count` every 5 ms, until told to stop."""
    while not stop.is_set():
        for _ in range(count):
            await publisher.send({"i": publisher.sequence}, b"x" * 200)
        await asyncio.sleep(0.005)
    await publisher.flush()


@asynccontextmanager
async def under_load(brokers: Processes) -> AsyncIterator[Publisher]:
    """Someone publishes all the time, some hundred a second; at the end all is published."""
    async with connect(brokers.url("p")) as client, client.publisher("t", name="feed") as publisher:
        stop = asyncio.Event()
        load = asyncio.create_task(publish_on(publisher, stop, count=1))
        try:
            yield publisher
        finally:
            stop.set()
            await load


@asynccontextmanager
async def reading(subscription: Subscription) -> AsyncIterator[Reader]:
    async with subscription:
        reader = Reader(subscription)
        try:
            yield reader
        finally:
            reader.task.cancel()
            await asyncio.gather(reader.task, return_exceptions=True)
            assert reader.gaps == []


async def seen_more(reader: Reader, publisher: Publisher) -> None:
    number = publisher.sequence + MORE
    await wait_until(lambda: reader.has_seen(number))


@pytest.mark.slow
def test_a_named_subscriber_lives_through_kills_of_brokers_and_its_own_absence(
    tmp_path: Path,
) -> None:
    """First it keeps its token itself, then it returns without one and lets the broker do it."""

    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start("p", "r1", "r2", "s", "o")
            async with under_load(brokers) as publisher, connect(brokers.url("s")) as client:
                own = client.subscribe("t", "i >= 0", name="own", start="latest")
                async with reading(own) as first, client.subscribe("t", name="kept") as kept:
                    await seen_more(first, publisher)
                    for victim in ("s", "p"):
                        brokers.kill(victim)
                        await brokers.start(victim)
                        await seen_more(first, publisher)
                    begin = await anext(kept)
                    token = own.token
                brokers.kill("s")
                await brokers.start("s")
                again = client.subscribe("t", "i >= 0", name="own", start=token)
                async with reading(again) as second:
                    await seen_more(second, publisher)
                async with reading(client.subscribe("t", name="kept", tokens="broker")) as third:
                    await seen_more(third, publisher)
        seen = first.numbers + second.numbers
        assert seen == list(range(seen[0], seen[-1] + 1)), "once, in order, none missing"
        assert third.events[0] == begin, "what was taken and not acknowledged comes again"
        assert third.numbers == list(range(third.numbers[0], third.numbers[-1] + 1))

    run(main())


@pytest.mark.slow
def test_a_named_subscriber_goes_on_at_another_broker_and_the_old_one_forgets_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path, has_admin=True) as brokers:
            await brokers.start("p", "r1", "r2", "s", "o")
            urls = f"{brokers.url('s')},{brokers.url('o').removeprefix('gapless://')}"
            async with connect(urls) as client, under_load(brokers) as publisher:
                desk = client.subscribe("t", "i >= 0", name="desk")
                async with reading(desk) as reader:
                    assert client.broker == "s"
                    await seen_more(reader, publisher)
                    (before,) = await brokers.subscriptions("s")
                    brokers.kill("s")
                    await seen_more(reader, publisher)
                    assert client.broker == "o"
                    (found,) = await brokers.subscriptions("o")
                    assert (found["name"], found["attached"]) == ("desk", True)
                    assert found["moves"] == before["moves"] + 1
                    await brokers.start("s")
                    await wait_until_forgotten(brokers, "s")
                    brokers.kill("o")
                    await seen_more(reader, publisher)
                    assert client.broker == "s"
                    await brokers.start("o")
                    await wait_until_forgotten(brokers, "o")
                    await seen_more(reader, publisher)
            numbers = reader.numbers
            assert numbers == list(range(numbers[0], numbers[-1] + 1))

    run(main())


async def wait_until_forgotten(brokers: Processes, broker: str) -> None:
    """Until the broker does not have a subscription any more."""
    while await brokers.subscriptions(broker):  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.005)
