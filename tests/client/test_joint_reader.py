"""Many subscriptions, one reader: nothing is left out, nobody is overtaken for ever."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import SubscriptionInterruptedError
from gapless.client.joint_reader import together
from gapless.core.client_messages import Ended
from gapless.core.events import Event
from tests.broker.stage import connected, make_broker, run
from tests.client.desk import Desk
from tests.client.test_subscription import deliveries

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.publisher import Publisher


def test_each_batch_comes_with_its_subscription_and_moves_its_token() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = together([first, second])
            desk.inbox.deliver(deliveries((11, 12), 15, ((1,), (1, 2))))
            desk.inbox.deliver(deliveries((16,), 17, ((2,),)))
            got = [await anext(reader) for _ in range(3)]
            assert [
                (each is second, [i.tick for i in batch if isinstance(i, Event)])
                for each, batch in got
            ] == [(False, [11, 12]), (True, [12]), (True, [16])]
            assert first.token.get("t/0") == 17, "what was settled after its last event counts"
            assert second.token.get("t/0") == 17

    run(main())


def test_a_reader_that_waits_is_woken_by_any_of_them() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = together([first, second])
            waiting = asyncio.create_task(anext(reader))
            await asyncio.sleep(0)
            assert not waiting.done()
            desk.inbox.deliver(deliveries((11,), 15, ((2,),)))
            subscription, batch = await waiting
            assert subscription is second
            assert len(batch) == 1

    run(main())


def test_who_leaves_the_reader_and_waits_for_one_of_them_is_woken() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            desk.inbox.deliver(deliveries((11,), 15, ((1, 2),)))
            async for _ in together([first, second]).batches():
                break
            waiting = asyncio.create_task(anext(second))
            await asyncio.sleep(0)
            assert not waiting.done()
            desk.inbox.deliver(deliveries((16,), 17, ((1, 2),)))
            async with asyncio.timeout(5):
                event = await waiting
            assert isinstance(event, Event)
            assert event.tick == 16

    run(main())


def test_it_ends_when_all_are_over_and_raises_the_error_of_one_that_failed() -> None:
    async def main() -> None:
        desk = Desk()
        async with desk.subscription() as first, desk.subscription() as second:
            reader = together([first, second])
            desk.inbox.ended(Ended(1))
            waiting = asyncio.create_task(anext(reader))
            await asyncio.sleep(0)
            assert not waiting.done(), "the other one goes on"
            desk.inbox.ended(Ended(2, "too slow"))
            with pytest.raises(SubscriptionInterruptedError, match="too slow"):
                await waiting
        async with desk.subscription() as third:
            reader = together([third])
            desk.inbox.ended(Ended(3))
            assert [each async for each in reader] == []

    run(main())


def test_durable_ones_go_on_over_a_broken_connection_and_repeat_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as feeding,
            connected(broker) as client,
            feeding.publisher("t", name="feed") as publisher,
        ):
            found: dict[int, list[object]] = {k: [] for k in range(3)}
            for first in (0, 200):
                async with AsyncExitStack() as stack:
                    named = {
                        await stack.enter_async_context(
                            client.subscribe("t", f"k = {k}", name=f"s{k}", tokens="broker")
                        ): k
                        for k in found
                    }
                    publishing = asyncio.create_task(publish(publisher, first))
                    async for batch in together(named).batches():
                        for subscription, delivery in batch:
                            assert isinstance(delivery, Event)
                            found[named[subscription]].append(delivery.attributes["i"])
                        count = sum(map(len, found.values())) - first
                        if count >= 200:
                            break
                        if count < 100 and client.channel._connection is not None:
                            client.channel._connection.abort()
                    await publishing
            assert found == {k: list(range(k, 400, 3)) for k in found}
            assert client.channel.session > 2

    run(main())


async def publish(publisher: Publisher, first: int) -> None:
    for i in range(first, first + 200):
        await publisher.send({"i": i, "k": i % 3})
        if i % 10 == 0:
            await publisher.flush()
