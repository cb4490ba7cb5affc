"""Worker: publisher connections, in closed loop or at a rate.

In closed loop at most `window` deliveries are outstanding over all subscribers, and at most
`in_flight` events unconfirmed for each publisher, so that no broker drops events or swells.
A publisher does not send again what was not confirmed when its connection was lost; a library that
does so by itself may.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.peers.counters import (
    BY_GROUP,
    CONFIRMED,
    CONNECTIONS_MAX,
    DELIVERED,
    EXPECTED,
    PUBLISHED,
    PUBLISHERS_MAX,
    STOP,
)
from benchmarks.peers.model import (
    EXCHANGES,
    make_events,
    make_payload,
    rest_of_payload,
    set_fans,
)
from benchmarks.peers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.peers.adapter import Client, Setting
    from benchmarks.peers.model import Interest

BATCH = 32
"""Events that are handed to a client at once in closed loop."""

BURST_MAX = 200
STALL_S = 3.0
"""When nothing arrives for so long, what is outstanding counts as missing, and the run goes on."""

CONFIRM_S = 10.0
NUMBERS = 1_000_000_000
"""Numbers of one publisher."""


@dataclass(frozen=True)
class Order:
    """What to publish."""

    seconds: float
    rate: float | None = None  # events/s of each publisher; None: closed loop
    window: int | None = None
    in_flight: int = 256


@dataclass(eq=False)
class Place:
    """One publisher's connection and its counts."""

    index: int
    client: Client | None = None
    sent: int = 0
    confirmed: int = 0
    doubtful: int = 0  # unconfirmed when a connection was lost
    missing: int = 0
    done: list[int] = field(default_factory=list)
    sent_at_ns: dict[int, int] = field(default_factory=dict)
    latencies_ns: array[int] = field(default_factory=lambda: array("q"))
    progress: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def unconfirmed(self) -> int:
        return self.sent - self.confirmed - self.doubtful


class Publishers(Worker):
    """Holds publisher connections; all of them run at once."""

    def __init__(
        self,
        setting: Setting,
        counters: str,
        publishers: list[int],
        interests: list[Interest],
        confirmed: bool,
        remember: bool,
    ) -> None:
        super().__init__(setting, counters)
        self.events = make_events()
        set_fans(self.events, interests)
        self._fans = [0, *accumulate(event.fan for event in self.events)]
        self._groups = [
            [0, *accumulate(event.group == group for event in self.events)]
            for group in range(len(EXCHANGES))
        ]
        self.places = [Place(index) for index in publishers]
        self.is_confirmed = confirmed
        self.remembers = remember

    def clients(self) -> list[Client]:
        return [place.client for place in self.places if place.client is not None]

    async def _open(self, place: Place) -> None:
        client = self.peer.client(self.setting, f"pub{place.index:04d}")
        client.on_lost = lambda: self.loop.call_soon_threadsafe(self._lost, place, client)
        client.on_confirm = lambda tags: self._confirm(place, tags)
        await asyncio.wait_for(client.open(), 30)
        await asyncio.wait_for(client.start_publisher(confirmed=self.is_confirmed), 30)
        place.client = client

    def _confirm(self, place: Place, tags: Sequence[int]) -> None:
        now_ns = time.monotonic_ns()
        place.confirmed += len(tags)
        self.slots[CONFIRMED + place.index] = place.confirmed
        for tag in tags:
            sent_ns = place.sent_at_ns.pop(tag, None)
            if sent_ns is not None:
                place.latencies_ns.append(now_ns - sent_ns)
        if self.remembers:
            place.done.extend(tags)
        place.progress.set()

    def _lost(self, place: Place, client: Client) -> None:
        if place.client is client:
            place.client = None
            place.progress.set()

    # --- commands --------------------------------------------------------------------------------

    async def do_connect(self, _: None) -> None:
        for place in self.places:
            await self._open(place)

    async def do_run(self, order: Order) -> None:
        await asyncio.gather(*(self._run(place, order) for place in self.places))

    async def do_reset(self, _: None) -> None:
        for place in self.places:
            del place.latencies_ns[:]

    async def do_collect(self, _: None) -> dict[str, Any]:
        return {
            "latencies_ns": [each for place in self.places for each in place.latencies_ns],
            "done": [place.done for place in self.places],
            "sent": [place.sent for place in self.places],
            "missing": sum(place.missing for place in self.places),
        }

    # --- running ---------------------------------------------------------------------------------

    async def _run(self, place: Place, order: Order) -> None:
        clock = time.monotonic
        begin, base, end = clock(), place.sent, clock() + order.seconds
        window = Window(self, place, order.window) if order.window is not None else None
        while clock() < end and not self.slots[STOP]:
            if place.client is None:
                await self._come_back(place, end)
                begin, base = clock(), place.sent
                continue
            count = BATCH
            if order.rate is not None:
                count = min(int((clock() - begin) * order.rate) - (place.sent - base), BURST_MAX)
            if self.is_confirmed:
                count = min(count, order.in_flight - place.unconfirmed)
                if count <= 0 and place.unconfirmed >= order.in_flight:
                    await self._wait_confirmed(place)
                    continue
            if count <= 0 or (window is not None and window.is_full()):
                await asyncio.sleep(0.001)
                continue
            await self._publish(place, count, every=1 if order.in_flight <= 16 else 7)
        limit = clock() + CONFIRM_S
        while self.is_confirmed and place.unconfirmed and place.client and clock() < limit:
            await self._wait_confirmed(place)

    async def _publish(self, place: Place, count: int, every: int) -> None:
        """As little as can be for each event: it is what our own events cost too."""
        client, events, size = place.client, self.events, len(self.events)
        assert client is not None
        publish, is_confirmed = client.publish, self.is_confirmed
        base, first = place.index * NUMBERS, place.sent
        now_ns = time.monotonic_ns()
        rest = rest_of_payload(now_ns)
        sent = first
        try:
            if is_confirmed:
                for number in range(first + -first % every, first + count, every):
                    place.sent_at_ns[base + number] = now_ns
            try:
                for number in range(first, first + count):
                    tag = base + number if is_confirmed else None
                    publish(events[number % size], make_payload(base + number, rest), tag)
                    sent = number + 1
            finally:
                self._count(place, sent)
            await client.flush()
        except Exception:  # each library has its own for a broker that has gone
            if not self.remembers and place.client is client:
                raise
            place.client = None
        await asyncio.sleep(0)

    def _count(self, place: Place, sent: int) -> None:
        """So many events were handed over by now."""
        slots = self.slots
        for group, sums in enumerate(self._groups, BY_GROUP):
            slots[group] += _until(sent, sums) - _until(place.sent, sums)
        place.sent = sent
        slots[PUBLISHED + place.index] = sent
        slots[EXPECTED + place.index] = _until(sent, self._fans)

    async def _wait_confirmed(self, place: Place) -> None:
        if place.client is not None and place.client.is_threaded:
            await asyncio.sleep(0.001)
            return
        place.progress.clear()
        try:
            async with asyncio.timeout(1.0):
                await place.progress.wait()
        except TimeoutError:
            pass

    async def _come_back(self, place: Place, end: float) -> None:
        """The broker has gone: what was not confirmed stays in doubt."""
        place.doubtful = place.sent - place.confirmed if self.is_confirmed else 0
        while place.client is None and time.monotonic() < end and not self.slots[STOP]:
            try:
                await self._open(place)
            except Exception:  # the same
                await asyncio.sleep(0.1)


def _until(number: int, sums: list[int]) -> int:
    """The sum over all events before this number, of which there are those of `sums` in turn."""
    rounds, rest = divmod(number, len(sums) - 1)
    return rounds * sums[-1] + sums[rest]


class Window:
    """Are too many deliveries outstanding? What never comes is given up after `STALL_S`."""

    def __init__(self, worker: Publishers, place: Place, window: int) -> None:
        slots = np.frombuffer(worker.slots, np.int64)
        self._delivered = slots[DELIVERED : DELIVERED + CONNECTIONS_MAX]
        self._expected = slots[EXPECTED : EXPECTED + PUBLISHERS_MAX]
        self._place = place
        self._window = window
        self._last = (-1, time.monotonic())

    def is_full(self) -> bool:
        delivered = int(self._delivered.sum()) + self._place.missing
        outstanding = int(self._expected.sum()) - delivered
        if outstanding < self._window:
            return False
        now_s = time.monotonic()
        if delivered != self._last[0]:
            self._last = (delivered, now_s)
        elif now_s - self._last[1] > STALL_S:
            self._place.missing += outstanding
        return True
