"""The tree of brokers of the reliable service: which it is, and what of it is kept on disk.

The network's cells are a tree, but brokers of one cell are not. So the first broker of each cell
stands for it, and the others hang on that one as leaves: all brokers work out the same tree from
the same network file. Brokers that joined while the network ran are in no file: how they hang on is
learnt from others, and remembered.

Decision: docs/decisions/0018.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from gapless.core.effects import Put
from gapless.core.identity import BrokerName

if TYPE_CHECKING:
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.tree.messages import Edge

TREE = "tree"
EDGES = "edges"
RETIRED = "retired"


def broker_tree(network: Network) -> tuple[Edge, ...]:
    """All brokers of the network file as one tree."""
    head = {cell.name: cell.brokers[0].name for cell in network.cells}
    links = [
        (head[cell.name], head[other])
        for cell in network.cells
        for other in network.neighbours(cell.name)
        if cell.name < other
    ]
    leaves = [(head[cell.name], each.name) for cell in network.cells for each in cell.brokers[1:]]
    return (*links, *leaves)


class KeptTree:
    """What is kept of the tree: the edges of brokers that are not in the network file, and the
    brokers that never return."""

    def __init__(self, network: Network, store: Store) -> None:
        self._network = network
        kept = json.loads(store.get(TREE, EDGES) or b"[]")
        self.edges: tuple[Edge, ...] = tuple((BrokerName(a), BrokerName(b)) for a, b in kept)
        names = json.loads(store.get(TREE, RETIRED) or b"[]")
        self.retired: tuple[BrokerName, ...] = tuple(map(BrokerName, names))

    def learn(self, known: tuple[Edge, ...], retired: tuple[BrokerName, ...]) -> tuple[Put, ...]:
        """The tree as it is known now: what is to be written down of it."""
        ours = self._network.cell_of
        joined = tuple(edge for edge in known if edge[0] not in ours or edge[1] not in ours)
        writes: list[Put] = []
        if joined != self.edges:
            self.edges = joined
            writes.append(Put(TREE, EDGES, json.dumps(joined).encode()))
        if retired != self.retired:
            self.retired = retired
            writes.append(Put(TREE, RETIRED, json.dumps(retired).encode()))
        return tuple(writes)
