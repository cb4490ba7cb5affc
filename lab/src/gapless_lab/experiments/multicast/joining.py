"""How near the entries of routing tables are when nodes really join, one after the other.

Theory of operation
    Large rings start with tables that are made at once: for each cell the nearest of some nodes
    that fit (`tables`). How many those should be is measured here. Real members join a ring, each
    by the node that is nearest to it, and compare rows of their tables with others some times. An
    entry that is nearer than all but a share *p* of the nodes that fit is as good as the nearest of
    1/p - 1 that are drawn at random. Messages take no time; time goes on by rounds of pings, in
    each of which a node compares one row.

Source: Pastry assumes that a newcomer knows a node near it.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gapless.core.identity import Instant
from gapless.scribe.effects import ToNode
from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.member import RingMember
from gapless.scribe.messages import Seat
from gapless.scribe.settings import RingSettings
from gapless_lab.experiments.multicast.network import draw_transit_stub

if TYPE_CHECKING:
    from gapless.scribe.effects import Effect
    from gapless.scribe.messages import ScribeMessage
    from gapless_lab.experiments.multicast.network import Shape

COMPARISONS = 12
"""Rows that each node compares with another node, after all have joined."""
SAMPLE = 300
"""Nodes whose entries are looked at."""
ROW = 0


class JoiningRing:
    """Real members; messages arrive in the order in which they were sent."""

    def __init__(self, shape: Shape, seed: str) -> None:
        self.dice = random.Random(seed)
        self.network = draw_transit_stub(self.dice, shape)
        self.space = Space()
        self.members: dict[NodeId, RingMember] = {}
        self.routers: dict[NodeId, int] = {}
        usual = RingSettings()
        self._settings = replace(usual, table_every=usual.ping_every)
        self._under_way: deque[tuple[NodeId, NodeId, ScribeMessage]] = deque()
        self._now = Instant(0)

    def delay(self, one: NodeId, other: NodeId) -> int:
        return int(self.network.delay[self.routers[one], self.routers[other]])

    def join(self) -> None:
        """One more node, by the nearest one."""
        node = NodeId(Identifier(self.dice.getrandbits(self.space.bits)))
        self.routers[node] = self.dice.choice(self.network.stub_routers)
        member = RingMember(
            Seat(node, 1),
            lambda other: self.delay(node, other),
            settings=self._settings,
            space=self.space,
        )
        seed = min(self.members, key=lambda each: self.delay(node, each), default=None)
        self.members[node] = member
        first = member.found(self._now) if seed is None else member.join([seed], self._now)
        self._do(node, first)
        assert member.is_active, "every message arrives, so it is let in"

    def compare(self) -> None:
        """Each node shows a row of its table to one node of that row."""
        self._now = Instant(self._now + self._settings.ping_every)
        for node, member in self.members.items():
            self._do(node, member.fire(self._now))

    def _do(self, node: NodeId, effects: list[Effect]) -> None:
        rest = [(node, each) for each in effects]
        while rest or self._under_way:
            for sender, effect in rest:
                if isinstance(effect, ToNode) and effect.node in self.members:
                    self._under_way.append((sender, effect.node, effect.message))
            if not self._under_way:
                return
            sender, to, message = self._under_way.popleft()
            rest = [(to, each) for each in self.members[to].receive(sender, message, self._now)]

    def candidates(self) -> float:
        """The entries of the first row are as near as the nearest of so many drawn at random."""
        order = list(self.members)
        routers = np.array([self.routers[node] for node in order])
        digits = np.array([self.space.digit(node, ROW) for node in order])
        shares = []
        for node in self.dice.sample(order, min(SAMPLE, len(order))):
            far = self.network.delay[self.routers[node], routers]
            for entry in self.members[node].pastry.contacts.table.row(ROW):
                fit = far[digits == self.space.digit(entry, ROW)]
                own = self.delay(node, entry)
                shares.append(((fit < own).sum() + (fit == own).sum() / 2) / len(fit))
        return 1 / float(np.mean(shares)) - 1


def measure_joining(nodes: int, shape: Shape, seed: str) -> list[float]:
    """As how many candidates entries count: when all have joined, and after comparisons."""
    ring = JoiningRing(shape, seed)
    for _ in range(nodes):
        ring.join()
    found = [ring.candidates()]
    for _ in range(COMPARISONS):
        ring.compare()
    return [round(each, 1) for each in (*found, ring.candidates())]
