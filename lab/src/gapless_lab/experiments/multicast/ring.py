"""A large ring that stands from the start, on a transit-stub network; members are the real ones.

Theory of operation
    To let 10,000 nodes join one by one would take most of the time and show nothing new. Here each
    knows its leaf set and has the table that joining leads to (`multicast_tables`). From then on
    messages take the time that the network says, and timers run.

Cost: about 100 microseconds a node to set up, a few kilobytes each.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.core.identity import Instant
from gapless.scribe.effects import Deliver, ToNode
from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.member import RingMember
from gapless.scribe.messages import Seat, TreeEvent
from gapless_lab.experiments.multicast.network import LAN_DELAY
from gapless_lab.experiments.multicast.tables import BITS, NOBODY, draw_tables

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from gapless.scribe.effects import Effect
    from gapless.scribe.messages import ScribeMessage, TopicRecord
    from gapless.scribe.settings import RingSettings
    from gapless_lab.experiments.multicast.network import TransitStub

BORN = 1


class Ring:
    """All members, their places, and what is on its way."""

    def __init__(
        self, count: int, network: TransitStub, settings: RingSettings, dice: random.Random
    ) -> None:
        self.network = network
        self.settings = settings
        self.space = Space()
        self.dice = dice
        self.now = Instant(0)
        self.messages = 0
        self.routers: dict[NodeId, int] = {}
        self.members: dict[NodeId, RingMember] = {}
        self.delivered: dict[bytes, dict[NodeId, int]] = {}
        """By body: who got it, and when."""
        self.on_event: Callable[[NodeId, NodeId], None] | None = None
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._sequence = 0
        self._wakes: dict[NodeId, int] = {}
        while len(self.routers) < count:
            node = NodeId(Identifier(dice.getrandbits(self.space.bits)))
            self.routers[node] = dice.choice(network.stub_routers)
        self.order = sorted(self.routers)
        self._set_up()

    def delay(self, one: NodeId, other: NodeId) -> int:
        """How long a message takes, in microseconds."""
        return 2 * LAN_DELAY + int(self.network.delay[self.routers[one], self.routers[other]])

    # --- the ring as it stands -------------------------------------------------------------------

    def _set_up(self) -> None:
        half, count = self.settings.leaf_set_size // 2, len(self.order)
        for index, node in enumerate(self.order):
            member = RingMember(
                Seat(node, BORN),
                lambda other, node=node: self.delay(node, other),  # type: ignore[misc]
                settings=self.settings,
                space=self.space,
            )
            self.members[node] = member
            for step in range(1, min(half, count // 2) + 1):
                for near in (self.order[(index + step) % count], self.order[index - step]):
                    member.pastry.members.meet(near, BORN, self.now)
        for row in self._tables():
            for member, entries in zip(self.members.values(), row.tolist(), strict=True):
                for entry in entries:
                    if entry != NOBODY:
                        member.pastry.contacts.table.offer(self.order[entry])
        for node, member in self.members.items():
            member.found(self.now)  # what it says to others they know
            self._schedule(node, member)

    def _tables(self) -> list[NDArray[np.int32]]:
        identifiers = [node >> (self.space.bits - BITS) for node in self.order]
        routers = [self.routers[node] for node in self.order]
        return draw_tables(
            np.array(identifiers, dtype=np.uint64),
            np.array(routers, dtype=np.int64),
            self.network.delay,
            np.random.Generator(np.random.PCG64(self.dice.getrandbits(64))),
        )

    def way(self, source: NodeId, key: Identifier) -> list[NodeId]:
        """The nodes that a message for the key visits, as tables are now."""
        visited, near = [source], False
        while True:
            hop, near = self.members[visited[-1]].pastry.contacts.next_hop(key, near=near)
            if hop == visited[-1]:
                return visited
            visited.append(hop)

    def parents(self, record: TopicRecord) -> dict[NodeId, NodeId]:
        """The tree of a topic from its root down, as children tables are now."""
        found: dict[NodeId, NodeId] = {}
        waiting = [self.space.closest(record.topic, self.members)]
        while waiting:
            node = waiting.pop()
            for child in self.members[node].tree.topics[record.topic].children:
                found[child] = node
                waiting.append(child)
        return found

    def subscribers(self, record: TopicRecord) -> list[NodeId]:
        return [
            node
            for node, member in self.members.items()
            if (topic := member.tree.topics.get(record.topic)) is not None and topic.subscribed
        ]

    def subscribe(self, record: TopicRecord, nodes: Iterable[NodeId]) -> None:
        for node in nodes:
            member = self.members[node]
            self.do(node, member.subscribe(record.topic, self.now, ordered=record.ordered))

    # --- what happens ----------------------------------------------------------------------------

    def _at(self, instant: int, action: Callable[..., None], *arguments: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (instant, self._sequence, action, arguments))

    def do(self, node: NodeId, effects: list[Effect]) -> None:
        """Carry out what a member wants."""
        for effect in effects:
            if isinstance(effect, ToNode):
                self.messages += 1
                if effect.node in self.members:
                    due = self.now + self.delay(node, effect.node)
                    self._at(due, self._arrive, node, effect.node, effect.message)
                if self.on_event is not None and isinstance(effect.message, TreeEvent):
                    self.on_event(node, effect.node)
            elif isinstance(effect, Deliver):
                self.delivered.setdefault(effect.body, {})[node] = self.now
        if (member := self.members.get(node)) is not None:
            self._schedule(node, member)

    def _arrive(self, sender: NodeId, node: NodeId, message: ScribeMessage) -> None:
        member = self.members.get(node)
        if member is None:
            return
        self.do(node, member.receive(sender, message, self.now))

    def _schedule(self, node: NodeId, member: RingMember) -> None:
        due = max(member.deadline, self.now + 1)
        if due < self._wakes.get(node, due + 1):
            self._wakes[node] = due
            self._at(due, self._wake, node, due)

    def _wake(self, node: NodeId, due: int) -> None:
        if self._wakes.get(node) != due or node not in self.members:
            return
        del self._wakes[node]
        self.do(node, self.members[node].fire(self.now))

    def run(self, duration: int) -> None:
        """Play everything that happens in so many microseconds."""
        end = self.now + duration
        while self._heap and self._heap[0][0] <= end:
            instant, _, action, arguments = heapq.heappop(self._heap)
            self.now = Instant(instant)
            action(*arguments)
        self.now = Instant(end)

    def fail(self, nodes: list[NodeId]) -> None:
        """These are gone, all at once."""
        for node in nodes:
            del self.members[node]
            self._wakes.pop(node, None)
