"""Digests: of parts of the log that were read, enough to know what cannot match.

Theory of operation
    What is settled never changes. So where a read with a condition has seen a stretch of a log,
    the digests (`filters.sieve`) of the attributes that the condition asks for are kept, and the
    next read that asks for these, with whatever condition, need not touch the log but for its
    candidates. A stretch is as long as one look at the log. They are in memory: after a restart the
    first read of each makes them again, or who looks ahead does (`node.outlook`).

Invariants (checked by `check`)
    I1  the stretches of a pubend are disjoint and ascending
    I2  a stretch has the ticks of all events of its span, as they stand in the log
    I3  all of them together take at most `bytes_max`, or there is one alone

Cost: 4 bytes an event (8 where events are seconds apart), and 1 to 9 for each attribute. Finding a
stretch is a bisection.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gapless.core.ticks import TICK_MAX, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from gapless.filters.sieve import Coded, Digest, Sieve
    from gapless.knowledge.pubend import Pubend

ATTRIBUTES_MAX = 16
"""Of one stretch; beyond it only those of the newest condition are kept."""

OFFSET_MAX = (1 << 32) - 1
"""Ticks up to which a stretch counts in half of the room."""


class Stretch:
    """A part of one log."""

    __slots__ = ("_offsets", "digests", "end", "nbytes", "start")

    def __init__(
        self, span: Span, ticks: NDArray[np.int64], digests: Mapping[str, Digest | Coded]
    ) -> None:
        self.start = int(span.start)
        self.end = int(span.end)
        self._offsets: NDArray[Any] = ticks - self.start
        if self.end - self.start <= OFFSET_MAX:
            self._offsets = self._offsets.astype(np.uint32)
        self.digests = digests
        self.nbytes = self._offsets.nbytes + sum(each.nbytes for each in digests.values())

    def places(self, span: Span) -> tuple[int, int]:
        """Which of its events are in the span: from the first number up to the second."""
        ticks = span.start, span.end
        edges = [min(max(tick, self.start), self.end) - self.start for tick in ticks]
        low, high = np.searchsorted(self._offsets, np.array(edges, self._offsets.dtype)).tolist()
        return low, high

    def ticks_of(self, numbers: NDArray[np.int64]) -> list[int]:
        """Those of its events that have these numbers."""
        ticks: list[int] = (self._offsets[numbers].astype(np.int64) + self.start).tolist()
        return ticks

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
            stretch = stretches[place - 1]
            if stretch.digests.keys() >= set(names):
                self._by_use[stretch] = self._by_use.pop(stretch)
                return stretch, stretch.end
        if place < len(stretches) and stretches[place].digests.keys() >= set(names):
            return None, stretches[place].start
        return None, TICK_MAX

    def names(self, pubend: Pubend, span: Span, names: Sequence[str]) -> list[str]:
        """The attributes that `learn` should know of this span: these, and those known of it."""
        attributes = set(names).union(*(old.digests for old in self._within(pubend, span)))
        return sorted(attributes if len(attributes) <= ATTRIBUTES_MAX else names)

    def learn(
        self,
        pubend: Pubend,
        span: Span,
        ticks: NDArray[np.int64],
        digests: Mapping[str, Digest | Coded],
    ) -> Stretch:
        """Keep the digests of all events of a span, in the place of what was known of it."""
        for old in self._within(pubend, span):
            self._forget(old)
        stretch = Stretch(span, ticks, digests)
        self._keep(pubend, stretch)
        while self.nbytes > self.bytes_max and len(self._by_use) > 1:
            self._forget(next(iter(self._by_use)))
        return stretch

    def unknown(self, pubend: Pubend, span: Span) -> Span | None:
        """The first part of a span of which nothing is known, if there is any."""
        at, end = span.start, span.end
        for stretch in self._within(pubend, span):
            if stretch.start > at:
                return Span(at, stretch.start)
            at = stretch.end
        return Span(at, end) if at < end else None

    @property
    def bytes_free(self) -> int:
        return self.bytes_max - self.nbytes

    def offer(
        self,
        pubend: Pubend,
        span: Span,
        ticks: NDArray[np.int64],
        digests: Mapping[str, Digest | Coded],
    ) -> None:
        """The same as `learn`, if nothing is known of it and it drives nothing out."""
        stretch = Stretch(span, ticks, digests)
        if stretch.nbytes <= self.bytes_free and not self._within(pubend, span):
            self._keep(pubend, stretch)

    def _keep(self, pubend: Pubend, stretch: Stretch) -> None:
        line = self._lines.setdefault(pubend.name, Line(pubend, []))
        line.stretches.insert(bisect_left(line.stretches, stretch.start, key=START), stretch)
        self._by_use[stretch] = line
        self.nbytes += stretch.nbytes

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
                first, last = each.ticks_of(np.array([0, -1]))
                assert each.start <= first <= last < each.end, "I2"
        assert self.nbytes == sum(each.nbytes for each in self._by_use), "I3"
        assert self.nbytes <= self.bytes_max or len(self._by_use) == 1, "I3"
