"""Branch: what one broker knows of the subscriptions below it, and tells the cell above.

Theory of operation
    The broker's vector says, for each leaf below, how much of its subscriptions is in the sets of
    the child cells. A change applies only on top of exactly the vector that it was made for. So the
    sets are a function of the vector, and every broker with the same vector has the same sets.
    What the change does to the roots of all children together goes up as a change of this broker.
    If that change only added roots, all of which came with the incoming one, it may be applied
    wherever the incoming one may; any other change was made for the old vector and applies only to
    that. The broker to which a cell below sent its change sends its own up, and passes the incoming
    one to its siblings, which apply it and stay quiet. They need not agree: a broker that missed
    something lags, has a smaller vector, and brokers that compare vectors notice.
    A broker lags if a change builds on more than it knows, or a message's vector knows more. It was
    overtaken if a change builds on less. In both cases it asks the cell below for its whole state.
    The first broker on the way down that knows enough answers, at last the leaf. Two states that
    cannot be compared are united: that matches too much, never too little, and is told to nobody.

Invariants (checked by `check`)
    I1  the graph counts each condition once for each child that has it
    I2  the vector never moves back, and has elements of leaves below only
    I3  at most `changes_pending_max` changes wait (beyond it the oldest goes; a state repairs it)
    I4  while a child is not exact, its state is asked for, and nothing is told about this broker

Source: Middleware 2004, sec. 3.4, 4. Deviations: the constraint is equality (the paper says
"satisfied"; with "at least" a condition can be lost: tests/papers/test_middleware2004.py); an
overtaken change is not only dropped, a state is asked for; a lagging broker waits a moment first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import SubscriptionChange, SubscriptionNack, SubscriptionState
from gapless.core.errors import ProtocolError
from gapless.core.outgoing import ToBroker, ToCell, ToSiblings
from gapless.propagation.child import Child
from gapless.propagation.condition import ConditionReader, show_all, show_removed
from gapless.propagation.graph import ConjunctionGraph
from gapless.propagation.joint_matcher import JointMatcher
from gapless.propagation.vector import agrees, is_at_least, join, restrict, without_zeros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gapless.core.broker_messages import Vector
    from gapless.core.events import Value
    from gapless.core.identity import BrokerName, CellName, Instant
    from gapless.filters.normal import Conjunction
    from gapless.propagation.actions import Outgoing
    from gapless.propagation.graph import RootChange
    from gapless.propagation.timing import PropagationTiming


class PendingChange(NamedTuple):
    """A change, already read, that waits for what it builds on."""

    change: SubscriptionChange
    added: list[Conjunction]
    removed: list[Conjunction]
    is_ours: bool  # this broker sends it up: it did not come from a sibling


class Branch:
    """One broker, as one cell above it sees it (or as a root). Sans-IO: see the docstring."""

    def __init__(
        self,
        cell: CellName,
        upstream: CellName | None,
        below: Mapping[CellName, Iterable[str]],
        timing: PropagationTiming,
    ) -> None:
        self.cell = cell
        self.upstream = upstream
        self.timing = timing
        self.graph = ConjunctionGraph()
        self.joint = JointMatcher()
        self.children = {
            cell: Child(cell, leaves, self.graph, self.joint, timing)
            for cell, leaves in sorted(below.items())
        }
        self.leaves = frozenset(leaf for child in self.children.values() for leaf in child.leaves)
        self.vector: Vector = {}
        self.pending_changes: list[PendingChange] = []
        self._open_questions: dict[BrokerName, Vector] = {}  # of brokers above, with what they want
        self._owes_state = False  # a change was not told while a child was not exact
        self._reader = ConditionReader()

    @property
    def deadline(self) -> Instant | None:
        due = (child.deadline for child in self.children.values() if child.deadline is not None)
        return min(due, default=None)

    @property
    def is_exact(self) -> bool:
        return all(child.is_exact for child in self.children.values())

    def matches(self, cell: CellName, attributes: Mapping[str, Value]) -> bool:
        """Does a known subscription behind this cell match the event?"""
        return self.children[cell].matches(attributes)

    # --- from below -----------------------------------------------------------------------------

    def receive_change(
        self, change: SubscriptionChange, now: Instant, *, from_sibling: bool = False
    ) -> list[Outgoing]:
        child = self._child(change.cell, change.vector, change.constraint)
        if is_at_least(self.vector, change.vector):
            return []
        added, removed = self._reader.read_all(change.added, change.removed)
        pending = PendingChange(change, added, removed, not from_sibling)
        out: list[Outgoing] = [] if from_sibling else [ToSiblings(change)]
        if not self.applies(change):
            self._wait_for(child, pending, now)
            return out
        out += self._apply(child, pending)
        return out + self._advanced(now)

    def applies(self, change: SubscriptionChange) -> bool:
        return agrees(self.vector, change.constraint)

    def _apply(self, child: Child, pending: PendingChange) -> list[Outgoing]:
        change, old = pending.change, self.vector
        child.change(pending.added, pending.removed)
        self.vector = join(self.vector, change.vector)
        roots = self.graph.take_change()
        only_added = not (roots.removed or change.removed)
        passed = only_added and set(roots.added) == set(pending.added)
        constraint = change.constraint if passed else None
        return self._grown(roots, change.vector, old, constraint, is_ours=pending.is_ours)

    def _grown(
        self,
        roots: RootChange,
        vector: Vector,
        old: Vector,
        constraint: Vector | None = None,
        *,
        is_ours: bool,
        is_step: bool = True,
    ) -> list[Outgoing]:
        """Tell the cell above that this broker now knows what is behind `vector`, if that is its
        task. After a step between two exact states it tells the change, else (later) the state."""
        if not is_ours or self.upstream is None:
            return []
        if not (self.is_exact and is_step):
            self._owes_state = True
            return []
        added, removed = show_all(roots.added), show_removed(roots.removed)
        constraint = constraint or restrict(old, self.leaves)
        ours = SubscriptionChange(self.cell, vector, constraint, added, removed)
        return [ToCell(self.upstream, ours)]

    def _wait_for(self, child: Child, pending: PendingChange, now: Instant) -> None:
        """Keep a change that may apply later; ask for the state behind it in any case."""
        constraint, vector = pending.change.constraint, pending.change.vector
        if not any(self.vector.get(leaf, 0) > time for leaf, time in constraint.items()):
            self.pending_changes.append(pending)
            del self.pending_changes[: -self.timing.changes_pending_max]
        child.want(join(restrict(self.vector, child.leaves), constraint, vector), now)

    def _advanced(self, now: Instant) -> list[Outgoing]:
        """After the vector has grown: apply waiting changes, ask for the state behind overtaken
        ones, answer open questions."""
        out: list[Outgoing] = []
        progress = True
        while progress:
            progress = False
            waiting, self.pending_changes = self.pending_changes, []
            for each in waiting:
                child = self.children[each.change.cell]
                if is_at_least(self.vector, each.change.vector):
                    continue
                if self.applies(each.change):
                    out += self._apply(child, each)
                    progress = True
                else:
                    self._wait_for(child, each, now)
        for child in self.children.values():
            child.settle(self.vector)
        if self.is_exact:
            out += self._tell_state()
        return out

    def _tell_state(self) -> list[Outgoing]:
        """Send the state to the cell above if it is owed, and to brokers that asked for it."""
        out: list[Outgoing] = []
        if self._owes_state and self.upstream is not None:
            out.append(ToCell(self.upstream, self._state()))
        self._owes_state = False
        for asker, wanted in sorted(self._open_questions.items()):
            if is_at_least(self.vector, wanted):
                out.append(ToBroker(asker, self._state()))
                del self._open_questions[asker]
        return out

    def receive_state(
        self, state: SubscriptionState, now: Instant, *, from_sibling: bool = False
    ) -> list[Outgoing]:
        child = self._child(state.cell, state.vector)
        known = restrict(self.vector, child.leaves)
        if is_at_least(known, state.vector) and not is_at_least(state.vector, known):
            return [] if from_sibling else self._repeat(state.vector, known)
        [conditions] = self._reader.read_all(state.conditions)
        out: list[Outgoing] = [] if from_sibling else [ToSiblings(state)]
        is_news = not is_at_least(known, state.vector)
        old, before = self.vector, self.is_exact
        if is_at_least(state.vector, known):
            child.replace(conditions)
        else:
            child.unite(conditions)
            child.want(join(known, state.vector), now)
        self.vector = join(self.vector, state.vector)
        # A state that is no news was repeated from below, because something above did not come.
        out += self._grown(
            self.graph.take_change(),
            state.vector,
            old,
            is_ours=not from_sibling,
            is_step=is_news and before,
        )
        return out + self._advanced(now)

    def _repeat(self, vector: Vector, known: Vector) -> list[Outgoing]:
        """Handle a state that is older than ours: its sender lags. If it knows as much of some leaf
        as we do, that leaf may have repeated its state because something above did not come, and
        all its repeats may take the way over that sender. So tell our state."""
        if not any(known.get(leaf) == time for leaf, time in vector.items()):
            return []
        nothing = self.graph.take_change()
        out = self._grown(nothing, vector, self.vector, is_ours=True, is_step=False)
        return out + (self._tell_state() if self.is_exact else [])

    def _state(self) -> SubscriptionState:
        roots = show_all(self.graph.roots())
        return SubscriptionState(self.cell, without_zeros(self.vector), roots)

    def _child(self, cell: CellName, *vectors: Vector) -> Child:
        child = self.children.get(cell)
        if child is None:
            raise ProtocolError(f"subscriptions of {cell!r}, which is not below {self.cell!r}")
        for vector in vectors:
            if not vector.keys() <= child.leaves:
                raise ProtocolError(f"{cell!r} speaks of leaves that are not below it: {vector}")
        return child

    # --- from above -----------------------------------------------------------------------------

    def receive_nack(
        self, asker: BrokerName, nack: SubscriptionNack, now: Instant
    ) -> list[Outgoing]:
        """Answer a broker above that lags, at once or after asking below."""
        wanted = restrict(nack.wanted, self.leaves & nack.wanted.keys())
        if self.is_exact and is_at_least(self.vector, wanted):
            return [ToBroker(asker, self._state())]
        self._open_questions[asker] = join(self._open_questions.get(asker, {}), wanted)
        self.notice(wanted, now)
        return []

    def notice(self, vector: Mapping[str, int], now: Instant) -> None:
        """Ask for what a message's vector counts on and this broker does not know."""
        for child in self.children.values():
            theirs = restrict(vector, child.leaves & vector.keys())
            if not is_at_least(self.vector, theirs):
                child.want(theirs, now)

    # --- time, invariants -----------------------------------------------------------------------

    def fire(self, now: Instant) -> list[Outgoing]:
        return [each for child in self.children.values() for each in child.fire(now)]

    def check(self) -> None:
        self.graph.check()
        self.joint.check()
        for child in self.children.values():
            child.check(self.vector)
            assert all(one in self.graph for one in child.conditions), "I1"
            assert child.is_exact or child.deadline is not None, "I4"
        assert self.vector.keys() <= self.leaves, "I2"
        assert len(self.pending_changes) <= self.timing.changes_pending_max, "I3"
