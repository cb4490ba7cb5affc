"""A network whose brokers have a store and standbys: `gapless up` obeys its file."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import read_addresses
from gapless.client.client import connect
from gapless.client.reconnection import ReconnectingChannel
from gapless.core.events import Event
from gapless.testing.processes.postgres import MISSING, REMEDY, PostgresServer, find_programs
from gapless.testing.processes.standby import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("postgres"),
    pytest.mark.skipif(find_programs() is None, reason=f"{MISSING}. {REMEDY}"),
]

FILE = """
[network]
store = "{url}"

[[cell]]
name = "publishers"
links = ["subscribers"]
brokers = [{{ name = "p", listen = "127.0.0.1:{p}", standbys = ["127.0.0.1:{p2}"] }}]

[[cell]]
name = "subscribers"
subscribers = true
brokers = [{{ name = "s", listen = "127.0.0.1:{s}", store = "" }}]

[[topic]]
name = "t"
pubends = ["p"]
"""
GAPLESS = [sys.executable, "-c", "from gapless.cli import main; main()"]
WAIT_S = 120.0


def test_a_broker_of_a_network_is_taken_over_and_its_neighbours_and_clients_find_it(
    tmp_path: Path,
) -> None:
    pytest.importorskip("psycopg")
    from gapless.storage.replica.postgres import init

    ports = {"p": free_port(), "p2": free_port(), "s": free_port()}
    file, data = tmp_path / "network.toml", tmp_path / "data"
    with PostgresServer() as server:
        init(server.url)
        file.write_text(FILE.format(url=server.url, **ports))
        up = [*GAPLESS, "up", str(file), "--data", str(data)]
        with subprocess.Popen(up, stdout=subprocess.DEVNULL) as process:
            try:
                asyncio.run(strike(data, ports))
                shown = subprocess.run(
                    [*GAPLESS, "status", "--data", str(data), "--json"],
                    capture_output=True,
                    check=True,
                )
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
    found = json.loads(shown.stdout)
    assert "store" not in found["s"], "the file says so"
    holders = [each for each in found.values() if isinstance(each, dict) and "store" in each]
    assert len(holders) == 1
    assert holders[0]["store"]["term"] >= 2


async def strike(data: Path, ports: dict[str, int]) -> None:
    """Events flow through the network; the holder of p is killed, and its folder deleted."""
    both = [data / "p", data / "standbys" / "1" / "p"]  # whichever is first holds the name
    await wait_for(lambda: sorted(map(state, both)) == ["holds", "stands by"])
    first = min(both, key=state)
    async with (
        connect(f"gapless://127.0.0.1:{ports['s']}", patience_s=WAIT_S) as reader,
        reader.subscribe("t", name="desk") as subscription,
        connect(read_addresses(first)["url"], patience_s=WAIT_S) as writer,
        writer.publisher("t", name="feed") as publisher,
    ):
        for number in range(100):
            await publisher.send({"n": number})
        await publisher.flush()
        channel = publisher._channel
        assert isinstance(channel, ReconnectingChannel)
        await wait_for(lambda: len(channel.addresses) > 1)  # the broker tells of its standby
        os.kill(int(read_addresses(first)["process"]), signal.SIGKILL)
        shutil.rmtree(first / "volume")
        for number in range(100, 200):
            await publisher.send({"n": number})
        await publisher.flush()
        numbers: list[object] = []
        async for each in subscription:
            assert isinstance(each, Event), each
            numbers.append(each.attributes["n"])
            if len(numbers) == 200:
                break
    assert numbers == list(range(200))
    # The killed process is started again at once, and may win the lease from the one that stood by.
    await wait_for(lambda: sorted(map(state, both)) == ["holds", "stands by"])


def state(folder: Path) -> str:
    told = read_addresses(folder)
    return told.get("state") or ("holds" if "url" in told else "")


async def wait_for(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s
        await asyncio.sleep(0.1)
