"""How good multicast trees are, against IP multicast: delays, copies on links, work of nodes.

Theory of operation
    A tree is its root, its members, and the parent of every node in it. One event goes down it, on
    paper. IP multicast would send it once over each link of the shortest ways from the root.
    Compared are the delay to the last member (`RMD`) and on average (`RAD`), and the copies on
    each link between routers (link stress). What nodes have to keep is their children, by topic
    (children tables) and in all (node stress).

Invariants
    I1  no member gets an event sooner than by the shortest way

Source: the measures of the Scribe papers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gapless_lab.experiments.multicast.network import LAN_DELAY

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless_lab.experiments.multicast.network import TransitStub

DEPTH_MAX = 64
"""Steps up to the root: a tree that needs more is none."""

SIZE_EXPONENT = 1.25
SIZE_MIN = 5


class Tree(NamedTuple):
    """One topic's. Nodes are numbers."""

    root: int
    members: NDArray[np.int64]
    nodes: NDArray[np.int64]
    """All but the root."""
    parents: NDArray[np.int64]
    """Of those."""


def topic_sizes(nodes: int, topics: int) -> list[int]:
    """The first topic has everybody, and sizes fall with the rank, as in the literature."""
    return [
        min(nodes, max(SIZE_MIN, int(nodes * rank**-SIZE_EXPONENT + 0.5)))
        for rank in range(1, topics + 1)
    ]


class Tally:
    """Takes trees one by one."""

    def __init__(self, network: TransitStub, routers: NDArray[np.int64]) -> None:
        self._network = network
        self._routers = routers
        self._maximal: list[float] = []
        self._average: list[float] = []
        self._hops: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        self._ip_copies = np.zeros(len(network.links), dtype=np.int64)
        self._tables = np.zeros(len(routers), dtype=np.int64)
        self._entries = np.zeros(len(routers), dtype=np.int64)
        self._members = 0
        self._parent = np.zeros(
            len(routers), dtype=np.int64
        )  # of the tree at hand; no others count
        self._length = np.zeros(len(routers), dtype=np.int64)

    def delay(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """From node to node."""
        between = self._network.delay[self._routers[starts], self._routers[ends]]
        return between.astype(np.int64) + 2 * LAN_DELAY

    def add(self, tree: Tree) -> None:
        self._members += len(tree.members)
        self._hops.append((self._routers[tree.parents], self._routers[tree.nodes]))
        busy, children = np.unique(tree.parents, return_counts=True)
        self._tables[busy] += 1
        self._entries[busy] += children
        others = tree.members[tree.members != tree.root]
        if not len(others):
            return
        roots = np.full(len(others), tree.root)
        direct, ours = self.delay(roots, others), self._descend(tree, others)
        assert (ours >= direct).all(), "I1"
        self._maximal.append(int(ours.max()) / int(direct.max()))
        self._average.append(int(ours.sum()) / int(direct.sum()))
        places = np.unique(self._routers[others])
        root_router = np.full(len(places), self._routers[tree.root])
        self._ip_copies += self._network.copies(root_router, places) > 0

    def _descend(self, tree: Tree, others: NDArray[np.int64]) -> NDArray[np.int64]:
        """When each of the others gets what leaves the root at 0."""
        self._parent[tree.nodes] = tree.parents
        self._length[tree.nodes] = self.delay(tree.parents, tree.nodes)
        total = np.zeros(len(others), dtype=np.int64)
        below, index = others, np.arange(len(others))
        for _ in range(DEPTH_MAX):
            total[index] += self._length[below]
            below = self._parent[below]
            is_on = below != tree.root
            below, index = below[is_on], index[is_on]
            if not len(below):
                return total
        raise AssertionError("parents lead to the root")

    def figures(self, hops: NDArray[np.int64]) -> dict[str, Any]:
        """All of it and hops of some routes as plain data; histograms are pairs: value, count."""
        starts, ends = (np.concatenate(each) for each in zip(*self._hops, strict=True))
        return {
            "members": self._members,
            "hops": histogram(hops),
            "maximal_delay": [round(each, 3) for each in self._maximal],
            "average_delay": [round(each, 3) for each in self._average],
            "stress": histogram(self._network.copies(starts, ends)),
            "ip_stress": histogram(self._ip_copies),
            "tables": histogram(self._tables),
            "entries": histogram(self._entries),
        }


def histogram(values: NDArray[np.int64]) -> list[list[int]]:
    found, counts = np.unique(values, return_counts=True)
    return [[int(value), int(count)] for value, count in zip(found, counts, strict=True)]
