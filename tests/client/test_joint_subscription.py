"""One subscription over several topics: one token, and the order of each topic or of all."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import gapless
from gapless.client.parts import part_names, split_token, topic_of
from gapless.core.client_messages import Acknowledge
from gapless.core.identity import BrokerName, SubscriptionName, TopicName
from gapless.core.ticks import TICK_MAX, instant_of
from gapless.node.node import Node
from gapless.testing import SimulatedNetwork

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gapless.client.client import Client
    from gapless.client.joint_subscription import JointSubscription

TWO = """
[[cell]]
name = "a"
subscribers = true
brokers = [{ name = "a", listen = "127.0.0.1:0" }]
[[cell]]
name = "b"
links = ["a"]
subscribers = true
brokers = [{ name = "b", listen = "127.0.0.1:0" }]
"""
TOPICS = ["trades", "orders"]
BOTH = ("publisher", "total")


def play(main: Callable[[SimulatedNetwork, Client], Coroutine[Any, Any, None]]) -> None:
    """In a network of two brokers, with a topic at each; "trades" has two pubends."""
    network = SimulatedNetwork(TWO, seed=7)

    async def whole() -> None:
        async with gapless.connect(network.url("a"), patience_s=120) as client:
            await client.create_topic("trades", hosts=["a", "b"])
            await client.create_topic("orders", hosts=["b"])
            await main(network, client)

    network.run(whole())


async def publish(client: Client, *numbers: int) -> None:
    """Odd ones are trades, even ones are orders."""
    for number in numbers:
        await client.publish(TOPICS[number % 2 == 0], {"n": number})


async def take(subscription: JointSubscription, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        item = await anext(subscription)
        assert isinstance(item, gapless.Event), item
        found.append(int(item.attributes["n"]))
    return found


def names(network: SimulatedNetwork) -> list[str]:
    """All named subscriptions of all brokers."""
    nodes = [each.node for each in network.world.processes.values()]
    return sorted(
        one.definition.name
        for each in nodes
        if isinstance(each, Node)
        for one in each.durable.subscriptions.all()
    )


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - simulated brokers tell nobody
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("order", BOTH)
def test_one_token_goes_on_in_all_topics(order: Any) -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk", order=order) as subscription:
            assert subscription.topics == ("orders", "trades")
            await publish(client, *range(10))
            first = await take(subscription, 7)
            token = subscription.token
            assert len(token) == 3
        await publish(client, *range(10, 20))
        async with client.subscribe(
            TOPICS, name="desk", order=order, start=token.to_json()
        ) as subscription:
            rest = await take(subscription, 13)
        whole = first + rest
        assert sorted(whole) == list(range(20))
        if order == "total":
            assert whole == list(range(20)), "one order over all topics"
        assert [n for n in whole if n % 2 == 0] == list(range(0, 20, 2))
        assert names(network) == ["desk", "desk/trades"]

    play(main)


@pytest.mark.parametrize("order", BOTH)
def test_it_goes_on_over_crashes_of_both_brokers(order: Any) -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async def feed() -> None:
            async with (
                gapless.connect(network.url("a"), patience_s=120) as other,
                other.publisher("trades", name="trades") as trades,
                other.publisher("orders", name="orders") as orders,
            ):
                for number in range(60):
                    await (trades if number % 2 else orders).send({"n": number})
                    if number in (10, 35):
                        network.crash("b", back_after_s=2)
                    if number == 22:
                        network.crash("a", back_after_s=2)
                    await asyncio.sleep(0.1)

        async with client.subscribe(TOPICS, name="desk", order=order) as subscription:
            feeding = asyncio.create_task(feed())
            found, places = list[int](), list[tuple[int, str]]()
            while len(found) < 60:
                item = await anext(subscription)
                assert isinstance(item, gapless.Event)
                found.append(int(item.attributes["n"]))
                places.append((item.tick, item.pubend))
            await feeding
        assert sorted(found) == list(range(60))
        for topic in (0, 1):
            assert [n for n in found if n % 2 == topic] == list(range(topic, 60, 2))
        if order == "total":
            assert places == sorted(places)

    play(main)


def test_in_total_order_an_idle_topic_holds_nothing_up() -> None:
    """Nobody publishes orders: each trade waits until their broker says so, not for its timer."""

    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk", order="total") as subscription:
            await asyncio.sleep(100)  # an idle pubend speaks every 16 s by now
            for number in range(1, 21, 2):
                before_s = network.now_s
                await publish(client, number)
                assert await take(subscription, 1) == [number]
                assert network.now_s - before_s < 0.5
                await asyncio.sleep(3)

    play(main)


def test_a_client_that_waits_for_the_far_future_sets_nobody_s_clock() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe("orders", name="desk", order="total"):
            client.channel.send(Acknowledge(1, {}, awaited=TICK_MAX))
            await asyncio.sleep(5)
            receipt = await client.publish("orders", {"n": 1})
            assert instant_of(receipt.tick) < network.world.now + 100_000

    play(main)


def test_in_total_order_what_waits_leaves_room_for_what_it_waits_for() -> None:
    """More than a client may have unconsumed waits in one topic for the other, whose link is
    cut."""

    async def main(network: SimulatedNetwork, client: Client) -> None:
        await client.create_topic("quotes", hosts=["a"])
        topics = ["orders", "quotes"]
        async with client.subscribe(topics, name="desk", order="total") as subscription:
            token = subscription.token
        network.cut("a", "b")
        async with gapless.connect(network.url("b"), patience_s=120) as other:
            await other.publish_many("orders", [({"n": number}, b"") for number in range(10)])
            for start in range(10, 24_010, 1_000):
                many = [({"n": number}, b"") for number in range(start, start + 1_000)]
                await client.publish_many("quotes", many)
            await other.publish("orders", {"n": 24_010})
        async with client.subscribe(
            topics, name="desk", order="total", start=token
        ) as subscription:
            await asyncio.sleep(30)  # all that fits has come
            network.mend("a", "b")
            assert await take(subscription, 24_011) == [*range(24_011)]

    play(main)


def test_a_crash_while_it_is_made_leaves_what_the_same_call_completes() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        making = asyncio.create_task(client.subscribe(TOPICS, name="desk").__aenter__())
        await until(lambda: "desk" in names(network))
        assert names(network) == ["desk"], "the other part is not made yet"
        making.cancel()
        await asyncio.gather(making, return_exceptions=True)
        await publish(client, 0)
        async with client.subscribe(TOPICS, name="desk") as subscription:
            assert names(network) == ["desk", "desk/trades"]
            await publish(client, 1, 2)
            assert sorted(await take(subscription, 3)) == [0, 1, 2], "it counts since it was made"
        network.drop_clients("a")
        await client.unsubscribe("desk")
        assert names(network) == []

    play(main)


def test_its_parts_know_each_other_after_a_move_and_a_crash() -> None:
    """The broker that had them is drained while nobody is attached; the other one is restarted."""

    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk") as subscription:
            await publish(client, 1, 2)
            assert sorted(await take(subscription, 2)) == [1, 2]
            token = subscription.token
        node = network.world.processes[BrokerName("a")].node
        assert isinstance(node, Node)
        assert len(list(node.durable.subscriptions.all())) == 2
        network.world.processes[BrokerName("a")].drive(Node.drain)
        await until(lambda: not list(node.durable.subscriptions.all()))
        await publish(client, 3, 4)
        network.crash("b", back_after_s=2)
        await asyncio.sleep(5)
        async with client.subscribe(TOPICS, name="desk", start=token) as subscription:
            assert sorted(await take(subscription, 2)) == [3, 4]
        with pytest.raises(gapless.RefusedError, match="is on topics 'orders, trades'"):
            async with client.subscribe("orders", name="desk"):
                pass
        await client.unsubscribe("desk")
        assert names(network) == []

    play(main)


def test_half_of_one_is_ended_by_its_name_too() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk"):
            pass
        with pytest.raises(gapless.RefusedError, match="is a part of the subscription 'desk'"):
            await client.unsubscribe("desk/trades")
        ending = asyncio.create_task(client.unsubscribe("desk"))
        await until(lambda: "desk/trades" not in names(network))
        assert names(network) == ["desk"]
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)
        await client.unsubscribe("desk")
        assert names(network) == []
        with pytest.raises(gapless.RefusedError, match="there is no subscription 'desk'"):
            await client.unsubscribe("desk")

    play(main)


def test_what_cannot_be_subscribed_to_leaves_nothing_behind() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        with pytest.raises(gapless.RefusedError, match="there is no topic 'ordres'"):
            async with client.subscribe(["orders", "ordres"], name="desk"):
                pass
        assert names(network) == []
        async with client.subscribe("orders", name="desk"):
            pass
        with pytest.raises(gapless.RefusedError, match="'desk' is on one topic"):
            async with client.subscribe(TOPICS, name="desk"):
                pass
        async with client.subscribe(TOPICS, name="other"):
            pass
        for topics in ("orders", ["orders"]):
            with pytest.raises(gapless.RefusedError, match="is on topics 'orders, trades'"):
                async with client.subscribe(topics, name="other"):
                    pass

    play(main)


def test_the_condition_of_all_topics_changes() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, "n < 100", name="desk") as subscription:
            await publish(client, 1, 2)
            ticks = await client.alter_subscription("desk", condition="n > 3")
            assert {topic_of(pubend) for pubend, _ in ticks} == set(TOPICS)
            await publish(client, 3, 4, 5)
            assert sorted(await take(subscription, 4)) == [1, 2, 4, 5]
            again = await client.alter_subscription("desk", condition="n > 3")
            assert again == ticks

    play(main)


def test_it_is_acknowledged_and_leased_by_its_name() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk") as subscription:
            await publish(client, 1, 2)
            await take(subscription, 2)
            token = subscription.token
        await client.lease("desk", query="q", run="one")
        with pytest.raises(gapless.RefusedError):
            await client.acknowledge("desk", token, run="two")
        await client.acknowledge("desk", token, run="one")
        with pytest.raises(gapless.UsageError, match="which is of none of"):
            await client.acknowledge("desk", gapless.Token({"quotes/0": 5}))
        await asyncio.sleep(20)  # the lease is over
        async with client.subscribe(TOPICS, name="desk") as subscription:
            assert subscription.token >= token

    play(main)


def test_where_the_broker_keeps_the_token_what_is_finished_does_not_come_again() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS, name="desk", tokens="broker") as subscription:
            await publish(client, 1, 2, 3)
            assert sorted(await take(subscription, 3)) == [1, 2, 3]
        await publish(client, 4)
        async with client.subscribe(TOPICS, name="desk", tokens="broker") as subscription:
            assert await take(subscription, 1) == [4]

    play(main)


def test_without_a_name_it_starts_now_and_tells_gaps() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        await publish(client, 1, 2)
        async with client.subscribe(TOPICS, interruption="gap") as subscription:
            await publish(client, 3, 4)
            assert sorted(await take(subscription, 2)) == [3, 4]
            network.drop_clients("a")
            await asyncio.sleep(1)
            await publish(client, 5, 6)
            events, gaps = set[int](), set[str]()
            while len(events) < 2:
                item = await anext(subscription)
                if isinstance(item, gapless.Event):
                    events.add(int(item.attributes["n"]))
                else:
                    assert isinstance(item, gapless.Gap)
                    gaps.add(item.topic)
        assert (events, gaps) == ({5, 6}, set(TOPICS))

    play(main)


def test_an_interrupted_one_without_a_name_says_so() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS) as subscription:
            network.drop_clients("a")
            with pytest.raises(gapless.SubscriptionInterruptedError):
                await anext(subscription)

    play(main)


def test_it_starts_where_it_is_told_to() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        await client.alter_topic("trades", keep_seconds=1_000)
        await client.alter_topic("orders", keep_seconds=1_000)
        await publish(client, 1, 2)
        await asyncio.sleep(10)
        middle = datetime.fromtimestamp(network.world.now / 1e6 - 5, UTC)
        await publish(client, 3, 4)
        async with client.subscribe(TOPICS, name="e", start="earliest") as subscription:
            assert sorted(await take(subscription, 4)) == [1, 2, 3, 4]
        async with client.subscribe(TOPICS, name="m", start=middle, order="total") as subscription:
            assert await take(subscription, 2) == [3, 4]

    play(main)


@pytest.mark.parametrize(
    ("topics", "options", "problem"),
    [
        ([], {}, "0 topics"),
        (["t", "t"], {}, "2 topics, 1 of them different"),
        ([f"t{number}" for number in range(65)], {}, "65 topics"),
        (TOPICS, {"order": "total"}, "needs a name"),
        (TOPICS, {"name": "g", "share_by": "n"}, "a group is on one topic"),
        (TOPICS, {"name": "n", "start": gapless.Token({"quotes/0": 1})}, "is of none of"),
        (TOPICS, {"name": ""}, "is not empty"),
        (TOPICS, {"start": "earliest"}, "starts now"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(topics: Any, options: Any, problem: str) -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        with pytest.raises(gapless.UsageError, match=problem):
            client.subscribe(topics, **options)

    play(main)


def test_it_is_not_read_together_with_others() -> None:
    async def main(network: SimulatedNetwork, client: Client) -> None:
        async with client.subscribe(TOPICS) as subscription:
            with pytest.raises(gapless.UsageError, match="to one topic each"):
                gapless.together([subscription])  # type: ignore[list-item]

    play(main)


def test_pubends_belong_to_topics_whatever_these_are_called() -> None:
    pubends = {"trades/0": "trades", "mqtt/sessions/3": "mqtt/sessions", "trades@2/11": "trades"}
    assert {each: topic_of(each) for each in pubends} == pubends
    token = gapless.Token({"a/0": 5, "a@2/1": 6, "b/0": 7})
    topics = [TopicName("a"), TopicName("b")]
    assert split_token(token, topics) == {
        "a": gapless.Token({"a/0": 5, "a@2/1": 6}),
        "b": gapless.Token({"b/0": 7}),
    }
    assert part_names(SubscriptionName("n"), topics) == {"a": "n", "b": "n/b"}
