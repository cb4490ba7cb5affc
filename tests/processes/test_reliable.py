"""Reliable topics against real processes: kill -9 of one in the middle costs nobody anything."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes, cell
from tests.broker.stage import run
from tests.children import PATIENCE_S, PROGRAM, child, rest, told, warned

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from subprocess import Popen

    from gapless.client.client import Client
    from gapless.client.subscription import Subscription

ROW = [
    cell(name, [name], above, subscribers=True)
    for name, above in (("a", ""), ("b", "a"), ("c", "b"), ("d", "c"))
]
CHAIN = "".join(ROW)
FEED = '[[topic]]\nname = "feed"\nservice = "reliable"\n'
COMMAND = [*PROGRAM, "subscribe", "feed", "--count", "2", "--url"]
QUICK = {"tree_beat": 200_000, "tree_patience": 1_000_000}


async def take(subscription: Subscription, count: int) -> list[object]:
    """The numbers of the next events."""
    taken: list[object] = []
    while len(taken) < count:
        got = await anext(subscription)
        assert isinstance(got, Event)
        taken.append(got.attributes["i"])
    return taken


async def reached(*subscriptions: Subscription) -> None:
    """On a slow machine a broker may seem to be away when they begin."""
    for subscription in subscriptions:
        await subscription.reached()


def test_who_is_connected_gets_everything_once_in_order_though_one_in_the_middle_is_killed() -> (
    None
):
    count = 300

    async def main() -> None:
        async with Processes(CHAIN, config=QUICK) as town:
            await town.start("a", "b", "c", "d")
            async with (
                gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near,
                gapless.connect(town.url("c"), patience_s=PATIENCE_S) as middle,
                gapless.connect(town.url("d"), patience_s=PATIENCE_S) as far,
            ):
                await near.create_topic("feed", service="reliable")
                async with (
                    near.subscribe("feed") as first,
                    middle.subscribe("feed", "i >= 0") as second,
                    far.subscribe("feed", "i < 1000") as third,
                ):
                    await reached(first, second, third)
                    for i in range(count):
                        if i == count // 3:
                            await asyncio.to_thread(town.kill, "b")
                        if i == 2 * count // 3:
                            await town.start("b")
                        await near.publish("feed", {"i": i})
                    for subscription in (first, second, third):
                        assert await take(subscription, count) == list(range(count))
                    async with gapless.connect(town.url("b"), patience_s=PATIENCE_S) as back:
                        await back.publish("feed", {"i": count})
                    for subscription in (first, second, third):
                        assert await take(subscription, 1) == [count]

    run(main())


def test_who_subscribes_at_a_broker_that_dies_is_told_and_it_is_not_waited_for_when_back() -> None:
    async def main() -> None:
        async with Processes(CHAIN, FEED, config={**QUICK, "tree_queue_max": 5}) as town:
            await town.start("a", "b", "c", "d")
            async with gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near:
                for end in (town.stop, lambda name: asyncio.to_thread(town.kill, name)):
                    async with (
                        gapless.connect(town.url("d"), patience_s=PATIENCE_S) as far,
                        far.subscribe("feed") as subscription,
                    ):
                        await end("d")
                        with pytest.raises(gapless.SubscriptionInterruptedError):
                            await anext(subscription)
                        await town.start("d")
                    for i in range(20):
                        await near.publish("feed", {"i": i})

    run(main())


def test_what_needs_a_store_is_refused_with_what_to_use_instead() -> None:
    async def main() -> None:
        async with Processes(CHAIN, FEED, config=QUICK) as town:
            await town.start("a", "b")
            async with gapless.connect(town.url("a"), patience_s=PATIENCE_S) as client:
                for wish in ({"name": "desk"}, {"order": "total"}):
                    with pytest.raises(gapless.RefusedError, match="stores nothing"):
                        async with client.subscribe("feed", **wish):  # type: ignore[call-overload]
                            pass
                with pytest.raises(gapless.UsageError, match="a gap could not be told"):
                    async with client.subscribe("feed", interruption="gap"):
                        pass
                with pytest.raises(gapless.RefusedError, match="no names of publishers"):
                    async with client.publisher("feed", name="p"):
                        pass
                with pytest.raises(gapless.RefusedError, match="nothing can be read"):
                    await client.positions("feed")

    run(main())


def test_a_broker_joins_a_running_network_and_outlives_the_one_it_joined_at() -> None:
    async def main() -> None:
        async with Processes(*ROW[:3], config=QUICK) as town:
            await town.start("a", "b", "c")
            async with gapless.connect(town.url("a"), patience_s=PATIENCE_S) as home:
                await home.create_topic("feed", service="reliable")
                await town.start("new", join=town.address("b"))
                url = town.url("new")
                async with (
                    gapless.connect(url, patience_s=PATIENCE_S) as guest,
                    home.subscribe("feed") as at_home,
                    await_topic(guest, "feed") as away,
                ):
                    await reached(at_home, away)
                    await home.publish("feed", {"i": 0})
                    await guest.publish("feed", {"i": 1})
                    for subscription in (at_home, away):
                        assert set(await take(subscription, 2)) == {0, 1}
                    await guest.create_topic("other", service="reliable")
                    while "other" not in {each.name for each in await home.topics()}:  # noqa: ASYNC110
                        await asyncio.sleep(0.1)
                    await asyncio.to_thread(town.kill, "b")
                    await home.publish("feed", {"i": 2})
                    assert await take(away, 1) == [2]
                    await guest.publish("feed", {"i": 3})
                    assert await take(at_home, 2) == [2, 3]

    run(main())


def test_a_dead_broker_with_subscribers_stops_neither_its_topic_nor_others() -> None:
    count = 600
    narrow = {**QUICK, "tree_window_max": 20, "tree_queue_max": 100}

    async def main() -> None:
        async with Processes(CHAIN, FEED, config=narrow) as town:
            await town.start("a", "b", "c", "d")
            async with AsyncExitStack() as stack:
                at = {
                    name: await stack.enter_async_context(
                        gapless.connect(town.url(name), patience_s=PATIENCE_S)
                    )
                    for name in "abcd"
                }
                await at["a"].create_topic("calm", service="reliable")
                await stack.enter_async_context(at["d"].subscribe("feed", "quarter = 0"))
                feeds = [
                    await stack.enter_async_context(at[name].subscribe("feed")) for name in "bc"
                ]
                calm = await stack.enter_async_context(await_topic(at["b"], "calm"))
                await reached(*feeds, calm)
                await asyncio.to_thread(town.kill, "d")
                for i in range(count):
                    await at["a"].publish("feed", {"i": i, "quarter": i % 4})
                    if i % 10 == 0:
                        await at["a"].publish("calm", {"i": i})
                for subscription in feeds:
                    assert await take(subscription, count) == list(range(count))
                assert await take(calm, count // 10) == list(range(0, count, 10))

    run(main())


def test_what_brokers_take_that_joined_before_there_was_a_topic_reaches_everybody() -> None:
    count = 100

    async def main() -> None:
        async with Processes(*ROW[:2], config=QUICK) as town:
            await town.start("a", "b")
            await town.start("j", join=town.address("b"))
            await town.start("k", join=town.address("j"))
            async with (
                gapless.connect(town.url("a"), patience_s=PATIENCE_S) as home,
                gapless.connect(town.url("j"), patience_s=PATIENCE_S) as guest,
                gapless.connect(town.url("k"), patience_s=PATIENCE_S) as last,
            ):
                await home.create_topic("feed", service="reliable")
                async with await_topic(home, "feed") as subscription:
                    await has_topic(guest, "feed")
                    for i in range(count):
                        await guest.publish("feed", {"i": i})
                    assert await take(subscription, count) == list(range(count))
                    await has_topic(last, "feed")
                    await last.publish("feed", {"i": count})
                    assert await take(subscription, 1) == [count]

    run(main())


def test_what_is_confirmed_survives_the_crash_of_its_broker_and_that_it_crashed_is_told() -> None:
    async def main() -> None:
        async with Processes(CHAIN, FEED, config=QUICK) as town:
            await town.start("a", "b", "c", "d")
            async with (
                gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near,
                gapless.connect(town.url("d"), patience_s=PATIENCE_S) as far,
                far.subscribe("feed") as subscription,
            ):
                await reached(subscription)
                for i in range(20):
                    receipt = await near.publish("feed", {"i": i}, confirmed=True)
                await asyncio.to_thread(town.kill, "a")
                assert await take(subscription, 20) == list(range(20))
                await town.start("a")
                gap = await anext(subscription)
                assert isinstance(gap, gapless.Gap)
                assert (gap.pubend, gap.span.start) == (receipt.pubend, receipt.tick + 1)
                await near.publish("feed", {"i": 20}, confirmed=True)
                assert await take(subscription, 1) == [20]

    run(main())


def test_two_neighbours_that_died_are_stepped_over_without_waiting_for_their_silence() -> None:
    patient = {"tree_beat": 200_000, "tree_patience": 3_600_000_000}

    async def main() -> None:
        async with Processes(CHAIN, FEED, config=patient) as town:
            await town.start("a", "b", "c", "d")
            async with (
                gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near,
                gapless.connect(town.url("d"), patience_s=PATIENCE_S) as far,
                far.subscribe("feed") as subscription,
            ):
                await reached(subscription)
                for dead in "cb":  # the second is found when the first is dialled, and not there
                    await asyncio.to_thread(town.kill, dead)
                await near.publish("feed", {"i": 1})
                assert await take(subscription, 1) == [1]

    run(main())


async def has_topic(client: Client, topic: str) -> None:
    """A broker that has just joined may not know the topic yet."""
    while topic not in [each.name for each in await client.topics()]:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@asynccontextmanager
async def await_topic(client: Client, topic: str) -> AsyncIterator[Subscription]:
    """A subscription at a broker that has just joined, and may not know the topic yet."""
    await has_topic(client, topic)
    async with client.subscribe(topic) as subscription:
        yield subscription


def test_who_subscribes_while_a_broker_is_not_reached_is_told_and_when_it_is() -> None:
    async def main() -> None:
        async with Processes(CHAIN, FEED, config=QUICK) as town:
            await town.start("a", "b", "c", "d")
            async with gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near:
                await near.publish("feed", {"i": 0})  # it is a part of the network
                town.hang("a")
                await asyncio.to_thread(town.kill, "b")
                await town.start("b")
                with (
                    child([*COMMAND, town.url("b")]) as process,
                    gapless.sync.connect(town.url("b"), patience_s=PATIENCE_S) as back,
                    back.subscribe("feed") as subscription,
                ):
                    assert subscription.unreached == ("a",)
                    assert "not reached yet: a (" in await asyncio.to_thread(warned, process)
                    town.wake("a")
                    await asyncio.to_thread(subscription.reached)
                    assert "all brokers are reached" in await asyncio.to_thread(warned, process)
                    await near.publish("feed", {"i": 1})
                    event = next(iter(subscription))
                    assert isinstance(event, Event)
                    assert event.attributes["i"] == 1
                    assert "i=1" in await asyncio.to_thread(told, process)

    run(main())


def test_the_command_line_subscribes_again_after_an_interruption_and_says_so() -> None:
    async def main() -> None:
        async with Processes(CHAIN + FEED, config=QUICK) as town:
            await town.start("a", "b", "c", "d")
            async with gapless.connect(town.url("a"), patience_s=PATIENCE_S) as near:
                with child([*COMMAND, town.url("b")]) as process:
                    await begun(process)
                    await near.publish("feed", {"i": 1})
                    assert "i=1" in await asyncio.to_thread(told, process)
                    await asyncio.to_thread(town.kill, "b")
                    while "is missed" not in (line := await asyncio.to_thread(warned, process)):
                        assert "waiting for a broker" in line
                    await town.start("b")
                    await begun(process)
                    await near.publish("feed", {"i": 2})
                    assert "i=2" in await asyncio.to_thread(rest, process)
                    assert process.wait() == 0

    run(main())


async def begun(process: Popen[str]) -> None:
    """It is subscribed, and misses nothing that is published from now on."""
    while "connected to" in (line := await asyncio.to_thread(warned, process)):
        pass
    assert "subscribed to feed" in line
    if "not reached yet" in line:
        assert "all brokers are reached" in await asyncio.to_thread(warned, process)
