"""Catch-up group: the catch-ups at one pubend that have the same condition share what they read.

Theory of operation
    Where the filtered log knew all of them, subscriptions with one condition want the same ticks.
    So what the first catch-up reads, from the pubend's log or by asking for it, serves those that
    follow: its trail and its last reading of the filtered log, and the batches of events that it
    took, by start tick. A follower that stands within a batch gets the rest of it, and then stands
    where the next begins. From there on it gets the very batch objects of the leader, so the node
    can send it the very same messages.
    A batch stays true whatever happens to the log: what is durable below `latest` never changes.

Invariants (checked by `check`)
    I1  the batches of all groups of a broker have at most `bytes_max` bytes; beyond it the cache
        forgets the oldest, and catch-ups read them again
    I2  a group knows the start of each of its batches in the cache, ascending

Cost: one entry for each batch.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING

from gapless.durable.consolidated import SubscriptionBatch
from gapless.durable.filtered_log import Trail

if TYPE_CHECKING:
    from gapless.durable.filtered_log import LogReading


class BatchCache:
    """The batches of all groups of one broker, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._batches: dict[tuple[CatchUpGroup, int], tuple[SubscriptionBatch, int]] = {}
        self._bytes = 0

    def add(self, group: CatchUpGroup, start: int, batch: SubscriptionBatch) -> None:
        self._remove(group, start)
        size = sum(map(len, batch.events)) + 1
        self._batches[group, start] = batch, size
        self._bytes += size
        insort(group.starts, start)
        while self._bytes > self.bytes_max:
            self._remove(*next(iter(self._batches)))

    def _remove(self, group: CatchUpGroup, start: int) -> None:
        found = self._batches.pop((group, start), None)
        if found is not None:
            self._bytes -= found[1]
            del group.starts[bisect_left(group.starts, start)]

    def find(self, group: CatchUpGroup, start: int) -> SubscriptionBatch | None:
        found = self._batches.get((group, start))
        return None if found is None else found[0]

    def clear(self) -> None:
        for group, _ in self._batches:
            group.starts.clear()
        self._batches.clear()
        self._bytes = 0

    def check(self) -> None:
        assert self._bytes == sum(size for _, size in self._batches.values()), "I1"
        assert self._bytes <= self.bytes_max, "I1"
        for group in {group for group, _ in self._batches}:
            assert group.starts == sorted(at for each, at in self._batches if each is group), "I2"


class CatchUpGroup:
    """One pubend, one condition. See the module docstring."""

    def __init__(self, cache: BatchCache) -> None:
        self.trail = Trail()
        self.starts: list[int] = []
        """Of the batches in the cache, which keeps this list."""
        self._cache = cache
        self._read_from = 0
        self._reading: LogReading | None = None

    def batch(self, start: int, room: int) -> SubscriptionBatch | None:
        """What is known from `start` on, if it is an event at least: at most `room` events."""
        end = start
        while place := bisect_right(self.starts, end):
            batch = self._cache.find(self, self.starts[place - 1])
            assert batch is not None, "I2"
            if batch.through <= end:
                return None
            low = bisect_left(batch.ticks, end)
            if low < len(batch.ticks):
                return batch if not low and len(batch.ticks) <= room else cut(batch, low, room)
            end = batch.through  # nothing is wanted before it
        return None

    def keep(self, start: int, batch: SubscriptionBatch) -> SubscriptionBatch:
        """Keep a batch that begins at `start` and lacks nothing; return the batch that all share:
        an equal one may be there already."""
        former = self._cache.find(self, start)
        if former is not None and former.through >= batch.through:
            return former if former.through == batch.through else batch
        self._cache.add(self, start, batch)
        return batch

    def reading(self, start: int) -> LogReading | None:
        """The last reading of the filtered log, if it covers `start`."""
        reading = self._reading
        if reading is None or not self._read_from <= start < reading.unknown_from:
            return None
        return reading._replace(unknown_below=start, lost_below=start)

    def note(self, reading: LogReading) -> None:
        """Keep a reading of the filtered log."""
        if reading.lost_below < reading.unknown_from:
            self._reading, self._read_from = reading, reading.lost_below


def cut(batch: SubscriptionBatch, low: int, room: int) -> SubscriptionBatch:
    """At most `room` events of a batch, from an index on."""
    high = low + room
    through = batch.ticks[high] if high < len(batch.ticks) else batch.through
    return SubscriptionBatch(batch.ticks[low:high], batch.events[low:high], through)
