"""A publisher whose name was taken over while it was away: it is told, and nothing of it counts."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.errors import LinkError, RefusedError
from gapless.core.client_messages import PublisherPosition, PublisherQuery, Refused
from gapless.core.events import Event
from gapless.knowledge.receipts import TAKEN_OVER
from gapless.testing.processes.proxy import Proxy
from tests.broker.stage import connected, make_broker, run
from tests.children import PATIENCE_S
from tests.client.desk import Desk, receipt

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client
    from gapless.client.publisher import Publisher
    from gapless.core.errors import GaplessError
    from gapless.core.messages import Message

OURS, THEIRS = "the one before", "the next"


@asynccontextmanager
async def through(proxy: Proxy) -> AsyncIterator[Client]:
    async with connect(f"gapless://{proxy.address}", patience_s=PATIENCE_S) as client:
        yield client


async def send(publisher: Publisher, whose: str, count: int) -> None:
    await publisher.send_many([({"of": whose}, b"")] * count)


async def published(broker: Broker) -> list[tuple[object, int | None]]:
    """All that is in the log: whose it is, and its number."""
    async with (
        connected(broker) as client,
        client.publisher("t", name="last") as publisher,
        client.subscribe("t", name="all", start="earliest") as subscription,
    ):
        await publisher.send({"of": "the end"})
        await publisher.flush()
        found: list[tuple[object, int | None]] = []
        async for item in subscription:
            assert isinstance(item, Event)
            if item.publisher == "last":
                break
            found.append((item.attributes["of"], item.sequence))
        return found


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("fault", [Proxy.cut, Proxy.stall])
def test_who_comes_back_to_a_name_that_is_anothers_is_told_and_nothing_of_it_counts(
    tmp_path: Path, fault: Callable[[Proxy], None], restarts: bool
) -> None:
    """Cut off, or with events on their way for a long time; also over a restart of the broker."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(make_broker(tmp_path))
            proxy = await stack.enter_async_context(Proxy(lambda: broker.address))
            before = await stack.enter_async_context(through(proxy))
            after = await stack.enter_async_context(connected(broker))
            ours = before.publisher("t", name="feed")
            await ours.__aenter__()
            await send(ours, OURS, 3)
            await ours.flush()
            fault(proxy)
            await send(ours, OURS, 2)
            async with after.publisher("t", name="feed") as theirs:
                assert theirs.sequence == 3
                await send(theirs, THEIRS, 5)  # the same numbers, and more
                await theirs.flush()
                if restarts:
                    await broker.drain()
                    broker = await stack.enter_async_context(make_broker(tmp_path))
                proxy.mend()
                with pytest.raises(RefusedError, match="'feed' was taken over") as refused:
                    await ours.flush()
                assert refused.value.remedy == TAKEN_OVER
                assert ours.confirmed == 3, "two were sent, and are not confirmed"
                with pytest.raises(RefusedError, match="'feed' was taken over"):
                    await ours.send({"of": OURS})
                await send(theirs, THEIRS, 1)
                await theirs.flush()
            assert await published(broker) == [
                *((OURS, number) for number in range(3)),
                *((THEIRS, number) for number in range(3, 9)),
            ]
            await ours.__aexit__(RefusedError, None)

    run(main())


def test_a_name_goes_on_over_connections_and_restarts_while_nobody_takes_it_over(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(make_broker(tmp_path))
            proxy = await stack.enter_async_context(Proxy(lambda: broker.address))
            client = await stack.enter_async_context(through(proxy))
            async with client.publisher("t", name="feed") as publisher:
                for _ in range(2):
                    await send(publisher, OURS, 3)
                    proxy.cut()
                    await send(publisher, OURS, 2)
                    proxy.mend()
                    await publisher.flush()
                    await broker.drain()
                    broker = await stack.enter_async_context(make_broker(tmp_path))
            assert await published(broker) == [(OURS, number) for number in range(10)]

    run(main())


def test_one_process_may_open_a_name_twice_and_goes_on_with_the_second(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
        ):
            first = client.publisher("t", name="feed")
            await first.__aenter__()
            async with client.publisher("t", name="feed") as second:
                await send(second, THEIRS, 2)
                await second.flush()
                await send(first, OURS, 1)
                with pytest.raises(RefusedError, match="taken over"):
                    await first.__aexit__(None)
                await send(second, THEIRS, 1)
            assert await published(broker) == [(THEIRS, number) for number in range(3)]

    run(main())


class Forgetful(Desk):
    """Loses the first answer about a name, which the broker has given a term."""

    def __init__(self) -> None:
        super().__init__()
        self.term = 0
        self.questions: list[Message] = []

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
        self.term += 1
        self.questions.append(make(0))
        if self.term == 1:
            return LinkError("gone")
        return PublisherPosition(0, 7, self.term)


def test_who_asks_again_because_the_answer_got_lost_goes_on_under_the_newest_term() -> None:
    async def main() -> None:
        desk = Forgetful()
        async with desk.publisher() as publisher:
            await publisher.send({})
            await asyncio.sleep(0)
            (publish,) = desk.published
            assert (publish.sequence, publish.term) == (7, 2)
            first, second = desk.questions
            assert first == second, "it is the same opening"
            desk.lose(LinkError("gone"))
            desk.come_back()
            again = desk.published[-1]
            assert (again.sequence, again.term) == (7, 2), "a repeat is of the same term"
            desk.answer(receipt(again))
        async with desk.publisher():
            last = desk.questions[-1]
            assert isinstance(last, PublisherQuery)
            assert last.opening
            assert last != second, "this is another one"

    run(main())


def test_a_publisher_that_was_taken_over_sends_nothing_more() -> None:
    async def main() -> None:
        desk = Desk()
        publisher = desk.publisher()
        await publisher.__aenter__()
        await publisher.send({})
        await asyncio.sleep(0)
        (publish,) = desk.published
        desk.answer(Refused(publish.request, "'feed' was taken over", TAKEN_OVER))
        desk.come_back()
        await asyncio.sleep(0)
        assert desk.published == [publish]
        with pytest.raises(RefusedError, match="taken over"):
            await publisher.flush()
        assert publisher.confirmed == 0

    run(main())
