"""Receipts: what a pubend remembers of its named publishers, so that a retry never publishes twice.

Theory of operation
    A named publisher numbers its events 0, 1, 2, … without holes. For each the pubend keeps the
    next number it expects and, for the newest runs of publications, the tick of their first event:
    the events of a run have ticks one pubend step apart, so a run is three numbers. The memory is
    written in the same commit as the events, so it is right after any crash. A number that was
    published before is a repeat and gets its first tick again, or -1 if its run is forgotten; a
    number beyond the next is refused, because what is missing in between might still be retried.

    Whoever takes a name over asks for that number. From then on nothing counts any more that comes
    over the connection from which the name was used before: what a process that was killed had sent
    may still be on its way, and would take the numbers that the next one is about to give.

Invariants
    I1  runs ascend and do not overlap; the last ends at `next`; at most `receipts_max` of them
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Send
from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from gapless.core.client_messages import Publish, PublisherQuery
    from gapless.core.identity import ClientName, PublisherName

RUN = struct.Struct("<qqq")
STEP = 1 << PUBEND_BITS
"""From one tick of a pubend to its next."""


@dataclass(slots=True)
class Publisher:
    """What is durable of one named publisher: the next number, and its newest runs, packed as they
    are written: each commit adds to one of many, and none of the others is looked at."""

    next: int = 0
    packed: bytes = b""

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """First number, end, and tick of the first, of each."""
        return list(RUN.iter_unpack(self.packed))

    def copy(self) -> Publisher:
        return Publisher(self.next, self.packed)

    def publish(self, sequence: int, count: int, tick: int, runs_max: int) -> None:
        """Remember that `count` events from `sequence` on stand at `tick` and after."""
        assert sequence == self.next
        packed, self.next = self.packed, sequence + count
        run, kept = (sequence, self.next, tick), (runs_max - 1) * RUN.size
        if packed:
            first, _, begin = RUN.unpack_from(packed, len(packed) - RUN.size)
            if begin + (sequence - first) * STEP == tick:
                run, packed = (first, self.next, begin), packed[: -RUN.size]
        self.packed = packed[max(0, len(packed) - kept) :] + RUN.pack(*run)

    def ticks(self, sequence: int, count: int) -> tuple[int, ...]:
        """The ticks that these numbers got; -1 where that is forgotten."""
        found: list[int] = []
        for offset in range(len(self.packed) - RUN.size, -1, -RUN.size):
            first, end, tick = RUN.unpack_from(self.packed, offset)
            low, high = max(first, sequence), min(end, sequence + count)
            if low < high:
                ticks = range(tick + (low - first) * STEP, tick + (high - first) * STEP, STEP)
                if len(ticks) == count:
                    return tuple(ticks)
                found = found or [-1] * count
                found[low - sequence : high - sequence] = ticks
            if first <= sequence:
                break
        return tuple(found or [-1] * count)

    def encode(self) -> bytes:
        return RUN.pack(self.next, 0, 0) + self.packed

    @classmethod
    def decode(cls, fact: bytes) -> Publisher:
        return cls(RUN.unpack_from(fact)[0], fact[RUN.size :])


class Holders:
    """Over which connection each name is used, and over which it was before that was."""

    def __init__(self) -> None:
        self._now: dict[PublisherName, ClientName] = {}  # of names that published
        self._before: dict[PublisherName, ClientName] = {}

    def may_publish(self, client: ClientName, name: PublisherName) -> bool:
        return self._before.get(name) != client

    def publish(self, client: ClientName, name: PublisherName) -> None:
        self._now[name] = client

    def take_over(self, client: ClientName, name: PublisherName) -> None:
        before = self._now.get(name)
        if before not in (None, client):
            self._before[name], self._now[name] = before, client


TAKEN_OVER = "Use a name in one process at a time."
TOO_MANY = "Use fewer names of publishers."


def refuse(
    client: ClientName, message: Publish | PublisherQuery, problem: str, remedy: str = ""
) -> Send:
    """With a remedy: for good."""
    later = "Publish the same events again later."
    return Send(client, Refused(message.request, problem, remedy or later, retry=not remedy))
