"""The broker's clock, and how long things take by it. The node itself knows no clock.

`read` is the wall clock; it may jump, and the node copes. `DurationMeter` keeps the durations of
many short calls in a few numbers: a bucket for each power of two of a microsecond, and the longest
of all. The broker serves nobody else during such a call, so the longest one matters most.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.node.delivery.subscribers import Subscribers

if TYPE_CHECKING:
    from gapless.core.events import EventBatch
    from gapless.node.delivery.audience import Audience, MatchedBatch

BUCKETS = 32
"""The last bucket counts everything above half an hour."""


def read() -> Instant:
    """The time now, in whole microseconds."""
    return Instant(time.time_ns() // 1_000)


class DurationMeter:
    """The durations of one kind of call."""

    __slots__ = ("buckets", "longest_ns", "total_ns")

    def __init__(self) -> None:
        self.buckets = [0] * BUCKETS
        self.total_ns = 0
        self.longest_ns = 0

    def add(self, elapsed_ns: int) -> None:
        """Count one more call."""
        self.buckets[min((elapsed_ns // 1_000).bit_length(), BUCKETS - 1)] += 1
        self.total_ns += elapsed_ns
        self.longest_ns = max(self.longest_ns, elapsed_ns)

    def statistics(self) -> dict[str, object]:
        return {
            "longest_s": self.longest_ns / 1e9,
            "total_s": self.total_ns / 1e9,
            "buckets": list(self.buckets),
        }


class TimedSubscribers(Subscribers):
    """The subscribers of a broker process, with the time that matching takes."""

    matching_ns = 0

    def _match(self, audience: Audience, batch: EventBatch, *, apart: bool) -> MatchedBatch:
        begin = time.perf_counter_ns()
        found = super()._match(audience, batch, apart=apart)
        self.matching_ns += time.perf_counter_ns() - begin
        return found
