"""Named subscriptions over real sockets: where they start, what they miss, who ends them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import gapless
import gapless.sync
from gapless.client.delivery import Gap
from gapless.client.errors import RefusedError, SubscriptionInterruptedError
from gapless.core.events import Event
from gapless.core.identity import PubendName
from gapless.core.token import Token
from gapless.node.config import Config
from tests.broker.stage import ONE, connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker
    from gapless.client.client import Client
    from gapless.client.delivery import Delivery
    from gapless.client.subscription import Subscription
    from gapless.client.subscription_options import Start

RETAINED = ONE.replace('name = "t"\n', 'name = "t"\nretention_seconds = 0.2\n')
QUICK = Config(release_delay=1_000, ack_delay=1_000, past_window=1_000, released_flush=1_000)


async def publish(client: Client, *numbers: int) -> None:
    await client.publish_many("t", [({"i": i}, b"") for i in numbers])


async def numbers(subscription: Subscription, count: int) -> list[object]:
    return [number_of(await anext(subscription)) for _ in range(count)]


def number_of(item: Delivery) -> object:
    return item.attributes["i"] if isinstance(item, Event) else item


def cancel_timer(subscription: Subscription) -> None:
    """Acknowledge nothing just because time passes."""
    assert subscription._timer is not None
    subscription._timer.cancel()


def test_it_counts_while_nobody_is_there_and_goes_on_from_its_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", "i <> 3", name="desk") as subscription:
                await publish(client, 0, 1, 2)
                assert await numbers(subscription, 2) == [0, 1]
                token = subscription.token
            await publish(client, 3, 4)
            async with client.subscribe("t", "i <> 3", name="desk", start=token) as subscription:
                assert await numbers(subscription, 2) == [2, 4]
                await publish(client, 5)
                assert await numbers(subscription, 1) == [5]
            json = token.to_json()
            async with client.subscribe("t", "i <> 3", name="desk", start=json) as subscription:
                assert await numbers(subscription, 3) == [2, 4, 5]

    run(main())


def test_without_a_token_it_goes_on_from_what_is_acknowledged(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="desk") as subscription:
                await publish(client, 0, 1, 2)
                assert await numbers(subscription, 1) == [0]
                await subscription.acknowledge()
                assert await numbers(subscription, 1) == [1]
            async with client.subscribe("t", name="desk", tokens="broker") as subscription:
                assert await numbers(subscription, 2) == [1, 2]
            await publish(client, 3)
            async with client.subscribe("t", name="desk", tokens="broker") as subscription:
                assert await numbers(subscription, 1) == [3], "leaving acknowledged the rest"

    run(main())


def test_each_event_is_acknowledged_before_the_next_one_is_handed_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            ended = client.subscribe("t", name="desk", tokens="each")
            await ended.__aenter__()
            await publish(client, 0, 1, 2, 3)
            cancel_timer(ended)
            assert await numbers(ended, 3) == [0, 1, 2]
            async with (
                connected(broker) as other,  # takes over: the first one has no time to finish
                other.subscribe("t", name="desk", tokens="each") as subscription,
            ):
                assert await numbers(subscription, 1) == [2], "it was in hand"
                assert list(map(number_of, await subscription.take())) == [3]

    run(main())


def test_a_blocking_client_acknowledges_each_event_too(tmp_path: Path) -> None:
    def work(address: str) -> None:
        url = f"gapless://{address}"
        with gapless.sync.connect(url) as client, gapless.sync.connect(url) as other:
            first = client.subscribe("t", name="desk", tokens="each")
            first.__enter__()
            client.publish_many("t", [({"i": number}, b"") for number in range(4)])
            cancel_timer(first._inner)
            iterator = iter(first)
            assert [number_of(next(iterator)) for _ in range(3)] == [0, 1, 2]
            with other.subscribe("t", name="desk", tokens="each") as subscription:
                assert number_of(next(iter(subscription))) == 2, "it was in hand"
                assert list(map(number_of, subscription.take(5))) == [3]
            first.close()

    async def main() -> None:
        async with make_broker(tmp_path) as broker:
            await asyncio.to_thread(work, broker.address)

    run(main())


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"name": None}, "no token to keep"), ({"name": "n", "share_by": "k"}, "no tokens to keep")],
)
def test_to_acknowledge_each_needs_a_name_and_no_group(
    tmp_path: Path, options: dict[str, Any], problem: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(gapless.UsageError, match=problem):
                client.subscribe("t", tokens="each", **options)
            subscription = client.subscribe("t", tokens="each", name="desk")
            with pytest.raises(gapless.UsageError, match="do not go together"):
                gapless.together([subscription])

    run(main())


def test_a_new_one_starts_now_at_the_oldest_at_an_instant_or_at_a_token(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeps all") as subscription:
                token = subscription.token
                await publish(client, 0)
                assert await numbers(subscription, 1) == [0]
                instant = datetime.now(UTC)
                await publish(client, 1, 2)
                assert await numbers(subscription, 2) == [1, 2]
            starts: dict[Start, list[object]]
            starts = {"latest": [], "earliest": [0, 1, 2], instant: [1, 2], token: [0, 1, 2]}
            found = {}
            for start in starts:
                async with client.subscribe("t", "i < 9", name=f"{start}", start=start) as new:
                    found[start] = await numbers(new, len(starts[start]))
                    await client.unsubscribe(f"{start}")
            assert found == starts

    run(main())


def test_a_token_that_cannot_be_true_is_refused_before_anything_is_lost(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeps all", start="earliest") as kept:
                await publish(client, 0, 1)
                assert await numbers(kept, 2) == [0, 1]
            pubend, tick = next(iter(kept.token))
            wrong = {
                "names 'two/0', which topic 't' does not have": {"two/0": tick},
                "names 't/9', which topic 't' does not have": {pubend: tick, "t/9": tick},
                "which is at .*: that is yet to come": {pubend: tick + (1 << 60)},
            }
            for problem, token in wrong.items():
                for name in ("keeps all", "a new one"):
                    with pytest.raises(RefusedError, match=f'{problem}.*start="earliest"'):
                        await client.subscribe("t", name=name, start=Token(token)).__aenter__()
                with pytest.raises(RefusedError, match=problem):
                    await client.acknowledge("keeps all", Token(token))
            async with client.subscribe("t", name="keeps all", start=Token()) as kept:
                assert await numbers(kept, 2) == [0, 1], "nothing of it is lost"

    run(main())


def test_a_token_of_a_topic_that_was_deleted_is_not_one_of_its_successor(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("news")
            async with client.subscribe("news", name="desk") as subscription:
                await client.publish("news", {"i": 1})
                await anext(subscription)
                token = subscription.token
            await client.delete_topic("news")
            await client.create_topic("news")
            with pytest.raises(RefusedError, match="of a topic 'news' that was deleted: it has"):
                await client.subscribe("news", name="desk", start=token).__aenter__()

    run(main())


def test_what_was_released_early_is_one_gap_and_then_everything_comes(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, RETAINED, config=QUICK)
        async with broker, connected(broker) as client:
            async with client.subscribe("t", "i > 0", name="desk") as subscription:
                await publish(client, 1)
                assert await numbers(subscription, 1) == [1]
                token = subscription.token
            receipts = await client.publish_many("t", [({"i": i}, b"") for i in range(2, 12)])
            last = receipts[-1].tick
            await wait_until(lambda: released(broker) > last)
        again = make_broker(tmp_path, RETAINED, config=QUICK)  # whose caches are empty
        async with (
            again,
            connected(again) as client,
            client.subscribe("t", "i > 0", name="desk", start=token) as subscription,
        ):
            gap = await anext(subscription)
            assert isinstance(gap, Gap)
            assert all(receipt.tick in gap.span for receipt in receipts)
            assert gap.span.start >= token.get("t/0")
            await publish(client, 12, 13)
            assert await numbers(subscription, 2) == [12, 13]

    run(main())


def released(broker: Broker) -> int:
    found = broker.statistics()["pubends"]
    assert isinstance(found, dict)
    return int(found["t/0"]["released"])


def test_storage_is_released_up_to_what_is_acknowledged_and_no_further(tmp_path: Path) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path, config=QUICK)
        async with (
            broker,
            connected(broker) as client,
            client.subscribe("t", name="desk") as subscription,
        ):
            first = await client.publish("t", {"i": 0})
            second = await client.publish("t", {"i": 1})
            assert await numbers(subscription, 1) == [0]
            await subscription.acknowledge()
            await wait_until(lambda: released(broker) > first.tick)
            assert released(broker) <= second.tick
            await client.unsubscribe("desk")
            await wait_until(lambda: released(broker) > second.tick)

    run(main())


def test_a_slow_one_falls_behind_and_gets_everything_once(tmp_path: Path) -> None:
    async def main() -> None:
        config = Config(client_queue_max=50)
        async with (
            make_broker(tmp_path, config=config) as broker,
            connected(broker) as client,
            connected(broker) as feeding,
            client.subscribe("t", name="slow") as slow,
            client.subscribe("t", "i > 290", name="picky") as picky,
        ):
            for i in range(0, 300, 10):
                await publish(feeding, *range(i, i + 10))
            await wait_until(lambda: PubendName("t/0") in slow.lags)
            assert await numbers(slow, 300) == list(range(300))
            assert await numbers(picky, 9) == list(range(291, 300))
            await publish(feeding, 300)
            assert await numbers(slow, 1) == await numbers(picky, 1) == [300]

    run(main())


def test_a_second_connection_takes_it_over_and_the_first_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as one,
            connected(broker) as other,
            one.subscribe("t", name="desk") as first,
            other.subscribe("t", name="desk") as second,
        ):
            await publish(one, 0)
            assert await numbers(second, 1) == [0]
            with pytest.raises(SubscriptionInterruptedError, match="taken over"):
                await anext(first)

    run(main())


def test_unsubscribing_ends_it_for_good_and_whoever_is_attached_is_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="desk") as subscription:
                with pytest.raises(RefusedError, match="with condition ''"):
                    async with client.subscribe("t", "i > 1", name="desk"):
                        pass
                await client.unsubscribe("desk")
                with pytest.raises(SubscriptionInterruptedError, match="was ended"):
                    await anext(subscription)
            with pytest.raises(RefusedError, match="no subscription 'desk'"):
                await client.unsubscribe("desk")
            assert broker.subscriptions() == []

    run(main())


def test_named_and_anonymous_ones_of_a_client_live_side_by_side_through_a_restart(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        broker = make_broker(tmp_path)
        await broker.start()
        async with (
            connected(broker) as client,
            client.subscribe("t", name="desk") as desk,
            client.subscribe("t", name="even", condition="i = 2 OR i = 4") as even,
            client.subscribe("t", interruption="gap") as anonymous,
            client.publisher("t", name="feed") as publisher,
        ):
            await publisher.send_many([({"i": i}, b"") for i in range(3)])
            await publisher.flush()
            assert await numbers(desk, 1) == [0]
            await broker.drain()
            async with make_broker(tmp_path) as again:
                await publisher.send_many([({"i": i}, b"") for i in range(3, 6)])
                await publisher.flush()
                assert await numbers(desk, 5) == [1, 2, 3, 4, 5]
                assert await numbers(even, 2) == [2, 4]
                seen: list[object] = []
                while 5 not in seen:
                    seen += await numbers(anonymous, 1)
                told = any(isinstance(each, Gap) for each in seen)
                assert told or seen == [0, 1, 2, 3, 4, 5], "what it missed, it was told"
                shown = {each["name"]: each["attached"] for each in again.subscriptions()}
                assert shown == {"desk": True, "even": True}

    run(main())


def test_the_next_number_of_a_publisher_is_asked_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            for expected in (0, 2):
                async with client.publisher("t", name="feed") as publisher:
                    assert publisher.sequence == expected
                    await publisher.send_many([({}, b"")] * 2)
            async with client.publisher("t", name="other") as publisher:
                assert publisher.sequence == 0

    run(main())


def test_who_reads_ranges_acknowledges_by_name_and_gets_no_deliveries(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, config=QUICK) as broker, connected(broker) as client:
            async with client.subscribe("t", "i > 0", name="job"):
                pass
            await publish(client, 1, 2, 3)
            batches = [batch async for batch in client.read("t", "i > 0")]
            ticks = [tick for batch in batches for tick in batch.ticks]  # type: ignore[union-attr]
            token = Token({"t/0": ticks[1] + 1})
            await client.acknowledge("job", token)
            await client.acknowledge("job", Token({"t/0": ticks[0]}))  # late: changes nothing
            while (released := (await client.positions("t"))["t/0"][0]) <= ticks[1]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert released <= ticks[2]
            async with client.subscribe("t", "i > 0", name="job") as subscription:
                assert await numbers(subscription, 1) == [3]
            with pytest.raises(RefusedError, match="no subscription 'nobody' of yours"):
                await client.acknowledge("nobody", token)

    run(main())
