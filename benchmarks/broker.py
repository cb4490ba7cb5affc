"""The broker process through the public client, against bare transfer and bare commits of the same.

W1: one publisher, 10 or 100 subscribers on connections of their own, every event to all.
W4: one pipelined named publisher, each receipt after the sync.
The broker is a process of its own; all clients share a second one. `bare` moves the same bytes in
batches of the same size over loopback, between two such processes, without looking at them, or
commits them to a volume of the same kind in groups of the same size.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.report import Report, rate
from gapless.client.client import connect
from gapless.core.effects import Append
from gapless.core.identity import PublisherName
from gapless.storage.disk import DiskVolume
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.client.subscription import Subscription
    from gapless.core.events import Attributes

ATTRIBUTES: Attributes = {"symbol": "S0000042", "price": 92.5, "volume": 300, "exchange": "NYSE"}
BODY = b"x" * 250
EVENT = encode_event(ATTRIBUTES, BODY, PublisherName("feed"), 1_000)
BATCH = 256
WINDOW = 4_000
"""Events that may be on their way: below what ends a subscription that does not keep up."""


@contextmanager
def serving() -> Iterator[tuple[str, int]]:
    """A broker process: its URL and process number."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", "from gapless.cli import main; main()", "serve"]
        command += ["--topic", "events", "--listen", "127.0.0.1:0", "--admin", "none"]
        command += ["--data", folder]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            told = process.stdout.readline()
            yield told.split("ready at ")[1].strip(), process.pid
        finally:
            process.terminate()
            process.communicate()


def cpu_of(process: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- W1 ------------------------------------------------------------------------------------------


async def fan_out(url: str, subscribers: int, count: int) -> float:
    """Seconds until all subscribers have all events."""
    got, progress = [0] * subscribers, asyncio.Event()

    async def read(number: int, subscription: Subscription) -> None:
        async for batch in subscription.batches():
            got[number] += len(batch)
            progress.set()
            if got[number] >= count:
                return

    async with AsyncExitStack() as stack:
        readers = []
        for number in range(subscribers):
            client = await stack.enter_async_context(connect(url))
            subscription = await stack.enter_async_context(client.subscribe("events"))
            readers.append(asyncio.create_task(read(number, subscription)))
        client = await stack.enter_async_context(connect(url))
        publisher = await stack.enter_async_context(
            client.publisher("events", name=f"w1-{subscribers}-{time.time_ns()}")
        )
        begin = time.perf_counter()
        for sent in range(count):
            await publisher.send(ATTRIBUTES, BODY)
            while sent - min(got) > WINDOW:  # the publisher keeps pace with the slowest
                progress.clear()
                await progress.wait()
        await asyncio.gather(*readers)
        return time.perf_counter() - begin


# --- bare ----------------------------------------------------------------------------------------


def bare_sender(port: int, connections: int, count: int) -> None:
    """Another process: sends as many events over each connection, batch by batch."""

    async def main() -> None:
        writers = [
            (await asyncio.open_connection("127.0.0.1", port))[1] for _ in range(connections)
        ]
        data = EVENT * BATCH
        for _ in range(count // BATCH):
            for writer in writers:
                writer.write(data)
            for writer in writers:
                await writer.drain()
        for writer in writers:
            writer.close()

    uvloop.run(main())


async def bare_transfer(connections: int, count: int) -> float:
    """Seconds from the first byte to the last."""
    begin = end = 0.0
    total = connections * (count // BATCH) * BATCH * len(EVENT)
    received, done = 0, asyncio.Event()

    class Counter(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            nonlocal begin, end, received
            begin = begin or time.perf_counter()
            received += len(data)
            if received >= total:
                end = time.perf_counter()
                done.set()

    server = await asyncio.get_running_loop().create_server(Counter, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    context = multiprocessing.get_context("spawn")
    sender = context.Process(target=bare_sender, args=(port, connections, count))
    sender.start()
    await done.wait()
    await asyncio.to_thread(sender.join)
    server.close()
    return end - begin


def bare_commits(count: int, group: int) -> float:
    """Seconds to commit so many events in groups, each with its sync."""
    with tempfile.TemporaryDirectory() as folder:
        volume = DiskVolume(folder)
        begin = time.perf_counter()
        for first in range(0, count, group):
            volume.commit([Append("s", tuple(range(first, first + group)), (EVENT,) * group)])
        seconds = time.perf_counter() - begin
        volume.close()
        return seconds


# --- W4 ------------------------------------------------------------------------------------------


async def publish(url: str, count: int) -> float:
    async with connect(url) as client, client.publisher("events", name="w4") as publisher:
        begin = time.perf_counter()
        for _ in range(count):
            await publisher.send(ATTRIBUTES, BODY)
        await publisher.flush()
        return time.perf_counter() - begin


async def publish_singly(url: str, count: int) -> list[float]:
    """Milliseconds to each receipt, one after the other."""
    async with connect(url) as client:
        took = []
        for _ in range(count):
            begin = time.perf_counter()
            await client.publish("events", ATTRIBUTES, BODY)
            took.append((time.perf_counter() - begin) * 1e3)
        return sorted(took)


def run(quick: bool) -> list[Report]:
    scale = 1 if quick else 4
    report = Report(
        "broker",
        "The broker process through the public client",
        ("workload", "events/s", "broker CPU", "bare of the same", "of bare"),
        notes=[
            f"events of {len(EVENT)} bytes; bare: batches of {BATCH} over loopback, or commits of "
            f"{BATCH} and of 1,000 with a sync each",
            "W1 counts deliveries; CPU is that of the broker process for each",
        ],
    )
    for subscribers, count in ((10, 20_000 * scale), (100, 2_000 * scale)):
        with serving() as (url, process):
            before = cpu_of(process)
            seconds = uvloop.run(fan_out(url, subscribers, count))
            cpu = cpu_of(process) - before
        bare = uvloop.run(bare_transfer(subscribers, count))
        total, moved = subscribers * count, subscribers * (count // BATCH) * BATCH
        ours, theirs = total / seconds, moved / bare
        cpu_each = f"{cpu / total * 1e6:.2f} µs"
        report.add(
            f"W1 to {subscribers}", rate(ours), cpu_each, rate(theirs), f"{ours / theirs:.2f}"
        )
    count = 40_000 * scale
    with serving() as (url, process):
        before = cpu_of(process)
        seconds = uvloop.run(publish(url, count))
        cpu = cpu_of(process) - before
        single = uvloop.run(publish_singly(url, 100 * scale))
    for group in (BATCH, 1_000):
        ours, theirs = count / seconds, count / bare_commits(count, group)
        cpu_each = f"{cpu / count * 1e6:.2f} µs"
        report.add(
            f"W4, commits of {group}", rate(ours), cpu_each, rate(theirs), f"{ours / theirs:.2f}"
        )
    commit = bare_commits(100 * scale, 1) / (100 * scale) * 1e3
    middle = single[len(single) // 2]
    report.add(
        "receipt, one at a time",
        f"{middle:.2f} ms",
        "",
        f"{commit:.2f} ms",
        f"{middle / commit:.2f}",
    )
    return [report]
