"""Contacts: all the nodes that one node knows, and which of them is the next hop to a key.

Theory of operation
    The leaf set knows which node has the keys around us, the routing table leads to others
    digit by digit, the neighbourhood set has the nodes that are near in the network. To route:
    within the leaf set, to the closest; else one digit on by the table; else to anyone known who
    shares as long a prefix and is closer. Once a message travels by the leaf set (`near`), it goes
    on to closer nodes only: where leaf sets disagree for a while it still never goes round.

Invariants
    I1  towards one key every hop gains: a longer prefix, or the same and closer; or, once near,
        closer. So no message goes round
    I2  the leaf set has only nodes that were heard of directly; table and neighbourhood may not

Source: Pastry, as sketched in the Scribe paper, section 2. Deviation: `near`.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from gapless.scribe.leaf_set import LeafSet
from gapless.scribe.routing_table import RoutingTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.scribe.identifiers import NodeId, Space
    from gapless.scribe.settings import RingSettings


class Contacts:
    """See the module docstring."""

    __slots__ = ("_near_max", "_proximity", "_space", "leaves", "nearby", "own", "table")

    def __init__(
        self, own: NodeId, settings: RingSettings, space: Space, proximity: Callable[[NodeId], int]
    ) -> None:
        self.own = own
        self._space = space
        self._proximity = proximity
        self._near_max = settings.neighbourhood_max
        self.leaves = LeafSet(space, own, settings.leaf_set_size)
        self.table = RoutingTable(space, own, proximity)
        self.nearby: list[tuple[int, NodeId]] = []  # by proximity, nearest first

    def hear_of(self, node: NodeId) -> None:
        """A node says that there is such a node."""
        if node == self.own:
            return
        self.table.offer(node)
        if len(self.nearby) < self._near_max or self._proximity(node) < self.nearby[-1][0]:
            entry = (self._proximity(node), node)
            if entry not in self.nearby:
                insort(self.nearby, entry)
                del self.nearby[self._near_max :]

    def remove(self, node: NodeId) -> bool:
        """Forget a node. Did the leaf set have it?"""
        was_in_leaves = self.leaves.remove(node)
        self.nearby = [entry for entry in self.nearby if entry[1] != node]
        if self.table.remove(node):
            for other in (*self.leaves.members, *(each for _, each in self.nearby)):
                self.table.offer(other)  # its cell may have another
        return was_in_leaves

    def everyone(self) -> Iterator[NodeId]:
        """All that are known; some more than once."""
        yield from self.leaves.members
        yield from self.table.entries()
        for _, node in self.nearby:
            yield node

    def next_hop(self, key: int, *, near: bool = False) -> tuple[NodeId, bool]:
        """The node that a message for the key goes to next, ourselves if it has arrived; is it near
        then?"""
        if self.leaves.covers(key):
            return self.leaves.closest(key), True
        if near:
            return self._closer(key, 0), True
        if (entry := self.table.entry(key)) is not None:
            return entry, False
        return self._closer(key, self._space.prefix_length(self.own, key)), False

    def is_responsible(self, key: int) -> bool:
        """As far as we know, is no node closer to the key than we are?"""
        return self.leaves.covers(key) and self.leaves.closest(key) == self.own

    def _closer(self, key: int, prefix: int) -> NodeId:
        """The closest node known that shares so many digits; ourselves if none is closer."""
        space = self._space
        suited = (n for n in self.everyone() if space.prefix_length(n, key) >= prefix)
        return space.closest(key, [self.own, *suited])

    def check(self) -> None:
        self.leaves.check()
        self.table.check()
        assert len(self.nearby) <= self._near_max
        assert self.nearby == sorted(set(self.nearby))
