"""A lane: subscriptions of one connection that are read together, as long as they keep in step.

Theory of operation
    Who reads hundreds of subscriptions in one loop pays for each of them with every event, if each
    has a backlog of its own. While a subscription has nothing left to do by itself, its place in
    the stream is that of all others of its topic and order: it is *in step*, a member of the lane.
    What comes for members waits here as pairs of a subscription and an event, and is handed out all
    at once; one position, noted once, is the position of all members.
    Whatever is about one subscription alone (it falls behind, loses something, ends, is read by
    itself) makes it leave first: what the lane knows of it becomes its own backlog's, as if it had
    been there all the time. It may come back when that backlog is used up.

Invariants
    I1  the backlog of a member is idle, and nothing comes for it that it has received before
    I2  finished <= taken <= received, as in a backlog; what is handed out is finished when more is
        asked for
    I3  at most one parcel waits for each stream of events: silence takes no room

Cost: per message; and for each event that is handed out, one pair.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Ticket, finish

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.client.delivery import Creditor
    from gapless.core.client_messages import Deliveries, Order
    from gapless.core.events import Event
    from gapless.core.identity import PubendName, TopicName

    Pair = tuple["Member", Event]
    Place = tuple[TopicName, Order]
    Positions = dict[PubendName | None, int]
    Share = tuple[PubendName | None, list[Event], int, Ticket | None]
    Takers = tuple[tuple[int, ...], ...]


class Member(Protocol):
    """A subscription, as a lane sees it; see `gapless.client.step`."""

    def fall_out(self) -> None: ...


@dataclass(slots=True, eq=False)
class Parcel:
    """What came of one stream and was not taken yet, and the position once it is."""

    place: Place
    pubend: PubendName | None
    pairs: list[Pair]
    through: int
    ticket: Ticket


class Lane:
    """See the module docstring. `wake` is called when there is something to take."""

    def __init__(self, carrier: Creditor, wake: Callable[[], None]) -> None:
        self.members: dict[int, Member] = {}
        self._carrier = carrier
        self._wake = wake
        self._waiting: dict[tuple[Place, PubendName | None], Parcel] = {}
        self._handed: list[Parcel] = []  # to the application, which may be busy with it
        self._finished: dict[Place, Positions] = {}

    # --- what the inbox calls --------------------------------------------------------------------

    def add(self, message: Deliveries, events: list[Event]) -> tuple[Ticket, Takers]:
        """Take in what is for members; who else takes part, with a ticket that waits for us."""
        members, takers = self.members, message.takers
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
        parcel = self._waiting.get((place, pubend))
        if parcel is not None:
            parcel.pairs += pairs
            parcel.through = message.through
            parcel.ticket.count += count
        else:
            ticket = Ticket(self._carrier, self._carrier.session, count, 0)
            if not pairs and not self._handed:
                self._finished.setdefault(place, {})[pubend] = message.through
                return ticket
            ticket.parts = 1
            parcel = Parcel(place, pubend, pairs, message.through, ticket)
            self._waiting[place, pubend] = parcel
        if pairs:
            self._wake()
        return parcel.ticket

    # --- what the reader calls -------------------------------------------------------------------

    def take(self) -> list[Pair]:
        """All that has come, which may be nothing; what was handed out before is finished."""
        while self._handed or self._waiting:
            done, self._handed = self._handed, list(self._waiting.values())
            self._waiting = {}
            for parcel in done:
                if self._is_of_now(parcel):
                    self._finished.setdefault(parcel.place, {})[parcel.pubend] = parcel.through
                finish(parcel.ticket)
            if len(self._handed) == 1:
                pairs = self._handed[0].pairs
            else:
                pairs = [pair for parcel in self._handed for pair in parcel.pairs]
            if pairs:
                return pairs
        self._carrier.tell_consumed()
        return []

    def close(self) -> None:
        """Nobody reads here any more; whoever asks its members next has finished what is out."""
        for member in list(self.members.values()):
            member.fall_out()
        self.take()

    # --- what members call -----------------------------------------------------------------------

    def finished(self, place: Place) -> Positions:
        """Up to where all that was handed out is finished."""
        return self._finished.get(place, {})

    def taken(self, place: Place) -> Positions:
        """Up to where all is handed out."""
        handed = {
            each.pubend: each.through
            for each in self._handed
            if each.place == place and self._is_of_now(each)
        }
        return {**self.finished(place), **handed}

    def _is_of_now(self, parcel: Parcel) -> bool:
        """Positions of an earlier connection, maybe to another broker, say nothing of this one."""
        return parcel.ticket.session == self._carrier.session

    def leave(self, number: int, place: Place) -> list[Share]:
        """Not a member any more: what waits for it, and the positions after that."""
        member = self.members.pop(number)
        shares: list[Share] = []
        for parcel in self._waiting.values():
            if parcel.place == place:
                events = [event for each, event in parcel.pairs if each is member]
                if events:
                    parcel.pairs = [pair for pair in parcel.pairs if pair[0] is not member]
                    parcel.ticket.parts += 1
                ticket = parcel.ticket if events else None
                shares.append((parcel.pubend, events, parcel.through, ticket))
        if not self.members:
            self._finished.clear()  # there may be another connection before the next comes
        return shares
