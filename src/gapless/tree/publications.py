"""Publications: the queue of one broker, from arrival to confirmation.

Theory of operation
    A publication gets the next number of the queue when it comes. It waits for every *route* to a
    matching subscription's source that does not lead back. At any time a route has one session:
    the active broker on it, if there is one. Each session gets what is routed over it in the order
    of the queue; a session that is new gets all of it, from the oldest unconfirmed on. A broker
    that confirms settles every route that leads through it, and when none is left we confirm to all
    who sent us a copy. So nothing leaves a queue before it has left the next one, or was delivered.
    What would not be legitimate is held, with all behind it on that session (`trail`); so is what
    goes beyond the session's window, which counts what the neighbour has not *taken* yet. Whether
    it is confirmed does not matter there: that may last until somebody far behind it returns. What
    has no session waits until there is one.
    What waits is bounded for each topic (`losses`): our own publications, at which we take no more,
    and at half of that ask that the older ones are given up for whoever is out of reach; and what
    waits here for brokers that are out of reach, whoever published it.
    Who had a publication in his queue before he knew of a subscription says so when he sends it
    (`not_for`): he may have dropped others that matched since, so the subscription must not begin
    with this one. One that was sent before and comes again, to somebody who has crashed meanwhile
    and knows of the subscription now, is such a one.
    A *recovery notifier* is an entry like any other, routed by the subscriptions it is about.

Invariants
    I1  entries stand in the order of their numbers, and each waits for a route
    I2  an entry was sent on a session only if those before it for that session were, or are settled
    I3  no neighbour has more than `window_max` that it has not taken; of our own publications no
        more than `queue_max` of a topic wait

Cost: a publication is one entry; a change of the frontier makes every session look at the queue
again, otherwise each looks at an entry once.

Source: SRDS 2011, sec. VI, figure 8. Deviation: the outgoing set is kept as routes, and who is on
them is decided anew at each change; figure 8's substitutions follow from that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError
from gapless.tree.messages import Hop, Loss, Position, Publication, PublicationId
from gapless.tree.trail import extend, is_legitimate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.identity import BrokerName
    from gapless.tree.frontier import Frontier
    from gapless.tree.losses import LossTable
    from gapless.tree.messages import Life
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import Route, SubscriptionTable


Routes = dict["Route", set["Life"]]
"""Ways that a publication has to go, and for whom on each: the brokers of subscribers."""


@dataclass(slots=True)
class SendWindow:
    """What has been sent on a connection, and not been taken yet."""

    connection: Position
    count: int = 0


@dataclass(slots=True)
class QueueEntry:
    """One publication in the queue."""

    number: int
    publication: Publication  # as it came; its hops are those of the copy that was first
    routes: Routes
    senders: set[BrokerName] = field(default_factory=set)
    sent: set[BrokerName] = field(default_factory=set)  # on the sessions that are active now
    lost_to: frozenset[Life] = frozenset()  # it was given up for these
    held: dict[BrokerName, tuple[BrokerName, ...]] | None = None  # see `reached`
    told: tuple[BrokerName, ...] = ()


class Publications:
    """The queue of one broker."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        subscriptions: SubscriptionTable,
        epoch: int,
        settings: TreeSettings,
    ) -> None:
        self._here = neighbourhood.broker
        self._neighbourhood = neighbourhood
        self._subscriptions = subscriptions
        self._epoch = epoch
        self._settings = settings
        self._number = 0
        self._entries: dict[PublicationId, QueueEntry] = {}  # in the order of their numbers
        self._flights: dict[BrokerName, SendWindow] = {}
        self._next: dict[BrokerName, int] = {}  # the first number a session has not looked at
        self._own: dict[str, dict[int, None]] = {}  # by topic, the numbers of our own, ascending
        self._unwaived: Counter[str] = Counter()  # by topic, our own since the last waiver
        self._crowded: dict[str, None] = {}  # topics with too much of our own, an ordered set
        self._awaited: dict[PublicationId, QueueEntry] = {}
        self._has_held = False  # some neighbour says that it keeps one of those
        self._since_look = 0  # entries since `held` was last looked at

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    @property
    def next_number(self) -> int:
        return self._number + 1

    def name_next(self) -> PublicationId:
        """The name of a publication that begins here, now."""
        return PublicationId(self._here, self._epoch, self.next_number)

    def get(self, name: PublicationId) -> QueueEntry | None:
        return self._entries.get(name)

    def append(
        self, publication: Publication, routes: Routes, sender: BrokerName | None
    ) -> QueueEntry:
        """Number it; it stays if there is a route to wait for."""
        self._number += 1
        entry = QueueEntry(self._number, publication, routes)
        if sender is not None:
            entry.senders.add(sender)
        if entry.routes:
            self._entries[publication.id] = entry
            self._since_look += 1
            if publication.is_awaited:
                self._awaited[publication.id] = entry
            if sender is None and not publication.clearings:
                self._own.setdefault(publication.topic, {})[entry.number] = None
                self._unwaived[publication.topic] += 1
                if self.own_count(publication.topic) > self._settings.held_max:
                    self._crowded[publication.topic] = None
        return entry

    def settle(self, name: PublicationId, sender: BrokerName) -> QueueEntry | None:
        """`sender` has seen to all that lies behind it; the entry, if that was the last of it."""
        entry = self._entries.get(name)
        if entry is None:
            return None
        entry.routes = {route: to for route, to in entry.routes.items() if sender not in route}
        return None if entry.routes else self._remove(entry)

    def _remove(self, entry: QueueEntry) -> QueueEntry:
        p = entry.publication
        if p.id.source == self._here and p.id.epoch == self._epoch and not p.clearings:
            own = self._own[p.topic]
            del own[entry.number]
            if not own:
                del self._own[p.topic], self._unwaived[p.topic]
        self._awaited.pop(p.id, None)
        self._has_held = self._has_held and bool(self._awaited)
        return self._entries.pop(p.id)

    def hold(self, name: PublicationId, sender: BrokerName, away: tuple[BrokerName, ...]) -> None:
        """`sender` has seen to all behind it that it reaches."""
        entry = self._entries.get(name)
        if entry is not None and sender in entry.sent:
            entry.held = {**(entry.held or {}), sender: away}
            self._has_held = True

    def reached(self, frontier: Frontier) -> list[tuple[QueueEntry, tuple[BrokerName, ...]]]:
        """Of what is awaited, what all within reach have: only brokers that are away do not, as far
        as we know or our neighbours say (`held`). Each once for the same brokers."""
        found: list[tuple[QueueEntry, tuple[BrokerName, ...]]] = []
        active, failed = frozenset(frontier.active), frozenset(frontier.failed)
        for entry in self._awaited.values() if failed or self._has_held else ():
            away: set[BrokerName] = set()
            for route, lives in entry.routes.items():
                session = session_of(route, active)
                if session is None and failed.issuperset(route):
                    away.update(broker for broker, _ in lives)
                elif session is not None and entry.held and session in entry.held:
                    away.update(entry.held[session])
                else:
                    break
            else:
                names = tuple(sorted(away.union(broker for broker, _ in entry.lost_to)))
                if names != entry.told:
                    entry.told = names
                    found.append((entry, names))
        return found

    # --- bounds ----------------------------------------------------------------------------------

    def own_count(self, topic: str) -> int:
        """How many of our own publications for a topic wait."""
        return len(self._own.get(topic, ()))

    def waive(self) -> list[Loss]:
        """Of topics of which too much of our own waits: nobody need keep the older ones for who is
        out of reach."""
        keep = self._settings.held_max // 2
        found: list[Loss] = []
        crowded, self._crowded = self._crowded, {}
        for topic in crowded:
            own = self._own.get(topic, {})
            if len(own) > self._settings.held_max and self._unwaived[topic] > keep:
                self._unwaived[topic] = 0
                last = next(islice(reversed(own), keep, None))
                found.append(Loss(self._here, self._epoch, topic, last))
        return found

    def is_held_unknown(self) -> bool:
        """Have enough come that too much may be held for those out of reach?"""
        return self._since_look > self._settings.queue_max // 4

    def held(self, away: frozenset[BrokerName], losses: LossTable) -> list[Loss]:
        """What is to be given up for those away: what need not be kept for them, and of each topic
        the older ones of what is too much."""
        self._since_look = 0
        waiting: dict[str, list[tuple[Publication, set[Life]]]] = {}
        for entry in self._entries.values() if away else ():
            stuck = [to for route, to in entry.routes.items() if away.issuperset(route)]
            if stuck and not entry.publication.clearings:
                p = entry.publication
                targets = {each for to in stuck for each in to}
                waiting.setdefault(p.topic, []).append((p, targets))
        found: dict[Loss, Loss] = {}
        for some in waiting.values():
            is_much = len(some) > self._settings.queue_max
            much = len(some) - self._settings.held_max // 2 if is_much else 0
            for index, (p, targets) in enumerate(some):
                if index < much or losses.is_waived(p):
                    for target in sorted(targets):
                        loss = Loss(p.id.source, p.id.epoch, p.topic, p.id.number, target)
                        found[loss._replace(through=0)] = (
                            loss  # the last of a source is its highest
                        )
        return list(found.values())

    def give_up(self, losses: LossTable) -> list[QueueEntry]:
        """Wait no longer for those who have lost something; entries that nobody else waits for."""
        over: list[QueueEntry] = []
        for entry in list(self._entries.values()):
            if entry.publication.clearings:
                continue
            before = {each for to in entry.routes.values() for each in to}
            entry.routes = self.without_lost(entry.publication, entry.routes, losses)
            entry.lost_to |= before.difference(*entry.routes.values())
            if not entry.routes:
                over.append(self._remove(entry))
        return over

    def without_lost(self, publication: Publication, routes: Routes, losses: LossTable) -> Routes:
        """The routes that are left if nobody waits for those to whom it is lost."""
        left = {
            route: {each for each in to if not losses.is_lost(publication, each)}
            for route, to in routes.items()
        }
        return {route: to for route, to in left.items() if to}

    # --- sessions --------------------------------------------------------------------------------

    def open(self, session: BrokerName, connection: Position) -> None:
        """A session is new: nothing has been sent on it. A former one may have been on the same
        connection, and not all that was sent there been taken."""
        self.close(session)
        self._next[session] = 0
        flight = self._flights.get(session)
        if flight is None or flight.connection != connection:
            self._flights[session] = SendWindow(connection)

    def taken(self, session: BrokerName, count: int) -> None:
        """The neighbour has room for so many more."""
        flight = self._flights.get(session)
        if flight is None or count > flight.count:
            raise ProtocolError(f"{session} has taken more publications than it was sent")
        flight.count -= count

    def close(self, session: BrokerName) -> None:
        self._next.pop(session, None)
        for entry in self._entries.values():
            entry.sent.discard(session)
            if entry.held:
                entry.held.pop(session, None)

    def look_again(self) -> None:
        """Routes may lead elsewhere now."""
        self._next = dict.fromkeys(self._next, 0)

    def due(
        self, session: BrokerName, active: frozenset[BrokerName]
    ) -> Iterator[tuple[QueueEntry, Publication]]:
        """What to send on a session now, in order; it counts as sent."""
        first, flight = self._next[session], self._flights[session]
        if first > self._number or not self._has_room(flight):
            return
        new = takewhile(lambda entry: entry.number >= first, reversed(self._entries.values()))
        for entry in reversed(list(new)):
            if session in entry.sent:
                continue
            if all(session_of(route, active) != session for route in entry.routes):
                continue
            copy = self._copy(entry, session)
            if not self._has_room(flight) or not self._may_go(copy):
                self._next[session] = entry.number
                return
            entry.sent.add(session)
            flight.count += 1
            yield entry, copy
        self._next[session] = self._number + 1

    def _has_room(self, flight: SendWindow) -> bool:
        return flight.count < self._settings.window_max

    def _may_go(self, copy: Publication) -> bool:
        return is_legitimate(copy.hops, self._settings)

    def _copy(self, entry: QueueEntry, to: BrokerName) -> Publication:
        p = entry.publication
        here = Hop(self._here, Position(self._epoch, entry.number))
        hops = extend(p.hops, here, self._neighbourhood.path(to)[:-1])
        younger = self._subscriptions.younger_than(entry.number, p)
        not_for = tuple(sorted(younger.union(p.not_for))) if younger else p.not_for
        return Publication(
            p.id, hops, p.attributes, p.body, p.clearings, not_for, p.is_awaited, p.life
        )

    def has_flushed(self, to: BrokerName, before: int, frontier: Frontier) -> bool:
        """Has all that was queued before number `before` and leads the way to `to` gone that way?

        Whatever its route: any broker on the way there may send it on to others. It need not be
        confirmed, nor wait for somebody out of reach: that may last for ever. If it goes, or goes
        again, it says for whom it is too old (`not_for`).
        """
        direction = self._neighbourhood.path(to)[0]
        active, failed = frozenset(frontier.active), frozenset(frontier.failed)
        for entry in self._entries.values():
            if entry.number >= before:
                return True
            routes = [r for r in entry.routes if r[0] == direction and not failed.issuperset(r)]
            if any(session_of(route, active) not in entry.sent for route in routes):
                return False
        return True

    def check(self) -> None:
        numbers = [entry.number for entry in self._entries.values()]
        assert numbers == sorted(numbers), "I1"
        assert all(entry.routes for entry in self._entries.values()), "I1"
        window, queue = self._settings.window_max, self._settings.queue_max
        assert all(0 <= flight.count <= window for flight in self._flights.values()), "I3"
        assert all(0 < len(own) <= queue for own in self._own.values()), "I3"


def session_of(route: Route, active: frozenset[BrokerName]) -> BrokerName | None:
    """The active broker on a route: there is one at most (`frontier` I1)."""
    return next((broker for broker in route if broker in active), None)
