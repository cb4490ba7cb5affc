"""Multicast on a real network of processes: very many topics, and very many subscribers of one.

Publish rate: confirmed publications a second, one event each, many under way. Fan-out rate: events
that reach subscribers a second. Memory: what all brokers grew by, divided by the topics.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.client.client import connect
from gapless.testing.processes.brokers import Processes, cell

if TYPE_CHECKING:
    from gapless.client.client import Client
    from gapless.client.subscription import Subscription

BROKERS = 5
NAMES = tuple(f"b{number}" for number in range(BROKERS))
STAR = "".join(cell(name, [name], "b0" if name != "b0" else "", subscribers=True) for name in NAMES)
UNDER_WAY = 200
"""Requests that a client has under way at a time."""
PATIENCE_S = 120.0
IDLE_S = 5.0


class Town:
    """Brokers, and a client at each."""

    def __init__(self, processes: Processes, clients: list[Client]) -> None:
        self.processes = processes
        self.clients = clients

    def memory_bytes(self) -> int:
        return sum(self.processes.memory_bytes(name) or 0 for name in NAMES)

    async def idle_s(self) -> float:
        """Processor time of all brokers in a second in which nothing is published."""
        before = self.cpu_s()
        await asyncio.sleep(IDLE_S)
        return (self.cpu_s() - before) / IDLE_S

    def cpu_s(self) -> float:
        return sum(self.processes.cpu_s(name) or 0.0 for name in NAMES)


async def in_turns(calls: list[object], count: int = UNDER_WAY) -> None:
    """Await all of these, so many at a time."""
    gate = asyncio.Semaphore(count)

    async def one(call: object) -> None:
        async with gate:
            await call  # type: ignore[misc]

    await asyncio.gather(*(one(call) for call in calls))


async def drain(subscription: Subscription, count: int) -> None:
    left = count
    while left:
        left -= len(await subscription.take())


async def many_topics(town: Town, count: int, *, ordered: bool, report: Report) -> None:
    """Each with one subscriber; one event to each, from another broker than its subscriber's."""
    topics = [f"{'o' if ordered else 't'}{number}" for number in range(count)]
    clients = town.clients

    def at(number: int, step: int = 0) -> Client:
        return clients[(number + step) % len(clients)]

    before = town.memory_bytes()
    await in_turns(
        [at(n).create_topic(each, "multicast", ordered=ordered) for n, each in enumerate(topics)]
    )
    subscriptions = [at(number).subscribe(each) for number, each in enumerate(topics)]
    started = time.perf_counter()
    await in_turns([each.__aenter__() for each in subscriptions])
    subscribed_s = time.perf_counter() - started
    grown = town.memory_bytes() - before
    started, cpu_s = time.perf_counter(), town.cpu_s()
    sent = [at(number, 1).publish(each, {"i": number}) for number, each in enumerate(topics)]
    await in_turns(sent)  # type: ignore[arg-type]
    published_s = time.perf_counter() - started
    await asyncio.gather(*(drain(each, 1) for each in subscriptions))
    arrived_s = time.perf_counter() - started
    used_s = town.cpu_s() - cpu_s
    idle_s = await town.idle_s()
    await asyncio.gather(*(each.close() for each in subscriptions))
    report.add(
        f"{count:,} topics, one subscriber each{', ordered' if ordered else ''}",
        f"{count / subscribed_s:,.0f}",
        f"{count / published_s:,.0f}",
        f"{count / arrived_s:,.0f}",
        f"{grown / count / 1024:.1f}",
        f"{used_s / count * 1e6:.0f}",
        f"{idle_s * 1e3:.0f}",
    )


async def many_subscribers(
    town: Town, count: int, events: int, *, ordered: bool, report: Report
) -> None:
    """Of one topic, spread over all brokers."""
    topic = "everybody ordered" if ordered else "everybody"
    await town.clients[0].create_topic(topic, "multicast", ordered=ordered)
    before = town.memory_bytes()
    clients = town.clients
    subscriptions = [clients[n % len(clients)].subscribe(topic) for n in range(count)]
    started = time.perf_counter()
    await in_turns([each.__aenter__() for each in subscriptions])
    subscribed_s = time.perf_counter() - started
    grown = town.memory_bytes() - before
    started, cpu_s = time.perf_counter(), town.cpu_s()
    taking = asyncio.gather(*(drain(each, events) for each in subscriptions))
    calls = [clients[0].publish(topic, {"i": number}) for number in range(events)]
    await in_turns(calls, 20)  # type: ignore[arg-type]
    published_s = time.perf_counter() - started
    await taking
    arrived_s, used_s = time.perf_counter() - started, town.cpu_s() - cpu_s
    idle_s = await town.idle_s()
    await asyncio.gather(*(each.close() for each in subscriptions))
    report.add(
        f"one topic, {count:,} subscribers{', ordered' if ordered else ''}",
        f"{count / subscribed_s:,.0f}",
        f"{events / published_s:,.0f}",
        f"{events * count / arrived_s:,.0f}",
        f"{grown / count / 1024:.1f}",
        f"{used_s / events / count * 1e6:.1f}",
        f"{idle_s * 1e3:.0f}",
    )


async def measure(report: Report, quick: bool) -> None:
    count = 1_000 if quick else 10_000
    config = {"topics_max": 100_000, "heartbeat": 5_000_000, "dead_after": 20_000_000}
    async with AsyncExitStack() as stack:
        processes = await stack.enter_async_context(Processes(STAR, config=config))
        await processes.start(*NAMES)
        clients = [
            await stack.enter_async_context(connect(processes.url(name), patience_s=PATIENCE_S))
            for name in NAMES
        ]
        town = Town(processes, clients)
        await many_subscribers(town, count, 100, ordered=False, report=report)
        await many_subscribers(town, count, 100, ordered=True, report=report)
        await many_topics(town, count, ordered=False, report=report)
        await many_topics(town, count // 10, ordered=True, report=report)


def run(quick: bool) -> list[Report]:
    report = Report(
        "multicast",
        f"Multicast topics on {BROKERS} brokers as processes, a client at each",
        (
            "what",
            "subscriptions/s",
            "published/s",
            "delivered/s",
            "KiB each, all brokers",
            "µs of all brokers per delivery",
            "ms of all brokers per idle second",
        ),
        notes=[
            "Clients and brokers share the machine's cores; all clients are one process, which"
            " is what limits the rows with many subscribers.",
            "Memory is that of all brokers together, for each topic or subscriber.",
        ],
    )
    asyncio.run(measure(report, quick))
    return [report]
