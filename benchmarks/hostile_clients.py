"""Clients that ask for as much as they can, and how long another client waits for a pong meanwhile.

The other client's wait is about the longest turn of the broker's loop. A figure far above that of a
broker that nobody bothers is a hole: one client could hold up the others.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.client.client import connect
from gapless.client.errors import RefusedError
from gapless.core.client_messages import Publish, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import SubscriptionName, TopicName
from gapless.core.messages import Hello, Ping
from gapless.testing.processes.brokers import Processes, cell, topic
from gapless.wire.events import encode_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from gapless.core.messages import Message

    Hostile = Callable[[str, asyncio.Event], Coroutine[None, None, str]]

NAME, CONNECTIONS = TopicName("t"), 4
PAUSE_S = 0.01


def large_token() -> Message:
    token = {f"p{n}": n for n in range(1_200_000)}
    return Subscribe(NAME, 1, 1, name=SubscriptionName("x"), token=token)


def large_publication() -> Message:
    event = encode_event({f"a{n}": n for n in range(150)})
    return Publish(NAME, 1, EventBatch((event,) * 10_000))


def many_events() -> Message:
    return Publish(NAME, 1, EventBatch((encode_event({}, b"x" * 1_500),) * 10_000))


FRAMES: dict[str, Callable[[], Message]] = {
    "a token of 1,200,000 pubends, 15 MB": large_token,
    "10,000 events of 150 attributes, 8 MB": large_publication,
    "10,000 events of 1.5 kB, 15 MB": many_events,
}


def waits(quick: bool) -> Report:
    report = Report(
        "hostile_clients",
        "How long another client waits for a pong, in ms",
        ("what a client does", "longest", "the middle", "pongs", ""),
        notes=[
            "The broker is a process of its own; frames are sent again and again on four links."
        ],
    )
    seconds = 3.0 if quick else 10.0
    report.add("nothing", *asyncio.run(beside(nothing, seconds)))
    report.add("100 conditions of 990 patterns", *asyncio.run(beside(patterns, seconds)))
    for name, make in FRAMES.items():
        data = bytes(codec().frames([make()]))

        async def flood(url: str, begun: asyncio.Event, data: bytes = data) -> str:
            begun.set()
            await asyncio.gather(*(send_again(url, data) for _ in range(CONNECTIONS)))
            return ""

        report.add(name, *asyncio.run(beside(flood, seconds)))
    return report


async def beside(hostile: Hostile, seconds: float) -> list[str]:
    """Ping a broker while something is done to it."""
    text = cell("all", ["b"], subscribers=True), topic("t", "b")
    async with Processes(*text) as brokers:
        await brokers.start("b")
        begun = asyncio.Event()
        task = asyncio.create_task(hostile(brokers.url("b"), begun))
        await begun.wait()
        took = await pings(brokers.address("b"), seconds)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    said = task.result() if not task.cancelled() else ""
    return [f"{max(took) * 1e3:.0f}", f"{median(took) * 1e3:.1f}", f"{len(took):,}", said]


async def pings(address: str, seconds: float) -> list[float]:
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(bytes(codec().frames([Hello()])))
    await reader.read(1 << 16)
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        writer.write(bytes(codec().frames([Ping(1)])))
        await reader.read(1 << 16)
        took.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE_S)
    writer.close()
    return took


async def nothing(_: str, begun: asyncio.Event) -> str:
    begun.set()
    return ""


async def patterns(url: str, begun: asyncio.Event) -> str:
    """Subscribe to as much as is taken, and publish ten events again and again."""
    many = " OR ".join(f"a LIKE '%{n}zz%'" for n in range(990))
    refused = 0
    async with connect(url) as client, AsyncExitStack() as stack:
        for number in range(100):
            try:
                await stack.enter_async_context(client.subscribe("t", f"{many} OR n = {number}"))
            except RefusedError:
                refused += 1
        begun.set()
        with suppress(asyncio.CancelledError):
            while True:
                await client.publish_many("t", [({"a": "headline " * 10}, b"")] * 10)
    return f"{refused} refused"


async def send_again(url: str, data: bytes) -> None:
    host, port = url.removeprefix("gapless://").split(":")
    while True:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(host, int(port))
            reading = asyncio.create_task(reader.read())
            try:
                writer.write(bytes(codec().frames([Hello()])))
                while not reading.done():
                    writer.write(data)
                    await writer.drain()
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
                writer.close()
