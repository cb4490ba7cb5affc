"""Whoever takes a publisher's name over begins at a number that no crash takes back."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import ONE, run

if TYPE_CHECKING:
    from pathlib import Path

ROUNDS, EVENTS, BODY = 8, 3_000, b"x" * 500


def test_a_broker_killed_right_after_it_told_the_number_knows_at_least_that(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            for number in range(ROUNDS):
                async with AsyncExitStack() as stack:
                    first = await stack.enter_async_context(connect(brokers.url("b")))
                    second = await stack.enter_async_context(connect(brokers.url("b")))
                    old, new = (each.publisher("t", name="feed") for each in (first, second))
                    await old.__aenter__()
                    await old.send_many([({"i": number}, BODY)] * EVENTS)  # and no flush
                    await new.__aenter__()
                    told = new.sequence
                    brokers.kill("b")
                    await brokers.start("b")
                    third = await stack.enter_async_context(connect(brokers.url("b")))
                    async with third.publisher("t", name="feed") as publisher:
                        assert publisher.sequence >= told, "who began there would wait for ever"
                        with pytest.raises(RefusedError, match="'feed' was taken over"):
                            await old.flush()
                        assert old.confirmed <= told
                        await publisher.send({"i": number})

    run(main())
