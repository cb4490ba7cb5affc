"""Child: what a broker knows of the subscriptions behind one cell below it.

Theory of operation
    The conditions are those that the child's subtree has told, without those that others of them
    cover: exactly the roots of all subscriptions there, as of the child's part of the broker's
    vector. Only after two incomparable states were united do they match more than that. Then the
    child is not `exact`: matching is still right, but nothing may be told to others because of it.
    If more is known to exist behind a child than is known of it, the broker asks for its state
    after a moment, and again, until the state has come.

Invariants (checked by `check`)
    I1  no condition of the child covers another one
    I2  while a vector is wanted of the child, there is a deadline

Source: Middleware 2004, sec. 3.4, 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.broker_messages import SubscriptionNack
from gapless.core.identity import Instant
from gapless.core.outgoing import ToCell
from gapless.propagation.condition import show_conjunction
from gapless.propagation.graph import CoverRelations
from gapless.propagation.vector import is_at_least, join, restrict, without_zeros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector
    from gapless.core.events import Value
    from gapless.core.identity import CellName
    from gapless.filters.normal import Conjunction
    from gapless.propagation.actions import Outgoing
    from gapless.propagation.graph import ConjunctionGraph
    from gapless.propagation.joint_matcher import JointMatcher
    from gapless.propagation.timing import PropagationTiming


class Child:
    """One cell below. `graph` and `joint` are the broker's own, over all of its children."""

    def __init__(
        self,
        cell: CellName,
        leaves: Iterable[str],
        graph: ConjunctionGraph,
        joint: JointMatcher,
        timing: PropagationTiming,
    ) -> None:
        self.cell = cell
        self.leaves = frozenset(leaves)
        self.graph = graph
        self.timing = timing
        self.conditions: dict[Conjunction, str] = {}
        self._joint = joint
        self.is_exact = True
        self.wanted_vector: Vector = {}
        self.deadline: Instant | None = None

    def matches(self, attributes: Mapping[str, Value]) -> bool:
        return bool(self._joint.passing(self.cell, [attributes]))

    # --- conditions -----------------------------------------------------------------------------

    def change(self, added: Iterable[Conjunction], removed: Iterable[Conjunction]) -> None:
        for one in removed:
            if one in self.conditions:
                self._remove(one)
        for one in added:
            self._add(one)

    def replace(self, conditions: Iterable[Conjunction]) -> None:
        kept = set(conditions)
        self.change(
            [one for one in kept if one not in self.conditions],
            [one for one in self.conditions if one not in kept],
        )
        self.is_exact = True

    def unite(self, conditions: Iterable[Conjunction]) -> None:
        self.change(conditions, ())
        self.is_exact = False

    def _add(self, one: Conjunction) -> None:
        mine = self.conditions
        if one in mine:
            return
        nearby = CoverRelations([], [])
        for node in self.graph.coverers(one):
            if node.conjunction in mine:
                return
            nearby.coverers.append(node)
        nearby.covered.extend(self.graph.covered(one))
        text = mine[one] = show_conjunction(one)
        self._joint.add(self.cell, text)
        self.graph.add(one, nearby=nearby)
        for node in nearby.covered:
            if node.conjunction in mine:
                self._remove(node.conjunction)

    def _remove(self, one: Conjunction) -> None:
        self._joint.remove(self.cell, self.conditions.pop(one))
        self.graph.remove(one)

    # --- asking ---------------------------------------------------------------------------------

    def want(self, wanted: Mapping[str, int], now: Instant) -> None:
        """Ask for the state behind this cell: it has at least this vector."""
        self.wanted_vector = join(self.wanted_vector, restrict(wanted, self.leaves & wanted.keys()))
        if self.deadline is None:
            self.deadline = Instant(now + self.timing.lag_patience)

    def settle(self, vector: Mapping[str, int]) -> None:
        """Stop asking, if what was wanted has come."""
        if self.is_exact and is_at_least(vector, self.wanted_vector):
            self.wanted_vector = {}
            self.deadline = None

    def fire(self, now: Instant) -> list[Outgoing]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = Instant(now + self.timing.lag_repeat)
        return [ToCell(self.cell, SubscriptionNack(self.cell, without_zeros(self.wanted_vector)))]

    def check(self, vector: Mapping[str, int]) -> None:
        for one in self.conditions:
            above = (node.conjunction for node in self.graph.coverers(one))
            assert not any(other in self.conditions for other in above), "I1"
        satisfied = self.is_exact and is_at_least(vector, self.wanted_vector)
        assert satisfied or self.deadline is not None, "I2"
