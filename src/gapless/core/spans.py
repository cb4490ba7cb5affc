"""SpanSet: a set of ticks as sorted, disjoint runs.

Theory of operation
    One flat list of boundaries, `[start0, end0, start1, end1, …]`. The number of boundaries at
    or before a tick tells whether it is inside (odd) or outside (even). Adding or removing a span
    replaces the boundaries it touches by at most two: a bisection and one splice, whatever the
    span covers. Runs that touch are one run, so equal sets have equal boundaries.

Cost
    Every operation is O(log n + touched runs) steps, plus one block move of the boundaries behind
    the splice, 8 bytes each. `python -m benchmarks spans` prints it: below the cost of the call
    itself up to thousands of runs. A balanced tree would be slower at every size we allow.

Invariants (checked by `check`)
    I1  boundaries strictly increase (so no run is empty and no two runs touch)
    I2  there is an even number of them
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING

from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class SpanSet:
    """A mutable set of ticks, kept as runs. See the module docstring for its cost."""

    __slots__ = ("_bounds",)

    def __init__(self, spans: Iterable[Span] = ()) -> None:
        self._bounds: list[int] = []
        for span in spans:
            self.add(span)

    def add(self, span: Span) -> None:
        bounds = self._bounds
        if not bounds or span.start > bounds[-1]:  # the usual: it lies behind all others
            bounds += (span.start, span.end)
            return
        if span.start == bounds[-1]:
            bounds[-1] = span.end
            return
        low = bisect_left(bounds, span.start)
        high = bisect_right(bounds, span.end)
        kept = [span.start] if low % 2 == 0 else []
        if high % 2 == 0:
            kept.append(span.end)
        bounds[low:high] = kept

    def remove(self, span: Span) -> None:
        bounds = self._bounds
        low = bisect_left(bounds, span.start)
        high = bisect_right(bounds, span.end)
        kept = [span.start] if low % 2 == 1 else []
        if high % 2 == 1:
            kept.append(span.end)
        bounds[low:high] = kept

    def remove_below(self, tick: int) -> None:
        """Forget everything before `tick`."""
        if not self._bounds or tick <= self._bounds[0]:
            return
        cut = bisect_right(self._bounds, tick)
        self._bounds[:cut] = [tick] if cut % 2 == 1 else []

    def clear(self) -> None:
        self._bounds.clear()

    def update(self, other: Iterable[Span]) -> None:
        for span in other:
            self.add(span)

    def difference_update(self, other: Iterable[Span]) -> None:
        for span in other:
            self.remove(span)

    def __contains__(self, tick: int) -> bool:
        return bisect_right(self._bounds, tick) % 2 == 1

    def covers(self, span: Span) -> bool:
        """Is every tick of `span` in the set?"""
        place = bisect_right(self._bounds, span.start)
        return place % 2 == 1 and span.end <= self._bounds[place]

    def overlaps(self, span: Span) -> bool:
        """Is any tick of `span` in the set?"""
        place = bisect_right(self._bounds, span.start)
        return place % 2 == 1 or (place < len(self._bounds) and self._bounds[place] < span.end)

    def run_at(self, tick: int) -> Span | None:
        """The whole run that holds `tick`."""
        place = bisect_right(self._bounds, tick)
        return Span(self._bounds[place - 1], self._bounds[place]) if place % 2 == 1 else None

    def first_missing(self, start: int) -> int:
        """The first tick at or after `start` that is not in the set."""
        place = bisect_right(self._bounds, start)
        return self._bounds[place] if place % 2 == 1 else start

    def within(self, span: Span) -> Iterator[Span]:
        """The parts of `span` that are in the set, ascending."""
        return self._clipped(span, inside=1)

    def missing(self, span: Span) -> Iterator[Span]:
        """The parts of `span` that are not in the set, ascending."""
        return self._clipped(span, inside=0)

    def gaps(self, start: int) -> Iterator[Span]:
        """The holes at or after `start` with something present beyond them, ascending."""
        if self._bounds and start < self._bounds[-1]:
            yield from self.missing(Span(start, self._bounds[-1]))

    def _clipped(self, span: Span, inside: int) -> Iterator[Span]:
        low = bisect_right(self._bounds, span.start)
        high = bisect_left(self._bounds, span.end)
        edges = [span.start, *self._bounds[low:high], span.end]
        for index, (start, end) in enumerate(pairwise(edges), start=low):
            if index % 2 == inside:
                yield Span(start, end)

    def __iter__(self) -> Iterator[Span]:
        """All runs, ascending."""
        bounds = iter(tuple(self._bounds))
        return (Span(start, end) for start, end in zip(bounds, bounds, strict=True))

    def __len__(self) -> int:
        """How many runs there are; `tick_count` says how many ticks."""
        return len(self._bounds) // 2

    @property
    def tick_count(self) -> int:
        return sum(self._bounds[1::2]) - sum(self._bounds[::2])

    @property
    def start(self) -> int:
        """The first tick of the set; the set must not be empty."""
        return self._bounds[0]

    @property
    def end(self) -> int:
        """One past the last tick of the set; the set must not be empty."""
        return self._bounds[-1]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpanSet) and self._bounds == other._bounds

    __hash__ = None  # type: ignore[assignment]  # mutable, so never a key

    def copy(self) -> SpanSet:
        twin = SpanSet()
        twin._bounds = self._bounds.copy()
        return twin

    def __repr__(self) -> str:
        return f"SpanSet({' '.join(map(str, self))})"

    def check(self) -> None:
        assert all(a < b for a, b in pairwise(self._bounds)), "I1"
        assert len(self._bounds) % 2 == 0, "I2"
