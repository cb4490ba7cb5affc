"""A topic keeps a minimum for everybody, and its settings change while it is in use."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from gapless.client.errors import RefusedError
from gapless.core.errors import UsageError
from tests.broker.stage import connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.client import Client


async def numbers(client: Client, count: int) -> list[object]:
    """What a subscription that begins now with the oldest event gets."""
    found: list[object] = []
    async with client.subscribe("kept", name="late", start="earliest") as subscription:
        async for each in subscription:
            found.append(each.attributes["i"])  # type: ignore[union-attr]  # nothing is lost
            if len(found) == count:
                break
    await client.unsubscribe("late")
    return found


def test_a_topic_keeps_events_that_nobody_subscribed_to_until_it_is_altered(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("kept", keep_seconds=3_600)
            receipts = await client.publish_many("kept", [({"i": i}, b"") for i in range(5)])
            assert await numbers(client, 5) == [0, 1, 2, 3, 4]
            assert await numbers(client, 5) == [0, 1, 2, 3, 4]  # though one has had them
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            assert await numbers(client, 5) == [0, 1, 2, 3, 4]
            await client.alter_topic("kept", keep_seconds=None, keep_bytes=1)
            await client.publish("kept", {"i": 5})
            (found,) = [each for each in await client.topics() if each.name == "kept"]
            assert (found.keep_seconds, found.keep_bytes) == (None, 1)
            pubends = broker._pump.node.durable.streams.pubends
            (release,) = [each.release for name, each in pubends.items() if "kept" in name]
            await wait_until(lambda: release.chop_end > receipts[-1].tick)
            assert await numbers(client, 1) == [5]

    run(main())


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            with pytest.raises(RefusedError, match="is a contradiction"):
                await client.create_topic("kept", keep_seconds=10, retention_seconds=5)
            await client.create_topic("kept", retention_seconds=5)
            with pytest.raises(RefusedError, match="is a contradiction"):
                await client.alter_topic("kept", keep_seconds=10)
            await client.alter_topic("kept", keep_seconds=10, retention_seconds=None)
            with pytest.raises(RefusedError, match=r"exists, but otherwise: .*keeps 10 s"):
                await client.create_topic("kept")
            with pytest.raises(RefusedError, match="there is no topic 'none'"):
                await client.alter_topic("none", keep_seconds=10)
            with pytest.raises(RefusedError, match="network file"):
                await client.alter_topic("t", keep_seconds=10)
            with pytest.raises(UsageError, match="nothing is to be changed"):
                await client.alter_topic("kept")

    run(main())


def test_a_publisher_is_told_once_that_nobody_gets_its_events(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("kept", keep_seconds=10)
            await client.publish("kept", {})
            async with client.subscribe("two"):
                await client.publish("two", {})
            assert not [each for each in caplog.records if "keeps nothing" in each.getMessage()]
            for _ in range(3):
                await client.publish("t", {})
            async with client.publisher("t", name="feed") as publisher:
                await publisher.send({})
                await publisher.flush()
                await publisher.send({})

    with caplog.at_level(logging.WARNING, "gapless.client"):
        run(main())
    told = [each for each in caplog.records if "keeps nothing" in each.getMessage()]
    assert len(told) == 2  # the client, and its publisher


def test_a_commit_that_nobody_gets_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("nobody's")
            for topic in ("nobody's", "kept"):
                if topic == "kept":
                    await client.create_topic("kept", keep_seconds=10)
                async with client.stage(topic, producer="query", id=0, part="p") as stager:
                    await stager.send({})
                await client.commit(topic, producer="query", id=0, parts={"p": 1})

    with caplog.at_level(logging.WARNING, "gapless.client"):
        run(main())
    told = [each.getMessage() for each in caplog.records if "keeps nothing" in each.getMessage()]
    assert len(told) == 1
    assert "nobody's" in told[0]
