"""Worker: subscriber connections, which count, time or remember what is delivered."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.peers.counters import DELIVERED
from benchmarks.peers.model import NUMBER, TIME_NS
from benchmarks.peers.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.peers.adapter import Client, Setting
    from benchmarks.peers.model import Interest

Mode = Literal["count", "latency", "remember"]

OPEN_S, SUBSCRIBE_S, LEAVE_S = 30.0, 120.0, 20.0
AT_ONCE = 10
"""Connections that are opened at the same time."""


@dataclass(eq=False)
class Place:
    """A subscriber's connection: there, away, or to be opened again when it was lost."""

    slot: int
    interests: list[Interest]
    client: Client | None = None
    is_wanted: bool = False


class Subscribers(Worker):
    """Holds connections by slot."""

    def __init__(
        self,
        setting: Setting,
        counters: str,
        connections: list[tuple[int, list[Interest]]],
        mode: Mode,
    ) -> None:
        super().__init__(setting, counters)
        self.places = {slot: Place(slot, interests) for slot, interests in connections}
        self.latencies_ns = array("q")
        self.seen: dict[int, Counter[int]] = {}
        for place in self.places.values():
            for interest in place.interests:
                interest.sink = self._sink(DELIVERED + place.slot, interest, mode)

    def _sink(self, slot: int, interest: Interest, mode: Mode) -> Callable[[bytes], None]:
        slots = self.slots
        if mode == "count":

            def sink(payload: bytes) -> None:
                slots[slot] += 1

        elif mode == "latency":
            note, now_ns = self.latencies_ns.append, time.monotonic_ns

            def sink(payload: bytes) -> None:
                slots[slot] += 1
                note(now_ns() - int(payload[TIME_NS]))

        else:
            seen = self.seen.setdefault(interest.id, Counter())

            def sink(payload: bytes) -> None:
                slots[slot] += 1
                seen[int(payload[NUMBER])] += 1

        return sink

    def clients(self) -> list[Client]:
        for place in self.places.values():
            place.is_wanted = False
        return [place.client for place in self.places.values() if place.client is not None]

    async def _open(self, place: Place) -> None:
        client = self.peer.client(self.setting, f"sub{place.slot:04d}")
        client.on_lost = lambda: self.loop.call_soon_threadsafe(self._lost, place, client)
        client.planned = place.interests
        await asyncio.wait_for(client.open(), OPEN_S)
        await asyncio.wait_for(client.subscribe(place.interests), SUBSCRIBE_S)
        place.client = client

    def _lost(self, place: Place, client: Client) -> None:
        if place.client is client:
            place.client = None
            if place.is_wanted:
                self._reopening = self.loop.create_task(self._reopen(place))

    async def _reopen(self, place: Place) -> None:
        while place.is_wanted and place.client is None:
            try:
                await self._open(place)
            except Exception:  # each library has its own for a broker that has gone
                await asyncio.sleep(0.2)

    # --- commands --------------------------------------------------------------------------------

    async def do_connect(self, slots: list[int] | None) -> None:
        places = [place for slot, place in self.places.items() if slots is None or slot in slots]
        for first in range(0, len(places), AT_ONCE):
            some = places[first : first + AT_ONCE]
            for place in some:
                place.is_wanted = True
            await asyncio.gather(*map(self._open, some))

    async def do_leave(self, slots: list[int]) -> None:
        async def leave(place: Place) -> None:
            client, place.client, place.is_wanted = place.client, None, False
            if client is not None:
                await asyncio.wait_for(client.close(), LEAVE_S)

        await asyncio.gather(
            *(leave(place) for slot, place in self.places.items() if slot in slots)
        )

    async def do_reset(self, _: None) -> None:
        del self.latencies_ns[:]

    async def do_collect(self, _: None) -> dict[str, Any]:
        there = sum(place.client is not None for place in self.places.values())
        return {"latencies_ns": self.latencies_ns.tolist(), "seen": self.seen, "there": there}
