"""The MQTT door beside Mosquitto and NATS: deliveries a second with a fan-out, of QoS 0 and 1.

Mosquitto and NATS take part where they are installed, or where MOSQUITTO and NATS_SERVER name them.
They do not sync; the door answers QoS 1 after a sync. So one publisher with 20 messages on their
way measures the disk, and 20 such publishers measure the server: both are shown. The first
measurement had one publisher, and the door was behind; the 20 were added after it. Clients speak
packets by hand in this process and take turns between the contestants in short rounds; a figure is
the median over rounds.
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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

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
PATIENCE_S = 60.0


class Load(NamedTuple):
    """What is measured."""

    qos: int
    fan_out: int
    publishers: int


LOADS = (Load(0, 10, 1), Load(0, 100, 1), Load(1, 10, 20), Load(1, 100, 20), Load(1, 10, 1))


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
def mosquitto(program: str, folder: Path) -> Iterator[tuple[int, int]]:
    """Without bounds of its own: with them it drops messages of QoS 1 under this load."""
    port, settings = free_port(), folder / "mosquitto.conf"
    settings.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\n"
        "max_inflight_messages 0\nmax_queued_messages 0\n",
        encoding="utf-8",
    )
    with serving([program, "-c", str(settings)], port) as process:
        yield port, process


@contextmanager
def nats(program: str, folder: Path) -> Iterator[tuple[int, int]]:
    port, inner = free_port(), free_port()
    settings = folder / "nats.conf"
    settings.write_text(
        f'server_name: bench\nlisten: "127.0.0.1:{inner}"\n'
        f'jetstream {{ store_dir: "{folder / "nats"}" }}\n'
        f'mqtt {{ listen: "127.0.0.1:{port}" }}\n',
        encoding="utf-8",
    )
    with serving([program, "-c", str(settings)], port) as process:
        yield port, process


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def serving(command: list[str], port: int) -> Iterator[int]:
    """The id of a process that takes connections at a port."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    time.sleep(0.05)
            yield process.pid
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


async def send(client: Client, qos: int, count: int) -> None:
    """Publish so many messages, `WINDOW` of them without an answer."""
    permits = asyncio.Semaphore(WINDOW)
    answers = asyncio.create_task(client.take(count, permits)) if qos else None
    for number in range(count):
        if qos:
            await permits.acquire()
        elif number % WINDOW == 0:
            await client.writer.drain()
            await asyncio.sleep(0)
        packet = number % 0xFFFF + 1 if qos else 0
        client.writer.write(encode(PublishPacket("bench/t", PAYLOAD, qos, packet=packet), 4))
    if answers is not None:
        await answers


async def measure(port: int, process: int, load: Load, total: int) -> tuple[float, float]:
    """Deliveries a second, and microseconds of the server's CPU for each."""
    qos, fan_out, publishers = load
    each = max(1, total // fan_out // publishers)
    takers = [await Client.join(port, f"r{n}", "bench/#", qos) for n in range(fan_out)]
    senders = [await Client.join(port, f"s{n}") for n in range(publishers)]
    begin_s, begin_cpu_s = time.perf_counter(), cpu_s(process)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
        for taker in takers:
            tasks.create_task(taker.take(each * publishers))
        for sender in senders:
            tasks.create_task(send(sender, qos, each))
    took_s, used_s = time.perf_counter() - begin_s, cpu_s(process) - begin_cpu_s
    for client in (*takers, *senders):
        client.writer.close()
    deliveries = each * publishers * fan_out
    return deliveries / took_s, used_s / deliveries * 1e6


def run(quick: bool) -> list[Report]:
    mosquitto_program = os.environ.get("MOSQUITTO") or shutil.which("mosquitto")
    nats_program = os.environ.get("NATS_SERVER") or shutil.which("nats-server")
    report = Report(
        "mqtt",
        "MQTT: deliveries a second",
        ("server", "QoS", "fan-out", "publishers", "deliveries/s", "CPU µs each"),
        notes=[
            "Mosquitto and NATS do not sync; the door answers QoS 1 after a sync of its log.",
            f"Each publisher has {WINDOW} messages without an answer at most. Where there is one, "
            "a sync of the disk for every 20 messages sets the door's rate.",
        ],
    )
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {"gapless": stack.enter_context(door(folder))}
        if mosquitto_program:
            servers["mosquitto"] = stack.enter_context(mosquitto(mosquitto_program, folder))
        if nats_program:
            servers["nats"] = stack.enter_context(nats(nats_program, folder))
        for load in LOADS:
            figures: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
            for _ in range(2 if quick else ROUNDS):
                for name, (port, process) in servers.items():
                    total = 8_000 if quick else 80_000
                    with suppress(TimeoutError):  # messages were dropped: no figure
                        got = asyncio.run(measure(port, process, load, total))
                        figures[name].append(got)
            for name, some in figures.items():
                rate = f"{statistics.median(each for each, _ in some):,.0f}" if some else "-"
                cost = f"{statistics.median(each for _, each in some):.1f}" if some else "-"
                report.add(name, load.qos, load.fan_out, load.publishers, rate, cost)
    return [report]
