"""Ack timer: when a pubend asks for the acknowledgement of its newest event, and how patiently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.knowledge.timing import KnowledgeTiming


class AckTimer:
    """Waits for one acknowledgement at a time; doubles the wait each time that nothing comes."""

    def __init__(self, timing: KnowledgeTiming) -> None:
        self.timing = timing
        self.deadline: Instant | None = None
        self._after = timing.ack_expected
        self._tick = 0

    def expect(self, tick: int, now: Instant) -> None:
        """Wait for the acknowledgement of everything below `tick`, unless already waiting."""
        if self.deadline is None:
            self.deadline = Instant(now + self._after)
            self._tick = tick

    def heard(self) -> None:
        """Reset the wait: a broker below has answered."""
        self._after = self.timing.ack_expected

    def done(self) -> None:
        """Stop waiting: everything is acknowledged."""
        self.deadline = None

    def fire(self, now: Instant) -> int:
        """The tick whose acknowledgement is overdue, or 0."""
        if self.deadline is None or now < self.deadline:
            return 0
        self.deadline = None
        self._after = min(self._after * 2, self.timing.ack_expected_longest)
        return self._tick
