"""Digests: of parts of the log that were read, enough to know what cannot match.

Theory of operation
    What is settled never changes. So where a read with a condition has seen a stretch of a log,
    the digests (`filters.sieve`) of the attributes that the condition asks for are kept, and the
    next read that asks for these, with whatever condition, need not touch the log but for its
    candidates. A stretch is as long as one look at the log. They are in memory: after a restart the
    first read of each makes them again.

Invariants (checked by `check`)
    I1  the stretches of a pubend are disjoint and ascending
    I2  a stretch has the ticks of all events of its span, as they stand in the log
    I3  all of them together take at most `bytes_max`, or there is one alone

Cost: 8 bytes an event, and 4 to 9 for each attribute. Finding a stretch is a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gapless.core.ticks import TICK_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gapless.core.ticks import Span
    from gapless.filters.sieve import Digest, Sieve
    from gapless.knowledge.pubend import Pubend

ATTRIBUTES_MAX = 16
"""Of one stretch; beyond it only those of the newest condition are kept."""


class Stretch:
    """A part of one log."""

    __slots__ = ("digests", "end", "nbytes", "start", "ticks")

    def __init__(self, span: Span, ticks: NDArray[np.int64], digests: dict[str, Digest]) -> None:
        self.start = int(span.start)
        self.end = int(span.end)
        self.ticks = ticks
        self.digests = digests
        self.nbytes = ticks.nbytes + sum(each.nbytes for each in digests.values())

    def places(self, span: Span) -> tuple[int, int]:
        """Which of its events are in the span: from the first number up to the second."""
        low, high = np.searchsorted(self.ticks, (span.start, span.end)).tolist()
        return low, high

    def sift(self, sieve: Sieve, low: int, high: int) -> NDArray[np.int64]:
        """The numbers of the candidates among the events `low` to `high`."""
        digests = {name: self.digests[name].cut(low, high) for name in sieve.names}
        return np.flatnonzero(sieve.candidates(digests, high - low)) + low


class Line(NamedTuple):
    """The stretches of one pubend."""

    pubend: Pubend
    stretches: list[Stretch]


START = attrgetter("start")


class Digests:
    """What is kept of all logs at one broker."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0
        self._lines: dict[str, Line] = {}
        self._by_use: dict[Stretch, Line] = {}  # the one used longest ago first

    def find(self, pubend: Pubend, tick: int, names: Sequence[str]) -> tuple[Stretch | None, int]:
        """The stretch with this tick that has these attributes, and where it ends; or None, and
        where the next one starts, if that has them."""
        stretches = self._stretches(pubend)
        place = bisect_right(stretches, tick, key=START)
        if place and tick < stretches[place - 1].end:
            found = stretches[place - 1]
            if found.digests.keys() >= set(names):
                self._by_use[found] = self._by_use.pop(found)
                return found, found.end
        if place < len(stretches) and stretches[place].digests.keys() >= set(names):
            return None, stretches[place].start
        return None, TICK_MAX

    def names(self, pubend: Pubend, span: Span, names: Sequence[str]) -> list[str]:
        """The attributes that `learn` should know of this span: these, and what is known of it."""
        known = set(names).union(*(old.digests for old in self._within(pubend, span)))
        return sorted(known if len(known) <= ATTRIBUTES_MAX else names)

    def learn(
        self, pubend: Pubend, span: Span, ticks: NDArray[np.int64], digests: dict[str, Digest]
    ) -> Stretch:
        """Keep the digests of all events of a span, in the place of what was known of it."""
        for old in self._within(pubend, span):
            self._forget(old)
        stretch = Stretch(span, ticks, digests)
        line = self._lines.setdefault(pubend.name, Line(pubend, []))
        line.stretches.insert(bisect_left(line.stretches, span.start, key=START), stretch)
        self._by_use[stretch] = line
        self.nbytes += stretch.nbytes
        while self.nbytes > self.bytes_max and len(self._by_use) > 1:
            self._forget(next(iter(self._by_use)))
        return stretch

    def _within(self, pubend: Pubend, span: Span) -> list[Stretch]:
        """Those that this span overlaps."""
        stretches = self._stretches(pubend)
        first = max(0, bisect_right(stretches, span.start, key=START) - 1)
        after = bisect_left(stretches, span.end, key=START)
        return [each for each in stretches[first:after] if each.end > span.start]

    def _stretches(self, pubend: Pubend) -> list[Stretch]:
        line = self._lines.get(pubend.name)
        if line is None:
            return []
        is_old = line.pubend is not pubend  # a new topic may have an old one's name
        while line.stretches and (is_old or line.stretches[0].end <= pubend.released):
            self._forget(line.stretches[0])
        return line.stretches

    def _forget(self, stretch: Stretch) -> None:
        line = self._by_use.pop(stretch)
        del line.stretches[bisect_left(line.stretches, stretch.start, key=START)]
        self.nbytes -= stretch.nbytes
        if not line.stretches:
            del self._lines[line.pubend.name]

    def check(self) -> None:
        for line in self._lines.values():
            edges = [edge for each in line.stretches for edge in (each.start, each.end)]
            assert edges == sorted(edges), "I1"
            for each in line.stretches:
                assert each.start <= each.ticks[0], "I2"
                assert each.ticks[-1] < each.end, "I2"
        assert self.nbytes == sum(each.nbytes for each in self._by_use), "I3"
        assert self.nbytes <= self.bytes_max or len(self._by_use) == 1, "I3"
