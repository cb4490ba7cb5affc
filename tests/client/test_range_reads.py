"""Range reads over real sockets: repeatable, filtered, bounded, and never silent about a loss."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

import gapless
from gapless.client.delivery import Gap
from gapless.client.errors import LostError, RefusedError
from gapless.client.range_reads import RangeBatch, RangeCount
from gapless.core.errors import UsageError
from gapless.core.token import Token
from gapless.node.config import Config
from tests.broker.stage import LINE, connected, make_broker, run
from tests.test_sync import broker_in_a_thread

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.client import Client

CONFIG = Config(range_bytes_max=2_000)


async def hold(client: Client) -> None:
    """A subscription that acknowledges nothing: what is published stays."""
    async with client.subscribe("t", name="holder"):
        pass


async def fill(client: Client, count: int) -> None:
    await hold(client)
    for first in range(0, count, 100):
        events = [({"i": i, "even": i % 2 == 0}, b"x" * 20) for i in range(first, first + 100)]
        await client.publish_many("t", events)


async def read(client: Client, condition: str = "", **options: Any) -> list[object]:
    found: list[object] = []
    async for batch in client.read("t", condition, **options):
        assert isinstance(batch, RangeBatch)
        found += [event.attributes["i"] for event in batch.events()]
    return found


async def counted(client: Client, condition: str, **options: Any) -> list[RangeCount]:
    found = [each async for each in client.count("t", condition, **options)]
    return [each for each in found if isinstance(each, RangeCount)]


def test_events_are_counted_without_being_sent(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, config=CONFIG) as broker, connected(broker) as client:
            await fill(client, 400)
            for condition, stride in (("", 7), ("even", 3), ("", 1)):
                batches = [each async for each in client.read("t", condition)]
                ticks = [t for each in batches if isinstance(each, RangeBatch) for t in each.ticks]
                counts = await counted(client, condition, stride=stride)
                assert len(counts) > 1
                assert sum(each.count for each in counts) == len(ticks)
                found = [tick for each in counts for tick in each.ticks]
                assert found == ticks[stride - 1 :: stride]
            some = await counted(client, "even", limit=50)
            assert sum(each.count for each in some) == 50
            end = Token({"t/0": some[-1].span.end})
            assert await read(client, "even", end=end) == list(range(0, 100, 2))

    run(main())


def test_a_range_is_read_whole_filtered_and_again_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, config=CONFIG) as broker, connected(broker) as client:
            await fill(client, 400)
            positions = await client.positions("t")
            end = Token({name: high for name, (_, high) in positions.items()})
            first = await read(client, "even AND i >= 100", end=end)
            assert first == list(range(100, 400, 2))
            await client.publish("t", {"i": 1_000, "even": True})
            assert client.channel._connection is not None
            client.channel._connection.abort()
            assert await read(client, "even AND i >= 100", end=end) == first
            assert await read(client, "i >= 399", start=end) == [1_000]
            assert await read(client, limit=7) == list(range(7))
            assert await read(client, "even", limit=3) == [0, 2, 4]
            assert await read(client, limit=0) == []
            assert await read(client, start=end, end=end) == []

    run(main())


def test_a_range_is_read_through_any_broker_of_the_network(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            brokers = {
                name: await stack.enter_async_context(make_broker(tmp_path, LINE, name))
                for name in ("p", "r1", "r2", "s", "o")
            }
            async with connected(brokers["s"]) as client:
                await fill(client, 200)
                positions = await client.positions("t")
            end = Token({name: high for name, (_, high) in positions.items()})
            for broker in brokers.values():
                async with connected(broker) as client:
                    assert await read(client, "i < 5", end=end) == [0, 1, 2, 3, 4]
                    assert (await client.read_arrow("t", end=end)).num_rows == 200

    run(main())


def test_who_stops_in_the_middle_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path, config=CONFIG) as broker, connected(broker) as client:
            await fill(client, 200)
            async for batch in client.read("t"):
                assert len(batch)
                break
            assert not client.channel._answers
            assert len(await read(client)) == 200

    run(main())


def test_what_was_released_raises_or_is_told_in_its_place(tmp_path: Path) -> None:
    async def main() -> None:
        config = Config(range_bytes_max=2_000, release_delay=1_000)
        async with make_broker(tmp_path, config=config) as broker, connected(broker) as client:
            start = Token(dict.fromkeys(await client.positions("t"), 1))
            async with client.subscribe("t", name="reader") as subscription:
                for i in range(3):
                    await client.publish("t", {"i": i})
                    await anext(subscription)
                await subscription.acknowledge()
            await client.publish("t", {"i": 9})
            pubend = subscription.token
            while any(
                low < pubend.get(name)
                for name, (low, _) in (await client.positions("t")).items()
                if pubend.get(name)
            ):
                pass
            with pytest.raises(LostError, match="was released"):
                await read(client, start=start)
            items = [item async for item in client.read("t", start=start, gaps="yield")]
            assert isinstance(items[0], Gap)
            rest = [item for item in items if isinstance(item, RangeBatch)]
            assert [e.attributes["i"] for batch in rest for e in batch.events()] == [9]
            assert await read(client) == [9]

    run(main())


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(UsageError, match="limit is out of range"):
                await read(client, limit=-1)
            with pytest.raises(RefusedError, match="has no pubend"):
                await read(client, pubends=["t/99"])
            ahead = Token(dict.fromkeys(await client.positions("t"), 1 << 62))
            with pytest.raises(UsageError, match="settled"):
                await read(client, end=ahead)
            with pytest.raises(UsageError, match=f"settled up to .* and not up to {1 << 62}"):
                await read(client, start=ahead)
            with pytest.raises(RefusedError, match="no topic"):
                await client.positions("nothing")

    run(main())


@pytest.mark.parametrize("which", ["start", "end"])
def test_a_token_of_another_topic_is_refused_and_names_what_is_wrong(
    tmp_path: Path, which: str
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await fill(client, 100)
            token: dict[str, Any] = {which: Token({"two/0": 1, "t/0": 1})}
            with pytest.raises(UsageError, match=r"'two/0', which topic 't' does not have: it has"):
                await read(client, **token)
            with pytest.raises(UsageError, match="'two/0', which topic 't' does not have"):
                await read(client, pubends=["t/0"], **token)
            both = Token({"two/0": 1, "two/1": 1})  # of which one is to be read
            ends = Token({name: end for name, (_, end) in (await client.positions("two")).items()})
            start, end = (both, None) if which == "start" else (None, ends)
            read_in = client.read("two", pubends=["two/0"], start=start, end=end)
            assert [batch async for batch in read_in]

    run(main())


def test_the_same_without_an_event_loop(tmp_path: Path) -> None:
    with broker_in_a_thread(tmp_path) as url, gapless.sync.connect(url) as client:
        with client.subscribe("t", name="holder"):
            pass
        client.publish_many("t", [({"i": i}, b"") for i in range(5)])
        batches = [batch for batch in client.read("t", "i > 1") if isinstance(batch, RangeBatch)]
        assert [e.attributes["i"] for batch in batches for e in batch.events()] == [2, 3, 4]
        assert client.read_arrow("t", limit=2).num_rows == 2
        assert set(client.positions("t")) >= {batch.pubend for batch in batches}
