"""Convoy: who catch up at one pubend with the same condition, and travel together.

Theory of operation
    Of ticks at which all of them were known to the filtered log, subscriptions with one condition
    want the same. So what the first finds in the log is there for those that follow: its trail and
    its last reading, and the windows of events that it took, by where they start. Windows end at
    round ticks (`catch_up`), so that those who started a little apart come to the same windows
    soon. A follower's batch is the leader's very object: so the node knows that its message is too.
    A window stays true whatever happens to the log: what is durable below `latest` never changes.

Invariants (checked by `check`)
    I1  the windows of all convoys of a broker have no more bytes than the hold may have; beyond it
        the oldest are forgotten, and taken from the log again

Cost: one entry for each window.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.durable.filtered_log import Trail

if TYPE_CHECKING:
    from gapless.durable.consolidated import SubscriptionBatch
    from gapless.durable.filtered_log import LogReading


class WindowCache:
    """The windows of all convoys of one broker, the oldest first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._windows: dict[tuple[CatchUpGroup, int], tuple[SubscriptionBatch, int]] = {}
        self._bytes = 0

    def add(self, convoy: CatchUpGroup, start: int, batch: SubscriptionBatch) -> None:
        size = sum(map(len, batch.events)) + 1
        self._bytes += size - self._windows.pop((convoy, start), (batch, 0))[1]
        self._windows[convoy, start] = batch, size
        while self._bytes > self.bytes_max:
            self._bytes -= self._windows.pop(next(iter(self._windows)))[1]

    def find(self, convoy: CatchUpGroup, start: int) -> SubscriptionBatch | None:
        found = self._windows.get((convoy, start))
        return None if found is None else found[0]

    def clear(self) -> None:
        self._windows.clear()
        self._bytes = 0

    def check(self) -> None:
        assert self._bytes == sum(size for _, size in self._windows.values()), "I1"
        assert self._bytes <= self.bytes_max, "I1"


class CatchUpGroup:
    """One pubend, one condition. See the module docstring."""

    def __init__(self, hold: WindowCache) -> None:
        self.trail = Trail()
        self._cache = hold
        self._read_from = 0
        self._reading: LogReading | None = None

    def window(self, start: int, room: int) -> SubscriptionBatch | None:
        """What someone took from `start` on, if it is no more than `room` events."""
        batch = self._cache.find(self, start)
        return batch if batch is not None and len(batch.ticks) <= room else None

    def keep(self, start: int, batch: SubscriptionBatch) -> None:
        """This was taken from `start` on, and was all there is."""
        self._cache.add(self, start, batch)

    def reading(self, start: int) -> LogReading | None:
        """What someone read of the filtered log, if it knows about `start`."""
        reading = self._reading
        if reading is None or not self._read_from <= start < reading.unknown_from:
            return None
        return reading._replace(unknown_below=start, lost_below=start)

    def note(self, reading: LogReading) -> None:
        """This was read."""
        if reading.lost_below < reading.unknown_from:
            self._reading, self._read_from = reading, reading.lost_below
