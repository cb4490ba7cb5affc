"""Catch-up group: the catch-ups at one pubend that have the same condition share what they read.

Theory of operation
    Where the filtered log knew all of them, subscriptions with one condition want the same ticks.
    So what the first catch-up reads serves those that follow: its trail and its last reading of the
    filtered log, and the windows of events that it took, by start tick. Windows end at round ticks
    (`catch_up`), so catch-ups that start a little apart soon arrive at the same windows. A follower
    gets the very batch object of the leader, so the node can send it the very same message.
    A window stays true whatever happens to the log: what is durable below `latest` never changes.

Invariants (checked by `check`)
    I1  the windows of all groups of a broker have at most `bytes_max` bytes; beyond it the cache
        forgets the oldest, and catch-ups read them from the log again

Cost: one entry for each window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.durable.filtered_log import Trail

if TYPE_CHECKING:
    from gapless.durable.consolidated import SubscriptionBatch
    from gapless.durable.filtered_log import LogReading


class WindowCache:
    """The windows of all groups of one broker, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._windows: dict[tuple[CatchUpGroup, int], tuple[SubscriptionBatch, int]] = {}
        self._bytes = 0

    def add(self, group: CatchUpGroup, start: int, batch: SubscriptionBatch) -> None:
        size = sum(map(len, batch.events)) + 1
        self._bytes += size - self._windows.pop((group, start), (batch, 0))[1]
        self._windows[group, start] = batch, size
        while self._bytes > self.bytes_max:
            self._bytes -= self._windows.pop(next(iter(self._windows)))[1]

    def find(self, group: CatchUpGroup, start: int) -> SubscriptionBatch | None:
        found = self._windows.get((group, start))
        return None if found is None else found[0]

    def clear(self) -> None:
        self._windows.clear()
        self._bytes = 0

    def check(self) -> None:
        assert self._bytes == sum(size for _, size in self._windows.values()), "I1"
        assert self._bytes <= self.bytes_max, "I1"


class CatchUpGroup:
    """One pubend, one condition. See the module docstring."""

    def __init__(self, cache: WindowCache) -> None:
        self.trail = Trail()
        self._cache = cache
        self._read_from = 0
        self._reading: LogReading | None = None

    def window(self, start: int, room: int) -> SubscriptionBatch | None:
        """The window from `start` on, if it was read and has at most `room` events."""
        batch = self._cache.find(self, start)
        return batch if batch is not None and len(batch.ticks) <= room else None

    def keep(self, start: int, batch: SubscriptionBatch) -> None:
        """Keep a window that begins at `start` and is complete."""
        self._cache.add(self, start, batch)

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
