"""Topics against real processes: what a client was told survives kill -9 of the broker it asked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import gapless
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import LINE, run
from tests.children import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = LINE.split("[[topic]]", maxsplit=1)[0]


def test_a_topic_survives_its_owner_and_is_published_to_through_another_broker(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(NETWORK, folder=tmp_path) as town:
            await town.start("p", "r1", "s", "o")  # where the name may be registered
            async with gapless.connect(town.url("s"), patience_s=PATIENCE_S) as client:
                await client.create_topic("kept")
                await client.create_topic("gone")
                await asyncio.to_thread(town.kill, "p")
                await town.start("p")
                await client.delete_topic("gone")
                async with client.subscribe("kept", name="desk") as subscription:
                    await client.publish("kept", {"i": 1})
                    await asyncio.to_thread(town.kill, "s")
                    await town.start("s")
                    got = await anext(subscription)
                assert isinstance(got, Event)
                assert got.attributes == {"i": 1}
                assert [each.name for each in await client.topics()] == ["kept"]

    run(main())


def test_who_subscribes_at_a_broker_without_subscribers_is_served_by_one_that_has_them(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as town:
            await town.start("p", "r1", "s", "o")
            async with (
                gapless.connect(town.url("p"), patience_s=PATIENCE_S) as client,
                client.subscribe("t") as anonymous,
                client.subscribe("t", name="desk") as desk,
            ):
                await client.publish("t", {"i": 1})
                for subscription in (anonymous, desk):
                    got = await anext(subscription)
                    assert isinstance(got, Event)
                    assert got.attributes == {"i": 1}

    run(main())
