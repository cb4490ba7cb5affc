"""Identifiers: points on a circle, read as digits. Nodes and topics share it.

Theory of operation
    An identifier has `bits` bits, most significant digit first, `digit_bits` to a digit. Two of
    them have a common prefix (how routing tables see it) and a distance the short way round (how
    the ring sees it). The node with the least distance to a key is responsible for it; of two
    equally near ones the smaller identifier. They are integers, so that arithmetic is quick, and a
    class of their own, so that a codec can tell them from numbers: 128 bits do not fit a plain
    integer of the wire.

Invariants
    I1  of nodes that lie between a node and a key (not through 0) each shares at least as long a
        prefix with the key as the node does: so the far end of a leaf set is always a way on

Source: Pastry, as sketched in the Scribe paper, section 2.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.errors import UsageError
from gapless.core.identity import Identifier, NodeId, TopicId

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Identifier", "NodeId", "Space", "TopicId"]


@dataclass(frozen=True, slots=True)
class Space:
    """The circle: how long identifiers are, and how they are cut into digits."""

    bits: int = 128
    digit_bits: int = 4

    def __post_init__(self) -> None:
        if not (0 < self.bits <= 160 and self.digit_bits > 0 and self.bits % self.digit_bits == 0):
            raise UsageError(f"{self.bits} bits cannot be cut into digits of {self.digit_bits}")

    def node_id(self, name: str) -> NodeId:
        """The identifier of the node of this name: no two places agree on it by intent."""
        return NodeId(self._hash(name))

    def topic_id(self, name: str, creator: str) -> TopicId:
        """The identifier of a topic: any node that knows both names can make it."""
        return TopicId(self._hash(f"{name}\0{creator}"))

    def _hash(self, text: str) -> Identifier:
        digest = hashlib.sha1(text.encode(), usedforsecurity=False).digest()
        return Identifier(int.from_bytes(digest, "big") >> (160 - self.bits))

    @property
    def digit_count(self) -> int:
        return self.bits // self.digit_bits

    def prefix_length(self, one: int, other: int) -> int:
        """How many leading digits are the same."""
        return (self.bits - (one ^ other).bit_length()) // self.digit_bits

    def digit(self, identifier: int, index: int) -> int:
        shift = self.bits - (index + 1) * self.digit_bits
        return (identifier >> shift) & ((1 << self.digit_bits) - 1)

    def clockwise(self, start: int, end: int) -> int:
        """How far it is from `start` up to `end`."""
        return (end - start) & ((1 << self.bits) - 1)

    def distance(self, one: int, other: int) -> int:
        """The short way round."""
        around = (one - other) & ((1 << self.bits) - 1)
        return min(around, (1 << self.bits) - around)

    def rank(self, key: int, node: NodeId) -> tuple[int, NodeId]:
        """Of two nodes the one with the lesser rank is responsible for the key."""
        return self.distance(key, node), node

    def closest(self, key: int, nodes: Iterable[NodeId]) -> NodeId:
        return min(nodes, key=lambda node: self.rank(key, node))

    def show(self, identifier: int) -> str:
        """The first digits, for people."""
        width = -(-self.bits // 4)
        return f"{identifier:0{width}x}"[:6]
