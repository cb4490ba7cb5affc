"""The load of `gapless bench`: a publisher and some subscribers of a topic of their own, measured.

Theory of operation
    The topic is made for the purpose, and deleted at the end, whatever happens. The publisher and
    all subscribers are in this process, each on a connection of its own. No more than `WINDOW`
    deliveries of a subscriber are on their way: one that is too slow holds the publisher up.
    Every delivery is checked: a subscriber must get exactly the events of its part, in order.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from struct import Struct
from typing import TYPE_CHECKING, cast
from uuid import uuid4

from gapless.cli.connection import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.client.client import Client
    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription
    from gapless.core.events import Event

PARTS = 1_000
"""Events are numbered from 0 to this in turn, so that a condition can pass any share of them."""

BATCH, WINDOW = 32, 4_000
"""Events that are sent at a time; deliveries of one subscriber that may be on their way."""

LATENCIES_MAX = 100_000
STALL_S = 30.0
"""When nothing has come for so long, the rest is missing."""

SENT_NS = Struct("<q")


@dataclass(frozen=True, slots=True)
class BenchLoad:
    """What is asked for."""

    seconds: float
    subscribers: int
    part: int  # of `PARTS`
    size: int
    rate: float

    def due(self, sent: int) -> int:
        """Deliveries of one subscriber, of so many events."""
        return sent // PARTS * self.part + min(sent % PARTS, self.part)


@dataclass(slots=True)
class SubscriberCount:
    """What one subscriber got."""

    delivered: int = 0
    wrong: int = 0  # not the next of its part
    latencies_ns: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BenchSummary:
    """What was measured."""

    seconds: float
    published: int
    published_per_s: float
    delivered: int
    delivered_per_s: float
    missing: int
    wrong: int
    latency_p50_ms: float | None
    latency_p99_ms: float | None


async def measure(url: str, load: BenchLoad, tell: Callable[[float], None]) -> BenchSummary:
    topic = f"bench-{uuid4().hex[:8]}"
    async with connected(url) as client:
        await client.create_topic(topic)
        try:
            return await measure_topic(client, topic, url, load, tell)
        finally:
            await client.delete_topic(topic)


async def measure_topic(
    client: Client, topic: str, url: str, load: BenchLoad, tell: Callable[[float], None]
) -> BenchSummary:
    condition = f"part < {load.part}" if load.part < PARTS else ""
    seen = [SubscriberCount() for _ in range(load.subscribers)]
    async with AsyncExitStack() as stack:
        for each in seen:
            mine = await stack.enter_async_context(connected(url))
            subscription = await stack.enter_async_context(mine.subscribe(topic, condition))
            task = asyncio.create_task(read(subscription, each, load))
            stack.callback(task.cancel)
        publisher = await stack.enter_async_context(client.publisher(topic, name=topic))
        begin_s = time.monotonic()
        await publish(publisher, load, seen, tell)
        await publisher.flush()
        published_s = time.monotonic() - begin_s
        await wait_for_all(load.due(publisher.sequence), seen)
        delivered_s = time.monotonic() - begin_s
    delivered = sum(each.delivered for each in seen)
    latencies = sorted(each for some in seen for each in some.latencies_ns)
    return BenchSummary(
        seconds=published_s,
        published=publisher.sequence,
        published_per_s=publisher.sequence / published_s,
        delivered=delivered,
        delivered_per_s=delivered / delivered_s,
        missing=max(0, load.due(publisher.sequence) * load.subscribers - delivered),
        wrong=sum(each.wrong for each in seen),
        latency_p50_ms=latencies[len(latencies) // 2] / 1e6 if latencies else None,
        latency_p99_ms=latencies[len(latencies) * 99 // 100] / 1e6 if latencies else None,
    )


async def publish(
    publisher: Publisher,
    load: BenchLoad,
    seen: list[SubscriberCount],
    tell: Callable[[float], None],
) -> None:
    begin_s = time.monotonic()
    while (passed_s := time.monotonic() - begin_s) < load.seconds:
        sent = publisher.sequence
        tell(passed_s)
        count = BATCH if not load.rate else min(BATCH, int(passed_s * load.rate) - sent)
        behind = load.due(sent) - min((each.delivered for each in seen), default=load.due(sent))
        if count <= 0 or behind > WINDOW:
            await asyncio.sleep(0.001)
            continue
        body = SENT_NS.pack(time.monotonic_ns()).ljust(load.size, b".")
        await publisher.send_many(
            [({"part": number % PARTS}, body) for number in range(sent, sent + count)]
        )
        await asyncio.sleep(0)


async def read(subscription: Subscription, seen: SubscriberCount, load: BenchLoad) -> None:
    from gapless.client.joint_reader import together

    async for batch in together([subscription]).batches():
        now_ns = time.monotonic_ns()
        for event in cast("Iterator[Event]", (item for _, item in batch)):
            if load.due(cast("int", event.sequence)) != seen.delivered:
                seen.wrong += 1
            seen.delivered += 1
            if len(seen.latencies_ns) * load.subscribers < LATENCIES_MAX:
                seen.latencies_ns.append(now_ns - SENT_NS.unpack_from(event.body)[0])


async def wait_for_all(due: int, seen: list[SubscriberCount]) -> None:
    before, since_s = -1, time.monotonic()
    while any(each.delivered < due for each in seen):
        delivered = sum(each.delivered for each in seen)
        if delivered != before:
            before, since_s = delivered, time.monotonic()
        elif time.monotonic() - since_s > STALL_S:
            return
        await asyncio.sleep(0.001)
