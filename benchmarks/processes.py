"""One broker as several processes: what each of them has to do for a delivery.

W1-100, W2 and W3 of the peers, with 1 and 8 publishers: a publisher is bound to one process, so
that one alone gives more work to it. Clients use the same cores as brokers. So they are lean (they
decode messages and count them), publish in batches of 256, and the figure is CPU time: that of all
processes of the broker, and that of the busiest. `capacity` is what one process takes for a
delivery over what the busiest of two takes: how much more they deliver where each has a core.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import uvloop

from benchmarks.peers.model import PAYLOAD_BYTES, make_events
from benchmarks.peers.usage import cpu_seconds, members
from benchmarks.report import Report, rate
from gapless.client.address import Address, parse_addresses
from gapless.client.connection import Connection
from gapless.core.client_messages import Consumed, Deliveries, Publish, Receipt, Refused, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import SubscriptionName, TopicName
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.core.errors import GaplessError
    from gapless.core.messages import Message

TOPIC = TopicName("events")
BATCH, IN_FLIGHT, AHEAD = 256, 4, 2_000
"""Events in a publication, publications of one publisher without receipt, and events that the
slowest connection may be behind."""

WARM_EVENTS = 15_000  # compiled code is asked for before that
EXCHANGES = ("NYSE", "NSDQ", "LSE", "TSE")
Wanted = list[list[tuple[str, str | None]]]
"""For each connection its subscriptions: condition and name."""


def wanted(workload: str) -> Wanted:
    if workload == "W1-100":
        return [[("", None)] for _ in range(100)]
    if workload == "W3":
        return [[(f"exchange = '{EXCHANGES[n % 4]}'", f"s{n}")] for n in range(100)]
    found: Wanted = [[] for _ in range(16)]
    for number in range(2_000):
        condition = f"symbol = 'S{number % 1_000:04d}' AND price > {50 * (number // 1_000)}"
        found[number % 16].append((condition, None))
    return found


class Subscriber:
    """One connection, which counts what it gets."""

    def __init__(self) -> None:
        self.answered = 0
        self.count = 0
        self.through = Counter[str]()

    async def open(self, address: Address, subscriptions: list[tuple[str, str | None]]) -> None:
        self.link = await Connection.open(address, self.receive, lost, 60.0)
        for number, (condition, name) in enumerate(subscriptions, 1):
            named = SubscriptionName(name) if name else None
            self.link.send(Subscribe(TOPIC, number, number, condition, name=named, tokens="broker"))
        while self.answered < len(subscriptions):  # noqa: ASYNC110 - nothing tells it
            await asyncio.sleep(0.01)

    def receive(self, message: Message) -> None:
        if isinstance(message, Deliveries):
            if message.ticks:
                self.count += sum(map(len, message.takers))
                self.link.send(Consumed(len(message.ticks)))
            return
        assert not isinstance(message, Refused), message
        self.answered += 1


def lost(error: GaplessError) -> None:
    if "goodbye" not in str(error) and "stopping" not in str(error):
        raise error


class LeanPublisher:
    """One connection that keeps some publications on their way."""

    def __init__(self, batches: list[EventBatch]) -> None:
        self.batches = batches
        self.sent = self.durable = 0
        self.room = asyncio.Event()

    async def run(self, address: Address, may_go_on: asyncio.Event) -> None:
        self.link = await Connection.open(address, self.receive, lost, 60.0)
        while True:
            await may_go_on.wait()
            while self.sent - self.durable >= IN_FLIGHT:
                self.room.clear()
                await self.room.wait()
            self.link.send(Publish(TOPIC, self.sent, self.batches[self.sent % len(self.batches)]))
            self.sent += 1
            await asyncio.sleep(0)

    def receive(self, message: Message) -> None:
        if isinstance(message, Receipt | Refused):
            self.durable += 1
            self.room.set()


async def drive(
    url: str, pid: int, workload: str, publishers: int, seconds: float
) -> tuple[int, list[float], float]:
    """Deliveries, CPU seconds of each process of the broker meanwhile, seconds."""
    address = parse_addresses(url)[0]
    events = [
        encode_event(
            {"symbol": e.symbol, "price": e.price, "volume": e.volume, "exchange": e.exchange},
            b"." * PAYLOAD_BYTES,
        )
        for e in make_events()
    ]
    batches = [
        EventBatch(tuple(events[start : start + BATCH]))
        for start in range(0, len(events) - BATCH, BATCH)
    ]
    subscribers = [Subscriber() for _ in wanted(workload)]
    for each, subscriptions in zip(subscribers, wanted(workload), strict=True):
        await each.open(address, subscriptions)
    writers, go = [LeanPublisher(batches) for _ in range(publishers)], asyncio.Event()
    tasks = [asyncio.create_task(each.run(address, go)) for each in writers]
    share = {"W1-100": 1.0, "W3": 0.25, "W2": 1.5 / 16}[workload]

    def delivered() -> int:
        return sum(each.count for each in subscribers)

    async def pace() -> None:
        """Let publishers go on while nobody is far behind."""
        while True:
            durable = sum(each.durable for each in writers) * BATCH * share * len(subscribers)
            is_behind = durable - delivered() > AHEAD * len(subscribers) * share
            if is_behind:
                go.clear()
            else:
                go.set()
            await asyncio.sleep(0.001)

    tasks.append(asyncio.create_task(pace()))
    while sum(each.durable for each in writers) * BATCH < WARM_EVENTS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await asyncio.sleep(5)
    pids = members(pid)
    before, first, begin = [cpu_seconds(each) for each in pids], delivered(), time.monotonic()
    await asyncio.sleep(seconds)
    spent = [cpu_seconds(each) - b for each, b in zip(pids, before, strict=True)]
    count, took = delivered() - first, time.monotonic() - begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return count, spent, took


def measure(
    workload: str, processes: int, publishers: int, seconds: float
) -> tuple[int, list[float], float]:
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        command = [sys.executable, "-c", "from gapless.cli import main; main()", "serve"]
        command += ["--processes", str(processes), "--topic", TOPIC, "--listen", "127.0.0.1:0"]
        command += ["--admin", "none", "--data", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as broker:
            assert broker.stdout is not None
            mark = "broker 'serve' is" if processes == 1 else "broker is"
            line = next(line for line in broker.stdout if line.startswith(mark))
            url = "gapless://" + line.partition("gapless://")[2].partition(",")[0].strip()
            try:
                return uvloop.run(drive(url, broker.pid, workload, publishers, seconds))
            finally:
                broker.terminate()
                broker.wait()


def run(quick: bool) -> list[Report]:
    report = Report(
        "processes",
        "One broker as several processes",
        (
            "workload, publishers",
            "processes",
            "deliveries/s",
            "µs/delivery, all",
            "µs/delivery, busiest",
            "capacity",
        ),
        notes=["clients share the cores: deliveries/s do not say what brokers could do"],
    )
    for workload in ("W1-100", "W2", "W3"):
        for publishers in (1, 8):
            alone = 0.0
            for processes in (1, 2):
                count, spent, took = measure(workload, processes, publishers, 4 if quick else 10)
                each = [one / count * 1e6 for one in spent]
                alone = alone or sum(each)
                report.add(
                    f"{workload}, {publishers}",
                    processes,
                    rate(count / took),
                    f"{sum(each):.2f}",
                    f"{max(each):.2f}",
                    f"{alone / max(each):.2f} ×",
                )
    return [report]
