"""Total order: any two total-order subscriptions of a topic see prefix-comparable sequences.

Of the events that match both and come after the later of the two starts, one subscription's
sequence must be a prefix of the other's. What the client of a named subscription consumed over all
its sessions is one sequence; it and any other have the events that both have in the same order.
Ticks are not used for it: only what was seen. What one of them was told to be lost may have come to
the other.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.client_messages import Lost, Subscribed
    from gapless.core.identity import PubendName
    from gapless.node.config import Config
    from gapless.testing.named import Named
    from gapless.testing.record import Record, Subscription

    History = tuple[str, list[tuple[PubendName, int]]]
    """The name of a subscription, and what its client got."""


class TotalOrder(Checker):
    """Compares every pair, at the end of each phase."""

    promise = "one total order"

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self._lost: dict[int, list[Lost]] = {}  # by subscription
        self._consumed: dict[Named, list[tuple[PubendName, int]]] = {}

    def lost(self, subscriptions: list[Subscription], told: Lost) -> None:
        for each in subscriptions:
            self._lost.setdefault(id(each), []).append(told)

    def begun(self, subscription: Subscription, told: Subscribed) -> None:
        named = subscription.named
        if named is not None and named in self._consumed:  # it may go back
            kept = [each for each in self._consumed[named] if each[1] < told.start[each[0]]]
            self._consumed[named] = kept

    def consumed(
        self, subscription: Subscription, pubend: PubendName, ticks: list[int], through: int
    ) -> None:
        if subscription.order == "total" and subscription.named is not None:
            sequence = self._consumed.setdefault(subscription.named, [])
            sequence += [(pubend, tick) for tick in ticks]

    def finished(self) -> None:
        merged = [
            each
            for each in self.record.subscriptions.values()
            if each.order == "total" and each.delivered and each.named is None
        ]
        for first, second in combinations(merged, 2):
            if first.topic == second.topic:
                self._compare(first, second)
        sequences = {str(each): each.delivered for each in merged}
        sequences |= {str(each): consumed for each, consumed in self._consumed.items()}
        for one, other in combinations(sequences.items(), 2):
            self._compare_common(one, other)

    def _compare_common(self, first: History, second: History) -> None:
        """Of two sequences, compare what is in both."""
        common = set(first[1]) & set(second[1])
        left, right = ([each for each in some if each in common] for _, some in (first, second))
        for mine, theirs in zip(left, right, strict=False):
            if mine != theirs:
                raise self.violated(
                    f"{first[0]} consumed {mine[0]} {show_tick(mine[1])} where {second[0]} "
                    f"consumed {theirs[0]} {show_tick(theirs[1])}"
                )

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
        lost = self._lost.get(id(other), [])
        return [
            (pubend, tick)
            for pubend, tick in mine.delivered
            if tick >= other.start[pubend]
            and self.record.matches(other, pubend, tick)
            and not any(told.pubend == pubend and tick in told.span for told in lost)
        ]
