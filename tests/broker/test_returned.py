"""Subscribers return to a real broker after far more than is retained: one gap, then what is kept,
and others are served meanwhile."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.core.token import Token
from tests.broker.stage import connected, make_broker, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.broker import Broker

COUNT, BODY = 3_000, bytes(200)
NAMES = [f"away-{number}" for number in range(5)]


async def come_back(broker: Broker, name: str, start: Token) -> tuple[list[Gap], list[int]]:
    """What a subscription gets from there up to the last event."""
    gaps, numbers = list[Gap](), list[int]()
    async with (
        connected(broker) as client,
        client.subscribe("kept", name=name, start=start) as subscription,
    ):
        async for each in subscription:
            if isinstance(each, Gap):
                gaps.append(each)
            elif isinstance(each, Event):
                numbers.append(int(each.attributes["i"]))
                if numbers[-1] == COUNT - 1:
                    break
    return gaps, numbers


@pytest.mark.parametrize("is_empty", [False, True], ids=["token", "empty"])
def test_those_that_return_have_one_gap_and_nobody_else_waits_for_them(
    tmp_path: Path, is_empty: bool
) -> None:
    async def main() -> None:
        async with make_broker(tmp_path) as broker, connected(broker) as client:
            await client.create_topic("kept", retention_bytes=30_000)
            tokens = {}
            for name in NAMES:
                async with client.subscribe("kept", name=name) as subscription:
                    tokens[name] = subscription.token
            for start in range(0, COUNT, 100):
                events = [({"i": i}, BODY) for i in range(start, start + 100)]
                await client.publish_many("kept", events)
            pubend = broker._pump.node.durable.streams.pubends["kept/0"]  # type: ignore[index]
            size = pubend.release._size
            assert size is not None
            await wait_until(lambda: size.total <= 30_000)
            shown = [Token({}) if is_empty else tokens[name] for name in NAMES]
            returning = asyncio.gather(
                *[come_back(broker, *each) for each in zip(NAMES, shown, strict=True)]
            )
            while not returning.done():
                await client.publish("t", {"i": 0})  # it is answered
                await asyncio.sleep(0)
            for gaps, numbers in returning.result():
                assert len(gaps) == (0 if is_empty else 1)
                assert 0 < len(numbers) < COUNT // 10
                assert numbers == list(range(numbers[0], COUNT))
            statistics = broker.statistics()
            assert statistics["step_times"]["longest_s"] > 0  # type: ignore[index]

    run(main())
