"""The parts of a group: events that are not finished, lanes of one key, and members."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable

    from gapless.core.identity import ClientName, Instant, PubendName

    MemberKey = tuple[ClientName, int]
    """The connection of a member, and the number that it gave the subscription there."""

    Place = tuple[PubendName, int]
    """The pubend and the tick of an event."""


@dataclass(slots=True, eq=False)
class OpenEvent:
    """An event that the group has received and that is not finished."""

    pubend: PubendName
    tick: int
    encoded: bytes
    lane: Lane
    arrival: int  # its place in the order in which the group received events
    member: GroupMember | None = None  # that has it in hand
    is_dying: bool = False  # it waits to become a dead letter

    @property
    def place(self) -> Place:
        return self.pubend, self.tick


@dataclass(slots=True, eq=False)
class Lane:
    """The events of one key that are not finished. A lane without a key has one event."""

    key: Hashable
    pending: deque[OpenEvent] = field(default_factory=deque)
    """Events in nobody's hand, in the order of arrival."""

    member: GroupMember | None = None
    """Has all events of the lane that are in hand, and gets the next."""

    hand_count: int = 0
    dying_count: int = 0
    must_drain: bool = False
    """Something came back: nothing is handed out before everything is out of hand."""

    until: Instant | None = None
    """Nothing is handed out before this instant."""

    @property
    def is_empty(self) -> bool:
        return not (self.pending or self.hand_count or self.dying_count)

    @property
    def is_held(self) -> bool:
        """Must its next event wait, whatever room its member has?"""
        is_draining = self.must_drain and self.hand_count
        return bool(self.dying_count or self.until is not None or is_draining)

    def take_back(self, event: OpenEvent) -> None:
        """Put an event that was in hand back into its place."""
        before = []
        while self.pending and self.pending[0].arrival < event.arrival:
            before.append(self.pending.popleft())
        self.pending.appendleft(event)
        self.pending.extendleft(reversed(before))


@dataclass(slots=True, eq=False)
class GroupMember:
    """A client that is attached to the group."""

    key: MemberKey
    events_max: int  # in hand
    in_hand: dict[Place, OpenEvent] = field(default_factory=dict)
    hand_bytes: int = 0
    keys: dict[Hashable, None] = field(default_factory=dict)  # whose home it is
    ready: dict[Lane, None] = field(default_factory=dict)  # lanes that it may get something of

    def take(self, event: OpenEvent) -> None:
        self.in_hand[event.place] = event
        self.hand_bytes += len(event.encoded)
        event.member = self

    def drop(self, event: OpenEvent) -> None:
        del self.in_hand[event.place]
        self.hand_bytes -= len(event.encoded)
        event.member = None
