"""Overdue: when a pubend asks for the acknowledgement of its newest event, and how patiently."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.knowledge.timing import KnowledgeTiming


class AckTimer:
    """Waits for one acknowledgement at a time; twice as long each time that nothing is heard."""

    def __init__(self, timing: KnowledgeTiming) -> None:
        self.timing = timing
        self.deadline: Instant | None = None
        self._after = timing.ack_expected
        self._tick = 0

    def expect(self, tick: int, now: Instant) -> None:
        """What is below `tick` is to be acknowledged, unless something else is awaited already."""
        if self.deadline is None:
            self.deadline = Instant(now + self._after)
            self._tick = tick

    def heard(self) -> None:
        """Someone below is there: be as impatient as in the beginning."""
        self._after = self.timing.ack_expected

    def done(self) -> None:
        """Everything is acknowledged."""
        self.deadline = None

    def fire(self, now: Instant) -> int:
        """The tick whose acknowledgement is overdue, or 0."""
        if self.deadline is None or now < self.deadline:
            return 0
        self.deadline = None
        self._after = min(self._after * 2, self.timing.ack_expected_longest)
        return self._tick
