"""Total order: any two total-order subscriptions of a topic see prefix-comparable sequences.

Of the events that match both and come after the later of the two starts, one subscription's
sequence must be a prefix of the other's. Ticks are not used for it: only what was seen.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.testing.record import Subscription


class TotalOrder(Checker):
    """Compares every pair, at the end of each phase."""

    promise = "one total order"

    def finished(self) -> None:
        merged = [
            each
            for each in self.record.subscriptions.values()
            if each.order == "total" and each.delivered
        ]
        for first, second in combinations(merged, 2):
            if first.topic == second.topic:
                self._compare(first, second)

    def _compare(self, first: Subscription, second: Subscription) -> None:
        left, right = self._shared(first, second), self._shared(second, first)
        for mine, theirs in zip(left, right, strict=False):
            if mine != theirs:
                raise self.violated(
                    f"{first} got {mine[0]} {show_tick(mine[1])} where {second} got "
                    f"{theirs[0]} {show_tick(theirs[1])}"
                )

    def _shared(self, mine: Subscription, other: Subscription) -> list[tuple[str, int]]:
        """What `mine` was given of that which both are to get."""
        return [
            (pubend, tick)
            for pubend, tick in mine.delivered
            if tick >= other.start[pubend] and self.record.matches(other, pubend, tick)
        ]
