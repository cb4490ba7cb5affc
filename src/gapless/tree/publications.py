"""Publications: the queue of one broker, from arrival to confirmation.

Theory of operation
    A publication gets the next number of the queue when it comes. It waits for every *route* to a
    matching subscription's source that does not lead back. At any time a route has one session:
    the active broker on it, if there is one. Each session gets what is routed over it in the order
    of the queue; a session that is new gets all of it, from the oldest unconfirmed on. A broker
    that confirms settles every route that leads through it, and when none is left we confirm to all
    who sent us a copy. So nothing leaves a queue before it has left the next one, or was delivered.
    What would not be legitimate is held, with all behind it on that session (`trail`); so is what
    goes beyond the session's window. What has no session waits until there is one.
    Who had a publication in his queue before he knew of a subscription says so when he sends it
    (`not_for`): he may have dropped others that matched since, so the subscription must not begin
    with this one. One that was sent before and comes again, to somebody who has crashed meanwhile
    and knows of the subscription now, is such a one.
    A *recovery notifier* is an entry like any other, routed by the subscriptions it is about.

Invariants
    I1  entries stand in the order of their numbers, and each waits for a route
    I2  an entry was sent on a session only if those before it for that session were, or are settled

Cost: a publication is one entry; a change of the frontier makes every session look at the queue
again, otherwise each looks at an entry once.

Source: SRDS 2011, sec. VI, figure 8. Deviation: the outgoing set is kept as routes, and who is on
them is decided anew at each change; figure 8's substitutions follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from gapless.tree.messages import Hop, Position, Publication, PublicationId
from gapless.tree.trail import extend, is_legitimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.core.identity import BrokerName
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import Route, Subscriptions


@dataclass(slots=True)
class Entry:
    """One publication in the queue."""

    number: int
    publication: Publication  # as it came; its hops are those of the copy that was first
    routes: set[Route]
    senders: set[BrokerName] = field(default_factory=set)
    sent: set[BrokerName] = field(default_factory=set)  # on the sessions that are active now


class Publications:
    """The queue of one broker."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        subscriptions: Subscriptions,
        epoch: int,
        settings: TreeSettings,
    ) -> None:
        self._here = neighbourhood.broker
        self._neighbourhood = neighbourhood
        self._subscriptions = subscriptions
        self._epoch = epoch
        self._settings = settings
        self._number = 0
        self._entries: dict[PublicationId, Entry] = {}  # in the order of their numbers
        self._owed: dict[BrokerName, set[PublicationId]] = {}
        self._next: dict[BrokerName, int] = {}  # the first number a session has not looked at

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    @property
    def next_number(self) -> int:
        return self._number + 1

    def name_next(self) -> PublicationId:
        """The name of a publication that begins here, now."""
        return PublicationId(self._here, self._epoch, self.next_number)

    def get(self, name: PublicationId) -> Entry | None:
        return self._entries.get(name)

    def append(
        self, publication: Publication, routes: Iterable[Route], sender: BrokerName | None
    ) -> Entry:
        """Number it; it stays if there is a route to wait for."""
        self._number += 1
        entry = Entry(self._number, publication, set(routes))
        if sender is not None:
            entry.senders.add(sender)
        if entry.routes:
            self._entries[publication.id] = entry
        return entry

    def settle(self, name: PublicationId, sender: BrokerName) -> Entry | None:
        """`sender` has seen to all that lies behind it; the entry, if that was the last of it."""
        if sender in self._owed:
            self._owed[sender].discard(name)
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.routes = {route for route in entry.routes if sender not in route}
        if entry.routes:
            return None
        for broker in entry.sent:
            self._owed[broker].discard(name)
        return self._entries.pop(name)

    # --- sessions --------------------------------------------------------------------------------

    def open(self, session: BrokerName) -> None:
        """A session is new: nothing has been sent on it."""
        self.close(session)
        self._next[session] = 0
        self._owed[session] = set()

    def close(self, session: BrokerName) -> None:
        self._next.pop(session, None)
        self._owed.pop(session, None)
        for entry in self._entries.values():
            entry.sent.discard(session)

    def look_again(self) -> None:
        """Routes may lead elsewhere now."""
        self._next = dict.fromkeys(self._next, 0)

    def due(
        self, session: BrokerName, active: frozenset[BrokerName]
    ) -> Iterator[tuple[Entry, Publication]]:
        """What to send on a session now, in order; it counts as sent."""
        first, owed = self._next[session], self._owed[session]
        if first > self._number or len(owed) >= self._settings.window_max:
            return
        new = takewhile(lambda entry: entry.number >= first, reversed(self._entries.values()))
        for entry in reversed(list(new)):
            if session in entry.sent:
                continue
            if all(session_of(route, active) != session for route in entry.routes):
                continue
            copy = self._copy(entry, session)
            if len(owed) >= self._settings.window_max or not self._may_go(copy):
                self._next[session] = entry.number
                return
            entry.sent.add(session)
            owed.add(entry.publication.id)
            yield entry, copy
        self._next[session] = self._number + 1

    def _may_go(self, copy: Publication) -> bool:
        return is_legitimate(copy.hops, self._settings)

    def _copy(self, entry: Entry, to: BrokerName) -> Publication:
        p = entry.publication
        here = Hop(self._here, Position(self._epoch, entry.number))
        hops = extend(p.hops, here, self._neighbourhood.path(to)[:-1])
        younger = self._subscriptions.younger_than(entry.number, p)
        not_for = tuple(sorted(younger.union(p.not_for))) if younger else p.not_for
        return Publication(p.id, hops, p.attributes, p.body, p.clearings, not_for)

    def has_flushed(self, to: BrokerName, before: int, active: frozenset[BrokerName]) -> bool:
        """Has all that was queued before number `before` and leads the way to `to` gone there?

        Whatever its route: any broker on the way there may send it on to others.
        """
        direction = self._neighbourhood.path(to)[0]
        for entry in self._entries.values():
            if entry.number >= before:
                return True
            if to not in entry.sent and any(route[0] == direction for route in entry.routes):
                return False
            if any(r[0] == direction and session_of(r, active) != to for r in entry.routes):
                return False
        return True

    def check(self) -> None:
        numbers = [entry.number for entry in self._entries.values()]
        assert numbers == sorted(numbers), "I1"
        assert all(entry.routes for entry in self._entries.values()), "I1"


def session_of(route: Route, active: frozenset[BrokerName]) -> BrokerName | None:
    """The active broker on a route: there is one at most (`frontier` I1)."""
    return next((broker for broker in route if broker in active), None)
