"""The ledger of a run of the tree: what was published, accepted and delivered, and its checkers.

Theory of operation
    Facts come from the verbs and from what brokers tell their drivers, never from inside a broker.
    A *flow* is one source (a broker and its epoch) and one subscription. What it delivers must be a
    contiguous run of the source's matching publications: the next delivery is the next match.
    A publication is *owed* to a subscription that is in force, without tags or with something of
    the same flow delivered before, when it is published; the debt is dropped if either end crashes.
    After healing, nothing may be owed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.filters import Filter
from gapless.sim.record import Violation

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Delivered, PublicationId, SubscriptionId

Source = tuple["BrokerName", int]

CONTIGUOUS = "a contiguous run"
NOTHING_LOST = "nothing is lost"


class Ledger:
    """All facts of one run."""

    def __init__(self) -> None:
        self.filters: dict[SubscriptionId, Filter] = {}
        self._published: dict[Source, list[PublicationId]] = {}
        self._index: dict[PublicationId, int] = {}
        self._attributes: dict[PublicationId, Attributes] = {}
        self._position: dict[tuple[SubscriptionId, Source], int] = {}
        self._owed: dict[PublicationId, set[SubscriptionId]] = {}
        self.delivered_to: dict[SubscriptionId, list[PublicationId]] = {}

    @property
    def deliveries(self) -> int:
        return sum(map(len, self.delivered_to.values()))

    @property
    def publications(self) -> int:
        return len(self._index)

    def subscribed(self, name: SubscriptionId, condition: str) -> None:
        self.filters[name] = Filter.parse(condition)

    def published(
        self, name: PublicationId, attributes: Attributes, in_force: list[SubscriptionId]
    ) -> None:
        """`in_force`: the subscriptions that are accepted and have no tags now."""
        flow = self._published.setdefault((name.source, name.epoch), [])
        self._index[name] = len(flow)
        self._attributes[name] = attributes
        flow.append(name)
        self._owed[name] = {s for s in in_force if self.filters[s].matches(attributes)}

    def has_begun(self, subscription: SubscriptionId, source: Source) -> bool:
        return (subscription, source) in self._position

    def delivered(self, at: BrokerName, message: Delivered) -> None:
        source = (message.id.source, message.id.epoch)
        for subscription in message.subscriptions:
            self.delivered_to.setdefault(subscription, []).append(message.id)
            self._next_of(subscription, source, message.id, at)
            self._owed[message.id].discard(subscription)

    def _next_of(
        self, subscription: SubscriptionId, source: Source, name: PublicationId, at: BrokerName
    ) -> None:
        condition, index = self.filters[subscription], self._index[name]
        flow, before = self._published[source], self._position.get((subscription, source))
        what = f"{subscription} at {at} gets {name}"
        if not condition.matches(self._attributes[name]):
            raise Violation("only what matches", what)
        if before is not None and index <= before:
            raise Violation(CONTIGUOUS, f"{what} after {flow[before]}")
        between = [] if before is None else flow[before + 1 : index]
        for missed in between:
            if condition.matches(self._attributes[missed]):
                raise Violation(CONTIGUOUS, f"{what} but not {missed}")
        self._position[subscription, source] = index

    def confirmed(self, name: PublicationId) -> None:
        """All who should have it, have it: so says its broker."""
        if self._owed[name]:
            raise Violation(NOTHING_LOST, f"{name} is confirmed; owed to {min(self._owed[name])}")

    def crashed(self, broker: BrokerName) -> None:
        """What it published and what its subscribers wait for is no longer owed."""
        for name, owed in self._owed.items():
            if name.source == broker:
                owed.clear()
            else:
                owed -= {s for s in owed if s.source == broker}

    def withdrawn(self, subscription: SubscriptionId) -> None:
        for owed in self._owed.values():
            owed.discard(subscription)

    def owed(self) -> list[tuple[PublicationId, SubscriptionId]]:
        return [(name, s) for name, owed in self._owed.items() for s in sorted(owed)]
