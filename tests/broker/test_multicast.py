"""Multicast topics at brokers in this process: clients, conditions, receipts, what is refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.core.events import Event
from gapless.node.config import Config
from tests.broker.castle import Castle
from tests.broker.stage import connected, make_broker, run

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client

ROW = "".join(
    f'[[cell]]\nname = "{name}"\nbrokers = [{{ name = "{name}", listen = "127.0.0.1:0" }}]\n'
    f"subscribers = true\nlinks = {links}\n"
    for name, links in (("a", []), ("b", '["a"]'), ("c", '["b"]'))
)
"""Three brokers of which the outer two are no neighbours."""

TOPIC = '[[topic]]\nname = "t"\nservice = "multicast"\nordered = true\n'

FAST = Config(multicast_beat=100_000)


def with_client(folder: Path, main: Callable[[Client], Awaitable[None]]) -> None:
    async def work() -> None:
        async with make_broker(folder) as broker, connected(broker) as client:
            await client.create_topic("news", "multicast")
            await client.create_topic("log", "multicast", ordered=True)
            await main(client)

    run(work())


def test_one_broker_serves_both_kinds(tmp_path: Path) -> None:
    async def main(client: Client) -> None:
        for topic in ("news", "log"):
            async with client.subscribe(topic, "i > 1") as subscription:
                receipts = await client.publish_many(topic, [({"i": i}, b"x") for i in range(4)])
                got = [await anext(subscription), await anext(subscription)]
                assert [each.attributes["i"] for each in got if isinstance(each, Event)] == [2, 3]
                if topic == "log":
                    assert [each.tick for each in receipts[2:]] == [e.tick for e in got]  # type: ignore[union-attr]
                else:
                    assert {each.tick for each in receipts} == {-1}

    with_client(tmp_path, main)


def test_what_needs_a_store_is_refused_and_says_what_to_use(tmp_path: Path) -> None:
    async def main(client: Client) -> None:
        for wish in (
            client.subscribe("news", name="desk"),
            client.subscribe("log", name="desk", start="earliest"),
            client.subscribe("news", order="total"),
        ):
            with pytest.raises(gapless.GaplessError, match="durable"):
                await wish.__aenter__()
        with pytest.raises(gapless.GaplessError, match="durable"):
            async with client.publisher("news", name="feed") as publisher:
                await publisher.send({"i": 1})
        with pytest.raises(gapless.GaplessError, match="durable"):
            await client.positions("news")
        with pytest.raises(gapless.GaplessError, match="durable"):
            async with client.transaction("news", producer="job", id=1) as transaction:
                await transaction.send({"i": 1})

    with_client(tmp_path, main)


def test_a_topic_is_as_it_was_created(tmp_path: Path) -> None:
    async def main(client: Client) -> None:
        await client.create_topic("log", "multicast", ordered=True)
        for wrong in (
            client.create_topic("log", "multicast"),
            client.create_topic("news", "durable"),
            client.create_topic("other", "durable", ordered=True),
            client.create_topic("other", "multicast", pubends=2),
        ):
            with pytest.raises(gapless.GaplessError):
                await wrong
        found = {each.name: (each.service, each.ordered) for each in await client.topics()}
        assert found["log"] == ("multicast", True)
        assert found["news"] == ("multicast", False)

    with_client(tmp_path, main)


def test_deleting_a_topic_ends_its_subscriptions(tmp_path: Path) -> None:
    async def main(client: Client) -> None:
        async with client.subscribe("log") as subscription:
            await client.delete_topic("log")
            with pytest.raises(gapless.GaplessError, match="deleted"):
                await anext(subscription)
        await client.create_topic("log", "multicast", ordered=True)
        async with client.subscribe("log") as subscription:
            await client.publish("log", {"i": 1})
            assert isinstance(await anext(subscription), Event)

    with_client(tmp_path, main)


def test_an_ordered_topic_goes_on_after_a_restart_with_a_gap_that_is_told(tmp_path: Path) -> None:
    async def first(broker: Broker) -> int:
        async with connected(broker) as client:
            await client.create_topic("log", "multicast", ordered=True)
            return (await client.publish("log", {"i": 1})).tick

    async def main() -> None:
        async with make_broker(tmp_path, config=FAST) as broker:
            before = await first(broker)
        async with make_broker(tmp_path, config=FAST) as broker:
            assert await first(broker) > before

    run(main())


@pytest.mark.parametrize("ordered", [False, True])
def test_who_goes_on_after_an_interruption_is_told_what_it_missed(
    tmp_path: Path, ordered: bool
) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            async with make_broker(tmp_path, config=FAST) as broker:
                client = await stack.enter_async_context(connected(broker))
                await client.create_topic("log", "multicast", ordered=ordered)
                subscription = await stack.enter_async_context(
                    client.subscribe("log", interruption="gap")
                )
                await client.publish("log", {"i": 1})
                first = await anext(subscription)
                assert isinstance(first, Event)
            async with make_broker(tmp_path, config=FAST):
                gap = await anext(subscription)
                assert isinstance(gap, gapless.Gap)
                await client.publish("log", {"i": 2})
                second = await anext(subscription)
                assert isinstance(second, Event)
                assert first.tick < gap.span.start < gap.span.end <= second.tick
                await subscription.close()

    run(main())


def test_brokers_that_are_no_neighbours_reach_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        made = [make_broker(tmp_path, ROW, name, FAST) for name in "abc"]
        async with AsyncExitStack() as stack:
            clients = []
            for broker in made:
                here = connected(await stack.enter_async_context(broker))
                clients.append(await stack.enter_async_context(here))
            await clients[0].create_topic("news", "multicast", ordered=True)
            subscriptions = [client.subscribe("news") for client in clients]
            for each in subscriptions:
                await stack.enter_async_context(each)
            await asyncio.gather(*(client.publish("news", {"i": 1}) for client in clients))
            ticks = [[(await anext(each)).tick for _ in clients] for each in subscriptions]  # type: ignore[union-attr]
            assert ticks[0] == ticks[1] == ticks[2] == sorted(ticks[0])

    run(main())


def test_rights_count_and_far_brokers_show_their_certificates(tmp_path: Path) -> None:
    async def main() -> None:
        castle = Castle(tmp_path, "a", "b", "c", text=ROW + TOPIC)
        made = [castle.broker(name) for name in "abc"]
        async with made[0] as a, made[1], made[2] as c:
            feed, desk = castle.client(a, "feed"), castle.client(c, "desk")
            async with feed, desk, desk.subscribe("t") as subscription:
                await feed.publish("t", {"i": 1})
                event = await anext(subscription)
                assert isinstance(event, Event)
                assert event.attributes == {"i": 1}
                with pytest.raises(gapless.GaplessError, match="not allowed"):
                    await desk.publish("t", {"i": 2})
                with pytest.raises(gapless.GaplessError, match="not allowed"):
                    await feed.subscribe("t").__aenter__()

    run(main())
