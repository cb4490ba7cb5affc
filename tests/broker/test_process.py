"""Real broker processes on loopback: stopped in order, at once, and with their parent."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

from gapless.cli.real.processes import Processes
from gapless.client.client import connect
from gapless.core.client_messages import Subscribe, Subscribed
from gapless.core.identity import TopicName
from gapless.core.messages import Hello
from gapless.storage.disk import DiskVolume
from tests.broker.stage import ONE, ByHand, run, wait_until

if TYPE_CHECKING:
    from pathlib import Path


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
