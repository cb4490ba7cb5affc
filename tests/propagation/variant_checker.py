"""The checker for the variants of section 3.7. What it asks beyond `checker`, or in place of it:

B-S1  silence of some vector is true for every subscription that counts under that vector
B-S3  no digest stands for two vectors (vectors may go back)
B-S4  an answer reaches the minimum that it was asked for with
B-S5  no more vectors are remembered than allowed
Quiet: tables are those of brute force, everything has started, nothing is doubted or waited for.
With a history, a sibling that missed an empty change may keep what has gone, but lacks nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.broker_messages import SubscriptionNack
from gapless.core.outgoing import ToCell
from gapless.propagation.vector import is_at_least
from tests.propagation.checker import Checker, ViolationError
from tests.propagation.variants import FrugalBranch
from tests.propagation.world import ROOT

if TYPE_CHECKING:
    from gapless.core.broker_messages import Vector
    from gapless.core.identity import CellName
    from gapless.propagation.actions import Outgoing
    from gapless.propagation.child import Child
    from tests.propagation.actors import Broker, Event
    from tests.propagation.history import History
    from tests.propagation.world import World


def history_of(broker: Broker) -> History | None:
    return broker.branch.history if isinstance(broker.branch, FrugalBranch) else None


@dataclass
class VariantChecker(Checker):
    """See the module docstring."""

    told_above: int = 0  # changes and states that brokers inside the tree sent up
    _stamped: dict[int, Vector] = field(default_factory=dict)

    def told(self, broker: Broker, action: Outgoing) -> None:
        super().told(broker, action)
        is_nack = isinstance(action.message, SubscriptionNack)
        self.told_above += broker.branch is not None and isinstance(action, ToCell) and not is_nack

    def published(self, event: Event) -> None:
        self.stamped(event)
        self.events.append(event)

    def stamped(self, event: Event) -> None:
        if self._stamped.setdefault(event.digest, event.vector) != event.vector:
            raise ViolationError(f"B-S3: digest {event.digest} stands for two vectors")

    def silenced(self, world: World, broker: Broker, cell: CellName, event: Event) -> None:
        for key, each in world.subscriptions.items():
            below = each.leaf in world.leaves_below[cell]
            counts = below and each.start <= event.vector.get(each.leaf, 0)
            if counts and each.condition.matches(event.attributes):
                raise ViolationError(
                    f"B-S1: {broker.name} silences {event} for {cell}, {key} {each}"
                )

    def answered(self, broker: Broker, event: Event, is_silence: bool, minimum: Vector) -> None:
        if is_silence and not is_at_least(event.vector, minimum):
            raise ViolationError(f"B-S4: {broker.name} answers {event} to {minimum}")

    def remembered(self, broker: Broker, history_max: int) -> None:
        history = history_of(broker)
        if history is not None and len(history) > history_max:
            raise ViolationError(f"B-S5: {broker.name} remembers {len(history)} vectors")

    def quiet(self, world: World) -> None:
        for broker in world.brokers():
            if broker.leaf is not None and (broker.doubts or broker.leaf.expectation.sent_changes):
                raise ViolationError(f"{broker.name} still doubts {broker.doubts}, or waits")
            for cell, child in broker.branch.children.items() if broker.branch else ():
                if history_of(broker) is None:
                    self.check_table(world, broker, cell, child)
                else:
                    self._check_cover(world, broker, cell, child)
        for key, each in world.subscriptions.items():
            if each.first is None:
                raise ViolationError(f"{key} has not started: {each}")
        root = world.members[ROOT][0]
        assert root.stamp is not None
        assert root.branch is not None
        if root.stamp.vector != root.branch.vector:
            raise ViolationError(f"messages are at {root.stamp.vector}, not {root.branch.vector}")

    def _check_cover(self, world: World, broker: Broker, cell: CellName, child: Child) -> None:
        for one in self.brute_force(world, child.leaves):
            if not any(other.covers(one) for other in child.conditions):
                raise ViolationError(f"{broker.name} lacks {one} for {cell}")
