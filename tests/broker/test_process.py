"""Real broker processes on loopback: stopped in order, at once, and with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from gapless.broker.addresses import read_addresses
from gapless.client.client import connect
from gapless.core.client_messages import Subscribe, Subscribed
from gapless.core.identity import TopicName
from gapless.core.messages import Hello
from gapless.storage.disk import DiskVolume
from gapless.testing.processes.brokers import Processes
from tests.broker.stage import ONE, ByHand, run, wait_until
from tests.children import PROGRAM, child


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


HARMLESS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2)


@pytest.mark.parametrize("number", HARMLESS)
def test_no_signal_but_the_two_that_stop_it_ends_a_broker(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Nothing to reload is no reason to end."""

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            await brokers.start("b")
            brokers.signal("b", number)
            async with connect(brokers.url("b")) as client:
                await client.publish("t", {})
                if number == signal.SIGHUP:
                    await wait_until(
                        lambda: "network and settings are what they were" in brokers.log("b")
                    )
                elif number != signal.SIGPIPE:
                    await wait_until(lambda: "most recent call first" in brokers.log("b"))
                brokers.signal("b", number)
                await client.publish("t", {})
            await brokers.stop("b")
            assert "broker stopped" in brokers.log("b")

    run(main())


def test_a_broker_that_is_told_to_stop_while_it_starts_stops_in_order(tmp_path: Path) -> None:
    """It listens only after the signal, and still says that it stops."""

    async def main() -> None:
        async with Processes(ONE, folder=tmp_path) as brokers:
            starting = asyncio.create_task(brokers.start("b"))
            await wait_until(lambda: "volume opened" in log(brokers))
            process = brokers.running["b"]
            process.send_signal(signal.SIGHUP)
            process.send_signal(signal.SIGTERM)
            await asyncio.gather(starting, return_exceptions=True)  # it may be over by then
            assert await brokers.ended("b") == 0
            assert "broker stopped" in brokers.log("b")

    def log(brokers: Processes) -> str:
        return brokers.log("b") if (tmp_path / "b" / "log").exists() else ""

    run(main())
    assert_closed_in_order(tmp_path / "b")


def assert_closed_in_order(folder: Path) -> None:
    volume = DiskVolume(folder / "volume")
    assert volume.recovery.clean
    volume.close()


IN_A_TERMINAL = """
import pty, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_DFL)
pty.spawn(sys.argv[1:])
"""
"""A program runs in a terminal of its own. SIGHUP is not ignored there, as it is where the tests
themselves run under `nohup`: a broker would inherit that, and outlive its terminal."""


@pytest.mark.parametrize("with_nohup", [False, True])
def test_a_broker_whose_terminal_is_closed_stops_in_order_unless_told_otherwise(
    tmp_path: Path, *, with_nohup: bool
) -> None:
    """As a window does that is closed: the terminal hangs up."""
    nohup = ["nohup"] if with_nohup else []
    options = ("--listen", "127.0.0.1:0", "--admin", "none", "--data", str(tmp_path))
    command = [*nohup, *PROGRAM, "serve", "--topic", "t", "--log-level", "info", *options]
    with child([sys.executable, "-c", IN_A_TERMINAL, *command], cwd=tmp_path) as terminal:

        async def main() -> None:
            await wait_until(lambda: bool(read_addresses(tmp_path / "serve")))
            number = int(read_addresses(tmp_path / "serve")["process"])
            try:
                terminal.kill()
                if with_nohup:
                    async with connect(read_addresses(tmp_path / "serve")["url"]) as client:
                        await client.publish("t", {})
                    os.kill(number, signal.SIGTERM)
                await wait_until(lambda: not is_alive(number))
            finally:  # no child of ours: a broker that does not stop would outlive the test
                if is_alive(number):
                    os.kill(number, signal.SIGKILL)

        run(main())
    assert_closed_in_order(tmp_path / "serve")


def is_alive(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # also while it is read
        return False
    return state != "Z"
