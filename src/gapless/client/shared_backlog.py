"""A backlog that subscriptions of one channel share while they are read together.

Theory of operation
    An application that reads hundreds of subscriptions in one loop would pay for each of them with
    every event, if each had a backlog of its own. A subscription whose own backlog is idle is at
    the same position as all others of its topic and order, so it may become a member here. What
    arrives for members waits as pairs of a subscription and an event, and is handed out all at
    once; one position, noted once, is the position of all members.
    A member leaves before anything happens that is about it alone (it lags, loses something, ends,
    is read by itself): its own backlog takes over what this one has for it, as if it had been there
    all the time. It may join again when that backlog is used up.

Invariants
    I1  the backlog of a member is idle, and nothing comes for it that it has received before
    I2  finished <= taken <= received, as in a backlog; what is handed out is finished when more is
        asked for
    I3  at most one part waits for each stream of events: silence takes no room

Cost: per message; and for each event that is handed out, one pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Ticket, finish
from gapless.client.telemetry import trace_delivery

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.client.delivery import Creditor
    from gapless.core.client_messages import Deliveries, Order
    from gapless.core.events import Event
    from gapless.core.identity import PubendName, TopicName

    Pair = tuple["SharingMember", Event]
    Place = tuple[TopicName, Order]
    Positions = dict[PubendName | None, int]
    Share = tuple[PubendName | None, list[Event], int, Ticket | None]
    Takers = tuple[tuple[int, ...], ...]


class SharingMember(Protocol):
    """A subscription, as the shared backlog sees it."""

    def leave_shared(self) -> None: ...


@dataclass(slots=True, eq=False)
class SharedPart:
    """What arrived of one stream and was not taken yet, and the position after it."""

    place: Place
    pubend: PubendName | None
    pairs: list[Pair]
    through: int
    ticket: Ticket


class SharedBacklog:
    """See the module docstring. `wake` is called when there is something to take."""

    def __init__(self, channel: Creditor, wake: Callable[[], None]) -> None:
        self._members: dict[int, SharingMember] = {}
        self._channel = channel
        self._wake = wake
        self._parts: dict[tuple[Place, PubendName | None], SharedPart] = {}
        self._parts_in_use: list[SharedPart] = []  # the application may be busy with them
        self._finished: dict[Place, Positions] = {}

    # --- what the inbox calls --------------------------------------------------------------------

    @property
    def has_members(self) -> bool:
        return bool(self._members)

    def add(self, message: Deliveries, events: Sequence[Event]) -> tuple[Ticket, Takers]:
        """Take what is for members; a ticket for the rest, and the other subscriptions' numbers."""
        members, takers = self._members, message.takers
        others: Takers = ()
        pairs: list[Pair]
        try:
            pairs = [
                (members[number], event)
                for event, numbers in zip(events, takers, strict=True)
                for number in numbers
            ]
        except KeyError:
            pairs = [
                (members[number], event)
                for event, numbers in zip(events, takers, strict=True)
                for number in numbers
                if number in members
            ]
            others = tuple([tuple([n for n in each if n not in members]) for each in takers])
        return self._put(message, pairs, len(events)), others

    def _put(self, message: Deliveries, pairs: list[Pair], count: int) -> Ticket:
        pubend = message.pubend
        place: Place = (message.topic, "total" if pubend is None else "publisher")
        part = self._parts.get((place, pubend))
        if part is not None:
            part.pairs += pairs
            part.through = message.through
            part.ticket.count += count
        else:
            ticket = Ticket(self._channel, self._channel.session, count, 0)
            if not pairs and not self._parts_in_use:
                self._finished.setdefault(place, {})[pubend] = message.through
                return ticket
            ticket.parts = 1
            part = SharedPart(place, pubend, pairs, message.through, ticket)
            self._parts[place, pubend] = part
        if pairs:
            self._wake()
        return part.ticket

    # --- what the reader calls -------------------------------------------------------------------

    def take(self) -> list[Pair]:
        """All that has arrived, which may be nothing; what was handed out before is finished."""
        while self._parts_in_use or self._parts:
            done, self._parts_in_use = self._parts_in_use, list(self._parts.values())
            self._parts = {}
            for part in done:
                if self._is_of_now(part):
                    self._finished.setdefault(part.place, {})[part.pubend] = part.through
                finish(part.ticket)
            if len(self._parts_in_use) == 1:
                pairs = self._parts_in_use[0].pairs
            else:
                pairs = [pair for part in self._parts_in_use for pair in part.pairs]
            if pairs:
                trace_delivery(event for _, event in pairs)
                return pairs
        self._channel.tell_consumed()
        return []

    def close(self) -> None:
        """End: all members leave, and what was handed out is finished."""
        for member in list(self._members.values()):
            member.leave_shared()
        self.take()

    # --- what members call -----------------------------------------------------------------------

    def join(self, number: int, member: SharingMember) -> None:
        self._members[number] = member

    def finished(self, place: Place) -> Positions:
        """By pubend: all that was handed out below this is finished."""
        return self._finished.get(place, {})

    def taken(self, place: Place) -> Positions:
        """By pubend: all below this was handed out."""
        handed = {
            each.pubend: each.through
            for each in self._parts_in_use
            if each.place == place and self._is_of_now(each)
        }
        return {**self.finished(place), **handed}

    def _is_of_now(self, part: SharedPart) -> bool:
        """False for a part of an earlier connection: its position says nothing about this one."""
        return part.ticket.session == self._channel.session

    def leave(self, number: int, place: Place) -> list[Share]:
        """End a membership: what waits for the member, and the positions after that."""
        member = self._members.pop(number)
        shares: list[Share] = []
        for part in self._parts.values():
            if part.place == place:
                events = [event for each, event in part.pairs if each is member]
                if events:
                    part.pairs = [pair for pair in part.pairs if pair[0] is not member]
                    part.ticket.parts += 1
                ticket = part.ticket if events else None
                shares.append((part.pubend, events, part.through, ticket))
        if not self._members:
            self._finished.clear()  # there may be another connection before the next comes
        return shares
