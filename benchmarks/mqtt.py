"""The MQTT door beside Mosquitto: deliveries a second with a fan-out, of QoS 0 and 1.

Mosquitto takes part where it is installed, or where MOSQUITTO names it. It does not sync; the door
answers QoS 1 after a sync. Clients speak packets by hand in this process and take turns between
the contestants in short rounds; a figure is the median over rounds.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.doors.mqtt.packets import (
    ConnectPacket,
    Kind,
    PublishPacket,
    SubscribePacket,
    TopicFilter,
    encode,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

PAYLOAD = b"x" * 64
WINDOW = 20
ROUNDS = 5


@contextmanager
def door(folder: Path) -> Iterator[tuple[int, int]]:
    """Port and process id."""
    places = ["--listen", "127.0.0.1:0", "--admin", "none", "--mqtt", "127.0.0.1:0"]
    program = [sys.executable, "-c", "from gapless.cli import main; main()"]
    command = [*program, "serve", *places, "--data", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().rsplit(":", 1)[1]), process.pid
        finally:
            process.kill()


@contextmanager
def mosquitto(program: str) -> Iterator[tuple[int, int]]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    with subprocess.Popen(
        [program, "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield port, process.pid
        finally:
            process.kill()


class Client:
    """A client that answers QoS 1 and counts messages and answers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.count = 0

    @classmethod
    async def join(cls, port: int, name: str, filter_text: str = "", qos: int = 0) -> Client:
        made = cls(*await asyncio.open_connection("127.0.0.1", port))
        made.writer.write(encode(ConnectPacket(4, name, True, 0), 4))
        await made.reader.readexactly(4)
        if filter_text:
            wish = SubscribePacket(1, (TopicFilter(filter_text, qos),))
            made.writer.write(encode(wish, 4))
            await made.reader.readexactly(5)
        return made

    async def take(self, total: int, permits: asyncio.Semaphore | None = None) -> None:
        """Read until so many messages, or answers, have come; all packets here are short."""
        rest = b""
        while self.count < total:
            data = await self.reader.read(1 << 16)
            assert data, "the connection ended"
            rest += data
            at, answers = 0, []
            while len(rest) - at >= 2 and len(rest) - at >= 2 + rest[at + 1]:
                first, size = rest[at], rest[at + 1]
                if first >> 4 == Kind.PUBLISH:
                    self.count += 1
                    if first & 6:
                        place = at + 4 + (rest[at + 2] << 8 | rest[at + 3])
                        answers.append(b"\x40\x02" + rest[place : place + 2])
                elif first >> 4 == Kind.PUBACK:
                    self.count += 1
                    if permits is not None:
                        permits.release()
                at += 2 + size
            rest = rest[at:]
            if answers:
                self.writer.write(b"".join(answers))


def cpu_s(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    port: int, process: int, qos: int, fan_out: int, count: int
) -> tuple[float, float]:
    """Deliveries a second, and microseconds of the server's CPU for each."""
    takers = [await Client.join(port, f"r{n}", "bench/#", qos) for n in range(fan_out)]
    sender = await Client.join(port, "s")
    permits = asyncio.Semaphore(WINDOW)
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s(process)
    reading = [asyncio.create_task(each.take(count)) for each in takers]
    if qos:
        reading.append(asyncio.create_task(sender.take(count, permits)))
    for number in range(count):
        if qos:
            await permits.acquire()
        elif number % WINDOW == 0:
            await sender.writer.drain()
            await asyncio.sleep(0)
        packet = number % 0xFFFF + 1 if qos else 0
        sender.writer.write(encode(PublishPacket("bench/t", PAYLOAD, qos, packet=packet), 4))
    await asyncio.gather(*reading)
    took_s, used_s = time.perf_counter() - begin_s, cpu_s(process) - begin_cpu_s
    for each in (*takers, sender):
        each.writer.close()
    deliveries = count * fan_out
    return deliveries / took_s, used_s / deliveries * 1e6


def run(quick: bool) -> list[Report]:
    program = os.environ.get("MOSQUITTO") or shutil.which("mosquitto")
    report = Report(
        "mqtt",
        "MQTT: deliveries a second",
        ("server", "QoS", "fan-out", "deliveries/s", "CPU µs each"),
        notes=["Mosquitto does not sync; the door answers QoS 1 after a sync of its log."],
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {"gapless": stack.enter_context(door(folder))}
        if program:
            servers["mosquitto"] = stack.enter_context(mosquitto(program))
        for qos in (0, 1):
            for fan_out in (10, 100):
                figures: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
                count = (4_000 if quick else 20_000) // fan_out
                for _ in range(2 if quick else ROUNDS):
                    for name, (port, process) in servers.items():
                        got = asyncio.run(measure(port, process, qos, fan_out, count))
                        figures[name].append(got)
                for name, some in figures.items():
                    rate = statistics.median(each for each, _ in some)
                    cost = statistics.median(each for _, each in some)
                    report.add(name, qos, fan_out, f"{rate:,.0f}", f"{cost:.1f}")
    return [report]
