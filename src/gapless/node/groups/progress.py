"""The progress of a group at one pubend: a low-water mark, and what is finished or tried above it.

Theory of operation
    Everything below the low-water mark is finished, or was silent, or is lost. Above it stand the
    events that were received and are not finished (`open`), in the order of ticks, and the ticks
    that are finished. The mark moves to the first open event, or, without any, to the end of what
    was received. A restart begins at the mark: what comes again and is finished is passed over.

Invariants (checked by `check`)
    I1  the low-water mark is at or below every open event and every finished tick
    I2  no tick is both open and finished
    I3  every open event lies below the end of what was received
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.ticks import PUBEND_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gapless.node.groups.lane import OpenEvent


class Attempts(NamedTuple):
    """How often members had an event in hand and did not finish it, and why the last did not."""

    number: int
    reason: str


NEVER = Attempts(0, "")


class PubendProgress:
    """See the module docstring."""

    def __init__(self, low: int = 0) -> None:
        self.low = low
        self.through = low
        """Everything below was received from the feed."""

        self.open: dict[int, OpenEvent] = {}
        self.attempts: dict[int, Attempts] = {}
        self._finished: set[int] = set()
        self._in_order: list[int] = []  # the finished ticks, as a heap

    def __len__(self) -> int:
        """How many finished ticks lie above the low-water mark."""
        return len(self._finished)

    def is_finished(self, tick: int) -> bool:
        return tick < self.low or tick in self._finished

    def rewind(self) -> None:
        """Forget what was received and is not finished: the feed begins at the mark again."""
        self.open.clear()
        self.through = self.low

    def skip_to(self, tick: int) -> None:
        """Nothing is open, and everything below is finished: as another record says."""
        assert not self.open, "what is open is not passed over"
        self.through = max(self.through, tick)
        self.advance()

    def finish(self, tick: int) -> None:
        """An event is finished; `advance` follows."""
        self.open.pop(tick, None)
        self.attempts.pop(tick, None)
        self._finished.add(tick)
        heappush(self._in_order, tick)

    def advance(self) -> int:
        """Move the low-water mark. How many finished ticks it has passed."""
        self.low = max(self.low, next(iter(self.open), self.through))
        passed = 0
        while self._in_order and self._in_order[0] < self.low:
            self._finished.discard(heappop(self._in_order))
            passed += 1
        if self.attempts and not self.open:
            self.attempts = {t: each for t, each in self.attempts.items() if t >= self.low}
        return passed

    # --- the durable form -------------------------------------------------------------------------

    def encode(self) -> dict[str, object]:
        fields: dict[str, object] = {"low": self.low}
        if self._finished:
            fields["finished"] = steps(sorted(self._finished))
        if self.attempts:
            fields["attempts"] = {str(tick): each for tick, each in self.attempts.items()}
        return fields

    @classmethod
    def decode(
        cls, low: int, finished: Sequence[int] = (), attempts: dict[str, list[object]] | None = None
    ) -> PubendProgress:
        progress = cls(low)
        progress._in_order = list(ticks(finished))
        progress._finished = set(progress._in_order)
        heapify(progress._in_order)
        for tick, (number, reason) in (attempts or {}).items():
            progress.attempts[int(tick)] = Attempts(int(str(number)), str(reason))
        return progress

    def check(self) -> None:
        assert all(self.low <= tick < self.through for tick in self.open), "I1 I3"
        assert all(self.low <= tick for tick in self._finished), "I1"
        assert not self.open.keys() & self._finished, "I2"
        assert list(self.open) == sorted(self.open), "open events stand in the order of ticks"
        assert sorted(self._in_order) == sorted(self._finished)


def steps(ascending: Sequence[int]) -> list[int]:
    """The first tick, and the instants from each tick to the next: short to write down."""
    gaps = (after - before for before, after in pairwise(ascending))
    return [ascending[0], *(gap >> PUBEND_BITS for gap in gaps)]


def ticks(steps: Iterable[int]) -> Iterable[int]:
    """The ticks of which these are the steps; all of them are of one pubend."""
    tick = 0
    for index, step in enumerate(steps):
        tick = step if index == 0 else tick + (step << PUBEND_BITS)
        yield tick
