"""Publications: the queue of one broker, from arrival to confirmation.

Theory of operation
    An entry of the queue is a run as it came; each publication of it gets the next number of the
    queue. A publication waits for every *route* to a matching subscription's source that does not
    lead back. Of each route the entry holds which members of the run are still to go there, and to
    which brokers (`members`). At any time a route has one session: the active broker on it, if
    there is one. Each session gets what is routed over it in the order of the queue; a session that
    is new gets all of it, from the oldest unconfirmed on. A broker that confirms settles every
    route that leads through it, and when none is left we confirm to all brokers that sent us a
    copy. So nothing leaves a queue before it has left the next one, or was delivered.
    Copies that follow each other join to one run again, within the limits of a batch.
    What would not be legitimate is held, with all behind it on that session (`trail`); so is what
    goes beyond the session's window, which counts what the neighbour has not *taken* yet. Whether
    it is confirmed does not matter there: that may last until a broker far behind it returns. What
    has no session waits until there is one.
    What waits is bounded for each topic (`losses`): our own publications, at which we take no more,
    and at half of that ask that the older ones are given up for brokers out of reach; and what
    waits here for brokers that are out of reach, whichever broker published it.
    A broker that had a publication in its queue before it knew of a subscription says so when it
    sends it (`not_for`): it may have dropped others that matched since, so the subscription must
    not begin with this one. A publication that was sent before and goes again, to a broker that has
    crashed meanwhile and knows of the subscription now, is such a one.
    A *recovery notifier* is an entry like any other, routed by the subscriptions it is about.

Invariants
    I1  entries stand in the order of their numbers, and each waits for a route
    I2  an entry was sent on a session only if those before it for that session were, or are settled
    I3  no neighbour has more than `window_max` that it has not taken; of our own publications no
        more than `queue_max` of a topic wait
    I4  the entries of one source ascend and do not overlap, so that a number leads to its entry

Cost: a run is one entry, whatever its length; a change of the frontier makes every session look at
the queue again, otherwise each looks at an entry once.

Source: SRDS 2011, sec. VI, figure 8. Deviation: the outgoing set is kept as routes, and the broker
that is sent to is decided anew at each change; figure 8's substitutions follow from that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from msgspec.structs import replace

from gapless.core.errors import ProtocolError
from gapless.core.events import EventBatch
from gapless.tree.members import Targets, lowest, places, union
from gapless.tree.messages import Hop, Loss, Position
from gapless.tree.trail import PASSED, extend, is_legitimate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gapless.core.identity import BrokerName
    from gapless.tree.frontier import Frontier
    from gapless.tree.losses import LossTable
    from gapless.tree.members import Members
    from gapless.tree.messages import Life, PublicationRun
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.settings import TreeSettings
    from gapless.tree.subscriptions import Route, Routes, SubscriptionTable


@dataclass(slots=True)
class SendWindow:
    """What has been sent on a connection, and not been taken yet."""

    connection: Position
    count: int = 0


@dataclass(slots=True, eq=False)
class QueueEntry:
    """One run in the queue."""

    number: int  # of its first member
    run: PublicationRun  # as it came; its hops are those of the copy that was first
    routes: Routes
    pending: Members  # those that a route is left for
    senders: dict[BrokerName, Members] = field(default_factory=dict)
    sent: dict[BrokerName, Members] = field(default_factory=dict)  # on sessions that are active now
    lost_to: dict[Life, Members] = field(default_factory=dict)  # what was given up for each
    held: dict[BrokerName, dict[int, tuple[BrokerName, ...]]] = field(default_factory=dict)
    """By session and place, as `reached` needs it."""
    told: dict[int, tuple[BrokerName, ...]] = field(default_factory=dict)


@dataclass(slots=True)
class SourceQueue:
    """The entries of one life of a source, by the number of their first publication."""

    starts: list[int] = field(default_factory=list)
    entries: list[QueueEntry] = field(default_factory=list)

    def add(self, entry: QueueEntry) -> None:
        start = entry.run.numbers[0]
        at = len(self.starts)
        if at and start < self.starts[-1]:
            at = bisect_right(self.starts, start)
        self.starts.insert(at, start)
        self.entries.insert(at, entry)

    def remove(self, entry: QueueEntry) -> None:
        at = bisect_right(self.starts, entry.run.numbers[0]) - 1
        assert self.entries[at] is entry, "I4"
        del self.starts[at], self.entries[at]

    def find(self, numbers: Sequence[int]) -> Iterator[tuple[QueueEntry, Members]]:
        """The entries that hold some of these ascending numbers, and which members those are."""
        at = 0
        while at < len(numbers):
            index = bisect_right(self.starts, numbers[at]) - 1
            own = self.entries[index].run.numbers if index >= 0 else (0,)
            if numbers[at] > own[-1]:
                at += 1
                continue
            if numbers[at : at + len(own)] == own:
                at += len(own)
                yield self.entries[index], self.entries[index].run.all
                continue
            end = bisect_right(numbers, own[-1], at)
            wanted = {*numbers[at:end]}
            at = end
            found = sum(1 << place for place, number in enumerate(own) if number in wanted)
            if found:
                yield self.entries[index], found


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
        self._count = 0
        self._entries: dict[int, QueueEntry] = {}  # by number, ascending
        self._sources: dict[Life, SourceQueue] = {}
        self._windows: dict[BrokerName, SendWindow] = {}
        self._next: dict[BrokerName, int] = {}  # the first number a session has not looked at
        self._own: dict[str, dict[int, QueueEntry]] = {}  # by topic, our own entries, ascending
        self._own_count: Counter[str] = Counter()
        self._unwaived: Counter[str] = Counter()  # by topic, our own since the last waiver
        self._crowded: dict[str, None] = {}  # topics with too much of our own, an ordered set
        self._awaited: dict[int, QueueEntry] = {}
        self._has_held = False  # some neighbour says that it keeps one of those
        self._since_look = 0  # publications since `held` was last looked at

    def __len__(self) -> int:
        """Publications that wait for a route."""
        return self._count

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._entries.values())

    @property
    def next_number(self) -> int:
        return self._number + 1

    def find(self, life: Life, numbers: Sequence[int]) -> list[tuple[QueueEntry, Members]]:
        """Entries with these publications of a source, which ascend, and which members they are."""
        queue = self._sources.get(life)
        return [] if queue is None else list(queue.find(numbers))

    def newest(self, life: Life) -> int:
        """The highest number of a source that waits here; 0: none."""
        queue = self._sources.get(life)
        return 0 if queue is None else queue.entries[-1].run.numbers[-1]

    def append(
        self, run: PublicationRun, routes: Routes, sender: BrokerName | None
    ) -> tuple[QueueEntry, Members]:
        """Number a run; it stays if there is a route to wait for. Also the members without one."""
        pending = union(to.members for to in routes.values())
        entry = QueueEntry(self._number + 1, run, routes, pending)
        self._number += len(run.numbers)
        if sender is not None:
            entry.senders[sender] = run.all
        if pending:
            self._keep(entry, is_own=sender is None and not run.clearings)
        return entry, run.all & ~pending

    def _keep(self, entry: QueueEntry, *, is_own: bool) -> None:
        run, count = entry.run, entry.pending.bit_count()
        self._entries[entry.number] = entry
        self._sources.setdefault((run.source, run.epoch), SourceQueue()).add(entry)
        self._count += count
        self._since_look += count
        if run.is_awaited:
            self._awaited[entry.number] = entry
        if is_own:
            self._own.setdefault(run.topic, {})[entry.number] = entry
            self._own_count[run.topic] += count
            self._unwaived[run.topic] += count
            if self._own_count[run.topic] > self._settings.held_max:
                self._crowded[run.topic] = None

    def settle(
        self, life: Life, numbers: Sequence[int], sender: BrokerName
    ) -> list[tuple[QueueEntry, Members]]:
        """`sender` has seen to all that lies behind it; what that was the last of."""
        over: list[tuple[QueueEntry, Members]] = []
        for entry, members in self.find(life, numbers):
            routes = {
                route: to.without(members) if sender in route else to
                for route, to in entry.routes.items()
            }
            done = self._reroute(entry, routes)
            if done:
                over.append((entry, done))
        return over

    def _reroute(self, entry: QueueEntry, routes: Routes) -> Members:
        """Only these routes are left; the members that none is left for from now on."""
        entry.routes = {route: to for route, to in routes.items() if to.members}
        before = entry.pending
        entry.pending = union(to.members for to in entry.routes.values())
        done = before & ~entry.pending
        if done:
            self._count -= done.bit_count()
            self._forget(entry, done)
        return done

    def _forget(self, entry: QueueEntry, done: Members) -> None:
        run = entry.run
        own = self._own.get(run.topic)
        if own is not None and entry.number in own:
            self._own_count[run.topic] -= done.bit_count()
            if not entry.pending:
                del own[entry.number]
            if not own:
                del self._own[run.topic], self._own_count[run.topic], self._unwaived[run.topic]
        if entry.pending:
            return
        del self._entries[entry.number]
        life = (run.source, run.epoch)
        self._sources[life].remove(entry)
        if not self._sources[life].entries:
            del self._sources[life]
        self._awaited.pop(entry.number, None)
        self._has_held = self._has_held and bool(self._awaited)

    def hold(
        self,
        life: Life,
        numbers: Sequence[int],
        sender: BrokerName,
        away: tuple[BrokerName, ...],
    ) -> None:
        """`sender` has seen to all behind it that it reaches."""
        for entry, members in self.find(life, numbers):
            sent = members & entry.sent.get(sender, 0)
            if sent:
                entry.held.setdefault(sender, {}).update(dict.fromkeys(places(sent), away))
                self._has_held = True

    def reached(
        self, frontier: Frontier
    ) -> list[tuple[QueueEntry, Members, tuple[BrokerName, ...]]]:
        """Of what is awaited, what all within reach have: only brokers that are away do not, as far
        as we know or our neighbours say (`hold`). Each once for the same brokers."""
        found: list[tuple[QueueEntry, Members, tuple[BrokerName, ...]]] = []
        for entry in self._awaited.values() if frontier.unreachable or self._has_held else ():
            news: dict[tuple[BrokerName, ...], Members] = {}
            for place in places(entry.pending):
                names = away_from(entry, place, frontier)
                if names is not None and names != entry.told.get(place):
                    entry.told[place] = names
                    news[names] = news.get(names, 0) | 1 << place
            found += [(entry, members, names) for names, members in news.items()]
        return found

    # --- bounds ----------------------------------------------------------------------------------

    def own_count(self, topic: str) -> int:
        """How many of our own publications for a topic wait."""
        return self._own_count.get(topic, 0)

    def waive(self) -> list[Loss]:
        """Of topics of which too much of our own waits: no broker need keep the older ones for
        brokers out of reach."""
        keep = self._settings.held_max // 2
        losses: list[Loss] = []
        crowded, self._crowded = self._crowded, {}
        for topic in crowded:
            if self.own_count(topic) > self._settings.held_max and self._unwaived[topic] > keep:
                self._unwaived[topic] = 0
                losses.append(Loss(self._here, self._epoch, topic, self._last_before(topic, keep)))
        return losses

    def _last_before(self, topic: str, newest: int) -> int:
        """The number of our last publication that waits and is not among the newest."""
        for entry in reversed(self._own[topic].values()):
            waiting = places(entry.pending)
            if len(waiting) > newest:
                return entry.run.numbers[waiting[-1 - newest]]
            newest -= len(waiting)
        raise AssertionError("there are more than the newest")

    def is_held_unknown(self) -> bool:
        """Have enough come that too much may be held for brokers out of reach?"""
        return self._since_look > self._settings.queue_max // 4

    def held(self, away: frozenset[BrokerName], losses: LossTable) -> list[Loss]:
        """What is to be given up for brokers that are away: what need not be kept for them, and of
        each topic the older ones of what is too much."""
        self._since_look = 0
        stuck: dict[str, list[tuple[PublicationRun, dict[Life, Members]]]] = {}
        for entry in self._entries.values() if away else ():
            targets: dict[Life, Members] = {}
            for route, to in entry.routes.items():
                for life, members in to.by_life.items() if away.issuperset(route) else ():
                    targets[life] = targets.get(life, 0) | members
            if targets and not entry.run.clearings:
                stuck.setdefault(entry.run.topic, []).append((entry.run, targets))
        found: dict[Loss, Loss] = {}
        for some in stuck.values():
            count = sum(union(to.values()).bit_count() for _, to in some)
            much = count - self._settings.held_max // 2 if count > self._settings.queue_max else 0
            for run, targets in some:
                over = lowest(union(targets.values()), much)
                much -= over.bit_count()
                over |= losses.waived(run)
                for target in sorted(targets):
                    if given := targets[target] & over:
                        through = run.numbers[given.bit_length() - 1]
                        loss = Loss(run.source, run.epoch, run.topic, through, target)
                        found[loss._replace(through=0)] = loss  # the last of a source is highest
        return list(found.values())

    def give_up(self, losses: LossTable) -> list[tuple[QueueEntry, Members]]:
        """Wait no longer for brokers that have lost something; what no other waits for."""
        over: list[tuple[QueueEntry, Members]] = []
        for entry in [each for each in self._entries.values() if not each.run.clearings]:
            routes = self.without_lost(entry.run, entry.routes, losses)
            if routes == entry.routes:
                continue
            for route, to in entry.routes.items():
                left = routes[route].by_life if route in routes else {}
                for life, members in to.by_life.items():
                    if gone := members & ~left.get(life, 0):
                        entry.lost_to[life] = entry.lost_to.get(life, 0) | gone
            done = self._reroute(entry, routes)
            if done:
                over.append((entry, done))
        return over

    def forget_targets(
        self, names: Iterable[BrokerName], longer: Mapping[Route, Route]
    ) -> list[tuple[QueueEntry, Members]]:
        """Brokers never return: wait no longer for them. Routes over them reach further now; what
        no other broker waits for."""
        over: list[tuple[QueueEntry, Members]] = []
        for entry in list(self._entries.values()):
            found: dict[Route, dict[Life, Members]] = {}
            for route, to in entry.routes.items():
                targets = found.setdefault(longer.get(route, route), {})
                for life, members in to.by_life.items():
                    if life[0] not in names:
                        targets[life] = targets.get(life, 0) | members
            done = self._reroute(entry, {route: Targets(to) for route, to in found.items()})
            if done:
                over.append((entry, done))
        return over

    def without_lost(self, run: PublicationRun, routes: Routes, losses: LossTable) -> Routes:
        """The routes that are left if no broker waits for those to whom it is lost."""
        left: Routes = {}
        for route, to in routes.items():
            lost = {
                life: gone
                for life, some in to.by_life.items()
                if (gone := some & losses.lost(run, life))
            }
            kept = to.without_each(lost) if lost else to
            if kept.members:
                left[route] = kept
        return left

    # --- sessions --------------------------------------------------------------------------------

    def open(self, session: BrokerName, connection: Position) -> None:
        """A session is new: nothing has been sent on it. A former one may have been on the same
        connection, and not all that was sent there been taken."""
        self.close(session)
        self._next[session] = 0
        window = self._windows.get(session)
        if window is None or window.connection != connection:
            self._windows[session] = SendWindow(connection)

    def taken(self, session: BrokerName, count: int) -> None:
        """The neighbour has room for so many more."""
        window = self._windows.get(session)
        if window is None or count > window.count:
            raise ProtocolError(f"{session} has taken more publications than it was sent")
        window.count -= count

    def close(self, session: BrokerName) -> None:
        self._next.pop(session, None)
        for entry in self._entries.values():
            entry.sent.pop(session, None)
            entry.held.pop(session, None)

    def look_again(self) -> None:
        """Routes may lead elsewhere now."""
        self._next = dict.fromkeys(self._next, 0)

    def due(self, session: BrokerName, active: frozenset[BrokerName]) -> list[PublicationRun]:
        """What to send on a session now, in order; it counts as sent."""
        first, window = self._next[session], self._windows[session]
        if first > self._number or self._room(window) < 1:
            return []
        self._next[session] = self._number + 1
        copies: list[PublicationRun] = []
        new = takewhile(lambda entry: entry.number >= first, reversed(self._entries.values()))
        for entry in reversed(list(new)):
            members = routed_over(entry, session, active) & ~entry.sent.get(session, 0)
            if not members:
                continue
            copy, going = self._copy(entry, session), lowest(members, self._room(window))
            is_held = not self._may_go(copy)
            if is_held or going != members:
                self._next[session] = entry.number
            if is_held or not going:
                break
            entry.sent[session] = entry.sent.get(session, 0) | going
            window.count += going.bit_count()
            copies.append(copy.part(going))
            if going != members:
                break
        return list(join_runs(copies, self._settings))

    def _room(self, window: SendWindow) -> int:
        return self._settings.window_max - window.count

    def _may_go(self, copy: PublicationRun) -> bool:
        return is_legitimate(copy.hops, self._settings)

    def _copy(self, entry: QueueEntry, to: BrokerName) -> PublicationRun:
        run, is_told_by_trail = entry.run, self._settings.repeats == "trail"
        here = Position(self._epoch, entry.number) if is_told_by_trail else PASSED
        hops = extend(run.hops, Hop(self._here, here), self._neighbourhood.path(to)[:-1])
        younger = self._subscriptions.younger_than(entry.number, run, to)
        not_for = tuple(sorted(younger.union(run.not_for))) if younger else run.not_for
        return replace(run, hops=hops, not_for=not_for)

    def has_flushed(self, to: BrokerName, before: int, frontier: Frontier) -> bool:
        """Has all that was queued before number `before` and leads the way to `to` gone that way?

        Whatever its route: any broker on the way there may send it on to others. It need not be
        confirmed, nor wait for a broker out of reach: that may last for ever. If it goes, or goes
        again, it names the subscriptions that it is too old for (`not_for`).
        """
        direction = self._neighbourhood.path(to)[0]
        active, unreachable = frozenset(frontier.active), frontier.unreachable
        for entry in self._entries.values():
            if entry.number >= before:
                return True
            for route, targets in entry.routes.items():
                if route[0] == direction and not unreachable.issuperset(route):
                    session = session_of(route, active)
                    sent = 0 if session is None else entry.sent.get(session, 0)
                    if targets.members & ~sent:
                        return False
        return True

    def check(self) -> None:
        numbers = [entry.number for entry in self._entries.values()]
        assert numbers == sorted(numbers), "I1"
        assert all(entry.routes and entry.pending for entry in self._entries.values()), "I1"
        window, queue = self._settings.window_max, self._settings.queue_max
        assert all(0 <= each.count <= window for each in self._windows.values()), "I3"
        assert all(0 < self._own_count[topic] <= queue for topic in self._own), "I3"
        assert self._count == sum(entry.pending.bit_count() for entry in self), "I1"
        for each in self._sources.values():
            said = [number for entry in each.entries for number in entry.run.numbers]
            assert said == sorted(set(said)), "I4"
            assert each.starts == [entry.run.numbers[0] for entry in each.entries], "I4"


def session_of(route: Route, active: frozenset[BrokerName]) -> BrokerName | None:
    """The active broker on a route: there is one at most (`frontier` I1)."""
    return next((broker for broker in route if broker in active), None)


def routed_over(entry: QueueEntry, session: BrokerName, active: frozenset[BrokerName]) -> Members:
    """The members of an entry that a session is to get."""
    return union(
        to.members
        for route, to in entry.routes.items()
        if session in route and session_of(route, active) == session
    )


def away_from(entry: QueueEntry, place: int, frontier: Frontier) -> tuple[BrokerName, ...] | None:
    """The brokers out of reach that one publication is kept for, if all others have it."""
    active, bit = frozenset(frontier.active), 1 << place
    away = {broker for (broker, _), members in entry.lost_to.items() if members & bit}
    for route, to in entry.routes.items():
        targets = [broker for (broker, _), members in to.by_life.items() if members & bit]
        session = session_of(route, active)
        if session is None and frontier.unreachable.issuperset(route):
            away.update(targets)
        elif targets and session is not None and place in entry.held.get(session, ()):
            away.update(entry.held[session][place])
        elif targets:
            return None
    return tuple(sorted(away))


def join_runs(runs: Iterable[PublicationRun], settings: TreeSettings) -> Iterator[PublicationRun]:
    """The runs in order, as few as the limits of a batch allow."""
    some: list[PublicationRun] = []
    count = size = 0
    for run in runs:
        more, bytes_more = len(run.numbers), sum(map(len, run.events.events))
        is_full = count + more > settings.batch_max or size + bytes_more > settings.batch_bytes_max
        if some and (is_full or not follows(some[-1], run)):
            yield one_run(some)
            some, count, size = [], 0, 0
        some.append(run)
        count, size = count + more, size + bytes_more
    if some:
        yield one_run(some)


def follows(run: PublicationRun, other: PublicationRun) -> bool:
    """Can `other` go with the run before it as one?"""
    return (
        run.numbers[-1] < other.numbers[0]
        and run.source == other.source
        and run.epoch == other.epoch
        and run.topic == other.topic
        and run.is_awaited == other.is_awaited
        and not (run.clearings or other.clearings or run.life or other.life)
        and run.not_for == other.not_for
        and run.hops == other.hops
    )


def one_run(runs: list[PublicationRun]) -> PublicationRun:
    if len(runs) == 1:
        return runs[0]
    numbers = tuple([number for run in runs for number in run.numbers])
    events = tuple([event for run in runs for event in run.events.events])
    return replace(runs[0], numbers=numbers, events=EventBatch(events))


def cut_runs(events: Sequence[bytes], settings: TreeSettings) -> list[tuple[int, int]]:
    """The bounds of the runs that a batch of publications becomes; one event always fits."""
    count_max = 1 if settings.repeats == "trail" else settings.batch_max
    bounds, low, size = [], 0, 0
    for high, event in enumerate(events):
        size += len(event)
        if high > low and (high - low >= count_max or size > settings.batch_bytes_max):
            bounds.append((low, high))
            low, size = high, len(event)
    if len(events) > low:
        bounds.append((low, len(events)))
    return bounds
