"""The window of a catch-up: a subend in which no more waits than the catch-up may have open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import Nack
from gapless.core.identity import Instant
from gapless.core.spans import SpanSet
from gapless.core.ticks import Span
from gapless.knowledge.subend import Subend

if TYPE_CHECKING:
    from collections.abc import Sequence


class Window(Subend):
    """At most `window` events wait in it."""

    window = 1

    @property
    def _room(self) -> tuple[int, int]:
        return self.window, self.timing.waiting_bytes_max

    def ask_for(self, ticks: Sequence[int], now: Instant) -> list[Nack]:
        """Ask for these, when nothing was in question: no more than one question can take."""
        spans = [Span(tick, tick + 1) for tick in ticks]
        if not spans or self.stream.size >= self.timing.waiting_bytes_max:
            return self._ask(spans, now)
        self._asked = SpanSet(spans)
        self._out = self._asked.copy()
        self._repeat_due = Instant(now + self._repeat_after)
        return [Nack(self.pubend, tuple(self._asked))]


def roundest(low: int, high: int) -> int:
    """Of the numbers after `low`, up to `high`, the one with the most zeros at its end in binary;
    `high` if there are none."""
    zeros = max(0, (low ^ high).bit_length() - 1)
    return high >> zeros << zeros
