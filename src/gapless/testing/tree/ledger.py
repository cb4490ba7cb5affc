"""The ledger of a run of the tree: what was published, accepted and delivered, and its checkers.

Theory of operation
    Facts come from the verbs and from what brokers tell their drivers, never from inside a broker.
    A *flow* is one source (a broker and its epoch) and one subscription. What it delivers must be a
    contiguous run of the source's matching publications: the next delivery is the next match.
    A publication is *owed* to a subscription that is in force, without tags or with something of
    the same flow delivered before, when it is published; the debt is dropped if either end crashes.
    After healing, nothing may be owed. What a broker was told to be lost (`Missed`) is not owed,
    and never comes afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.filters import Filter
from gapless.testing.record import Violation
from gapless.tree.members import places

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName
    from gapless.tree.messages import (
        Missed,
        SourceEnded,
        SubscriptionId,
        TreeDelivery,
    )

Source = tuple["BrokerName", int]


class PublicationId(NamedTuple):
    """One publication: the life of a broker where it began, and its number there."""

    source: BrokerName
    epoch: int
    number: int


CONTIGUOUS = "a contiguous run"
NOTHING_LOST = "nothing is lost"
TOLD_LOST = "what is told to be lost is"


class Ledger:
    """All facts of one run."""

    def __init__(self) -> None:
        self.filters: dict[SubscriptionId, Filter] = {}
        self._published: dict[Source, list[PublicationId]] = {}
        self._index: dict[PublicationId, int] = {}
        self._attributes: dict[PublicationId, Attributes] = {}
        self._topic: dict[PublicationId, str] = {}
        self._topic_of: dict[SubscriptionId, str] = {}
        self._position: dict[tuple[SubscriptionId, Source], int] = {}
        self._owed: dict[PublicationId, set[SubscriptionId]] = {}
        self._lost: dict[tuple[SubscriptionId, Source], list[Missed]] = {}
        self.losses = 0
        self.settled: set[PublicationId] = set()
        self._doomed: set[tuple[SubscriptionId, Source]] = set()
        self._ended: set[tuple[SubscriptionId, Source]] = set()
        self.delivered_to: dict[SubscriptionId, list[PublicationId]] = {}

    @property
    def deliveries(self) -> int:
        return sum(map(len, self.delivered_to.values()))

    @property
    def publications(self) -> int:
        return len(self._index)

    def subscribed(self, name: SubscriptionId, topic: str, condition: str) -> None:
        self._topic_of[name] = topic
        self.filters[name] = Filter.parse(condition)

    def _matches(self, subscription: SubscriptionId, name: PublicationId) -> bool:
        is_of_topic = self._topic_of[subscription] == self._topic[name]
        return is_of_topic and self.filters[subscription].matches(self._attributes[name])

    def published(
        self,
        name: PublicationId,
        topic: str,
        attributes: Attributes,
        in_force: list[SubscriptionId],
    ) -> None:
        """`in_force`: the subscriptions that are accepted and have no tags now."""
        flow = self._published.setdefault((name.source, name.epoch), [])
        self._index[name] = len(flow)
        self._attributes[name] = attributes
        self._topic[name] = topic
        flow.append(name)
        self._owed[name] = {s for s in in_force if self._matches(s, name)}

    def has_begun(self, subscription: SubscriptionId, source: Source) -> bool:
        return (subscription, source) in self._position

    def delivered(self, at: BrokerName, message: TreeDelivery) -> None:
        source = (message.run.source, message.run.epoch)
        for subscription, members in message.takers:
            for place in places(members):
                name = PublicationId(*source, message.run.numbers[place])
                self.delivered_to.setdefault(subscription, []).append(name)
                self._next_of(subscription, source, name, at)
                self._owed[name].discard(subscription)

    def _next_of(
        self, subscription: SubscriptionId, source: Source, name: PublicationId, at: BrokerName
    ) -> None:
        index = self._index[name]
        flow, before = self._published[source], self._position.get((subscription, source))
        what = f"{subscription} at {at} gets {name}"
        if (subscription, source) in self._ended:
            raise Violation(TOLD_LOST, f"{what}, of which it was told that it has ended")
        if self._is_lost(subscription, name):
            raise Violation(TOLD_LOST, f"{what}, of which it was told that it is lost")
        if not self._matches(subscription, name):
            raise Violation("only what matches", what)
        if before is not None and index <= before:
            raise Violation(CONTIGUOUS, f"{what} after {flow[before]}")
        between = [] if before is None else flow[before + 1 : index]
        for missed in between:
            if self._matches(subscription, missed) and not self._is_lost(subscription, missed):
                raise Violation(CONTIGUOUS, f"{what} but not {missed}")
        self._position[subscription, source] = index

    def missed(self, at: BrokerName, message: Missed) -> None:
        """Subscriptions there have lost something, and are told which numbers."""
        source = (message.source, message.epoch)
        for subscription in message.subscriptions:
            self.losses += 1
            self._lost.setdefault((subscription, source), []).append(message)
            for name in self.delivered_to.get(subscription, ()):
                if self._is_lost(subscription, name):
                    what = f"{subscription} at {at} has {name}"
                    raise Violation(TOLD_LOST, f"{what}, and is told that it is lost")
            for name in self._published.get(source, ()):
                if self._is_lost(subscription, name):
                    self._owed[name].discard(subscription)

    def _is_lost(self, subscription: SubscriptionId, name: PublicationId) -> bool:
        topic = self._topic[name]
        return any(
            each.topic == topic and each.after < name.number <= each.through
            for each in self._lost.get((subscription, (name.source, name.epoch)), ())
        )

    def confirmed(self, names: list[PublicationId], lost_to: tuple[BrokerName, ...]) -> None:
        """All who should have them, have them, but for some: so says their broker."""
        self.settled.update(names)
        for name in names:
            if owed := {each for each in self._owed[name] if each.source not in lost_to}:
                raise Violation(NOTHING_LOST, f"{name} is confirmed; owed to {min(owed)}")

    def crashed(self, broker: BrokerName) -> None:
        """What it published and what its subscribers wait for is no longer owed."""
        for name, owed in self._owed.items():
            if name.source == broker:
                source = (name.source, name.epoch)
                self._doomed |= {(s, source) for s in owed if self.has_begun(s, source)}
                owed.clear()
            else:
                owed -= {s for s in owed if s.source == broker}
        self._doomed = {each for each in self._doomed if each[0].source != broker}

    def source_ended(self, message: SourceEnded) -> None:
        source = (message.source, message.epoch)
        self._ended |= {(subscription, source) for subscription in message.subscriptions}

    def untold(self) -> list[tuple[SubscriptionId, Source]]:
        """Who has lost something by the crash of a source that it had begun to hear, and was never
        told that it ended."""
        return sorted(self._doomed - self._ended)

    def withdrawn(self, subscription: SubscriptionId) -> None:
        self._doomed = {each for each in self._doomed if each[0] != subscription}
        for owed in self._owed.values():
            owed.discard(subscription)

    def owed(self) -> list[tuple[PublicationId, SubscriptionId]]:
        return [(name, s) for name, owed in self._owed.items() for s in sorted(owed)]
