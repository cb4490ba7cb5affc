"""Real broker processes on loopback: killed, stopped, and asked what their clients saw."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import pytest

from gapless.cli.real.processes import Processes
from gapless.client.client import connect
from gapless.client.delivery import Gap
from gapless.core.client_messages import Subscribe, Subscribed
from gapless.core.events import Event
from gapless.core.identity import TopicName
from gapless.core.messages import Hello
from gapless.storage.disk import DiskVolume
from tests.broker.stage import LINE, ONE, ByHand, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription

VICTIMS = ("r1", "p", "s", "r2", "p")
"""A relay, the publishers' broker, a subscribers' broker, the other relay, and once more."""


class Reader:
    """Keeps all that a subscription hands out."""

    def __init__(self, subscription: Subscription) -> None:
        self.events: list[Event] = []
        self.gaps: list[Gap] = []
        self.task = asyncio.create_task(self._read(subscription))

    async def _read(self, subscription: Subscription) -> None:
        async for item in subscription:
            if isinstance(item, Gap):
                self.gaps.append(item)
            elif isinstance(item, Event):
                self.events.append(item)

    @property
    def numbers(self) -> list[int]:
        return [int(event.attributes["i"]) for event in self.events]

    def has_seen(self, number: int) -> bool:
        if self.task.done():
            self.task.result()
        return bool(self.events) and int(self.events[-1].attributes["i"]) >= number


async def publish_on(publisher: Publisher, stop: asyncio.Event, count: int = 20) -> None:
    """Publish all the time, at most `count` every 5 ms, until told to stop."""
    while not stop.is_set():
        for _ in range(count):
            await publisher.send({"i": publisher.sequence}, b"x" * 200)
        await asyncio.sleep(0.005)
    await publisher.flush()


@pytest.mark.slow
def test_brokers_of_every_role_are_killed_under_load_and_nothing_is_lost_or_doubled(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with Processes(LINE, folder=tmp_path) as brokers:
            await brokers.start("p", "r1", "r2", "s", "o")
            async with (
                connect(brokers.url("p")) as publishing,
                connect(brokers.url("s")) as subscribing,
                connect(brokers.url("o")) as watching,
                subscribing.subscribe("t", interruption="gap") as shaken,
                watching.subscribe("t") as steady,
                publishing.publisher("t", name="feed") as publisher,
            ):
                stop, reference, tested = asyncio.Event(), Reader(steady), Reader(shaken)
                load = asyncio.create_task(publish_on(publisher, stop))
                await wait_until(lambda: tested.has_seen(500) and reference.has_seen(500))
                for victim in VICTIMS:
                    brokers.kill(victim)
                    await brokers.start(victim)
                    number = publisher.sequence + 500
                    await wait_until(
                        lambda n=number: tested.has_seen(n) and reference.has_seen(n)  # type: ignore[misc]
                    )
                stop.set()
                await load
                last = publisher.sequence - 1
                await wait_until(lambda: tested.has_seen(last) and reference.has_seen(last))
                for reader in (tested, reference):
                    reader.task.cancel()
            assert reference.numbers == list(range(last + 1)), "once, in order, gapless"
            assert len(tested.gaps) == VICTIMS.count("s"), "only its own broker's death is a gap"
            missed = {
                event.attributes["i"]
                for event in reference.events
                if any(event.tick in gap.span for gap in tested.gaps)
            }
            assert tested.numbers == [i for i in range(last + 1) if i not in missed]

    run(main())


def test_sigterm_stops_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            async with connect(brokers.url("b")) as client:
                await client.publish("t", {})
                brokers.signal("b", signal.SIGTERM)
                assert await brokers.ended("b") == 0
            assert "broker stopped" in brokers.log("b")

    run(main())
    volume = DiskVolume(tmp_path / "b" / "volume")
    assert volume.recovery.clean
    volume.close()


def test_a_second_signal_stops_at_once(tmp_path: Path) -> None:
    """The first waits for a subscriber that does not read."""

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            host, port = brokers.url("b").removeprefix("gapless://").split(":")
            deaf = ByHand(*await asyncio.open_connection(host, int(port)))
            deaf.send(Hello(), Subscribe(TopicName("t"), 1, 1))
            await deaf.read_until(Subscribed)
            deaf.stop_reading()
            async with connect(brokers.url("b")) as client:
                for _ in range(40):
                    await client.publish_many("t", [({}, b"x" * 250_000)])
            brokers.signal("b", signal.SIGINT)
            await wait_until(lambda: "draining" in brokers.log("b"))
            brokers.signal("b", signal.SIGTERM)
            assert await brokers.ended("b") == 1
            assert "stopped at once" in brokers.log("b")
            await deaf.close()

    run(main())


def test_a_broker_whose_parent_is_gone_stops(tmp_path: Path) -> None:
    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            stdin = brokers.running["b"].stdin
            assert stdin is not None
            stdin.close()
            assert await brokers.ended("b") == 0

    run(main())
