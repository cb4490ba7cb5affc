"""A chain of 1, 4 and 7 brokers as processes: reliable and durable topics, and bare relays.

One publisher at the first broker, one subscriber at the last. Latency: one event at a time, from
the call of `publish` to the delivery. Throughput: batches, a few of them under way at a time. The
bare relays are as many processes on loopback that hand on the same bytes and look at none of them:
what this machine, this language and this event loop cost at least.
Recovery: the second of four brokers is killed with -9 under a steady load; what counts is the time
until the next event arrives at the far end, against the patience of the failure detector.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import asynccontextmanager, suppress
from statistics import median, quantiles
from typing import TYPE_CHECKING, NamedTuple

import gapless
from benchmarks.report import Report
from gapless.testing.processes.brokers import Processes, cell, cpu_s, topic
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine

LENGTHS = (1, 4, 7)
BATCH, UNDER_WAY = 50, 4
BODY = bytes(200)
RELIABLE = '[[topic]]\nname = "reliable"\nservice = "reliable"\n'
RELAY = "import sys; from benchmarks.chain import relay; relay(int(sys.argv[1]))"
PACE_S = 0.01
KILLS = ((1_000_000, 3_000_000), (200_000, 600_000))
"""Beat and patience of the failure detector, in microseconds: the default, and a quick one."""


class Figures(NamedTuple):
    """Of one contestant on one chain."""

    latencies_s: list[float]
    seconds: float
    cpu: float


def names(length: int) -> list[str]:
    return [f"b{number}" for number in range(length)]


def network(length: int) -> str:
    brokers = names(length)
    cells = [
        cell(name, [name], brokers[at - 1] if at else "", subscribers=at == length - 1)
        for at, name in enumerate(brokers)
    ]
    return "".join([*cells, topic("durable", brokers[0]), RELIABLE])


async def contest(length: int, service: str, pings: int, events: int) -> Figures:
    """One of our services over a chain of brokers."""
    async with Processes(network(length)) as chain:
        await chain.start(*names(length))
        first, last = chain.url("b0"), chain.url(names(length)[-1])
        async with (
            gapless.connect(first) as near,
            gapless.connect(last) as far,
            far.subscribe(service) as subscription,
        ):

            async def ping() -> None:
                sent = asyncio.create_task(near.publish(service, {"i": 1}, BODY))
                await anext(subscription)
                await sent

            async def take() -> None:
                taken = 0
                while taken < events:
                    taken += len(await subscription.take())

            async def batch() -> None:
                await near.publish_many(service, [({"i": 1}, BODY)] * BATCH)

            latencies_s = await pinged(ping, pings)
            begin_cpu = [chain.cpu_s(each) or 0.0 for each in names(length)]
            seconds = await streamed(take, batch, events)
            cpu = sum(chain.cpu_s(each) or 0.0 for each in names(length)) - sum(begin_cpu)
    return Figures(latencies_s, seconds, cpu)


async def pinged(ping: Callable[[], Coroutine[object, object, None]], count: int) -> list[float]:
    latencies_s: list[float] = []
    for number in range(count + 20):
        begin = time.perf_counter()
        await ping()
        if number >= 20:  # the first ones warm up
            latencies_s.append(time.perf_counter() - begin)
    return latencies_s


async def streamed(
    take: Callable[[], Coroutine[object, object, None]],
    batch: Callable[[], Coroutine[object, object, None]],
    events: int,
) -> float:
    """Seconds until all are taken, with a few batches under way at any time."""
    room = asyncio.Semaphore(UNDER_WAY)

    async def send() -> None:
        async with room:
            await batch()

    begin = time.perf_counter()
    await asyncio.gather(take(), *(send() for _ in range(events // BATCH)))
    return time.perf_counter() - begin


# --- bare relays ---------------------------------------------------------------------------------


class Through(asyncio.Protocol):
    """Hands on what comes."""

    def __init__(self, onward: asyncio.Transport | None = None) -> None:
        self.onward = onward

    def data_received(self, data: bytes) -> None:
        if self.onward is not None:
            self.onward.write(data)


def relay(onward_port: int) -> None:
    """What each process runs: says its port, and hands everything on."""
    from gapless.broker.process import run_loop

    async def main() -> None:
        loop = asyncio.get_running_loop()
        onward, _ = await loop.create_connection(Through, "127.0.0.1", onward_port)
        server = await loop.create_server(lambda: Through(onward), "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()

    run_loop(main())


def spawn(onward_port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", RELAY, str(onward_port)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@asynccontextmanager
async def relays(
    length: int, last_port: int
) -> AsyncIterator[tuple[int, list[subprocess.Popen[str]]]]:
    """So many in a row; the port of the first."""
    port, running = last_port, list[subprocess.Popen[str]]()
    try:
        for _ in range(length):
            process = spawn(port)
            running.append(process)
            assert process.stdout is not None
            port = int(await asyncio.to_thread(process.stdout.readline))
        yield port, running
    finally:
        for process in running:
            process.kill()
            process.wait()


async def bare(length: int, pings: int, events: int) -> Figures:
    event = encode_event({"i": 1}, BODY)
    taken, changed = 0, asyncio.Condition()

    async def receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        with suppress(asyncio.CancelledError):  # at the end nobody waits for it
            while data := await reader.read(1 << 16):
                taken += len(data)
                async with changed:
                    changed.notify_all()
        writer.close()

    async def wait_for(size: int) -> None:
        async with changed:
            await changed.wait_for(lambda: taken >= size)

    server = await asyncio.start_server(receive, "127.0.0.1", 0)
    async with server, relays(length, server.sockets[0].getsockname()[1]) as (port, running):
        _, writer = await asyncio.open_connection("127.0.0.1", port)

        async def ping() -> None:
            wanted = taken + len(event)
            writer.write(event)
            await wait_for(wanted)

        latencies_s = await pinged(ping, pings)
        base = taken

        async def batch() -> None:
            writer.write(event * BATCH)
            await writer.drain()

        begin_cpu = [cpu_s(each.pid) or 0.0 for each in running]
        seconds = await streamed(lambda: wait_for(base + events * len(event)), batch, events)
        cpu = sum(cpu_s(each.pid) or 0.0 for each in running) - sum(begin_cpu)
        writer.close()
        await writer.wait_closed()
    return Figures(latencies_s, seconds, cpu)


# --- recovery ------------------------------------------------------------------------------------


async def outage(beat: int, patience: int) -> float:
    """Seconds from kill -9 of the second of four until the next event is at the far end."""
    config = {"tree_beat": beat, "tree_patience": patience}
    async with Processes(network(4), config=config) as chain:
        await chain.start(*names(4))
        async with (
            gapless.connect(chain.url("b0")) as near,
            gapless.connect(chain.url("b3")) as far,
            far.subscribe("reliable") as subscription,
        ):
            wanted, killed, resumed = 0, 0.0, 0.0
            loop = asyncio.create_task(steady(near))
            while not resumed:
                got = await anext(subscription)
                assert isinstance(got, gapless.Event)
                assert got.attributes["i"] == wanted, "something is missing or doubled"
                wanted += 1
                if not killed and wanted == 100:
                    chain.kill("b1")
                    killed = time.time()
                elif killed and float(got.body) > killed:
                    resumed = time.time()
            loop.cancel()
            await asyncio.gather(loop, return_exceptions=True)
    return resumed - killed


async def steady(client: gapless.Client) -> None:
    number = 0
    while True:
        await client.publish("reliable", {"i": number}, repr(time.time()).encode())
        number += 1
        await asyncio.sleep(PACE_S)


# --- the tables ----------------------------------------------------------------------------------


def run(quick: bool) -> list[Report]:
    pings, events = (100, 1_000) if quick else (500, 10_000)
    report = Report(
        "chain",
        "An event over a chain of brokers",
        (
            "brokers",
            "service",
            "p50 ms",
            "p99 ms",
            "events/s",
            "broker CPU us/event",
            "to bare p50",
        ),
    )
    for length in LENGTHS:
        found = {
            "bare relay": asyncio.run(bare(length, pings, events)),
            "reliable": asyncio.run(contest(length, "reliable", pings, events)),
            "durable": asyncio.run(contest(length, "durable", pings, events)),
        }
        least = median(found["bare relay"].latencies_s)
        for service, figures in found.items():
            middle = median(figures.latencies_s)
            report.add(
                length,
                service,
                f"{middle * 1e3:.2f}",
                f"{quantiles(figures.latencies_s, n=100)[98] * 1e3:.2f}",
                f"{events / figures.seconds:,.0f}",
                f"{figures.cpu / events * 1e6:,.0f}",
                f"{middle / least:.1f}",
            )
    report.notes.append(f"{pings} single events; {events:,} in batches of {BATCH}; 200-byte bodies")
    report.notes.append(
        "durable: with an fsync before it is passed on; reliable: nothing is stored"
    )
    return [report, recovery(1 if quick else 3)]


def recovery(repeats: int) -> Report:
    report = Report(
        "chain-recovery",
        "Reliable topics: kill -9 of the second of four brokers, until events flow again",
        ("beat ms", "patience ms", "outage ms", "to patience"),
    )
    for beat, patience in KILLS:
        outages = [asyncio.run(outage(beat, patience)) for _ in range(repeats)]
        middle = median(outages)
        report.add(
            beat // 1000,
            patience // 1000,
            ", ".join(f"{each * 1e3:,.0f}" for each in sorted(outages)),
            f"{middle / (patience / 1e6):.2f}",
        )
    report.notes.append("every event arrived once and in order; the run would have ended otherwise")
    return report
