"""Scale: a million conditions, ten thousand connections and topics, a long log.

Brokers are processes (`gapless serve`) on a real disk. Memory is what is resident beyond an empty
broker, CPU that of the broker's process. With --quick everything is smaller; the column says how
large it was.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import workloads
from benchmarks.matcher import build, per_event
from benchmarks.peers.usage import cpu_seconds
from benchmarks.report import Report
from gapless.client.client import connect
from gapless.client.connection import HELLO
from gapless.core.effects import Append
from gapless.core.ticks import PUBEND_BITS
from gapless.storage.disk import DiskVolume
from gapless.wire.events import encode_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = os.sysconf("SC_PAGE_SIZE")
PROGRAM = [sys.executable, "-c", "from gapless.cli import main; main()", "serve"]
BATCH = 512
AT_ONCE = 200
IDLE_S = 10.0


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


class Served:
    """A broker's process."""

    def __init__(self, process: subprocess.Popen[str], url: str, started_s: float) -> None:
        self.pid = process.pid
        self.url = url
        self.started_s = started_s
        self.started_cpu_s = cpu_seconds(self.pid)
        self.empty_bytes = resident(self.pid)

    @property
    def grown_bytes(self) -> int:
        return resident(self.pid) - self.empty_bytes

    def idle(self) -> float:
        """Milliseconds of CPU in a second in which nothing happens."""
        before = cpu_seconds(self.pid)
        time.sleep(IDLE_S)
        return (cpu_seconds(self.pid) - before) / IDLE_S * 1e3


@contextmanager
def served(folder: str) -> Iterator[Served]:
    command = [*PROGRAM, "--listen", "127.0.0.1:0", "--admin", "none", "--data", folder]
    limits = ("connections_max=20000", "topics_max=20000", "principal_share_percent=100")
    command += [f"--set={each}" for each in limits]
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = "gapless://" + line.partition("gapless://")[2].strip()
        try:
            yield Served(process, url, time.monotonic() - begin)
        finally:
            process.terminate()
            process.wait()


def conditions(count: int, report: Report) -> None:
    """In this process: the matcher alone, which a broker has for each topic."""
    few, load = workloads.make("sparse", 1_000), workloads.make("sparse", count)
    small, _, _ = build(few)
    large, added_s, size = build(load)
    single = per_event(large, load._replace(events=few.events))[0]
    ratio = single / per_event(small, few)[0]
    report.add(
        "conditions",
        f"{count:,}",
        f"{size:,.0f} bytes each",
        f"{added_s * 1e6:.1f} µs of CPU to add one",
        f"an event takes {ratio:.2f} × what it takes with 1,000, at equal matches",
    )


async def open_links(url: str, count: int) -> list[asyncio.StreamWriter]:
    host, _, port = url.removeprefix("gapless://").rpartition(":")
    hello, writers = bytes(codec().frames([HELLO])), list[asyncio.StreamWriter]()

    async def one() -> None:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(hello)
        await reader.read(1)  # its Hello
        writers.append(writer)

    for start in range(0, count, AT_ONCE):
        await asyncio.gather(*(one() for _ in range(min(AT_ONCE, count - start))))
    return writers


def connections(count: int, report: Report) -> None:
    async def main(broker: Served) -> None:
        begin = cpu_seconds(broker.pid)
        writers = await open_links(broker.url, count)
        spent, grown = cpu_seconds(broker.pid) - begin, broker.grown_bytes
        before = cpu_seconds(broker.pid)
        await asyncio.sleep(2)
        idle = (cpu_seconds(broker.pid) - before) / 2 * 1e3
        async with connect(broker.url) as client:
            await client.create_topic("t")
            asked = time.perf_counter()
            await client.publish("t", {"a": 1})
            answer_ms = (time.perf_counter() - asked) * 1e3
        for writer in writers:
            writer.transport.abort()
        report.add(
            "connections",
            f"{count:,}",
            f"{grown / count:,.0f} bytes each",
            f"{spent / count * 1e6:,.0f} µs of CPU to open one",
            f"idle: {idle:.0f} ms of CPU a second; another client's receipt {answer_ms:.1f} ms",
        )

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder, served(folder) as broker:
        asyncio.run(main(broker))


def topics(count: int, report: Report) -> None:
    async def main(broker: Served) -> float:
        async with connect(broker.url) as client:
            for start in range(0, count, AT_ONCE):
                names = [f"t{n}" for n in range(start, min(start + AT_ONCE, count))]
                await asyncio.gather(*map(client.create_topic, names))
            await asyncio.sleep(IDLE_S)  # silence is told at first, and then seldom
            before, events = cpu_seconds(broker.pid), 200
            for _ in range(events):
                await client.publish("t0", {"a": 1})
            return (cpu_seconds(broker.pid) - before) / events

    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        with served(folder) as broker:
            begin = cpu_seconds(broker.pid)
            publish_s = asyncio.run(main(broker))
            made_s, grown = cpu_seconds(broker.pid) - begin, broker.grown_bytes
            idle = [broker.idle() for _ in range(3)][-1]
        with served(folder) as again:
            report.add(
                "topics",
                f"{count:,}",
                f"{grown / count:,.0f} bytes each",
                f"{made_s / count * 1e6:,.0f} µs of CPU to create one",
                f"a lone event {publish_s * 1e6:,.0f} µs, silence of the others included; "
                f"idle: {idle:.0f} ms of CPU a second; "
                f"started again in {again.started_cpu_s:.1f} s of CPU, {again.started_s:.1f} s",
            )


def long_log(gigabytes: float, report: Report) -> None:
    """Of one topic that somebody subscribes to, who is away; written as a broker writes it."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:

        async def begin(url: str) -> None:
            async with connect(url) as client:
                await client.create_topic("t")
                async with client.subscribe("t", name="away"):
                    await client.publish("t", {"a": 1})

        with served(folder) as broker:
            asyncio.run(begin(broker.url))
        event = encode_event({"symbol": "IBM", "price": 92.5}, b"." * 250)
        volume = DiskVolume(Path(folder) / "serve" / "volume")
        stream = next(each for each in volume.streams() if each.startswith("log/t"))
        tick = volume.bounds(stream).end + (1 << PUBEND_BITS)
        written, begin_s = 0, time.process_time()
        while written < gigabytes * 1e9:
            ticks = range(tick, tick + (BATCH << PUBEND_BITS), 1 << PUBEND_BITS)
            volume.commit([Append(stream, ticks, (event,) * BATCH)])
            tick, written = ticks.stop, written + BATCH * len(event)
        spent = time.process_time() - begin_s
        volume.close()
        with served(folder) as broker:
            pass
        report.add(
            "log",
            f"{gigabytes:g} GB",
            f"{broker.empty_bytes / 1e6:,.0f} MB of a broker that has just started",
            f"{spent / (written / len(event)) * 1e6:.2f} µs of CPU to write an event",
            f"started again in {broker.started_cpu_s:.1f} s of CPU, {broker.started_s:.1f} s",
        )


def run(quick: bool) -> list[Report]:
    report = Report(
        "scale",
        "How far one broker goes",
        ("what", "how many", "memory", "to make", "then"),
    )
    conditions(100_000 if quick else 1_000_000, report)
    connections(1_000 if quick else 10_000, report)
    topics(1_000 if quick else 10_000, report)
    long_log(1.0 if quick else 10.0, report)
    return [report]
