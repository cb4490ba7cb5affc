"""The leaf set: the nodes next to us on the circle, as many on either side.

Theory of operation
    Members are kept by how far they lie clockwise from us. The first half of a full set are the
    next larger ones, the last half the next smaller ones. While there is room, or where the whole
    ring is no larger than the set, it holds everyone we know, and we answer for the whole circle.

Invariants (checked by `check`)
    I1  members ascend by clockwise distance, none is ourselves, and there are at most `size`
    I2  a node that was offered and is not in has half a set of nearer ones on both its sides

Cost: a look-up is one bisection; `size` is 16 or so.
Source: Pastry, as sketched in the Scribe paper, section 2.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, Space


class LeafSet:
    """See the module docstring."""

    __slots__ = ("_half", "_known", "_offsets", "_own", "_size", "_space", "members")

    def __init__(self, space: Space, own: NodeId, size: int) -> None:
        assert size >= 2
        assert size % 2 == 0
        self._space = space
        self._own = own
        self._size = size
        self._half = size // 2
        self._offsets: list[int] = []
        self._known: set[NodeId] = set()  # the same as `members`
        self.members: list[NodeId] = []  # in the order of the circle, clockwise from us

    def __contains__(self, node: object) -> bool:
        return node in self._known

    @property
    def is_full(self) -> bool:
        return len(self.members) == self._size

    @property
    def larger(self) -> list[NodeId]:
        """The next ones clockwise, nearest first."""
        return self.members[: self._half]

    @property
    def smaller(self) -> list[NodeId]:
        """The next ones the other way, nearest first."""
        return self.members[: -self._half - 1 : -1]

    def ends_without(self, gone: NodeId) -> list[NodeId]:
        """The farthest other node on either side: it knows what lies beyond."""
        sides = ([n for n in side if n != gone] for side in (self.larger, self.smaller))
        return sorted({side[-1] for side in sides if side})

    @property
    def neighbours(self) -> list[NodeId]:
        """The very next on either side."""
        return sorted({*self.members[:1], *self.members[-1:]})

    def would_take(self, node: NodeId) -> bool:
        if node == self._own or node in self:
            return False
        if not self.is_full:
            return True
        offset = self._space.clockwise(self._own, node)
        return offset < self._offsets[self._half - 1] or offset > self._offsets[self._half]

    def add(self, node: NodeId) -> bool:
        """Take a node that lives. The node that is one too many goes. Is anything different now?"""
        if not self.would_take(node):
            return False
        offset = self._space.clockwise(self._own, node)
        index = bisect_left(self._offsets, offset)
        self._offsets.insert(index, offset)
        self.members.insert(index, node)
        self._known.add(node)
        if len(self.members) > self._size:
            self._known.remove(self.members[self._half])
            del self._offsets[self._half], self.members[self._half]
        return True

    def remove(self, node: NodeId) -> bool:
        if node not in self:
            return False
        index = bisect_left(self._offsets, self._space.clockwise(self._own, node))
        del self._offsets[index], self.members[index]
        self._known.remove(node)
        return True

    def covers(self, key: int) -> bool:
        """Do we know everyone around the key?"""
        if not self.is_full:
            return True
        offset = self._space.clockwise(self._own, key)
        return offset <= self._offsets[self._half - 1] or offset >= self._offsets[self._half]

    def closest(self, key: int) -> NodeId:
        """The node responsible for the key, of the members and us."""
        index = bisect_left(self._offsets, self._space.clockwise(self._own, key))
        around = (
            self.members[index - 1] if index > 0 else self._own,
            self.members[index] if index < len(self.members) else self._own,
        )
        return self._space.closest(key, around)

    def nearest(self, key: int, count: int) -> list[NodeId]:
        """Of the members and us the `count` closest to the key, closest first."""
        everyone = [self._own, *self.members]
        return sorted(everyone, key=lambda node: self._space.rank(key, node))[:count]

    def check(self) -> None:
        assert self._offsets == sorted(set(self._offsets)), "I1"
        assert 0 not in self._offsets, "I1"
        assert self._known == set(self.members), "I1"
        assert len(self.members) == len(self._offsets) <= self._size, "I1"
