"""A broker whose clock was once beyond the end of time: it starts, serves, and says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.broker import clock
from gapless.client.errors import RefusedError
from gapless.core.effects import Put
from gapless.core.events import Event
from gapless.core.identity import Instant
from gapless.core.ticks import INSTANT_MAX, PUBEND_BITS
from gapless.knowledge.pubend import PROMISES
from gapless.storage.disk import DiskVolume
from tests.broker.stage import connected, make_broker, run

if TYPE_CHECKING:
    from pathlib import Path

YEAR = 365 * 24 * 3_600 * 1_000_000


def test_a_broker_starts_where_silence_was_promised_up_to_the_end_of_time(tmp_path: Path) -> None:
    """As an earlier version has left it: one topic is over, all others are as they were."""

    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.publish("t", {"i": 1})
            await client.publish("two", {"i": 1})
        volume = DiskVolume(tmp_path / "b" / "volume")
        promise = (INSTANT_MAX << PUBEND_BITS) + (1_000_000 << PUBEND_BITS)
        volume.commit([Put(PROMISES, "t/0", promise.to_bytes(8, "little"))])
        volume.close()
        for _ in range(2):
            async with make_broker(tmp_path) as broker, connected(broker) as client:
                with pytest.raises(RefusedError, match=r"no ticks are left.*create it anew"):
                    await client.publish("t", {"i": 2})
                assert sum([len(batch) async for batch in client.read("t")]) == 1
                async with client.subscribe("two") as subscription:
                    await client.publish("two", {"i": 2})
                    assert isinstance(await anext(subscription), Event)

    run(main())


def test_a_clock_that_is_set_right_again_leaves_a_broker_as_good_as_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        right = clock.read
        for ahead in (0, 300 * YEAR, 0, 0):
            monkeypatch.setattr(clock, "read", lambda ahead=ahead: Instant(right() + ahead))
            async with (
                make_broker(tmp_path) as broker,
                connected(broker) as client,
                client.subscribe("t", name="mine", tokens="broker") as subscription,
            ):
                await client.publish("t", {"ahead": ahead})
                item = await anext(subscription)
                assert isinstance(item, Event)
                assert item.attributes["ahead"] == ahead
                await subscription.acknowledge()

    run(main())
