"""A ring as it stands when everybody knows whom joining leads to: tables only, nobody acts.

Theory of operation
    Identifiers are drawn and sorted, and routing tables made of them (`multicast_tables`), as for
    rings with real members. Leaf sets are the neighbours in the order and need not be kept. Next
    hops are those of `scribe.contacts.Contacts` with leaf sets that are right; parents in a topic's
    tree are next hops towards the topic.

Invariants
    I1  a next hop is the one that a node of the machine with the same contacts would take

Cost: all nodes at once, in arrays: about 590 bytes a node. 100,000 of them with 1,500 topics take
half a minute and 600 MB, most of it the network's. Identifiers have 64 bits: so few nodes never
share more.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.settings import RingSettings
from gapless_lab.experiments.multicast.network import draw_transit_stub
from gapless_lab.experiments.multicast.tables import NOBODY, draw_tables
from gapless_lab.experiments.multicast.trees import DEPTH_MAX, Tally, Tree, topic_sizes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless_lab.experiments.multicast.network import Shape, TransitStub

SPACE = Space(bits=64)
ROUTES = 10_000
"""How many routes are measured for their hops."""


class Structure:
    """Nodes are numbers in the order of their identifiers."""

    def __init__(self, count: int, network: TransitStub, dice: random.Random) -> None:
        self.random = np.random.Generator(np.random.PCG64(dice.getrandbits(64)))
        self.network = network
        drawn = self.random.integers(0, 1 << 64, 2 * count, dtype=np.uint64)
        self.identifiers = np.sort(self.random.permutation(np.unique(drawn))[:count])
        self.routers = self.random.choice(np.array(network.stub_routers), count)
        self.half = RingSettings().leaf_set_size // 2
        self.rows = draw_tables(self.identifiers, self.routers, network.delay, self.random)

    def __len__(self) -> int:
        return len(self.identifiers)

    @property
    def bytes_per_node(self) -> float:
        arrays = (self.identifiers, self.routers, *self.rows)
        return sum(each.nbytes for each in arrays) / len(self)

    def leaves(self, node: int) -> list[int]:
        """Its leaf set, clockwise from the farthest smaller one."""
        steps = (step for step in range(-self.half, self.half + 1) if step)
        return [(node + step) % len(self) for step in steps]

    # --- ways ------------------------------------------------------------------------------------

    def root(self, key: int) -> int:
        """Who is responsible for the key."""
        after = int(np.searchsorted(self.identifiers, np.uint64(key))) % len(self)
        nodes = (after - 1, after)
        return min(nodes, key=lambda n: SPACE.rank(key, self._identifier(n))) % len(self)

    def _identifier(self, node: int) -> NodeId:
        return NodeId(Identifier(int(self.identifiers[node])))

    def next_hops(self, nodes: NDArray[np.int64], key: int) -> NDArray[np.int64]:
        """Where each of the nodes sends what is for the key (I1); the root to itself."""
        hops = np.full(len(nodes), self.root(key), dtype=np.int64)
        after = int(np.searchsorted(self.identifiers, np.uint64(key)))
        gap = (after - nodes) % len(self)
        is_far = (gap > self.half) & (gap < len(self) - self.half + 1)
        [far] = np.nonzero(is_far)
        if len(self) <= 2 * self.half or not len(far):
            return hops
        prefix = self._prefix_lengths(nodes[far], key)
        for length in np.unique(prefix):
            chosen = far[prefix == length]
            hops[chosen] = self.rows[length][nodes[chosen], SPACE.digit(key, int(length))]
        for place in far[hops[far] == NOBODY]:
            hops[place] = self._closer(int(nodes[place]), key)
        return hops

    def _prefix_lengths(self, nodes: NDArray[np.int64], key: int) -> NDArray[np.int64]:
        differ = self.identifiers[nodes] ^ np.uint64(key)
        lengths = np.zeros(len(nodes), dtype=np.int64)
        for digits in range(1, len(self.rows)):
            lengths += (differ >> np.uint64(SPACE.bits - digits * SPACE.digit_bits)) == 0
        return lengths

    def _closer(self, node: int, key: int) -> int:
        """Of all that a node knows, the closest that shares as long a prefix: rare, and slow."""
        length = SPACE.prefix_length(self._identifier(node), key)
        known = {*self.leaves(node), *(int(n) for row in self.rows for n in row[node])} - {NOBODY}
        suited = (n for n in known if SPACE.prefix_length(self._identifier(n), key) >= length)
        return min((node, *suited), key=lambda n: SPACE.rank(key, self._identifier(n)))

    def tree(self, key: int, members: NDArray[np.int64]) -> Tree:
        """What grows when these subscribe."""
        root, met = self.root(key), np.zeros(len(self), dtype=np.bool_)
        nodes, parents = [], []
        frontier = members
        while len(frontier):
            met[frontier] = True
            frontier = frontier[frontier != root]
            nodes.append(frontier)
            parents.append(self.next_hops(frontier, key))
            reached = np.unique(parents[-1])
            frontier = reached[~met[reached]]
        return Tree(root, members, np.concatenate(nodes), np.concatenate(parents))

    def hops(self, count: int) -> NDArray[np.int64]:
        """Of so many routes from anywhere to anything; a tenth of them to one key."""
        found = []
        for key in self.random.integers(0, 1 << 64, max(1, count // 10), dtype=np.uint64):
            nodes = self.random.integers(0, len(self), 10)
            taken = np.zeros(len(nodes), dtype=np.int64)
            for _ in range(DEPTH_MAX):
                onward = self.next_hops(nodes, int(key))
                if (onward == nodes).all():
                    break
                taken += onward != nodes
                nodes = onward
            assert (nodes == self.root(int(key))).all()
            found.append(taken)
        return np.concatenate(found)


def measure_structure(nodes: int, topics: int, shape: Shape, seed: str) -> dict[str, Any]:
    """Trees of all topics, without anybody who sends a message."""
    dice = random.Random(seed)
    structure = Structure(nodes, draw_transit_stub(dice, shape), dice)
    tally = Tally(structure.network, structure.routers)
    for size in topic_sizes(nodes, topics):
        members = structure.random.choice(nodes, size, replace=False)
        tally.add(structure.tree(dice.getrandbits(SPACE.bits), np.sort(members)))
    figures = tally.figures(structure.hops(ROUTES))
    return figures | {"bytes_per_node": round(structure.bytes_per_node)}
