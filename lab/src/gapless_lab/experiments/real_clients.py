"""Publishers and subscribers of the real experiments, and what they owed and got.

All of them live in this process, so one clock times both ends. An event has a number `i`, counted
from 0, and a `kind`, which is its number modulo the number of kinds.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.client import connect
from gapless.core.events import Event
from gapless.testing.processes.brokers import topic

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from gapless.client.publisher import Publisher
    from gapless.client.subscription import Subscription

TOPIC = "quotes"
HOST = "p"
"""The broker that publishers connect to, in every network here."""

QUOTES = topic(TOPIC, HOST)
PACE_S = 0.001
"""Short: events go one by one, as those of many publishers do, and not in batches."""

LOOK_S = 0.01
SETTLE_S = 60.0
"""How long to wait for what is owed; then it counts as lost."""

LEVEL_S = 0.25
"""Who gets an event no later than this has caught up."""

BODY = b"x" * 200


class Feed:
    """Publishes at a steady rate until it is stopped; `sent_s` says when each event was sent."""

    def __init__(self, publisher: Publisher, events_per_s: int, kind_count: int) -> None:
        self.sent_s: list[float] = []
        self.kind_count = kind_count
        self._publisher = publisher
        self._events_per_s = events_per_s
        self._is_over = False

    async def run(self) -> None:
        begin_s, first = time.monotonic(), len(self.sent_s)
        while not self._is_over:
            due = int((time.monotonic() - begin_s) * self._events_per_s)
            while len(self.sent_s) - first < due:
                number = len(self.sent_s)
                self.sent_s.append(time.monotonic())
                await self._publisher.send({"i": number, "kind": number % self.kind_count}, BODY)
            await asyncio.sleep(PACE_S)
        await self._publisher.flush()

    def stop(self) -> None:
        self._is_over = True

    def numbers(self, kind: int | None = None, begin: int = 0) -> list[int]:
        """Those of all events of one kind, or of all kinds, from `begin` on."""
        return [
            number
            for number in range(begin, len(self.sent_s))
            if kind is None or number % self.kind_count == kind
        ]


@asynccontextmanager
async def feeding(
    url: str, events_per_s: int, kind_count: int, name: str = "feed"
) -> AsyncIterator[Feed]:
    """Someone publishes meanwhile; at the end all of it is durable."""
    async with connect(url) as client, client.publisher(TOPIC, name=name) as publisher:
        feed = Feed(publisher, events_per_s, kind_count)
        task = asyncio.create_task(feed.run())
        try:
            yield feed
        finally:
            feed.stop()
            await task


class Reader:
    """Keeps the number of each event that a subscription hands out, and when it came.

    Gaps are not kept: what is in one and was owed is found missing.
    """

    def __init__(self, subscription: Subscription) -> None:
        self.arrivals: list[tuple[int, float]] = []
        self.subscription = subscription
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for item in self.subscription:
            if isinstance(item, Event):
                self.arrivals.append((int(item.attributes["i"]), time.monotonic()))

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.arrivals]

    async def wait_for(self, number: int, patience_s: float = SETTLE_S) -> bool:
        """Until this event has come; False if it has not within `patience_s`."""
        end_s = time.monotonic() + patience_s
        while not self.arrivals or self.arrivals[-1][0] < number:
            if self._task.done() or time.monotonic() > end_s:
                return False
            await asyncio.sleep(LOOK_S)
        return True

    async def stop(self) -> None:
        """Raises what ended the subscription, if anything did."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def level_s(self, sent_s: Sequence[float], since_s: float) -> float | None:
        """When the first event came in time again, in seconds since then; None if none did."""
        for number, came_s in self.arrivals:
            if came_s >= since_s and came_s - sent_s[number] <= LEVEL_S:
                return came_s - since_s
        return None


@asynccontextmanager
async def reading(subscription: Subscription) -> AsyncIterator[Reader]:
    async with subscription:
        reader = Reader(subscription)
        try:
            yield reader
        finally:
            await reader.stop()


class Account(NamedTuple):
    """What subscribers were owed, and what was wrong with what they got."""

    owed: int = 0
    lost: int = 0
    doubled: int = 0
    disordered: int = 0

    def plus(self, owed: Sequence[int], got: Sequence[int]) -> Account:
        return Account(
            self.owed + len(owed),
            self.lost + len(set(owed) - set(got)),
            self.doubled + len(got) - len(set(got)),
            self.disordered + sum(later < sooner for sooner, later in pairwise(got)),
        )

    @property
    def is_right(self) -> bool:
        return self.owed > 0 and not (self.lost or self.doubled or self.disordered)

    def show(self) -> str:
        return (
            f"{self.owed:,} deliveries owed: {self.lost} lost, {self.doubled} doubled, "
            f"{self.disordered} out of order"
        )
