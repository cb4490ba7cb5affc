"""KnowledgeStream: what one broker knows of one pubend's time line, as runs.

Theory of operation
    Of each tick the stream knows nothing, or that it carries an event, or that it is silent.
    Knowledge joins: it may come late, twice, split or shuffled, and the outcome is the same. A
    stream may forget: below `base` everything is forgotten for good, and an overfull stream forgets
    one end. Silence is whatever is known and not an event, so a batch with its silence is one run.

Invariants (checked by `check`)
    I1  ticks of events ascend, and each is known
    I2  nothing below `base` is known

Source: DSN 2002, sec. 2.1 (accumulation and forgetting). Deviation: FINAL and SILENCE are one
state, as there; an event learnt at a tick thought silent stays, because under changing
subscriptions a tick may be filtered once and sent another time.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError
from gapless.core.spans import SpanSet
from gapless.core.ticks import TICK_MAX, Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class KnowledgeStream:
    """Known ticks and the events among them. See the module docstring."""

    __slots__ = ("_events", "_ticks", "base", "known", "size")

    def __init__(self, base: int = 0) -> None:
        self.base = base
        self.known = SpanSet()
        self.size = 0  # of all events, in bytes
        self._ticks: list[int] = []
        self._events: list[bytes] = []

    def learn(self, span: Span, ticks: Sequence[int], events: Sequence[bytes]) -> list[Span]:
        """Join knowledge of `span`; return the parts that are new: unknown before, or thought
        silent where there is an event.

        Raises `ProtocolError`, and changes nothing, if an event differs from the one known at its
        tick.
        """
        if (
            span.start >= self.end
        ):  # the usual case: it begins at the end of what is known, or later
            self._ticks += ticks
            self._events += events
            self.size += sum(map(len, events))
            self.known.add(span)
            return [span]
        self._refuse_contradiction(ticks, events)
        if span.end <= self.base:
            return []
        if span.start < self.base:
            first = bisect_left(ticks, self.base)
            span, ticks, events = Span(self.base, span.end), ticks[first:], events[first:]
        fresh = list(self.known.missing(span))
        if fresh == [span] and not (self._ticks and ticks and ticks[0] <= self._ticks[-1]):
            self._ticks += ticks
            self._events += events
            self.size += sum(map(len, events))
        elif ticks:
            fresh = self._insert(fresh, ticks, events)
        self.known.add(span)
        return fresh

    def settle(self, span: Span) -> None:
        """Mark what is unknown of `span` as silence: nobody needs it any more."""
        if span.end > self.base:
            self.known.add(Span(max(span.start, self.base), span.end))

    def _refuse_contradiction(self, ticks: Sequence[int], events: Sequence[bytes]) -> None:
        if not self._ticks or not ticks or ticks[0] > self._ticks[-1]:
            return
        for tick, event in zip(ticks, events, strict=True):
            place = bisect_left(self._ticks, tick)
            known = place < len(self._ticks) and self._ticks[place] == tick
            if known and self._events[place] != event:
                raise ProtocolError(f"two different events at tick {tick}")

    def _insert(
        self, fresh: list[Span], ticks: Sequence[int], events: Sequence[bytes]
    ) -> list[Span]:
        """Put events among those known; ticks thought silent that carry one are fresh too."""
        widened = SpanSet(fresh)
        for tick, event in zip(ticks, events, strict=True):
            place = bisect_left(self._ticks, tick)
            if place == len(self._ticks) or self._ticks[place] != tick:
                self._ticks.insert(place, tick)
                self._events.insert(place, event)
                self.size += len(event)
                widened.add(Span(tick, tick + 1))
        return list(widened)

    def events_in(self, span: Span) -> tuple[list[int], list[bytes]]:
        """The ticks and the events known in `span`."""
        low, high = bisect_left(self._ticks, span.start), bisect_left(self._ticks, span.end)
        return self._ticks[low:high], self._events[low:high]

    def take_below(self, tick: int) -> tuple[list[int], list[bytes]]:
        """Remove and return the events before `tick`; forget everything else there."""
        if self._ticks and self._ticks[-1] >= tick:
            cut = bisect_left(self._ticks, tick)
            ticks, events = self._ticks[:cut], self._events[:cut]
            self.forget_below(tick)
            return ticks, events
        ticks, events = self._ticks, self._events
        self._ticks, self._events, self.size = [], [], 0
        self.forget_below(tick)
        return ticks, events

    @property
    def event_count(self) -> int:
        return len(self._ticks)

    @property
    def end(self) -> int:
        """One past the last known tick, or `base` if nothing is known."""
        return self.known.end if self.known else self.base

    def forget_below(self, tick: int) -> None:
        """Forget everything before `tick`, for good."""
        if tick > self.base:
            self.base = tick
            self.known.remove_below(tick)
            if self._ticks and self._ticks[0] < tick:
                self._drop(slice(None, bisect_left(self._ticks, tick)))

    def keep_newest(self, count: int, size: int) -> bool:
        """Forget the oldest events beyond `count` or `size` bytes, with all before them."""
        if self.size <= size and len(self._ticks) <= count:
            return False
        kept = self._fitting(reversed(self._events), count, size)
        if kept < len(self._ticks):
            self.forget_below(self._ticks[len(self._ticks) - kept - 1] + 1)
            return True
        return False

    def keep_oldest(self, count: int, size: int) -> bool:
        """Forget the newest events beyond `count` or `size` bytes, with all after them."""
        if self.size <= size and len(self._ticks) <= count:
            return False
        kept = self._fitting(self._events, count, size)
        if kept < len(self._ticks):
            self.known.remove(Span(self._ticks[kept], TICK_MAX + 1))
            self._drop(slice(kept, None))
            return True
        return False

    def _fitting(self, events: Iterable[bytes], count: int, size: int) -> int:
        """How many of the events, from the first on, are within the limits; at least one."""
        if self.size <= size:
            return min(len(self._events), max(count, 1))
        kept = 0
        for event in events:
            size -= len(event)
            if kept and (kept == count or size < 0):
                break
            kept += 1
        return kept

    def _drop(self, part: slice) -> None:
        self.size -= sum(map(len, self._events[part]))
        del self._ticks[part]
        del self._events[part]

    def check(self) -> None:
        self.known.check()
        assert len(self._ticks) == len(self._events)
        assert self.size == sum(map(len, self._events))
        assert all(a < b for a, b in pairwise(self._ticks)), "I1"
        assert all(tick in self.known for tick in self._ticks), "I1"
        assert not self.known or self.known.start >= self.base, "I2"
