"""Trees with failed brokers, as graphs: who is cut off, how much a broker knows, whom it talks to.

Theory of operation
    The paper's fanout is the number of neighbours of a broker. Live brokers are linked if all
    between them, at most δ, have failed: that is what active sessions come to once everybody has
    noticed. Two live brokers are disconnected if more than δ in a row have failed on the path
    between them: messages keep to the path, and do not go round by a third that both could reach.

Source: SRDS 2011, sec. IX-A, IX-C, IX-D; figures 9, 11 and 12.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName
from gapless.tree.connections import Reach
from gapless.tree.frontier import explore
from gapless.tree.neighbourhood import Neighbourhood

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from gapless.tree.messages import Edge


def tree(count: int, fanout: int) -> tuple[Edge, ...]:
    """Filled level by level; everybody but the last has `fanout` neighbours."""
    edges: list[Edge] = []
    parent, room = 0, fanout
    for child in range(1, count):
        edges.append((BrokerName(f"b{parent}"), BrokerName(f"b{child}")))
        room -= 1
        if not room:
            parent, room = parent + 1, fanout - 1
    return tuple(edges)


def random_tree(count: int, neighbours_max: int, dice: random.Random) -> tuple[Edge, ...]:
    """Each broker joins at a random one that has room."""
    edges: list[Edge] = []
    beside, with_room = [0] * count, [0]
    for child in range(1, count):
        parent = dice.choice(with_room)
        edges.append((BrokerName(f"b{parent}"), BrokerName(f"b{child}")))
        beside[parent] += 1
        beside[child] += 1
        if beside[parent] >= neighbours_max:
            with_room.remove(parent)
        if beside[child] < neighbours_max:
            with_room.append(child)
    return tuple(edges)


def brokers_of(edges: tuple[Edge, ...]) -> list[BrokerName]:
    return list(dict.fromkeys(broker for edge in edges for broker in edge))


class Graph:
    """A tree and, for each broker, those beside it."""

    def __init__(self, edges: tuple[Edge, ...]) -> None:
        self.brokers = brokers_of(edges)
        self.beside: dict[BrokerName, list[BrokerName]] = {broker: [] for broker in self.brokers}
        for one, other in edges:
            self.beside[one].append(other)
            self.beside[other].append(one)

    def linked(
        self, broker: BrokerName, failed: Collection[BrokerName], bypassed_max: int
    ) -> list[BrokerName]:
        """The live brokers next to a live one, over at most so many failed ones."""
        found: list[BrokerName] = []
        layer = [(broker, neighbour) for neighbour in self.beside[broker]]
        for _ in range(bypassed_max + 1):
            found += [there for _, there in layer if there not in failed]
            layer = [
                (there, beyond)
                for here, there in layer
                if there in failed
                for beyond in self.beside[there]
                if beyond != here
            ]
        return found

    def disconnected_share(self, failed: Collection[BrokerName], bypassed_max: int) -> float:
        """Which share of the pairs of live brokers cannot reach each other along the tree?"""
        live = len(self.brokers) - len(failed)
        pairs = live * (live - 1) / 2
        return 1 - self._connected_pairs(failed, bypassed_max) / pairs if pairs else 0.0

    def _connected_pairs(self, failed: Collection[BrokerName], bypassed_max: int) -> int:
        """Pairs with no more than so many failed in a row on the path: counted at its top.

        For each broker, from the leaves up: how many live ones below can come as far as this one,
        by how many have failed at the near end of their way, it included.
        """
        above: dict[BrokerName, BrokerName] = {}
        order = [self.brokers[0]]
        for broker in order:
            below = [b for b in self.beside[broker] if b != above.get(broker)]
            above.update(dict.fromkeys(below, broker))
            order += below
        coming = {b: [0] * (bypassed_max + 1) for b in self.brokers}
        pairs = 0
        for broker in reversed(order):
            is_live = broker not in failed
            met = [int(is_live)] + [0] * bypassed_max
            for other in self.beside[broker]:
                if other == above.get(broker):
                    continue
                new = coming[other]
                pairs += sum(
                    many * few
                    for one, many in enumerate(met)
                    for two, few in enumerate(new)
                    if is_live or one + 1 + two <= bypassed_max
                )
                met = [many + few for many, few in zip(met, new, strict=True)]
            coming[broker] = [sum(met)] + [0] * bypassed_max if is_live else [0, *met[:-1]]
        return pairs

    def known_counts(self, steps: int) -> list[int]:
        """For each broker, how many are not further than so many steps."""
        return [len(self._within(broker, steps)) for broker in self.brokers]

    def _within(self, broker: BrokerName, steps: int) -> list[BrokerName]:
        found: list[BrokerName] = []
        layer = [(broker, neighbour) for neighbour in self.beside[broker]]
        for _ in range(steps):
            found += [there for _, there in layer]
            layer = [(b, c) for a, b in layer for c in self.beside[b] if c != a]
        return found


def draw_failed(dice: random.Random, graph: Graph, count: int) -> frozenset[BrokerName]:
    return frozenset(dice.sample(graph.brokers, count))


def active_counts(
    edges: tuple[Edge, ...], failed: Collection[BrokerName], failures_tolerated: int
) -> list[int]:
    """For each live broker, how many active sessions it has: by the frontier of the machine."""
    reach = failures_tolerated + 1
    return [
        len(
            explore(
                Neighbourhood(broker, reach, edges),
                lambda other: Reach.FAILED if other in failed else Reach.UP,
            ).active
        )
        for broker in brokers_of(edges)
        if broker not in failed
    ]
