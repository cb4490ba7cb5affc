"""The checker of the miniature world: it knows every subscription and every event.

B-S1  where a broker filters, its set for the child matches all that counts
B-S2  from its first event on, a subscription misses nothing
B-S3  no virtual time stands for two states; message vectors do not go back
Quiet: all vectors, tables and starts are those of brute force.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.broker_messages import SubscriptionNack
from gapless.propagation.condition import show_conjunction
from gapless.propagation.sufficiency import is_sufficient
from gapless.propagation.vector import is_at_least
from tests.propagation.world import ROOT, World

if TYPE_CHECKING:
    from collections import Counter

    from gapless.core.identity import CellName
    from gapless.filters.normal import Conjunction
    from gapless.propagation.actions import Outgoing
    from gapless.propagation.child import Child
    from tests.propagation.actors import Broker, Event
    from tests.propagation.decision import Decision, Reason


class ViolationError(AssertionError):
    """A promise was broken."""


@dataclass
class Checker:
    """Sees everything; raises at the first broken promise."""

    reasons: Counter[Reason]
    events: list[Event] = field(default_factory=list)
    _told: dict[tuple[str, int], frozenset[str]] = field(default_factory=dict)
    _arrived: set[tuple[str, int]] = field(default_factory=set)

    def told(self, broker: Broker, action: Outgoing) -> None:
        """B-S3: a leaf's virtual time stands for one state, for ever."""
        if broker.leaf is None or isinstance(action.message, SubscriptionNack):
            return
        time = action.message.vector[broker.name]
        if time != broker.leaf.clock - 1:
            return  # it was held back; it was told of when it was made
        roots = frozenset(map(show_conjunction, broker.leaf.graph.roots()))
        if self._told.setdefault((broker.name, time), roots) != roots:
            raise ViolationError(f"B-S3: {broker.name} used time {time} twice")

    def published(self, event: Event) -> None:
        if self.events and not is_at_least(event.vector, self.events[-1].vector):
            raise ViolationError(f"B-S3: the vector of event {event.number} went back")
        self.events.append(event)

    def arrived(self, leaf: str, event: Event) -> None:
        self._arrived.add((leaf, event.number))

    def decided(
        self, world: World, broker: Broker, cell: CellName, event: Event, decision: Decision
    ) -> None:
        """B-S1, at the moment of the decision."""
        self.reasons[decision.because] += 1
        assert broker.branch is not None
        below = world.leaves_below[cell]
        sufficient = is_sufficient(broker.branch.vector, event.vector, below)
        if decision.passes and not sufficient:
            return
        if broker.branch.matches(cell, event.attributes):
            return
        for key, each in world.subscriptions.items():
            counts = each.leaf in below and each.start <= event.vector.get(each.leaf, 0)
            if counts and each.condition.matches(event.attributes):
                raise ViolationError(f"B-S1: {broker.name} lacks {key} for {cell}: {each}")

    def complete(self, world: World) -> None:
        """B-S2, once everything has arrived: what full flooding would have delivered."""
        for key, each in world.subscriptions.items():
            first = len(self.events) if each.first is None else each.first - 1
            for event in self.events[first:]:
                is_owed = each.condition.matches(event.attributes)
                if is_owed and (each.leaf, event.number) not in self._arrived:
                    raise ViolationError(f"B-S2: {key} missed event {event.number}: {each}")

    def quiet(self, world: World) -> None:
        """Liveness: everything is known everywhere, and exactly that."""
        clocks = {str(b.name): b.leaf.clock - 1 for b in world.brokers() if b.leaf is not None}
        for broker in world.brokers():
            branch = broker.branch
            if branch is None:
                continue
            wanted = {leaf: clocks[leaf] for leaf in branch.leaves if clocks[leaf]}
            if branch.vector != wanted or not branch.is_exact:
                raise ViolationError(f"{broker.name} is at {branch.vector} and not at {wanted}")
            for cell, child in branch.children.items():
                self.check_table(world, broker, cell, child)
        stamp = world.members[ROOT][0].stamp
        assert stamp is not None
        if stamp.vector != {leaf: time for leaf, time in clocks.items() if time}:
            raise ViolationError(f"messages are at {stamp.vector} and not at {clocks}")
        for key, each in world.subscriptions.items():
            if each.first is None:
                raise ViolationError(f"{key} has not started: {each}")

    def check_table(self, world: World, broker: Broker, cell: CellName, child: Child) -> None:
        is_right = set(child.conditions) == self.brute_force(world, child.leaves)
        if not (child.is_exact and is_right):
            raise ViolationError(f"{broker.name} has a wrong table for {cell}")

    def brute_force(self, world: World, leaves: frozenset[str]) -> set[Conjunction]:
        held = {
            conjunction
            for each in world.subscriptions.values()
            if each.leaf in leaves
            for conjunction in each.condition.conjunctions
        }
        return {one for one in held if not any(a != one and a.covers(one) for a in held)}
