"""Hops: routed messages that a node passed on and that were not confirmed yet.

Theory of operation
    Every hop has a number and is confirmed by its receiver. One that is not confirmed in time goes
    out again, by a route computed anew; after a few times it is given up. All wait equally long, so
    the oldest is due first and one look at it says when to look again.

Invariants (checked by `check`)
    I1  hops are kept in the order in which they are due
    I2  there are never more than `pending_max`
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.identity import Instant

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import Routed
    from gapless.scribe.settings import RingSettings


@dataclass(frozen=True, slots=True)
class PendingHop:
    """One message that was passed on: the next node, when it is overdue, and which attempt it
    is."""

    node: NodeId
    routed: Routed
    due: Instant
    attempt: int


class Hops:
    """See the module docstring."""

    __slots__ = ("_number", "_patience", "_pending", "_pending_max")

    def __init__(self, settings: RingSettings) -> None:
        self._patience = settings.answer_patience
        self._pending_max = settings.pending_max
        self._pending: dict[int, PendingHop] = {}
        self._number = 0

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def watch(self, node: NodeId, routed: Routed, now: Instant, attempt: int) -> None:
        if len(self._pending) >= self._pending_max:
            del self._pending[next(iter(self._pending))]
        due = Instant(now + self._patience)
        self._pending[routed.number] = PendingHop(node, routed, due, attempt)

    def confirm(self, node: NodeId, number: int) -> None:
        hop = self._pending.get(number)
        if hop is not None and hop.node == node:
            del self._pending[number]

    def overdue(self, now: Instant) -> list[PendingHop]:
        """Take out what should have been confirmed by now."""
        due = []
        for number, hop in self._pending.items():
            if hop.due > now:
                break
            due.append(number)
        return [self._pending.pop(number) for number in due]

    def through(self, node: NodeId) -> list[PendingHop]:
        """Take out what went to this node: it has failed."""
        numbers = [number for number, hop in self._pending.items() if hop.node == node]
        return [self._pending.pop(number) for number in numbers]

    @property
    def deadline(self) -> Instant | None:
        return next(iter(self._pending.values())).due if self._pending else None

    def check(self) -> None:
        dues = [hop.due for hop in self._pending.values()]
        assert dues == sorted(dues), "I1"
        assert len(dues) <= self._pending_max, "I2"
