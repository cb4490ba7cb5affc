"""A feed goes on from its position, however often it lets go; nothing is lost or comes twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gapless.core.errors import UsageError
from gapless.core.events import Event
from gapless.core.ticks import PUBEND_BITS
from gapless.doors.http import feed as feeds
from gapless.doors.http.feed import Feed
from tests.broker.stage import connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker

COUNT = 600


def subscriptions(broker: Broker) -> int:
    """Live ones, at the broker."""
    machine: Any = broker
    clients = machine._pump.node.connections
    return sum(len(each.subscriptions) for each in clients.values())


@pytest.mark.parametrize("name", [None, "desk"])
@pytest.mark.parametrize("near", [0, 1_000])
def test_a_feed_that_lets_go_again_and_again_hands_everything_out_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str | None, near: int
) -> None:
    """While events are published all the time: at both pubends, and some that do not match."""
    monkeypatch.setattr(feeds, "NEAR_EVENTS", near)

    async def publish(client: Any, publisher: str) -> None:
        async with client.publisher("two", name=publisher) as sender:
            for n in range(COUNT):
                await sender.send({"by": publisher, "n": n, "odd": n % 2})
                if n % 7 == 0:
                    await sender.flush()

    async def main() -> None:
        async with (
            make_broker(tmp_path) as broker,
            connected(broker) as client,
            connected(broker) as other,
        ):
            async with client.subscribe("two", name="keeper"):
                pass
            feed = Feed(other, "two", "odd = 1", name, "latest")
            await feed.open()
            publishing = [asyncio.ensure_future(publish(client, each)) for each in ("a", "b", "c")]
            seen: dict[str, list[int]] = {"a": [], "b": [], "c": []}
            turn = 0
            while sum(map(len, seen.values())) < 3 * COUNT // 2:
                items = await feed.take(0.05)
                assert items is not None
                for item in items[: 1 + turn % 40]:  # the rest is dropped
                    assert isinstance(item, Event)
                    seen[str(item.attributes["by"])].append(int(item.attributes["n"]))
                    feed.advance(item)
                turn += 1
                if len(items) > 1 + (turn - 1) % 40 or turn % 3 == 0:
                    await feed.detach()
            await asyncio.gather(*publishing)
            assert await feed.take(0.01) == []
            await feed.close()
            for numbers in seen.values():
                assert numbers == list(range(1, COUNT, 2))

    run(main())


def test_a_feed_that_has_let_go_holds_nothing_at_the_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            feed = Feed(client, "t", "", None, "latest")
            await feed.open()
            await wait_until(lambda: subscriptions(broker) == 1)
            await feed.detach()
            await wait_until(lambda: subscriptions(broker) == 0)
            assert await feed.take(0.01) == []
            await wait_until(lambda: subscriptions(broker) == 1)
            await feed.close()
            await wait_until(lambda: subscriptions(broker) == 0)

    run(main())


def test_an_anonymous_feed_begins_at_the_oldest_event_that_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            async with client.subscribe("t", name="keeper"):
                pass
            for n in range(5):
                await client.publish("t", {"n": n})
            feed = Feed(client, "t", "n > 1", None, "earliest")
            await feed.open()
            found = await feed.take(1)
            assert [each.attributes["n"] for each in found or () if isinstance(each, Event)] == [
                2, 3, 4,
            ]  # fmt: skip
            await feed.close()

    run(main())


def test_nothing_below_a_token_that_is_ahead_of_the_broker_is_handed_out(tmp_path: Path) -> None:
    """As one of another broker may be, which has heard more."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            receipt = await client.publish("t", {"n": 0})
            ahead = receipt.tick + (100_000 << PUBEND_BITS)  # a tenth of a second
            feed = Feed(client, "t", "", None, f'{{"t/0": {ahead}}}')
            await feed.open()
            assert await feed.take(0.001) == []
            ticks = [(await client.publish("t", {"n": n})).tick for n in range(3)]
            while ticks[-1] < ahead:
                ticks.append((await client.publish("t", {"n": len(ticks)})).tick)
            found: list[int] = []
            while not found:
                found += [each.tick for each in await feed.take(1) or () if isinstance(each, Event)]
            assert found[0] == min(tick for tick in ticks if tick >= ahead)
            await feed.close()

    run(main())


@pytest.mark.parametrize(
    "start", ["yesterday", "{", '{"x/0": 1}', '{"t/0": -1}', f'{{"t/0": {1 << 62}}}']
)
def test_what_is_no_start_is_refused(tmp_path: Path, start: str) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(UsageError):
                await Feed(client, "t", "", None, start).open()

    run(main())
