"""The routing table: for each prefix of our identifier and each next digit, one node near to us.

Theory of operation
    The cell of a node is its common prefix with us and the digit that follows. Of several nodes for
    one cell the one with the least proximity stays; that makes every hop a short one, and trees
    that grow along the routes local. Entries may be dead: that is found out when they are used.

Cost: cells are kept in one dictionary, `(2^digit_bits - 1) * log N` of them with N nodes.
Source: Pastry, as sketched in the Scribe paper, section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.scribe.identifiers import NodeId, Space


class RoutingTable:
    """See the module docstring."""

    __slots__ = ("_base", "_cells", "_own", "_proximity", "_space")

    def __init__(self, space: Space, own: NodeId, proximity: Callable[[NodeId], int]) -> None:
        self._space = space
        self._own = own
        self._proximity = proximity
        self._base = 1 << space.digit_bits
        self._cells: dict[int, NodeId] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def __contains__(self, node: NodeId) -> bool:
        return node != self._own and self._cells.get(self.cell_of(node)) == node

    def cell_of(self, identifier: int) -> int:
        """Where whatever leads to this identifier stands; not for our own."""
        row = self._space.prefix_length(self._own, identifier)
        return row * self._base + self._space.digit(identifier, row)

    def entry(self, key: int) -> NodeId | None:
        """A node that shares one digit more with the key than we do."""
        return self._cells.get(self.cell_of(key)) if key != self._own else None

    def offer(self, node: NodeId) -> bool:
        """Take the node if its cell is empty or it is nearer than the present one."""
        if node == self._own:
            return False
        cell = self.cell_of(node)
        present = self._cells.get(cell)
        if present is not None and (
            present == node or self._proximity(present) <= self._proximity(node)
        ):
            return False
        self._cells[cell] = node
        return True

    def remove(self, node: NodeId) -> bool:
        if node not in self:
            return False
        del self._cells[self.cell_of(node)]
        return True

    def row(self, index: int) -> list[NodeId]:
        cells = range(index * self._base, (index + 1) * self._base)
        return [self._cells[cell] for cell in cells if cell in self._cells]

    @property
    def depth(self) -> int:
        """How many rows there are, up to the last with an entry."""
        return max(self._cells, default=-1) // self._base + 1

    def entries(self) -> Iterable[NodeId]:
        return self._cells.values()

    def check(self) -> None:
        assert all(self.cell_of(node) == cell for cell, node in self._cells.items())
