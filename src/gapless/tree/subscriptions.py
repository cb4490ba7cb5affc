"""Subscriptions: the routing table, and how a subscription spreads and is confirmed.

Theory of operation
    A subscription spreads from its subscriber's broker, its *source*, away through the tree. A
    broker keeps it and routes by it as soon as it comes. It then asks everyone active further
    away, and when its neighbours have confirmed it confirms to the asker. A neighbour that has
    failed is a partition: the confirmation carries its name as a tag, and the tags of those that
    confirmed. At the source, the last confirmation puts the subscription in force, with the tags
    that remain. The brokers to ask are chosen anew at every change. Those behind a failed one get
    the subscription too, where that is legitimate (`trail`). If tags are literal, no broker waits
    for them: the tag closes all that lies there. If they are scoped, they confirm like neighbours,
    and the tag of the failed one is *open* to those whose confirmation is clean (`spreading`);
    behind one that has failed too, that one's own tag says what is closed. What a source was heard
    of once is not closed again (`begun`), whatever tags come in place of others: a broker that knew
    the subscription still does, and tells it on before it sends. A broker that has bypassed others
    learns of a subscription from behind (`from_behind`): it routes by it, and asks no other until
    it is asked itself. When a neighbour on a partition confirms, for this subscription the
    partition is over: its name gives way to the tags of that confirmation, and a `Clearing` goes to
    the source. So what is closed to a subscription only ever shrinks. A clearing may bypass a
    broker; so a broker that still has tags asks again when a session begins or another clearing
    comes, and clears what is not known any more.

Invariants
    I1  a subscription that is being confirmed to a broker is complete
    I2  an asker lies towards the source
    I3  the tags in use are those of the table

Cost: one record a subscription; a change of the frontier looks at all that are not complete.

Source: SRDS 2011, sec. V, figure 5. Deviation: the table has it from its arrival, not from its
confirmation: the source does not deliver before its own, so nothing is delivered early.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

from gapless.filters.matcher import Matcher
from gapless.tree.members import Targets
from gapless.tree.messages import Clearing, Hop, PartitionId, SubscriptionId, SubscriptionOffer
from gapless.tree.partitions import joined
from gapless.tree.trail import PASSED, extend, is_legitimate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping, Sequence, Set

    from gapless.core.events import Attributes, EventBatch
    from gapless.core.identity import BrokerName
    from gapless.tree.frontier import Frontier
    from gapless.tree.members import Members
    from gapless.tree.messages import (
        Life,
        PartitionKey,
        PublicationRun,
        SubscriptionConfirmed,
        Tags,
    )
    from gapless.tree.neighbourhood import Neighbourhood
    from gapless.tree.partitions import Partitions
    from gapless.tree.settings import TreeSettings
    from gapless.tree.trail import Hops

Route = tuple["BrokerName", ...]
"""The way to a subscription's source, as far as our reach: the next broker first."""

Routes = dict[Route, Targets]
"""Ways that a run has to go, and what goes each way. Runs share them: they are never changed."""

Ours = list[tuple["RoutedSubscription", "Members"]]
"""Subscriptions of our own subscribers, and which members of a run each gets."""


DIVIDED_MAX = 1_000
"""Answers of `takers` that are kept; at the bound all are forgotten, and made anew."""


@dataclass(slots=True, eq=False)
class RoutedSubscription:
    """One subscription at one broker; told apart by identity, there is one for each name."""

    id: SubscriptionId
    topic: str
    condition: str
    hops: Hops
    route: Route
    towards: BrokerName | None  # the neighbour on the way to the source; None at the source
    since: int  # the number of the queue from which on we have known of it
    tags: frozenset[PartitionId] = frozenset()  # what closes it, for all that we know
    answer: Tags = ()  # what we confirm it with
    is_complete: bool = False
    askers: set[BrokerName] = field(default_factory=set)  # brokers that wait for our confirmation
    asked: set[BrokerName] = field(default_factory=set)
    confirmed: dict[BrokerName, Tags] = field(default_factory=dict)  # in the round under way
    unclean: set[BrokerName] = field(default_factory=set)  # of those
    begun: dict[BrokerName, int] = field(default_factory=dict)  # sources, with epochs, while tagged
    is_asking: bool = False
    refused_by: BrokerName | None = None


class SubscriptionTable:
    """The routing table of one broker."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        partitions: Partitions,
        settings: TreeSettings,
        attributes_of: Callable[[EventBatch], Sequence[Attributes]],
    ) -> None:
        self._here = neighbourhood.broker
        self._neighbourhood = neighbourhood
        self._partitions = partitions
        self._settings = settings
        self._attributes_of = attributes_of
        self._matchers: dict[str, Matcher[RoutedSubscription]] = {}  # by topic
        # By topic: all, where each takes every event; None where some ask. Cleared by any change.
        self._takers_of_all: dict[str, list[RoutedSubscription] | None] = {}
        # Of those: by topic, members and the neighbour that has them, who gets what.
        self._divided: dict[tuple[str, Members, BrokerName | None], tuple[Ours, Routes]] = {}
        self._table: dict[SubscriptionId, RoutedSubscription] = {}
        self._expected: dict[BrokerName, set[SubscriptionId]] = {}  # by broker that has them
        self._asking: dict[SubscriptionId, RoutedSubscription] = {}  # an ordered set
        self._in_use: Counter[PartitionKey] = Counter()
        self._own: dict[SubscriptionId, RoutedSubscription] = {}

    # --- the table -------------------------------------------------------------------------------

    def get(self, name: SubscriptionId) -> RoutedSubscription | None:
        return self._table.get(name)

    def __iter__(self) -> Iterator[RoutedSubscription]:
        return iter(self._table.values())

    def __len__(self) -> int:
        return len(self._table)

    @property
    def own_count(self) -> int:
        return len(self._own)

    def own(self) -> list[RoutedSubscription]:
        """Those of our own subscribers."""
        return list(self._own.values())

    @property
    def has_room(self) -> bool:
        """For one more of another broker."""
        return len(self._table) - self.own_count < self._settings.remote_subscriptions_max

    def matching(self, run: PublicationRun) -> dict[RoutedSubscription, Members]:
        """The subscriptions that match some of a run, and which members each; all are matched in
        one call, and none is decoded where no condition asks."""
        matcher = self._matchers.get(run.topic)
        if matcher is None:
            return {}
        if run.topic not in self._takers_of_all:
            self._takers_of_all[run.topic] = matcher.match_any()
        if (wanted := self._takers_of_all[run.topic]) is not None:
            return dict.fromkeys(wanted, run.all)
        found: dict[RoutedSubscription, Members] = {}
        for place, routed in matcher.match_batch(self._attributes_of(run.events)):
            found[routed] = found.get(routed, 0) | 1 << place
        return found

    def takers(self, run: PublicationRun, back: BrokerName | None) -> tuple[Ours, Routes]:
        """Our subscriptions that match some of a run, and where it has to go, but not back. Where
        no condition asks, that is the same for all runs of as many."""
        found = self._divided.get((run.topic, run.all, back))
        if found is None:
            found = divide(self.matching(run), back)
            if self._takers_of_all.get(run.topic) is not None:
                if len(self._divided) >= DIVIDED_MAX:
                    self._divided.clear()
                self._divided[run.topic, run.all, back] = found
        return found

    def _change(self, topic: str) -> None:
        """What matches in a topic, or where it goes, is another from now on."""
        self._takers_of_all.pop(topic, None)
        self._divided.clear()

    @property
    def tags_in_use(self) -> KeysView[PartitionKey]:
        """Every partition that closes a subscription known here."""
        return self._in_use.keys()

    def retag(self, routed: RoutedSubscription, tags: Set[PartitionId]) -> None:
        """Change what closes a subscription; the only way to."""
        self._in_use.update(tag.key for tag in tags)
        for tag in routed.tags:
            self._in_use[tag.key] -= 1
            if not self._in_use[tag.key]:
                del self._in_use[tag.key]
        routed.tags = frozenset(tags)
        if not tags:
            routed.begun.clear()

    def expect(self, sender: BrokerName, names: Iterable[SubscriptionId]) -> None:
        """A broker has these. It offers those that we lack, but later than it may be sent to."""
        self._expected[sender] = {name for name in names if name not in self._table}

    def younger_than(self, number: int, run: PublicationRun, to: BrokerName) -> set[SubscriptionId]:
        """Those that match some of it and became known only after that number of the queue; and
        those that `to` has and we do not know yet."""
        if run.clearings or run.life:
            return set()
        found = {name for name in self._expected.get(to, ()) if name not in self._table}
        younger = set(takewhile(lambda each: each.since > number, reversed(self._table.values())))
        if younger:
            found.update(each.id for each in younger.intersection(self.matching(run)))
        return found

    def add(
        self,
        name: SubscriptionId,
        topic: str,
        condition: str,
        hops: Hops,
        tags: Tags,
        since: int,
    ) -> RoutedSubscription:
        """Know it, from the queue's number `since` on."""
        route = self._neighbourhood.within_reach(hop.broker for hop in hops)
        towards = route[0] if route else None
        routed = RoutedSubscription(name, topic, condition, hops, route, towards, since)
        matcher = self._matchers.get(topic) or Matcher()
        matcher.add(routed, condition)  # raises before anything has changed
        self._matchers[topic] = matcher
        self._change(topic)
        self.retag(routed, {*tags})
        self._table[name] = routed
        if not route:
            self._own[name] = routed
        return routed

    def remove(self, name: SubscriptionId) -> bool:
        self._asking.pop(name, None)
        routed = self._table.pop(name, None)
        if routed is None:
            return False
        self._own.pop(name, None)
        self.retag(routed, set())
        self._matchers[routed.topic].remove(routed)
        self._change(routed.topic)
        if not len(self._matchers[routed.topic]):
            del self._matchers[routed.topic]
        return True

    def lengthen_routes(self) -> dict[Route, Route]:
        """Brokers were retired, so that more is within reach: routes before and after."""
        longer: dict[Route, Route] = {}
        for routed in self._table.values():
            route = self._neighbourhood.within_reach(hop.broker for hop in routed.hops)
            if route != routed.route:
                longer[routed.route] = routed.route = route
                self._divided.clear()
            if routed.is_complete and not routed.is_asking and self._is_tagged_for_retired(routed):
                self.ask(routed)
        return longer

    def _is_tagged_for_retired(self, routed: RoutedSubscription) -> bool:
        retired = self._neighbourhood.is_retired
        return any(t.detector == self._here and retired(t.nodes[-1]) for t in routed.tags)

    # --- spreading -------------------------------------------------------------------------------

    def ask(self, routed: RoutedSubscription) -> None:
        """Begin a round: everyone further away shall confirm it."""
        routed.asked.clear()
        routed.confirmed.clear()
        routed.unclean.clear()
        routed.is_asking = True
        self._asking[routed.id] = routed

    def asking(self) -> list[RoutedSubscription]:
        return list(self._asking.values())

    def reachable(self, routed: RoutedSubscription, frontier: Frontier) -> list[BrokerName]:
        """The brokers that could have it from us: active and further away, where that is
        legitimate."""
        return [
            broker
            for broker in frontier.active
            if self.is_away(routed, broker)
            and is_legitimate(self.hops_to(routed, broker), self._settings)
        ]

    def is_confirmed(self, routed: RoutedSubscription, frontier: Frontier) -> bool:
        """Have all further away confirmed it? If tags are literal, only neighbours need to."""
        steps_max = self._settings.reach if self._settings.tags == "scoped" else 1
        return all(
            broker in routed.confirmed
            for broker in frontier.active + frontier.awaited
            if self._neighbourhood.steps(broker) <= steps_max and self.is_away(routed, broker)
        )

    def complete(self, routed: RoutedSubscription) -> Clearing | None:
        """All have confirmed: what remains closed is known, and so is what was over unheard."""
        before = routed.tags
        fresh = joined(self._own_tags(routed), *routed.confirmed.values())
        if not routed.is_complete:
            self.retag(routed, fresh)
        else:
            # Asked again. If nothing is closed any more, what we knew of is over; otherwise one of
            # the new names may hide it. At the source nothing may be closed that was open.
            kept = routed.tags if fresh else frozenset[PartitionId]()
            self.retag(routed, kept if routed.towards is None else joined(kept, fresh))
        routed.answer = tuple(sorted(fresh))
        routed.is_complete = True
        routed.is_asking = False
        del self._asking[routed.id]
        over = tuple(sorted(before))
        return Clearing(routed.id, over, ()) if over and not fresh else None

    def _own_tags(self, routed: RoutedSubscription) -> set[PartitionId]:
        """What it could not cross here, by this round; open to brokers reached behind it."""
        reached = routed.confirmed.keys() - routed.unclean
        standing = self._partitions.away_from(routed.towards, reached)
        if self._settings.tags == "scoped":
            # Behind one that has failed too, its own partition says what is closed.
            seen_to = reached | {partition.nodes[-1] for partition in standing}
            standing = {
                p._replace(open=tuple(b for b in self._behind(p) if b in seen_to)) for p in standing
            }
        # A partition of a former life of ours stands at the source until one on it confirms.
        # One that ends with a retired broker is over: what is behind it was asked, or has a name.
        former = {
            t
            for t in routed.tags
            if t.detector == self._here and not self._neighbourhood.is_retired(t.nodes[-1])
        }
        return joined(standing, {t for t in former if reached.isdisjoint(t.nodes)})

    def _behind(self, partition: PartitionId) -> list[BrokerName]:
        return self._neighbourhood.further(partition.nodes[-1])

    def confirm(
        self, routed: RoutedSubscription, sender: BrokerName, message: SubscriptionConfirmed
    ) -> Clearing | None:
        """It and all behind it have it; says what is over by that, or open from now on."""
        if routed.is_asking:
            routed.confirmed[sender] = message.tags
            routed.unclean.discard(sender)
            if not message.is_clean:
                routed.unclean.add(sender)
        if not message.is_clean:
            return None
        over = {tag for tag in routed.tags if sender in tag.nodes}
        wider = self._opened(routed, sender)
        if not over and not wider:
            return None
        removed = over.union(tag for tag in routed.tags if tag.key in wider)
        added = joined(wider.values(), message.tags)
        return self.clear(routed, Clearing(routed.id, tuple(sorted(removed)), tuple(sorted(added))))

    def _opened(
        self, routed: RoutedSubscription, by: BrokerName
    ) -> dict[PartitionKey, PartitionId]:
        """Tags that leave more open once `by`, behind a failed one, has confirmed."""
        path = self._neighbourhood.path(by)
        if self._settings.tags != "scoped" or len(path) == 1:
            return {}
        return {
            t.key: t._replace(open=tuple(sorted({*t.open, by})))
            for t in routed.tags
            if t.detector == self._here and t.nodes == path[:-1] and by not in t.open
        }

    def clear(self, routed: RoutedSubscription, clearing: Clearing) -> Clearing | None:
        """Replace tags that are over; None if there were none."""
        removed, added = {tag.key for tag in clearing.removed}, clearing.added

        def replaced(tags: Iterable[PartitionId]) -> set[PartitionId]:
            return joined((tag for tag in tags if tag.key not in removed), added)

        for broker, tags in routed.confirmed.items():
            if any(tag.key in removed for tag in tags):  # confirmed to us in the round under way
                routed.confirmed[broker] = tuple(sorted(replaced(tags)))
        if all(tag.key not in removed for tag in routed.tags):
            return None
        self.retag(routed, replaced(routed.tags))
        routed.answer = tuple(sorted(replaced(routed.answer)))
        if routed.tags and routed.is_complete and not routed.is_asking:
            self.ask(routed)  # a clearing of what remains may have passed us by
        return clearing

    # --- where it comes from, and where it goes --------------------------------------------------

    def is_away(self, routed: RoutedSubscription, broker: BrokerName) -> bool:
        """Does `broker` lie further from the source than we do?"""
        return self._neighbourhood.path(broker)[0] != routed.towards

    def hops_to(self, routed: RoutedSubscription, to: BrokerName) -> Hops:
        """The hops of a copy for `to`, wherever it lies."""
        path = self._neighbourhood.path(to)
        if self.is_away(routed, to):
            return extend(routed.hops, Hop(self._here, PASSED), path[:-1])
        common = sum(1 for one, hop in zip(path, routed.hops, strict=False) if one == hop.broker)
        # Where the ways part, `to` goes back to, and on from there.
        return tuple(Hop(b, None) for b in reversed(path[common - 1 : -1])) + routed.hops[common:]

    def message(self, routed: RoutedSubscription, to: BrokerName) -> SubscriptionOffer:
        hops, tags = self.hops_to(routed, to), tuple(sorted(routed.tags))
        return SubscriptionOffer(routed.id, routed.topic, routed.condition, hops, tags)

    def check(self) -> None:
        assert set(self._in_use) == {t.key for r in self._table.values() for t in r.tags}, "I3"
        for routed in self._table.values():
            assert routed.is_asking == (routed.id in self._asking), "I1"
            if routed.askers:
                assert routed.is_asking or routed.is_complete, "I1"
            for asker in routed.askers:
                assert not self.is_away(routed, asker), "I2"


def divide(
    concerned: Mapping[RoutedSubscription, Members], back: BrokerName | None
) -> tuple[Ours, Routes]:
    """Those of our own subscribers, and the ways to all others that do not lead back."""
    ours: Ours = []
    found: dict[Route, dict[Life, Members]] = {}
    for each, members in concerned.items():
        if each.towards is None:
            ours.append((each, members))
        elif each.towards != back:
            targets = found.setdefault(each.route, {})
            life = life_of(each)
            targets[life] = targets.get(life, 0) | members
    return ours, {route: Targets(to) for route, to in found.items()}


def life_of(routed: RoutedSubscription) -> Life:
    return (routed.id.source, routed.id.epoch)
