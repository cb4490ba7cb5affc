"""What exactly once costs beyond best effort: three brokers in a row, at steady rates.

The claim of DSN 2002, as processes: one broker hosts the pubend, the next relays, the last has all
subscribers, each on a connection of its own, who get every event (a body of 250 bytes). The twin is
the same processes around the best-effort node (`peers/best_effort.py`): no log, no receipts, no
silence. Both networks are up; at each rate and number of subscribers one is measured after the
other, twice, and the run that cost less counts. CPU time is that of each process; "more" is the
difference for each event, which is to be the same however many subscribers there are.
"""

from __future__ import annotations

import asyncio
import struct
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import gapless
from benchmarks.peers.adapter import Setting
from benchmarks.peers.brokers.gapless import BEST_EFFORT, PEER
from benchmarks.peers.model import make_events
from benchmarks.peers.usage import cpu_seconds
from benchmarks.report import Report
from gapless.broker.event_reader import DECODED_MAX
from gapless.testing.processes.brokers import Processes, cell, topic

if TYPE_CHECKING:
    from asyncio.subprocess import Process as Child
    from collections.abc import AsyncIterator, Sequence

    from benchmarks.peers.adapter import Client

    Place = tuple[int, int, str]
    """Rate, subscribers and contestant."""

ROLES = ("host", "relay", "edge")
NETWORK = (
    cell("host", ["host"], "relay"),
    cell("relay", ["relay"], "edge"),
    cell("edge", ["edge"], subscribers=True),
    topic("events", "host"),
)
POINTS = ((200, 10), (200, 100), (200, 1_000), (2_000, 10), (2_000, 100))
"""Events/s, and subscribers."""

QUICK = ((200, 10), (200, 100))
ROUNDS = 2
SETTLE_S, MEASURE_S, QUICK_S = 1.0, 6.0, 3.0
TURN_S = 0.001
LATE_S = 30.0
"""What has not come by then never will."""

BODY = bytes(242)
"""After the time: 250 bytes in all."""

EVENT = make_events()[0]
SUBSCRIBERS = "import sys; from benchmarks.overhead import subscribers; subscribers(*sys.argv[1:])"
FORGETFUL = (
    "import sys; from benchmarks.peers.best_effort import run_broker; run_broker(sys.argv[1])"
)


class ForgetfulProcesses(Processes):
    """The same brokers, at best effort."""

    program = FORGETFUL


class Cost(NamedTuple):
    """Of one event, in µs of CPU time."""

    brokers: tuple[float, ...]
    subscribers: float
    latency_ms: float  # median, from the publisher to a subscriber

    @property
    def total(self) -> float:
        return sum(self.brokers)


# --- subscribers, a process of their own ----------------------------------------------------------


def subscribers(url: str, count: str) -> None:
    """Says `ready`; and for each line that comes, how many came and their median delay in ns."""
    asyncio.run(_subscribe(url, int(count)))


async def _subscribe(url: str, count: int) -> None:
    delivered, delays_ns = 0, list[int]()

    async def read(subscription: gapless.Subscription) -> None:
        nonlocal delivered
        async for batch in subscription.batches():
            delivered += len(batch)
            last = batch[-1]
            assert isinstance(last, gapless.Event)
            delays_ns.append(time.monotonic_ns() - struct.unpack_from("<q", last.body)[0])

    async with AsyncExitStack() as stack:
        tasks = []
        for _ in range(count):
            client = await stack.enter_async_context(gapless.connect(url))
            wanted = await stack.enter_async_context(client.subscribe("events"))
            tasks.append(asyncio.create_task(read(wanted)))
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(delivered, int(median(delays_ns or [0])), flush=True)
            delays_ns.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ask(child: Child) -> tuple[int, int]:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    delivered, delay_ns = (await child.stdout.readline()).split()
    return int(delivered), int(delay_ns)


# --- one contestant -------------------------------------------------------------------------------


class Row:
    """Three brokers in a row, and a publisher at the first."""

    def __init__(self, chain: Processes, client: Client) -> None:
        self.chain = chain
        self.client = client

    async def publish(self, rate: float, seconds: float) -> int:
        """At a steady rate; how many events."""
        begin, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < seconds:
            due = int(passed * rate) - sent
            for _ in range(due):
                self.client.publish(EVENT, struct.pack("<q", time.monotonic_ns()) + BODY, None)
            sent += due
            if due:
                await self.client.flush()
            await asyncio.sleep(TURN_S)
        return sent

    async def warm_up(self) -> None:
        """Until brokers that want compiled code have loaded it, and have nothing to do."""
        await self.publish(4_000, (DECODED_MAX + 2_000) / 4_000)
        before = self._cpu()
        for _ in range(60):
            await asyncio.sleep(1)
            before, last = self._cpu(), before
            if sum(before) - sum(last) < 0.05:
                return

    def _cpu(self) -> tuple[float, ...]:
        return tuple(self.chain.cpu_s(name) or 0.0 for name in ROLES)

    async def measure(self, rate: float, count: int, seconds: float) -> Cost:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SUBSCRIBERS, self.chain.url("edge"), str(count)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            assert await child.stdout.readline() == b"ready\n"
            before = await self.publish(rate, SETTLE_S)
            await _ask(child)
            begin, clients_s = self._cpu(), cpu_seconds(child.pid)
            events = await self.publish(rate, seconds)
            end, clients_s = self._cpu(), cpu_seconds(child.pid) - clients_s
            delivered, delay_ns = await _ask(child)
            async with asyncio.timeout(LATE_S):
                while delivered < (before + events) * count:
                    await asyncio.sleep(0.1)
                    delivered, _ = await _ask(child)
            child.stdin.close()
            await child.wait()
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()
        brokers = tuple((b - a) / events * 1e6 for a, b in zip(begin, end, strict=True))
        return Cost(brokers, clients_s / events * 1e6, delay_ns / 1e6)


@asynccontextmanager
async def row(kind: str, folder: Path) -> AsyncIterator[Row]:
    brokers = ForgetfulProcesses if kind == BEST_EFFORT else Processes
    async with brokers(*NETWORK, folder=folder / kind.replace(" ", "-")) as chain:
        await chain.start(*ROLES)
        port = int(chain.address("host").rpartition(":")[2])
        client = PEER.client(Setting("gapless", kind, str(folder), port, "overhead"), "feed")
        await client.open()
        try:
            await client.start_publisher(confirmed=False)
            made = Row(chain, client)
            await made.warm_up()
            yield made
        finally:
            await client.close()


async def contest(points: Sequence[tuple[int, int]], seconds: float) -> dict[Place, list[Cost]]:
    """All rounds of both, in turns."""
    found: dict[Place, list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-") as folder:
        async with row("lib", Path(folder)) as ours, row(BEST_EFFORT, Path(folder)) as plain:
            for _ in range(ROUNDS):
                for rate, count in points:
                    for kind, each in (("lib", ours), (BEST_EFFORT, plain)):
                        cost = await each.measure(rate, count, seconds)
                        found.setdefault((rate, count, kind), []).append(cost)
    return found


def run(quick: bool) -> list[Report]:
    points, seconds = (QUICK, QUICK_S) if quick else (POINTS, MEASURE_S)
    found = asyncio.run(contest(points, seconds))
    roles = Report(
        "overhead-roles",
        "Exactly once and best effort: µs of CPU an event, by broker",
        ("events/s", "subscribers", *(f"{each}, exactly once / best effort" for each in ROLES)),
    )
    table = Report(
        "overhead",
        "Exactly once over best effort: three brokers in a row",
        (
            *("events/s", "subscribers", "µs/event, all brokers", "more", "more µs/event"),
            *("with subscribers", "more", "delay p50, ms"),
        ),
        notes=["each figure: exactly once / best effort; CPU time; the best of the rounds"],
    )
    for rate, count in points:
        ours, plain = (
            min(found[rate, count, kind], key=lambda each: each.total)
            for kind in ("lib", BEST_EFFORT)
        )
        by_role = zip(ours.brokers, plain.brokers, strict=True)
        roles.add(f"{rate:,}", f"{count:,}", *(f"{a:,.0f} / {b:,.0f}" for a, b in by_role))
        with_clients, plain_clients = (each.total + each.subscribers for each in (ours, plain))
        table.add(
            *(f"{rate:,}", f"{count:,}", f"{ours.total:,.0f} / {plain.total:,.0f}"),
            *(f"{ours.total / plain.total - 1:+.0%}", f"{ours.total - plain.total:,.0f}"),
            *(f"{with_clients:,.0f} / {plain_clients:,.0f}",),
            *(f"{with_clients / plain_clients - 1:+.0%}",),
            *(f"{ours.latency_ms:.2f} / {plain.latency_ms:.2f}",),
        )
    return [table, roles]
