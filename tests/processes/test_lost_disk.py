"""The disk of a broker that hosts a pubend is lost: who was owed events of it is told so."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.events import Event
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import LINE, run

if TYPE_CHECKING:
    from pathlib import Path

ALL = ("p", "r1", "r2", "s", "o")
CONDITION = "i >= 0"


@pytest.mark.slow
def test_events_that_were_lost_with_the_disk_of_their_host_are_told_as_a_gap(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start(*ALL)
            async with connect(brokers.url("p")) as host, connect(brokers.url("s")) as client:
                async with client.subscribe("t", CONDITION, name="desk") as desk:
                    await host.publish("t", {"i": 0})
                    assert isinstance(await anext(desk), Event)
                    token = desk.token
                async with client.subscribe("t", name="witness") as witness:
                    first = await host.publish("t", {"i": 1})
                    await host.publish("t", {"i": -1})
                    last = await host.publish("t", {"i": 2})
                    assert [await anext(witness) for _ in range(3)]
                    await witness.acknowledge()  # durable after the note who takes what at s
            brokers.kill(*ALL)
            shutil.rmtree(tmp_path / "p")
            await brokers.start(*ALL)
            async with connect(brokers.url("s")) as client:
                again = client.subscribe("t", CONDITION, name="desk", start=token)
                async with again as desk:
                    gap = await anext(desk)
                    assert isinstance(gap, Gap)
                    assert gap.span.start <= first.tick
                    assert gap.span.end > last.tick

    run(main())


@pytest.mark.slow
def test_who_stayed_gets_what_a_host_publishes_right_after_it_lost_its_disk(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start(*ALL)
            async with (
                connect(brokers.url("s")) as client,
                client.subscribe("t", CONDITION) as stayed,
            ):
                brokers.kill("p")
                shutil.rmtree(tmp_path / "p")
                await brokers.start("p")
                async with connect(brokers.url("p")) as host:
                    for number in range(20):
                        await host.publish("t", {"i": number})
                        event = await anext(stayed)
                        if not number:
                            assert isinstance(event, Gap), "what it may have missed"
                            event = await anext(stayed)
                        assert isinstance(event, Event)
                        assert event.attributes["i"] == number

    run(main())
