"""Chain counts: how many events a durable subscription still has to get, from its filtered log.

Theory of operation
    The records of a subscription form a chain that leads back from the newest (`filtered_log`). A
    look at the chain counts the records that are newer than all it has seen, and goes further down
    if an older position is asked for. Each record has an ordinal; every `MARK_EVERY` records the
    count keeps a mark with tick, ordinal and bytes. So a later look walks what is new, and at most
    `MARK_EVERY` records below the mark next to the position: its cost does not depend on how much
    is pending. One look walks no more than its budget. A chain that is longer gives a lower bound,
    which the next look raises, until it is exact.
    The bytes are known where the pubend's own log is here.

Invariants (checked by `check`)
    I1  marks ascend in tick, ordinal and bytes; the last one is the newest record that was counted
    I2  nothing is counted that is not durable

Cost: nothing for an event. A look: some microseconds for each record that it walks.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.errors import StorageDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.durable.filtered_log import FilteredLog

    Sizes = Callable[[Sequence[int]], int]
    """Returns the bytes of the events at these ticks."""

MARK_EVERY = 500
"""Records between two marks: what a look walks besides what is new."""


class ChainMark(NamedTuple):
    """One record of a chain: its place in the count, and the bytes of all up to it."""

    tick: int
    ordinal: int
    size: int


class Count(NamedTuple):
    """The events from a position on."""

    events: int
    size: int
    """Their bytes; 0 where those are not known."""
    oldest: int | None
    """The tick of the first event; None without any, or if it is not known."""
    is_exact: bool
    """Otherwise there are at least this many."""


class Budget:
    """How many records may still be walked."""

    def __init__(self, records: int) -> None:
        self.left = records


class ChainCount:
    """One subscription at one pubend. See the module docstring."""

    def __init__(self, log: FilteredLog, taker: int, sizes: Sizes | None) -> None:
        self._log = log
        self._taker = taker
        self._sizes = sizes
        self._marks: list[ChainMark] = []
        self._is_known = False  # down to where the last look was asked for

    def look(self, start: int, budget: Budget) -> Count:
        """Count what the subscription takes from `start` on. `start` does not move back."""
        low = max(start, self._log.start)
        self._marks = [mark for mark in self._marks if mark.tick >= low]
        is_known = self._extend_up(low, budget)
        if self._marks:
            is_known = self._extend_down(low, budget) and is_known
        self._is_known = is_known and not self._log.has_holes
        return self.count_from(low)

    def _extend_up(self, low: int, budget: Budget) -> bool:
        """Count what is newer than the newest mark."""
        last = self._marks[-1] if self._marks else ChainMark(low - 1, 0, 0)
        ticks, is_whole = self._walk(None, last.tick + 1, budget)
        if not ticks:
            return is_whole
        if not is_whole:  # what lies between is not known: begin anew from the top
            self._marks, last = [], ChainMark(low - 1, 0, 0)
        ticks.reverse()
        marks = self._marks
        if len(marks) > 1 and last.ordinal + len(ticks) - marks[-2].ordinal <= MARK_EVERY:
            marks.pop()
        marks += self._make_marks(ticks, last)
        return is_whole or bool(ticks)  # `_extend_down` goes on where this walk ended

    def _extend_down(self, low: int, budget: Budget) -> bool:
        """Count what is older than the oldest mark, down to `low`."""
        oldest = self._marks[0]
        ticks, is_whole = self._walk(oldest.tick, low, budget)
        if len(ticks) < 2 or (len(ticks) <= MARK_EVERY and is_whole):
            return is_whole  # `count_from` walks them by itself
        ticks = ticks[:0:-1]  # without the mark
        size = oldest.size - self._size([*ticks[1:], oldest.tick])
        first = ChainMark(ticks[0], oldest.ordinal - len(ticks), size)
        self._marks[:0] = [first, *self._make_marks(ticks[1:], first)]
        return is_whole

    def _make_marks(self, ticks: Sequence[int], last: ChainMark) -> list[ChainMark]:
        """Marks for consecutive records after `last`, the newest of them included."""
        marks = list[ChainMark]()
        for begin in range(0, len(ticks), MARK_EVERY):
            some = ticks[begin : begin + MARK_EVERY]
            last = ChainMark(some[-1], last.ordinal + len(some), last.size + self._size(some))
            marks.append(last)
        return marks

    def count_from(self, low: int) -> Count:
        """The events from a position on that is not before the one of the last look."""
        place = bisect_left(self._marks, low, key=lambda mark: mark.tick)
        if place == len(self._marks):
            return Count(0, 0, None, self._is_known or bool(place))
        mark, newest = self._marks[place], self._marks[-1]
        ticks, is_whole = self._walk(mark.tick, low, Budget(MARK_EVERY + 1))
        events = newest.ordinal - mark.ordinal + len(ticks)
        size = newest.size - mark.size + self._size(ticks)
        is_exact = is_whole and (place > 0 or self._is_known)
        return Count(events, size, ticks[-1], is_exact)

    def newest(self, count: int) -> int | None:
        """The tick of the oldest of the `count` newest events that the last look counted."""
        if not self._marks or count < 1:
            return None
        ordinal = self._marks[-1].ordinal - count + 1
        mark = self._marks[bisect_left(self._marks, ordinal, key=lambda mark: mark.ordinal)]
        ticks, _ = self._walk(mark.tick, self._log.start, Budget(mark.ordinal - ordinal + 1))
        return ticks[-1] if ticks else None

    def _walk(self, mark: int | None, low: int, budget: Budget) -> tuple[list[int], bool]:
        """The ticks from a record, or the newest, down to `low`, newest first. False: there are
        more, or may be."""
        ticks = list[int]()
        try:
            for tick in islice(self._log.chain(self._taker, mark, low), budget.left + 1):
                if tick < low:
                    break
                if len(ticks) >= budget.left:
                    budget.left = 0
                    return ticks, False
                ticks.append(tick)
        except StorageDamagedError:
            return ticks, False
        budget.left -= len(ticks)
        return ticks, True

    def _size(self, ticks: Sequence[int]) -> int:
        return self._sizes(ticks) if self._sizes is not None else 0

    def check(self) -> None:
        for before, after in zip(self._marks, self._marks[1:], strict=False):
            assert before.tick < after.tick, "I1"
            assert before.ordinal < after.ordinal, "I1"
            assert before.size <= after.size, "I1"
        assert all(mark.tick < self._log.end for mark in self._marks), "I2"
