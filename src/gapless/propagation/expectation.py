"""Expectation: by when a change should have come back to its leaf, in the vectors of messages.

Theory of operation
    A change that has gone up changes the vectors of messages once it has reached the publishers'
    brokers. The leaf learns how long that takes like a round-trip time: a smoothed mean and
    deviation. If a message comes later than the mean and four deviations and still has an older
    vector, the change was lost on the way. A change that was sent again teaches nothing, because
    the leaf cannot tell which of the two came back; instead the wait doubles. A source that appears
    later gets the same time to catch up with what all others have.

Invariants
    I1  the changes waited for ascend
    I2  at most `WAITING_MAX` are waited for, and one for sources that came late; beyond it the
        older of the two newest is dropped

Source: Middleware 2004, sec. 4, leaf broker driven liveness.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.propagation.timing import PropagationTiming

WAITING_MAX = 64


@dataclass(slots=True)
class SentChange:
    """A change on its way, and by when messages should have its time."""

    time: int
    at: Instant
    due: Instant
    is_repeated: bool = False


class Expectation:
    """The changes that one leaf waits for. Sources are the publishers' brokers, by any name."""

    def __init__(self, timing: PropagationTiming) -> None:
        self.timing = timing
        self.wait = timing.change_wait
        self.sent_changes: list[SentChange] = []
        self._mean: int | None = None
        self._deviation = 0
        self._source_times: dict[str, int] = {}
        self._settled = 0  # every known source has had it

    def sent(self, time: int, now: Instant) -> None:
        if len(self.sent_changes) >= WAITING_MAX:
            del self.sent_changes[-1]
        self.sent_changes.append(SentChange(time, now, Instant(now + self.wait)))

    def see(self, source: str, time: int, now: Instant) -> bool:
        """Note a message of this source with the leaf's element at `time`. Is a change overdue?"""
        is_late = source not in self._source_times and time < self._settled
        if is_late and not (self.sent_changes and self.sent_changes[0].time <= self._settled):
            late = SentChange(self._settled, now, Instant(now + self.wait), is_repeated=True)
            self.sent_changes.insert(0, late)
        before = self._source_times.get(source, 0)
        self._source_times[source] = time = max(before, time)
        for each in self.sent_changes:
            if before < each.time <= time and not each.is_repeated:
                self._learn(now - each.at)
        everywhere = min(self._source_times.values())
        while self.sent_changes and self.sent_changes[0].time <= everywhere:
            self._settled = self.sent_changes.pop(0).time
        overdue = any(each.time > time and each.due <= now for each in self.sent_changes)
        if overdue:
            self.wait = min(self.wait * 2, self.timing.change_wait_longest)
            for each in self.sent_changes:
                each.is_repeated = True
                each.due = Instant(now + self.wait)
        return overdue

    def repeat(self) -> bool:
        """Note that everything is sent again for another reason. Is any change waited for?"""
        for each in self.sent_changes:
            each.is_repeated = True
        return bool(self.sent_changes)

    def forget(self, source: str) -> None:
        """Forget a source that sends no more messages."""
        self._source_times.pop(source, None)

    def _learn(self, took: int) -> None:
        if self._mean is None:
            self._mean, self._deviation = took, took // 2
        else:
            self._deviation += (abs(took - self._mean) - self._deviation) // 4
            self._mean += (took - self._mean) // 8
        wait = self._mean + 4 * self._deviation
        shortest, longest = self.timing.change_wait_shortest, self.timing.change_wait_longest
        self.wait = min(max(wait, shortest), longest)

    def check(self) -> None:
        for one, two in zip(self.sent_changes, self.sent_changes[1:], strict=False):
            assert one.time < two.time, "I1"
        assert len(self.sent_changes) <= WAITING_MAX + 1, "I2"
