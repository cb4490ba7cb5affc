"""Transactions at real brokers that are killed: while they are staged, committed, and copied."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from gapless.client.client import connect
from gapless.core.events import Event
from gapless.knowledge.receipts import STEP
from gapless.testing.processes.brokers import Processes
from gapless.wire.events import encode_event
from tests.broker.stage import ONE, run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.client import Client
    from gapless.client.transaction import CommitReceipt

EVENTS, BODY = 20_000, b"x" * 100
"""Several messages to stage, and several writes to copy."""


async def transact(client: Client, number: int) -> CommitReceipt:
    """Stage in two parts on one connection, and commit, whatever happens to the broker."""
    events = [encode_event({"i": number * EVENTS + each}, BODY) for each in range(EVENTS)]
    parts: dict[str, int] = {}
    for some in (events[: EVENTS // 3], events[EVENTS // 3 :]):
        async with client.stage("t", producer="job", id=number) as stager:
            await stager.send_encoded(some)
        parts[stager.part] = stager.count
    return await client.commit("t", producer="job", id=number, parts=parts)


def test_a_broker_killed_at_any_moment_of_a_transaction_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    dice = random.Random(7)

    async def strike(brokers: Processes, busy: asyncio.Task[CommitReceipt], after_s: float) -> None:
        await asyncio.wait({busy}, timeout=after_s)
        brokers.kill("b")
        await brokers.start("b")

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            async with (
                connect(brokers.url("b")) as client,
                connect(brokers.url("b")) as other,
                other.subscribe("t", name="desk") as subscription,
            ):
                receipts = []
                for number, latest_s in enumerate((0.4, 0.4, 60.0, 60.0)):
                    busy = asyncio.create_task(transact(client, number))
                    await strike(brokers, busy, dice.random() * latest_s)
                    receipts.append(await busy)
                    assert await client.last_committed("t", producer="job") == number
                found = [await anext(subscription) for _ in range(len(receipts) * EVENTS)]
                await client.publish("t", {"i": -1})
                last = await anext(subscription)
        events = [each for each in (*found, last) if isinstance(each, Event)]
        assert [each.attributes["i"] for each in events] == [*range(len(found)), -1]
        assert [each.count for each in receipts] == [EVENTS] * len(receipts)
        ticks = [each.tick for each in events]
        for number, receipt in enumerate(receipts):
            first = receipt.first_tick
            own = ticks[number * EVENTS : (number + 1) * EVENTS]
            assert own == list(range(first, first + EVENTS * STEP, STEP))

    run(main())
