"""Neighbourhood: the part of the primary tree that one broker knows.

Theory of operation
    A broker knows the edges within `reach` steps of itself. The tree only grows, at its leaves, so
    a path never changes once it is known. A newcomer gets its edges from the broker it joins, and
    every broker near enough hears of the new edge.
    A broker that is *retired* keeps its place, but distances do not count it: its neighbours are
    next to each other from then on.

Invariants
    I1  no path is longer than `reach`, without those that are retired; the edges are a tree (`add`
        refuses all else)

Cost: paths are computed once per change, a walk over the neighbourhood.

Source: SRDS 2011, sec. I and II.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.errors import ProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.identity import BrokerName
    from gapless.tree.messages import Edge


class Neighbourhood:
    """The brokers nearby, and the way to each along the primary tree."""

    def __init__(self, broker: BrokerName, reach: int, edges: Iterable[Edge] = ()) -> None:
        self.broker = broker
        self._reach = reach
        self._beside: dict[BrokerName, list[BrokerName]] = {broker: []}
        self._paths: dict[BrokerName, tuple[BrokerName, ...]] = {broker: ()}
        self._retired: dict[BrokerName, None] = {}  # an ordered set
        self._far: dict[Edge, None] = {}  # edges too far away to matter now
        self.learn(edges)

    def add(self, old: BrokerName, new: BrokerName) -> bool:
        """A broker joined at `old`; False if that is known, or too far to matter."""
        if new in self._paths or old not in self._paths:
            return False
        if self.steps(old) + (new not in self._retired) > self._reach:
            return False
        self._beside[old].append(new)
        self._beside[new] = [old]
        self._paths[new] = (*self._paths[old], new)
        return True

    def path(self, to: BrokerName) -> tuple[BrokerName, ...]:
        """The way to a known broker: the next broker first, `to` last."""
        if to not in self._paths:
            raise ProtocolError(f"{to} is not in the neighbourhood of {self.broker}")
        return self._paths[to]

    def steps(self, to: BrokerName) -> int:
        """How far away a broker is; those that are retired are not counted."""
        return sum(broker not in self._retired for broker in self._paths[to])

    def within_reach(self, way: Iterable[BrokerName]) -> tuple[BrokerName, ...]:
        """The first brokers of a way that begins here, as many as may be stepped over to."""
        found: list[BrokerName] = []
        left = self._reach
        for broker in way:
            left -= broker not in self._retired
            if left < 0:
                break
            found.append(broker)
        return tuple(found)

    @property
    def retired(self) -> tuple[BrokerName, ...]:
        return tuple(self._retired)

    def is_retired(self, broker: BrokerName) -> bool:
        return broker in self._retired

    def retire(self, names: Iterable[BrokerName]) -> tuple[BrokerName, ...]:
        """Those that are new: they are not counted from now on, so more is within reach."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._retired)
        self._retired.update(dict.fromkeys(new))
        self.learn(tuple(self._far))
        return new

    def further(self, broker: BrokerName) -> list[BrokerName]:
        """The neighbours of `broker` on its far side, as far as they are known."""
        path = self._paths[broker]
        nearer = path[-2] if len(path) > 1 else self.broker
        return [b for b in self._beside[broker] if b != nearer] if path else self._beside[broker]

    def __len__(self) -> int:
        """How many others are known."""
        return len(self._paths) - 1

    def __contains__(self, broker: BrokerName) -> bool:
        return broker in self._paths

    @property
    def edges(self) -> tuple[Edge, ...]:
        """What a driver keeps on disk, so that a restart knows it."""
        return tuple(
            (path[-2] if len(path) > 1 else self.broker, broker)
            for broker, path in self._paths.items()
            if path
        )

    def learn(self, edges: Iterable[Edge]) -> tuple[Edge, ...]:
        """Those of the edges that are new, and near enough to matter; known from now on."""
        new: list[Edge] = []
        left = list(edges)
        while left:
            turned = [(a, b) if a in self._paths else (b, a) for a, b in left]
            added = [edge for edge in turned if self.add(*edge)]
            if not added:
                break
            new += added
            left = [edge for edge in turned if edge not in added]
        self._far = {
            edge: None
            for edge in (*self._far, *left)
            if not (edge[0] in self._paths and edge[1] in self._paths)
        }
        return tuple(new)
