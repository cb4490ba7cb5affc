"""Members of a group: how throughput grows with them, and what one member costs its broker.

A broker as a process of its own; members on connections of their own. Handling takes 5 ms an event,
as a call of another service would, or nothing at all. Everything is published before the first
member joins. `finish` says how members end the work on an event: by asking for the next, or with
`await subscription.finish(event)`, which returns when that is durable.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from benchmarks.report import Report
from gapless.client.client import connect
from gapless.core.events import Event, Value
from gapless.testing.processes.brokers import Processes

NETWORK = """
[[cell]]
name = "all"
subscribers = true
brokers = [{ name = "b", listen = "127.0.0.1:0" }]
[[topic]]
name = "t"
pubends = ["b"]
"""
HANDLING_S = 0.005
KEYS = 64


async def consume(url: str, group: str, handling_s: float, left: list[int], *, waits: bool) -> None:
    """One member, until nothing is left."""
    async with (
        connect(url) as client,
        client.subscribe("t", name=group, share_by="key") as subscription,
    ):
        while left[0] > 0:
            event = await subscription.take()
            assert isinstance(event, Event)
            if handling_s:
                await asyncio.sleep(handling_s)
            if waits:
                await subscription.finish(event)
            left[0] -= 1


async def measure(
    url: str, group: str, events: int, members: int, options: dict[str, float]
) -> float:
    """Events a second."""
    handling_s, waits = options["handling_s"], bool(options["waits"])
    async with connect(url) as client:
        async with client.subscribe("t", name=group, share_by="key"):
            pass
        async with client.publisher("t", name=group) as publisher:
            some: list[tuple[dict[str, Value], bytes]] = [
                ({"key": f"k{n % KEYS}", "n": n}, b"x" * 100) for n in range(events)
            ]
            await publisher.send_many(some)
            await publisher.flush()
        left = [events]
        begin = time.perf_counter()
        tasks = [
            asyncio.create_task(consume(url, group, handling_s, left, waits=waits))
            for _ in range(members)
        ]
        while left[0] > 0:  # noqa: ASYNC110 - members wait for events that do not come any more
            await asyncio.sleep(0.001)
        seconds = time.perf_counter() - begin
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await client.unsubscribe(group)
    return events / seconds


async def measure_all(folder: Path, report: Report, *, quick: bool) -> None:
    async with Processes(NETWORK, folder=folder) as brokers:
        await brokers.start("b")
        url, number = brokers.url("b"), 0
        for handling_s, waits, events in (
            (HANDLING_S, False, 800),
            (HANDLING_S, True, 800),
            (0.0, False, 10_000),
        ):
            first = 0.0
            for members in (1, 2, 4, 8):
                number += 1
                options = {"handling_s": handling_s, "waits": waits}
                count = events // 4 if quick else events
                rate = await measure(url, f"group {number}", count, members, options)
                first = first or rate
                finish = "finish" if waits else "the next"
                ratio = f"{rate / first:.2f}"
                report.add(f"{handling_s * 1000:.0f} ms", finish, members, f"{rate:,.0f}", ratio)


def run(quick: bool) -> list[Report]:
    report = Report(
        "groups",
        "Groups: events a second by members",
        ("handling", "ended by", "members", "events/s", "of one member"),
        [f"{KEYS} keys; all members are in one process, so that 0 ms measures that process, too."],
    )
    with tempfile.TemporaryDirectory(prefix="groups") as folder:
        asyncio.run(measure_all(Path(folder), report, quick=quick))
    return [report]
