"""A holder and its standby as real processes, with a real PostgreSQL, under load."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING

import pytest

from gapless.broker.lease import StoreOptions
from gapless.client.channel import ConnectionChange
from gapless.client.client import connect
from gapless.testing.processes.postgres import MISSING, REMEDY, PostgresServer, find_programs
from gapless.testing.processes.standby import BLOWS, TOPIC, Pair, soak

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(find_programs() is None, reason=f"{MISSING}. {REMEDY}"),
]


def test_whatever_strikes_the_holder_or_the_store_every_event_comes_once(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer() as server:
        init(server.url)
        with Pair(server.url, tmp_path) as pair:
            load = asyncio.run(soak(BLOWS, pair, server))
            state = pair.state()
    assert load.verdict() == ""
    assert load.sent > 0
    assert state is not None
    assert state.term >= 1 + len(BLOWS) - 1, "each blow but perhaps that at the store"


def test_a_standby_that_is_told_to_read_its_files_anew_goes_on_standing_by(tmp_path: Path) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer() as server:
        init(server.url)
        with Pair(server.url, tmp_path) as pair:
            pair.start(0)
            wait_for("is ready", pair, 0)
            pair.start(1)
            wait_for("stands by", pair, 1)
            pair.signal(1, signal.SIGHUP)
            pair.signal(0, signal.SIGTERM)
            wait_for("is ready", pair, 1)


def test_while_the_store_is_gone_a_subscriber_gets_what_is_settled_and_a_publisher_learns_why(
    tmp_path: Path,
) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    with PostgresServer() as server:
        init(server.url)
        with Pair(server.url, tmp_path) as pair:
            pair.start(0)
            asyncio.run(read_while_the_store_is_gone(pair, server))


async def read_while_the_store_is_gone(pair: Pair, server: PostgresServer) -> None:
    count, numbers, changes = 40_000, list[int](), list[ConnectionChange]()
    async with connect(pair.url, patience_s=60) as client:
        async with client.subscribe(TOPIC, name="desk"):
            pass
        async with client.publisher(TOPIC, name="feed") as publisher:
            for first in range(0, count, 1_000):
                await publisher.send_many([({"n": n}, b"") for n in range(first, first + 1_000)])
        async with (
            connect(pair.url, patience_s=60) as slow,
            connect(pair.url, patience_s=60, on_change=changes.append) as other,
            slow.subscribe(TOPIC, name="desk") as subscription,
            other.publisher(TOPIC, name="late") as late,
        ):
            await late.send({"n": count}, b"")
            await late.flush()
            await asyncio.to_thread(server.kill)
            began_s = time.monotonic()
            await late.send({"n": count + 1}, b"")
            async for each in subscription:
                numbers.append(int(str(each.attributes["n"])))  # type: ignore[union-attr]
                if len(numbers) % 100 == 0:
                    await asyncio.sleep(0.02)
                if len(numbers) == count + 1:
                    break
            assert time.monotonic() - began_s > 2 * StoreOptions.lease_s, (
                "it read on without a lease"
            )
            assert any("its store cannot be reached" in each.reason for each in changes)
            assert late.confirmed == 1
            await asyncio.to_thread(server.start)
            await late.flush()
            async for each in subscription:
                numbers.append(int(str(each.attributes["n"])))  # type: ignore[union-attr]
                break
    assert numbers == list(range(count + 2))


def wait_for(text: str, pair: Pair, side: int) -> None:
    end_s = time.monotonic() + 60
    while text not in pair.log(side):
        assert time.monotonic() < end_s, pair.log(side)
        time.sleep(0.05)
