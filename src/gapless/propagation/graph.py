"""Conjunction graph: all conjunctions of a broker, and which of them stand for the rest.

Theory of operation
    A conjunction that no other one covers is a *root*. The roots together match exactly what all
    conjunctions match together, so only roots are propagated. Each other conjunction has a *guard*:
    one root that covers it. The edges between them are not kept. When a root goes, only those it
    guarded can become roots, and they are placed again. Conjunctions that cover each other are
    equal, so the roots depend on the set alone, never on the order in which it came about.
    A conjunction counts the subscriptions (or child cells) that have it, and knows its virtual
    start time: that of a conjunction which covered it when it came, if there was one, else the
    present.

Invariants (checked by `check`, I2 by the tests alone)
    I1  a root has no guard; any other has one, which is a root and covers it
    I2  no conjunction covers a root
    I3  no count is below one

Cost: see `cover_index`. Removing a root costs a placement for each conjunction that it guarded.

Source: Middleware 2004, sec. 3.3. Deviations: guards instead of the edges of a graph; among very
many that cover a new one, the start time is the least of `COVERERS_MAX` (later, never wrong).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from gapless.propagation.cover_index import CoverEntry, CoverIndex

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gapless.filters.normal import Conjunction

COVERERS_MAX = 64


class RootChange(NamedTuple):
    """Roots that have come and gone."""

    added: list[Conjunction]
    removed: list[Conjunction]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed)


class GraphNode(CoverEntry):
    """One conjunction of the graph."""

    __slots__ = ("count", "guard", "guarded", "start")

    def __init__(self, conjunction: Conjunction, start: int) -> None:
        super().__init__(conjunction)
        self.count = 1
        self.start = start
        self.guard: GraphNode | None = None
        self.guarded: dict[GraphNode, None] | None = None  # None: empty, as for most nodes


class CoverRelations(NamedTuple):
    """All nodes that cover a conjunction, and all that it covers."""

    coverers: list[GraphNode]
    covered: list[GraphNode]


class ConjunctionGraph:
    """A counted set of conjunctions with its roots."""

    def __init__(self) -> None:
        self._nodes: dict[Conjunction, GraphNode] = {}
        self._index: CoverIndex[GraphNode] = CoverIndex()
        self._root_count = 0
        self._was_root: dict[Conjunction, bool] = {}  # before the present change

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, conjunction: Conjunction) -> bool:
        return conjunction in self._nodes

    def roots(self) -> list[Conjunction]:
        return [node.conjunction for node in self._nodes.values() if node.is_root]

    def start_of(self, conjunction: Conjunction) -> int:
        return self._nodes[conjunction].start

    def coverers(self, conjunction: Conjunction) -> Iterator[GraphNode]:
        """All other nodes that cover it."""
        return self._index.covering(conjunction)

    def covered(self, conjunction: Conjunction) -> Iterator[GraphNode]:
        """All other nodes that it covers."""
        return self._index.covered(conjunction)

    # --- changes --------------------------------------------------------------------------------

    def add(
        self, conjunction: Conjunction, time: int = 0, nearby: CoverRelations | None = None
    ) -> int:
        """Count one more use of a conjunction; return its virtual start time, which is `time` if
        nothing covers it.

        `nearby` has the results of `coverers` and `covered`, if the caller has them already.
        """
        node = self._nodes.get(conjunction)
        if node is not None:
            node.count += 1
            return node.start
        node = self._nodes[conjunction] = GraphNode(conjunction, time)
        if nearby is None:
            coverers = list(islice(self._index.covering(conjunction), COVERERS_MAX))
        else:
            coverers = nearby.coverers
        self._index.add(node)
        if coverers:
            node.start = min(each.start for each in coverers)
            self._guard(_root_of(coverers[0]), node)
        else:
            self._rise(node, None if nearby is None else nearby.covered)
        return node.start

    def remove(self, conjunction: Conjunction) -> None:
        """Count one use less; the conjunction goes with the last."""
        node = self._nodes[conjunction]
        node.count -= 1
        if node.count:
            return
        del self._nodes[conjunction]
        self._index.remove(node)
        if node.guard is not None:
            self._unguard(node)
            return
        self._note(node)
        node.is_root = False
        self._root_count -= 1
        orphans, node.guarded = node.guarded or {}, None
        for orphan in orphans:
            orphan.guard = None
        for orphan in orphans:
            self._place(orphan)

    def take_change(self) -> RootChange:
        """How the roots have changed since the last call."""
        added, removed = [], []
        for conjunction, before in self._was_root.items():
            node = self._nodes.get(conjunction)
            now = node is not None and node.is_root
            if now and not before:
                added.append(conjunction)
            elif before and not now:
                removed.append(conjunction)
        self._was_root.clear()
        return RootChange(added, removed)

    def _place(self, orphan: GraphNode) -> None:
        """Find a root that covers the orphan, or make it a root. Unplaced orphans do not count."""
        for coverer in self._index.covering(orphan.conjunction):
            if coverer.is_root or coverer.guard is not None:
                self._guard(_root_of(coverer), orphan)
                return
        self._rise(orphan)

    def _rise(self, node: GraphNode, covered: Iterable[GraphNode] | None = None) -> None:
        """Make a node a root; it guards the roots that it covers, and what those guarded."""
        if covered is None:
            covered = self._index.covered(node.conjunction, roots=True)
        for lower in [each for each in covered if each.is_root]:
            self._note(lower)
            self._index.set_root(lower, False)
            self._root_count -= 1
            guarded, lower.guarded = lower.guarded or {}, None
            for each in (lower, *guarded):
                self._guard(node, each)
        self._become_root(node)

    def _become_root(self, node: GraphNode) -> None:
        self._note(node)
        self._root_count += 1
        self._index.set_root(node, True)

    def _guard(self, root: GraphNode, node: GraphNode) -> None:
        node.guard = root
        if root.guarded is None:
            root.guarded = {}
        root.guarded[node] = None

    def _unguard(self, node: GraphNode) -> None:
        guard = node.guard
        assert guard is not None
        assert guard.guarded is not None
        del guard.guarded[node]
        if not guard.guarded:
            guard.guarded = None
        node.guard = None

    def _note(self, node: GraphNode) -> None:
        self._was_root.setdefault(node.conjunction, node.is_root)

    # --- invariants -----------------------------------------------------------------------------

    def check(self) -> None:
        self._index.check()
        assert self._root_count == sum(node.is_root for node in self._nodes.values())
        for node in self._nodes.values():
            assert node.count > 0, "I3"
            assert node.is_root == (node.guard is None), "I1"
            if node.guard is not None:
                assert node.guard.is_root, "I1"
                assert node.guard.conjunction.covers(node.conjunction), "I1"


def _root_of(node: GraphNode) -> GraphNode:
    if node.is_root:
        return node
    assert node.guard is not None
    return node.guard
