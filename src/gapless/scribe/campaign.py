"""A campaign: one node wants to lead the group of an ordered topic, and gathers what it needs.

Of every group that may have committed something a majority must promise, and later hold what the
new one holds. A group that is known to be active makes all that came before it irrelevant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.scribe.messages import Ballot

if TYPE_CHECKING:
    from collections.abc import Collection

    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import GroupState, Lineup, Seat

NOBODY = Ballot()


class Inquiry:
    """Whether there is a group already: most nodes that would have a seat must know of none."""

    __slots__ = ("seats", "unaware")

    def __init__(self, seats: tuple[Seat, ...], own: Seat) -> None:
        self.seats = seats
        self.unaware = {own}

    @property
    def is_over(self) -> bool:
        return is_majority(self.seats, self.unaware)

    def unheard(self) -> set[NodeId]:
        return {seat.node for seat in self.seats if seat not in self.unaware}


class Campaign:
    """What a node that wants to lead has gathered so far."""

    __slots__ = ("_floor", "accepted", "ballot", "groups", "promises", "seats", "state")

    def __init__(self, ballot: Ballot, seats: tuple[Seat, ...]) -> None:
        self.ballot = ballot
        self.seats = seats  # of the group to be
        self.groups: dict[Ballot, tuple[Seat, ...]] = {}  # whose majorities are needed
        self.promises: dict[Seat, GroupState] = {}
        self.state: GroupState | None = None  # what is to be held; none while promises are due
        self.accepted: set[Seat] = set()
        self._floor = NOBODY  # the greatest ballot known to be active

    def need(self, lineup: Lineup) -> bool:
        """A node knows of a group. Is it new to us, and does it matter?"""
        if lineup.active and lineup.ballot > self._floor:
            self._floor = lineup.ballot
            self.groups = {b: s for b, s in self.groups.items() if b >= lineup.ballot}
        if not lineup.seats or lineup.ballot < self._floor or lineup.ballot in self.groups:
            return False
        self.groups[lineup.ballot] = lineup.seats
        return True

    def has(self, voters: Collection[Seat]) -> bool:
        """A majority of every group that is needed."""
        return all(is_majority(seats, voters) for seats in self.groups.values())

    def best(self) -> GroupState:
        return max(self.promises.values(), key=lambda state: (state.lineup.ballot, state.end))

    def nodes(self, *more: tuple[Seat, ...]) -> set[NodeId]:
        """Of all groups that are needed, and of these."""
        return {seat.node for seats in (*self.groups.values(), *more) for seat in seats}


def is_majority(seats: tuple[Seat, ...], voters: Collection[Seat]) -> bool:
    return 2 * sum(1 for seat in seats if seat in voters) > len(seats)
