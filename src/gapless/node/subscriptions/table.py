"""The table of all named subscriptions at one broker: one record each, and what is to be done.

Theory of operation
    Every change of a record is a method here, so that a record, the indexes and the work lists
    agree at any time. A part that finds something out calls the method that says so; the part whose
    work it is takes the names from its list at the end of the step (`take`). The lists are in the
    order in which the names came up, so that a step has the same effects whenever it is repeated.
    Lives that are over are remembered for a while (`ended`): a copy may have been on its way to
    another broker just then. So are subscriptions that have moved on (`moved`), until that is
    surely durable.

Invariants (checked by `check`): those of the record, and
    I3  a number on a connection waits for one creation at most, and the creation knows it
    I4  a name is on a work list only while there is a record that the work is about
"""

from __future__ import annotations

from collections import defaultdict
from enum import Enum
from typing import TYPE_CHECKING

from gapless.core.portion import WHOLE, Portion
from gapless.node.recent import remember
from gapless.node.subscriptions.record import (
    Attacher,
    Departure,
    Ender,
    Happening,
    Phase,
    Record,
    Unconfirmed,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gapless.core.client_messages import Subscribe
    from gapless.core.identity import ClientName, SubscriptionName
    from gapless.durable.hand_over import Arrival
    from gapless.durable.subscriptions import Definition, DurableSubscriptions
    from gapless.node.delivery.session import Session

ENDED_MAX = 10_000
"""Names that are remembered after their life ended, in case a copy was on its way to another broker
just then. The oldest is forgotten beyond it, and such a copy stays there."""


class Work(Enum):
    """What may be to be done about a subscription at the end of a step."""

    TAKE_BACK = "its client is back, and where it was must forget it"
    HAND_OVER = "it came from another broker, which must forget it"
    END = "clients want it to end as soon as it is nowhere else"
    SEEK_HOME = "the broker where it was is removed"
    TELL_HOME = "its registrar may not know that it is here"
    CONFIRM = "acknowledgements wait until its move is known"


class Table:
    """The named subscriptions of one broker. `subscriptions`: what of them is durable."""

    def __init__(self, subscriptions: DurableSubscriptions) -> None:
        self.subscriptions = subscriptions
        self._records: dict[SubscriptionName, Record] = {}
        self._work: defaultdict[Work, dict[SubscriptionName, None]] = defaultdict(dict)
        self._attaching: dict[tuple[ClientName, int], tuple[SubscriptionName, int]] = {}
        self._arrivals: dict[SubscriptionName, Arrival] = {}
        self._ended: dict[SubscriptionName, int] = {}
        for each in subscriptions.all():
            self._restore(each.definition)

    def _restore(self, definition: Definition) -> None:
        record = self._open(definition.name)
        record.become(Happening.RESTORE)
        if definition.previous is not None:
            self.arrive(definition.name)

    # --- reading ----------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[SubscriptionName]:
        return iter(self._records)

    def get(self, name: SubscriptionName) -> Record | None:
        return self._records.get(name)

    def serving(self) -> list[Record]:
        """The records of subscriptions with a client that is attached, or that waits."""
        return [record for record in self._records.values() if record.serves_clients]

    def session(self, name: SubscriptionName) -> Session | None:
        """The session of the client that is attached."""
        record = self._records.get(name)
        return record.session if record is not None else None

    def sessions(self) -> Iterator[tuple[SubscriptionName, Session]]:
        for name, record in self._records.items():
            if record.session is not None:
                yield name, record.session

    @property
    def arrivals(self) -> Mapping[SubscriptionName, Arrival]:
        """All hand-overs that are under way."""
        return self._arrivals

    def departure(self, name: SubscriptionName) -> Departure | None:
        """The life of the name whose end is not durable yet."""
        record = self._records.get(name)
        return record.departure if record is not None else None

    def ended(self, name: SubscriptionName) -> int | None:
        """How often a subscription had moved when it ended here, if that is remembered."""
        return self._ended.get(name)

    def attaching(self, client: ClientName, number: int) -> bool:
        """Does the number on this connection wait for a subscription to be durable?"""
        return (client, number) in self._attaching

    def numbers_attaching(self, client: ClientName) -> list[int]:
        return [number for name, number in self._attaching if name == client]

    def has_work(self, *kinds: Work) -> bool:
        return any(self._work[kind] for kind in kinds)

    def take(self, kind: Work) -> list[SubscriptionName]:
        """The names that something is to be done about; they are off the list then."""
        names, self._work[kind] = list(self._work[kind]), {}
        return names

    def take_first(self, kind: Work) -> SubscriptionName | None:
        """The name that has waited longest, taken off the list."""
        name = next(iter(self._work[kind]), None)
        if name is not None:
            del self._work[kind][name]
        return name

    def names(self, kind: Work) -> list[SubscriptionName]:
        """The names that something is to be done about; they stay on the list."""
        return list(self._work[kind])

    # --- before it is here ------------------------------------------------------------------------

    def claim(self, name: SubscriptionName) -> None:
        """The registrar is asked whose the name is."""
        record = self._open(name)
        record.is_claimed = True
        record.become(Happening.CLAIM)

    def end_claim(self, name: SubscriptionName) -> None:
        """The registrar has answered, or no client waits for that any more."""
        record = self._records[name]
        record.is_claimed = False
        self._happen(record, Happening.CLAIM_ENDS)

    def await_start(self, name: SubscriptionName, message: Subscribe) -> None:
        """A client waits until everything that the subscription wants gets here."""
        record = self._open(name)
        record.starts.append(message)
        record.become(Happening.START)

    def end_start(self, name: SubscriptionName, message: Subscribe) -> None:
        """The start is known, or its client does not want it any more."""
        record = self._records[name]
        record.starts.remove(message)
        if not record.starts:
            self._happen(record, Happening.START_ENDS)

    # --- its life here ----------------------------------------------------------------------------

    def create(self, name: SubscriptionName) -> None:
        """Its first write is on the way."""
        self._open(name).become(Happening.CREATE)

    def attach_later(
        self, name: SubscriptionName, number: int, attacher: Attacher
    ) -> Attacher | None:
        """Attach this client, and no other, when the subscription of this number is durable: the
        client that was to be attached until now, if there was one. Its number on the connection is
        taken until then."""
        creations = self._records[name].creations
        before, creations[number] = creations.get(number), attacher
        if before is not None:
            del self._attaching[before.key]
        self._attaching[attacher.key] = name, number
        return before

    def detach_later(self, client: ClientName, number: int) -> bool:
        """The client does not want to be attached any more; False if it did not wait for that."""
        place = self._attaching.pop((client, number), None)
        if place is not None:
            name, created = place
            self._records[name].creations[created] = None
        return place is not None

    def end_creation(self, name: SubscriptionName, number: int) -> Attacher | None:
        """The first write has ended, well or not: the client to attach, if it is still there."""
        record = self._records[name]
        attacher = record.creations.pop(number)
        if attacher is not None:
            del self._attaching[attacher.key]
        self._forget_if_idle(record)
        return attacher

    def written(self, name: SubscriptionName) -> None:
        """Its first write is durable."""
        self._records[name].become(Happening.WRITTEN)

    def fail(self, name: SubscriptionName) -> None:
        """There was no room for its first write."""
        self._happen(self._records[name], Happening.NO_ROOM)

    def open_session(self, name: SubscriptionName, session: Session) -> None:
        self._records[name].session = session

    def close_session(self, name: SubscriptionName) -> Session:
        record = self._records[name]
        session, record.session = record.session, None
        assert session is not None, f"no client is attached to {name!r}"
        return session

    def hold(self, name: SubscriptionName, shown: Unconfirmed) -> None:
        """Answer an acknowledgement when the subscription's move is known."""
        self._records[name].unconfirmed.append(shown)
        self._work[Work.CONFIRM][name] = None

    def take_unconfirmed(self, name: SubscriptionName) -> list[Unconfirmed]:
        record = self._records[name]
        held, record.unconfirmed = record.unconfirmed, []
        del self._work[Work.CONFIRM][name]
        self._forget_if_idle(record)
        return held

    def seek_home(self, name: SubscriptionName) -> None:
        """The broker where it was is removed: its registrar may know where else it is."""
        self._work[Work.SEEK_HOME][name] = None

    def tell_home(self, name: SubscriptionName) -> None:
        """Its registrar may not know that it is here."""
        self._work[Work.TELL_HOME][name] = None

    # --- moves ------------------------------------------------------------------------------------

    def come_back(self, name: SubscriptionName, message: Subscribe) -> None:
        """Its client came back from another broker, which had not told us to forget it yet."""
        self._records[name].return_ = message
        self._work[Work.TAKE_BACK][name] = None

    def take_return(self, name: SubscriptionName) -> Subscribe | None:
        """The request of the client that came back, which is dealt with now."""
        record = self._records.get(name)
        if record is None:
            return None
        message, record.return_ = record.return_, None
        self._forget_if_idle(record)
        return message

    def come_back_later(self, name: SubscriptionName, message: Subscribe) -> None:
        """The same while it is arriving from somewhere else: that comes first."""
        self._records[name].next_return = message

    def arrive(self, name: SubscriptionName) -> None:
        """It came from another broker, which must forget it."""
        self._records[name].become(Happening.ARRIVE)
        self._work[Work.HAND_OVER][name] = None

    def hand_over(self, name: SubscriptionName, arrival: Arrival) -> None:
        """The hand-over from the previous broker begins."""
        self._arrivals[name] = arrival

    def end_hand_over(self, name: SubscriptionName) -> None:
        """There is nothing to be handed over any more."""
        self._arrivals.pop(name, None)
        if (record := self._records.get(name)) is not None:
            record.next_return = None

    def settle(self, name: SubscriptionName) -> None:
        """The previous broker has forgotten it; a client that came back meanwhile is next."""
        record = self._records[name]
        later = record.next_return
        self.end_hand_over(name)
        record.become(Happening.SETTLE)
        if later is not None:
            self.come_back(name, later)

    # --- its end ----------------------------------------------------------------------------------

    def end_later(self, name: SubscriptionName, ender: Ender) -> None:
        """A client wants it ended, which waits until it is nowhere else."""
        self._records[name].enders.append(ender)
        self._work[Work.END][name] = None

    def take_enders(self, name: SubscriptionName) -> list[Ender]:
        record = self._records[name]
        enders, record.enders = record.enders, []
        self._work[Work.END].pop(name, None)
        self._forget_if_idle(record)
        return enders

    def depart(self, definition: Definition) -> None:
        """Its life is about to end: its name is freed when that is durable, and the clients that
        want it ended are answered then."""
        record = self._records[definition.name]
        if record.departure is None:
            record.departure = Departure(definition.owner, definition.topic)
        record.departure.enders += self.take_enders(definition.name)

    def end(self, definition: Definition, happening: Happening) -> None:
        """It is over at this broker (`END`), or goes on at another (`MOVE_OUT`)."""
        name = definition.name
        if happening is Happening.END:
            remember(self._ended, name, definition.moves, ENDED_MAX)
        else:
            self._ended.pop(name, None)
        self._happen(self._records[name], happening)

    def departed(self, name: SubscriptionName) -> Departure | None:
        """The end of a life is durable."""
        record = self._records.get(name)
        if record is None:
            return None
        departure, record.departure = record.departure, None
        self._forget_if_idle(record)
        return departure

    def ask_to_end(self, name: SubscriptionName, ender: Ender) -> None:
        """Another client wants what is over already: it is answered with the others."""
        departure = self._records[name].departure
        assert departure is not None
        departure.enders.append(ender)

    # --- bookkeeping ------------------------------------------------------------------------------

    def _open(self, name: SubscriptionName) -> Record:
        if name not in self._records:
            self._records[name] = Record(name)
        return self._records[name]

    def _happen(self, record: Record, happening: Happening) -> None:
        record.become(happening)
        self._forget_if_idle(record)

    def _forget_if_idle(self, record: Record) -> None:
        if record.is_idle:
            del self._records[record.name]

    def check(self, portion: Portion = WHOLE) -> None:
        for name, record in portion.of(self._records.items()):
            subscription = self.subscriptions.get(name)
            assert record.phase.is_here == (subscription is not None), f"I1 {name}"
            if subscription is not None and record.phase is not Phase.CREATING:
                is_arriving = subscription.definition.previous is not None
                assert (record.phase is Phase.ARRIVING) == is_arriving, f"I1 {name}"
            assert record.session is None or record.phase.is_here, f"I2 {name}"
        if portion.is_whole:
            self._check_whole()

    def _check_whole(self) -> None:
        names = {each.definition.name for each in self.subscriptions.all()}
        assert names <= self._records.keys(), "I1"
        assert all(self._records[name].phase.is_here for name in self._arrivals), "I2"
        waiting = {
            attacher.key: (name, number)
            for name, record in self._records.items()
            for number, attacher in record.creations.items()
            if attacher is not None
        }
        assert waiting == self._attaching, "I3"
        for name in self._work[Work.CONFIRM]:
            assert self._records[name].unconfirmed, f"I4 {name}"
        for name in self._work[Work.END]:
            assert self._records[name].enders, f"I4 {name}"
