"""Brokers of one process: their transports, and a network that is one process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from gapless.broker.addresses import read_addresses
from gapless.broker.near import HIGH_BYTES, connect
from gapless.client.client import connect as connect_client
from gapless.core.events import Event
from tests.broker.stage import run

if TYPE_CHECKING:
    from pathlib import Path

    from gapless.broker.near import NearTransport

GAPLESS = [sys.executable, "-c", "from gapless.cli import main; main()"]
NAMES = ("p", "m1", "m2", "s")
FILE = """
[[cell]]
name = "publishers"
links = ["relays"]
brokers = [{ name = "p", listen = "127.0.0.1:0", process = "all" }]

[[cell]]
name = "relays"
links = ["subscribers"]
brokers = [
  { name = "m1", listen = "127.0.0.1:0", process = "all" },
  { name = "m2", listen = "127.0.0.1:0", process = "all" },
]

[[cell]]
name = "subscribers"
subscribers = true
brokers = [{ name = "s", listen = "127.0.0.1:0", process = "all" }]

[[topic]]
name = "t"
pubends = ["p"]
"""
WAIT_S = 60.0


class End(asyncio.Protocol):
    """Notes what its transport tells it."""

    transport: NearTransport

    def __init__(self) -> None:
        self.got = b""
        self.told: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        assert "lost" not in self.told
        self.got += data

    def pause_writing(self) -> None:
        self.told.append("full")

    def resume_writing(self) -> None:
        self.told.append("room")

    def connection_lost(self, _: Exception | None) -> None:
        self.told.append("lost")


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_bytes_arrive_in_order_in_a_later_turn() -> None:
    async def main() -> None:
        connect(one := End(), other := End())
        buffer = bytearray(b"abc")
        one.transport.write(buffer)
        buffer[:] = b"xyz"  # it may be used again at once
        one.transport.writelines([b"d", memoryview(b"ef")])
        assert other.got == b"", "never inside the call"
        await turns()
        assert other.got == b"abcdef"
        other.transport.write(b"back")
        await turns()
        assert one.got == b"back"

    run(main())


def test_a_reader_that_pauses_fills_the_writer() -> None:
    async def main() -> None:
        connect(one := End(), other := End())
        other.transport.pause_reading()
        one.transport.write(b"x" * (HIGH_BYTES + 1))
        await turns()
        assert (other.got, one.told) == (b"", ["full"])
        assert one.transport.get_write_buffer_size() == HIGH_BYTES + 1
        other.transport.resume_reading()
        await turns()
        assert (len(other.got), one.told) == (HIGH_BYTES + 1, ["full", "room"])
        assert one.transport.get_write_buffer_size() == 0

    run(main())


def test_close_lets_the_other_end_read_the_rest_and_abort_does_not() -> None:
    async def main() -> None:
        for ends, rest in (("close", b"rest"), ("abort", b"")):
            connect(one := End(), other := End())
            one.transport.write(b"rest")
            getattr(one.transport, ends)()
            one.transport.write(b"more")
            other.transport.write(b"nobody reads it")
            await turns()
            assert (other.got, other.told, one.got, one.told) == (rest, ["lost"], b"", ["lost"])
            one.transport.close()  # fine to repeat

    run(main())


@pytest.mark.slow
def test_a_network_in_one_process_goes_on_after_a_kill(tmp_path: Path) -> None:
    file, data = tmp_path / "network.toml", tmp_path / "data"
    file.write_text(FILE)
    up = [*GAPLESS, "up", str(file), "--data", str(data)]
    with subprocess.Popen(up, stdout=subprocess.PIPE, text=True) as process:
        try:
            asyncio.run(asyncio.wait_for(strike(data), WAIT_S))
        finally:
            process.send_signal(signal.SIGTERM)
            said, _ = process.communicate()
    assert said.count("is ready at") == 2 * len(NAMES)
    assert said.count("p, m1, m2, s stopped") == 1
    log = (data / "p" / "log").read_text()
    assert 'address="this process"' in log, "its brokers are linked without sockets"
    assert "broken" not in log


async def strike(data: Path) -> None:
    """Events flow through all four brokers; their process is killed in between."""
    first = await process_of_all(data, 0)
    reading = connect_client(read_addresses(data / "s")["url"], patience_s=WAIT_S)
    writing = connect_client(read_addresses(data / "p")["url"], patience_s=WAIT_S)
    async with (
        reading as reader,
        reader.subscribe("t", "n <> 7", name="desk") as subscription,
        writing as writer,
        writer.publisher("t", name="feed") as publisher,
    ):
        for number in range(100):
            await publisher.send({"n": number})
        await publisher.flush()
        os.kill(first, signal.SIGKILL)
        for number in range(100, 200):
            await publisher.send({"n": number})
        await publisher.flush()
        numbers: list[object] = []
        while len(numbers) < 199:
            event = await anext(subscription)
            assert isinstance(event, Event)
            numbers.append(event.attributes["n"])
    assert numbers == [each for each in range(200) if each != 7]
    await process_of_all(data, first)


async def process_of_all(data: Path, last: int) -> int:
    """The one process of all brokers, once it is another than the last."""
    end_s = time.monotonic() + WAIT_S
    while True:
        found = {read_addresses(data / name).get("process", "0") for name in NAMES}
        if len(found) == 1 and int(next(iter(found))) not in (0, last):
            return int(found.pop())
        assert time.monotonic() < end_s
        await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("p", "s", "--listen", "127.0.0.1:0"), "are for one broker"),
        (("p", "nobody"), "the network has no broker 'nobody'"),
    ],
)
def test_what_cannot_share_a_process_is_refused(
    tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    file = tmp_path / "network.toml"
    file.write_text(FILE)
    done = subprocess.run(
        [*GAPLESS, "broker", str(file), *arguments, "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert problem in done.stderr
