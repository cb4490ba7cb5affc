"""A client over real sockets: answers, refusals, reconnecting, failing over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.client.client import connect
from gapless.client.errors import LinkError, RefusedError, SubscriptionInterruptedError
from gapless.client.reconnection import CONSUMED_MAX, ReconnectingChannel
from gapless.core.client_messages import Consumed
from gapless.core.errors import FilterError, UsageError
from gapless.core.events import Event
from gapless.node.config import Config
from tests.broker.stage import connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.core.messages import Message


def test_what_matches_is_delivered_once_and_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            client.subscribe("t", "i >= 10") as subscription,
            client.publisher("t", name="feed") as publisher,
        ):
            for i in range(1_000):
                await publisher.send({"i": i}, b"x")
            await publisher.flush()
            found = [await anext(subscription) for _ in range(990)]
            assert [each.attributes["i"] for each in found if isinstance(each, Event)] == list(
                range(10, 1_000)
            )
            last = found[-1]
            assert isinstance(last, Event)
            assert (last.publisher, last.sequence, last.topic) == ("feed", 999, "t")

    run(main())


def test_receipts_tell_where_each_event_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            client.subscribe("t") as subscription,
        ):
            receipts = await client.publish_many("t", [({"i": i}, b"") for i in range(3)])
            for receipt in receipts:
                event = await anext(subscription)
                assert isinstance(event, Event)
                assert (event.pubend, event.tick) == receipt

    run(main())


def test_total_order_is_the_same_for_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as first,
            connected(broker) as second,
            first.subscribe("two", order="total") as one,
            second.subscribe("two", order="total") as other,
            first.publisher("two", name="a") as a,
            second.publisher("two", name="d") as d,
        ):
            for i in range(100):
                await a.send({"from": "a", "i": i})
                await d.send({"from": "d", "i": i})
            await a.flush()
            await d.flush()
            seen = [[await anext(each) for _ in range(200)] for each in (one, other)]
            assert seen[0] == seen[1]
            assert {event.pubend for event in seen[0]} == {"two/0", "two/1"}

    run(main())


def test_a_named_subscription_in_total_order_goes_on_in_that_order(tmp_path: Path) -> None:
    async def main() -> None:
        seen: list[object] = []
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("two", name="n", order="total"):
                pass
            async with (
                client.subscribe("two", order="total") as other,
                client.publisher("two", name="a") as a,
                client.publisher("two", name="d") as d,
            ):
                for i in range(100):
                    await a.send({"from": "a", "i": i})
                    await d.send({"from": "d", "i": i})
                await a.flush()
                await d.flush()
                expected = [await anext(other) for _ in range(200)]
                token: gapless.Token | str = "latest"
                while len(seen) < 200:
                    async with client.subscribe(
                        "two", name="n", order="total", start=token
                    ) as subscription:
                        seen += [await anext(subscription) for _ in range(25)]
                        token = subscription.token
            assert seen == expected
            assert {event.pubend for event in expected} == {"two/0", "two/1"}
            with pytest.raises(RefusedError, match="has total order"):
                async with client.subscribe("two", name="n"):
                    pass

    run(main())


@pytest.mark.parametrize(
    ("topic", "condition", "problem"),
    [("nope", "", "there is no topic 'nope'"), ("t", "a >", "expected a value")],
)
def test_a_subscription_that_cannot_be_is_refused_in_words(
    tmp_path: Path, topic: str, condition: str, problem: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(RefusedError, match=problem):
                async with client.subscribe(topic, condition):
                    pass
            assert broker.statistics()["waiting_subscriptions"] == 0

    run(main())


def test_a_publication_that_cannot_be_is_refused_in_words(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(RefusedError, match="there is no topic 'nope'"):
                await client.publish("nope", {})
            with pytest.raises(RefusedError, match="there is no topic 'nope'"):
                async with client.publisher("nope", name="x"):
                    pass

    run(main())


@pytest.mark.parametrize("events", [[], [({}, b"")] * 10_001, [({}, b"x" * 1_000_000)] * 9])
def test_too_many_events_at_once_are_refused_before_anything_is_sent(
    tmp_path: Path, events: list[tuple[dict[str, int], bytes]]
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(UsageError, match="cannot be published at once"):
                await client.publish_many("t", events)
            await client.publish("t", {})

    run(main())


def test_who_takes_a_publishers_name_over_has_it_and_who_had_it_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as first,
            connected(broker) as second,
        ):
            old = await first.publisher("t", name="feed").__aenter__()
            await old.send({"i": 0})
            await old.flush()
            async with second.publisher("t", name="feed") as new:
                assert await new.send({"i": 1}) == 1
            await old.send({"i": 2})
            with pytest.raises(RefusedError, match=r"'feed' was taken over.*one process at a time"):
                await old.flush()
            assert (await second.publisher("t", name="feed").__aenter__()).sequence == 2

    run(main())


def test_a_message_too_large_for_a_frame_fails_what_it_was_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(RefusedError, match="does not fit a frame"):
                await client.create_topic("q", hosts=["a" * (17 << 20)])
            await client.publish("t", {})
            assert client.channel.session == 1, "over the same connection"

    run(main())


def test_what_cannot_be_is_refused_before_anything_is_sent() -> None:
    async def main() -> None:
        client = connect("gapless://127.0.0.1:1")
        with pytest.raises(FilterError, match="65537 bytes, more than the 65536 allowed"):
            client.subscribe("t", "a" * 65_537)
        with pytest.raises(UsageError, match="Give 1 to 512 bytes"):
            client.subscribe("t", name="n" * 513)
        with pytest.raises(UsageError, match="needs a name"):
            client.publisher("t", name="")
        with pytest.raises(LinkError, match="not open"):
            await client.publish("t", {})

    run(main())


def test_where_no_broker_is_the_error_says_how_to_start_one() -> None:
    async def main() -> None:
        with pytest.raises(LinkError, match=r"no broker answers at 127.0.0.1:1 .*gapless serve"):
            async with connect("gapless://127.0.0.1:1", patience_s=0.01):
                pass

    run(main())


def test_a_publisher_and_a_subscription_live_through_a_restart_of_the_broker(
    tmp_path: Path,
) -> None:
    """What was published while the subscriber was cut off lies in the gap it is told of."""

    async def main() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        async with (
            connected(broker) as client,
            client.subscribe("t", interruption="gap") as subscription,
            client.publisher("t", name="feed") as publisher,
        ):
            await publisher.send({"i": 0})
            await anext(subscription)
            await broker.drain()
            await publisher.send({"i": 1})
            async with make_broker(tmp_path) as again:
                assert again.address == broker.address
                await publisher.flush()
                await wait_until(lambda: again.statistics()["subscriptions"] == 1)
                await publisher.send({"i": 2})
                numbers: list[object] = []
                while 2 not in numbers:
                    item = await anext(subscription)
                    numbers.append(item.attributes["i"] if isinstance(item, Event) else "gap")
                assert numbers in (["gap", 2], ["gap", 1, 2])
                await publisher.flush()

    run(main())


def test_a_subscription_is_interrupted_when_its_broker_goes(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        async with connected(broker) as client, client.subscribe("t") as subscription:
            await client.publish("t", {"i": 0})
            await broker.drain()
            await anext(subscription)
            with pytest.raises(SubscriptionInterruptedError, match="the broker is stopping"):
                await anext(subscription)

    run(main())


def test_the_next_address_is_tried_when_the_first_does_not_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connect(f"gapless://127.0.0.1:1,{broker.address}") as client,
        ):
            assert (client.address, client.broker) == (broker.address, "b")

    run(main())


def test_a_slow_subscription_is_ended_with_a_reason_and_others_go_on(tmp_path: Path) -> None:
    async def main() -> None:
        config = Config(client_queue_max=2_000)
        async with (
            make_broker(tmp_path, config=config) as broker,
            connected(broker) as slow,
            connected(broker) as quick,
            slow.subscribe("t") as sleeping,
            quick.subscribe("t") as awake,
        ):
            for i in range(30):
                await quick.publish_many("t", [({"i": i}, b"")] * 100)
                for _ in range(100):
                    await anext(awake)
            with pytest.raises(SubscriptionInterruptedError, match="not consumed in time"):
                async for _ in sleeping:
                    pass
            assert broker.statistics()["ended_slow"] == 1

    run(main())


def test_a_cancelled_publish_leaves_the_client_usable(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            publishing = asyncio.create_task(client.publish("t", {}))
            await asyncio.sleep(0)
            publishing.cancel()
            await asyncio.gather(publishing, return_exceptions=True)
            assert (await client.publish("t", {})).pubend == "t/0"
            assert client.channel._answers == {}

    run(main())


def test_a_closed_client_ends_its_subscriptions_and_refuses_to_publish(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            async with connected(broker) as client:
                subscription = await client.subscribe("t").__aenter__()
            assert [item async for item in subscription] == []
            with pytest.raises(gapless.LinkError, match="closed"):
                await client.publish("t", {})

    run(main())


def test_what_many_subscriptions_consumed_is_told_in_one_message() -> None:
    class Listening(ReconnectingChannel):
        sent: list[Message]

        def send(self, message: Message) -> None:
            self.sent.append(message)

    async def main() -> None:
        client = Listening("gapless://127.0.0.1:1", patience_s=30.0)
        client.sent = []
        for count in (1, 2, 3):
            client.consume(count)
            client.tell_consumed()
        assert client.sent == []
        await wait_until(lambda: bool(client.sent))
        client.tell_consumed()
        client.consume(CONSUMED_MAX - 1)
        assert client.sent == [Consumed(6)]
        client.consume(1)
        assert client.sent == [Consumed(6), Consumed(CONSUMED_MAX)], "so many are told at once"

    run(main())
