"""Survey: how far other brokers are, by the round trips of questions that the ring asks anyway.

Theory of operation
    Of each broker the shortest round trip counts: everything else that delays an answer is not
    distance. A broker that was never measured counts as farther than all that were, and among its
    like as far as the network file says. Brokers speak to us, and name others when a node joins or
    rows of routing tables are compared. Those are asked for a row in their turn, which measures
    them; then each may take the place of one that is farther away. So near ones are found by
    gossip, as in Pastry.

Invariants (checked by `check`)
    I1  at most `nodes_max` brokers are measured, and as many are asked or to be asked at a time; of
        more the oldest are forgotten
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.node.recent import remember
from gapless.scribe.messages import Probe, ProbeReply, RingWelcome, RowQuery, RowReply

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import Instant, NodeId
    from gapless.scribe.messages import ScribeMessage

UNMEASURED = 1 << 40
"""Farther than any broker that answers, in microseconds."""


class Survey:
    """See the module docstring. Distances are in microseconds."""

    def __init__(self, by_file: Callable[[NodeId], int], nodes_max: int) -> None:
        """`by_file`: how many links lie between."""
        self._by_file = by_file
        self._nodes_max = nodes_max
        self._round_trips: dict[NodeId, int] = {}
        self._asked: dict[NodeId, Instant] = {}
        self._named: dict[NodeId, None] = {}  # or heard, and not measured

    def distance(self, node: NodeId) -> int:
        measured = self._round_trips.get(node)
        return UNMEASURED + self._by_file(node) if measured is None else measured

    def sent(self, node: NodeId, message: ScribeMessage, now: Instant) -> None:
        """A question whose answer will be measured; of several under way the first one counts, so
        that no broker seems to be nearer than it is."""
        if isinstance(message, Probe | RowQuery) and node not in self._asked:
            remember(self._asked, node, now, self._nodes_max)

    def heard(self, node: NodeId, message: ScribeMessage, now: Instant) -> bool:
        """Note an answer, and whom it names. Is the broker nearer than it seemed?"""
        named: tuple[NodeId, ...] = (node,)
        if isinstance(message, RowQuery | RowReply):
            named += message.nodes
        elif isinstance(message, RingWelcome):
            named += message.contacts
        for each in named:
            if each not in self._round_trips:
                remember(self._named, each, None, self._nodes_max)
        if not isinstance(message, ProbeReply | RowReply) or node not in self._asked:
            return False
        before, took = self._round_trips.get(node), now - self._asked.pop(node)
        if before is not None and before <= took:
            return False
        remember(self._round_trips, node, took, self._nodes_max)
        return True

    def take_unmeasured(self) -> NodeId | None:
        """One that was named, was not measured since, and is not being asked."""
        while self._named:
            node = next(iter(self._named))
            del self._named[node]
            if node not in self._round_trips and node not in self._asked:
                return node
        return None

    def check(self) -> None:
        sizes = len(self._round_trips), len(self._asked), len(self._named)
        assert max(sizes) <= self._nodes_max, "I1"
