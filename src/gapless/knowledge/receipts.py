"""Receipts: what a pubend remembers of its named publishers, so that a retry never publishes twice.

Theory of operation
    A named publisher numbers its events 0, 1, 2, … without holes. For each the pubend keeps the
    next number it expects and, for the newest runs of publications, the tick of their first event:
    the events of a run have ticks one pubend step apart, so a run is three numbers. The memory is
    written in the same commit as the events, so it is right after any crash. A number that was
    published before is a repeat and gets its first tick again, or -1 if its run is forgotten; a
    number beyond the next is refused, because what is missing in between might still be retried.

    Whoever takes a name over asks for that number, and gets a term with it: higher than all before,
    and durable before it is told. A publication says under which term it was numbered, and counts
    only under the last. Whoever had the name before may be paused, cut off or on its way here when
    that happens, and go on later: its numbers are another's by then, and what it sends would be
    taken for repeats of events that it never saw.
    Who gets no answer asks again over another connection, and the first question may still be on
    its way: both say which opening they are of, and get one term. Else the late one would take the
    name from its own process.
    A term is taken from the clock, and where that was set back, from the last: so it is none that
    was given before a volume was lost, or a topic deleted and made anew.

Invariants
    I1  runs ascend and do not overlap; the last ends at `next`; at most `receipts_max` of them
    I2  a term is given once; 0 is that of a name that nobody has taken over
    I3  neither the next number nor the term goes back: what waits for the disk is beyond what is
        durable, or as far
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Put, Send
from gapless.core.errors import quoted
from gapless.core.identity import PublisherName
from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Publish, PublisherQuery
    from gapless.core.identity import ClientName, Instant
    from gapless.core.store import Store

RUN = struct.Struct("<qqq")
STEP = 1 << PUBEND_BITS
"""From one tick of a pubend to its next."""

Place = tuple[int, int, int]
"""The next number of a publisher, its term, and the opening that it was given to."""


@dataclass(slots=True)
class Publisher:
    """What is durable of one named publisher: its place, and its newest runs, packed as they are
    written: each commit adds to one of many, and no other is looked at."""

    next: int = 0
    packed: bytes = b""
    term: int = 0
    opening: int = 0

    @property
    def runs(self) -> list[tuple[int, int, int]]:
        """First number, end, and tick of the first, of each."""
        return list(RUN.iter_unpack(self.packed))

    def copy(self) -> Publisher:
        return Publisher(self.next, self.packed, self.term, self.opening)

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
        return RUN.pack(self.next, self.term, self.opening) + self.packed

    @classmethod
    def decode(cls, fact: bytes) -> Publisher:
        following, term, opening = RUN.unpack_from(fact)
        return cls(following, fact[RUN.size :], term, opening)


NEW = Publisher()
"""What is known of a name that was never used."""

TAKEN_OVER = "Use a name in one process at a time."
UNHEARD_OF = "Open the publisher again, and go on from its number."
TOO_MANY = "Use fewer names of publishers."


class Publishers:
    """All named publishers of one pubend."""

    def __init__(self, store: Store, table: str, count_max: int) -> None:
        self.table = table
        self.count_max = count_max
        facts = store.items(table).items()
        self.durable = {PublisherName(name): Publisher.decode(fact) for name, fact in facts}
        self.accepted: dict[PublisherName, Place] = {}  # with all that waits for the disk

    def place(self, name: PublisherName) -> Place:
        """What counts for the next publication: that is, with all that waits."""
        if name in self.accepted:
            return self.accepted[name]
        known = self.durable.get(name, NEW)
        return known.next, known.term, known.opening

    def take_over(self, query: PublisherQuery, now: Instant) -> int:
        """The term: whatever comes from here on counts under this one only."""
        following, term, opening = self.place(query.publisher)
        if not query.opening or query.opening != opening:
            term = max(term + 1, now)
        self.accepted[query.publisher] = following, term, query.opening
        return term

    def is_one_too_many(self, name: PublisherName) -> bool:
        """Would this new name be one more than we remember, counting those that wait?"""
        if name in self.durable or name in self.accepted:
            return False
        pending = sum(each not in self.durable for each in self.accepted)
        return len(self.durable) + pending >= self.count_max

    def writes(self, changed: Mapping[PublisherName, Publisher]) -> list[Put]:
        return [Put(self.table, name, each.encode()) for name, each in sorted(changed.items())]

    def check(self) -> None:
        for name, (following, term, _) in self.accepted.items():
            known = self.durable.get(name, NEW)
            assert known.next <= following, "I3"
            assert known.term <= term, "I3"


def why_not(name: PublisherName, term: int, current: int) -> tuple[str, str]:
    """Problem and remedy of a publication under another term than the current one."""
    if term < current:
        return f"{quoted(name)} was taken over since it was opened", TAKEN_OVER
    return f"this pubend does not know that {quoted(name)} was opened", UNHEARD_OF


def refuse(
    client: ClientName, message: Publish | PublisherQuery, problem: str, remedy: str = ""
) -> Send:
    """With a remedy: for good."""
    later = "Publish the same events again later."
    return Send(client, Refused(message.request, problem, remedy or later, retry=not remedy))
