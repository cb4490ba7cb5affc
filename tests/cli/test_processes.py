"""`gapless serve --processes` is one broker for its clients, though it is several processes."""

from __future__ import annotations

import os
import signal
import socket
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

import gapless
from gapless.broker.addresses import read_addresses
from gapless.broker.networks import processes_network
from gapless.cli.processes import Plan
from gapless.core.errors import UsageError
from tests.broker.stage import run, wait_until
from tests.children import PATIENCE_S, PROGRAM, child, rest, told, warned

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

SERVE = (*PROGRAM, "serve", "--admin", "none", "--listen", "127.0.0.1:0", "--topic", "trades")
PUBLISHERS = [f"p{number}" for number in range(6)]  # some of them at either process
EVENTS = 40


def ready(broker: subprocess.Popen[str]) -> str:
    """Where clients connect, once all processes are there."""
    while line := told(broker):
        if line.startswith("broker is ready at "):
            return line.removeprefix("broker is ready at ").partition(",")[0]
    raise AssertionError("it has ended")


async def publish(url: str, first: int) -> None:
    async with gapless.connect(url) as client:
        for name in PUBLISHERS:
            async with client.publisher("trades", name=name) as publisher:
                assert publisher.sequence == first
                await publisher.send_many(
                    ({"publisher": name, "number": first + number}, b"") for number in range(EVENTS)
                )


async def take(subscription: gapless.Subscription, count: int) -> dict[str, list[int]]:
    found = defaultdict[str, list[int]](list)
    for _ in range(count):
        event = await anext(subscription)
        assert isinstance(event, gapless.Event)
        found[str(event.attributes["publisher"])].append(int(event.attributes["number"]))
    return found


def test_a_process_that_is_killed_returns_and_nobody_misses_or_doubles_an_event(
    tmp_path: Path,
) -> None:
    async def main(url: str) -> None:
        clients = [gapless.connect(url) for _ in range(4)]  # the system spreads them
        async with clients[0], clients[1], clients[2], clients[3]:
            subscriptions = [
                client.subscribe("trades", name=f"s{number}", tokens="broker")
                for number, client in enumerate(clients)
            ]
            async with subscriptions[0], subscriptions[1], subscriptions[2], subscriptions[3]:
                for turn in range(3):
                    if turn:
                        before = read_addresses(tmp_path / f"serve-{turn - 1}")
                        os.kill(int(before["process"]), signal.SIGKILL)
                    await publish(url, turn * EVENTS)
                    for each in subscriptions:
                        found = await take(each, EVENTS * len(PUBLISHERS))
                        expected = list(range(turn * EVENTS, (turn + 1) * EVENTS))
                        assert found == dict.fromkeys(PUBLISHERS, expected)

    command = [*SERVE, "--processes", "2", "--data", str(tmp_path)]
    with child(command) as broker:
        run(main(ready(broker)))
        broker.terminate()
        assert broker.wait(PATIENCE_S) == 0
        lines = rest(broker).splitlines()
    assert sum("started again as process" in line for line in lines) == 2
    assert lines[-2:] == ["serve-0 stopped", "serve-1 stopped"]
    assert not list(tmp_path.glob("*/link.sock"))


def test_processes_are_linked_by_sockets_of_this_machine(tmp_path: Path) -> None:
    async def main(url: str) -> None:
        async with gapless.connect(url):
            at = read_addresses(tmp_path / "serve-0")
            assert at["url"] != url  # its own, for redirects
            log = tmp_path / "serve-0" / "log"
            await wait_until(lambda: "link.sock" in log.read_text())

    command = [*SERVE, "--processes", "2", "--data", str(tmp_path), "--log-level", "info"]
    with child(command) as broker:
        run(main(ready(broker)))
        broker.terminate()
        assert broker.wait(PATIENCE_S) == 0


def test_another_number_of_processes_is_refused_and_says_why(tmp_path: Path) -> None:
    Plan("serve", 2, tmp_path, "127.0.0.1:0").keep("127.0.0.1:7117")
    Plan("serve", 2, tmp_path, "127.0.0.1:0").check()
    for number in (1, 3):
        options = ["--data", str(tmp_path), "--processes", str(number)]
        with child([*SERVE, *options]) as broker:
            assert f"made with --processes 2, not {number}: which pubends" in warned(broker)
            assert broker.wait(PATIENCE_S) == 2
    (tmp_path / "old" / "volume").mkdir(parents=True)
    with pytest.raises(UsageError, match="made with --processes 1, not 2"):
        Plan("old", 2, tmp_path, "127.0.0.1:0").check()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--processes", "0"], "0 is no number of processes"),
        (["--processes", "2", "--listen", "0.0.0.0:0"], "nobody can be sent on from 0.0.0.0:0"),
        (["--processes", "2", "--store", "postgresql://x"], "--store is for a broker of one"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, options: list[str], problem: str
) -> None:
    data = tmp_path / "data"
    with child([*SERVE, "--data", str(data), *options]) as broker:
        assert problem in warned(broker)
        assert broker.wait(PATIENCE_S) == 2
    assert not data.exists()


def test_an_address_where_somebody_listens_is_refused(tmp_path: Path) -> None:
    """The system would spread connections over both, if both had allowed it."""
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        at = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UsageError, match="is in use"):
            Plan("serve", 2, tmp_path, at).address()
    assert Plan("serve", 2, tmp_path, at).address() == at


def test_no_process_of_sixteen_is_linked_to_more_than_five() -> None:
    network = processes_network("b", 16, "127.0.0.1", ["t"])
    assert max(len(network.neighbours(cell.name)) for cell in network.cells) == 5
    assert network.topics[0].hosts == tuple(cell.brokers[0].name for cell in network.cells)
