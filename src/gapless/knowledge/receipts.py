"""Receipts: what a pubend remembers of its named publishers, so that a retry never publishes twice.

Theory of operation
    A named publisher numbers its events 0, 1, 2, … without holes. For each the pubend keeps the
    next number it expects and, for the newest runs of publications, the tick of their first event:
    the events of a run have ticks one pubend step apart, so a run is three numbers. The memory is
    written in the same commit as the events, so it is right after any crash. A number that was
    published before is a repeat and gets its first tick again, or -1 if its run is forgotten; a
    number beyond the next is refused, because what is missing in between might still be retried.

Invariants
    I1  runs ascend and do not overlap; the last ends at `next`; at most `receipts_max` of them
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING

from gapless.core.client_messages import Refused
from gapless.core.effects import Send
from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from gapless.core.client_messages import Publish
    from gapless.core.identity import ClientName

RUN = struct.Struct("<qqq")
STEP = 1 << PUBEND_BITS
"""From one tick of a pubend to its next."""


@dataclass(slots=True)
class Publisher:
    """What is durable of one named publisher: the next number, and its newest runs."""

    next: int = 0
    runs: list[tuple[int, int, int]] = field(default_factory=list)  # first number, end, first tick

    def publish(self, sequence: int, count: int, tick: int, runs_max: int) -> None:
        """Remember that `count` events from `sequence` on stand at `tick` and after."""
        assert sequence == self.next
        last = self.runs[-1] if self.runs else None
        if last and last[2] + (sequence - last[0]) * STEP == tick:
            self.runs[-1] = (last[0], sequence + count, last[2])
        else:
            self.runs.append((sequence, sequence + count, tick))
        del self.runs[:-runs_max]
        self.next = sequence + count

    def ticks(self, sequence: int, count: int) -> tuple[int, ...]:
        """The ticks that these numbers got; -1 where that is forgotten."""
        found = [-1] * count
        for first, end, tick in reversed(self.runs):
            low, high = max(first, sequence), min(end, sequence + count)
            if low < high:
                ticks = range(tick + (low - first) * STEP, tick + (high - first) * STEP, STEP)
                found[low - sequence : high - sequence] = ticks
            if first <= sequence:
                break
        return tuple(found)

    def encode(self) -> bytes:
        words = [self.next, 0, 0, *chain.from_iterable(self.runs)]
        return struct.pack(f"<{len(words)}q", *words)  # RUN after RUN, in one go

    @classmethod
    def decode(cls, fact: bytes) -> Publisher:
        (following, _, _), *runs = RUN.iter_unpack(fact)
        return cls(following, list(runs))


def refuse(client: ClientName, message: Publish, problem: str, *, retry: bool = True) -> Send:
    remedy = "Publish the same events again later." if retry else "Use fewer names of publishers."
    return Send(client, Refused(message.request, problem, remedy, retry))
