"""A few members, with nothing between them but a queue: what is sent arrives, in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from gapless.core.identity import Instant
from gapless.scribe.effects import Effect, ToNode
from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.member import RingMember
from gapless.scribe.messages import Seat
from gapless.scribe.settings import RingSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.scribe.credentials import Guard
    from gapless.scribe.messages import ScribeMessage

SECOND = 1_000_000
STEPS_MAX = 100_000


class Stand:
    """Members by node id; `done` has what each wanted done besides sending."""

    def __init__(
        self,
        settings: RingSettings | None = None,
        space: Space | None = None,
        proximity: Callable[[NodeId, NodeId], int] = lambda one, other: (one ^ other) % 101,
        guard: Guard | None = None,
    ) -> None:
        self.settings = settings or RingSettings()
        self.space = space or Space()
        self.now = Instant(0)
        self.members: dict[NodeId, RingMember] = {}
        self.done: list[tuple[NodeId, Effect]] = []
        self.sent: list[tuple[NodeId, NodeId, ScribeMessage]] = []
        self.is_lost: Callable[[NodeId, NodeId, ScribeMessage], bool] = lambda *_: False
        self._proximity = proximity
        self._guard = guard
        self._queue: deque[tuple[NodeId, NodeId, ScribeMessage]] = deque()
        self._born = 0

    def add(self, value: int, *, joins: bool = True) -> RingMember:
        node = NodeId(Identifier(value))
        self._born += 1
        member = RingMember(
            Seat(node, self._born),
            lambda other: self._proximity(node, other),
            settings=self.settings,
            space=self.space,
            guard=self._guard,
        )
        others = list(self.members)
        self.members[node] = member
        if joins and others:
            self.do(node, member.join(others[:1], self.now))
            self.run(1)
        else:
            self.do(node, member.found(self.now))
        return member

    def do(self, node: NodeId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, ToNode):
                self.sent.append((node, effect.node, effect.message))
                self._queue.append((node, effect.node, effect.message))
            else:
                self.done.append((node, effect))

    def settle(self) -> None:
        """Everything that is on its way arrives."""
        for _ in range(STEPS_MAX):
            if not self._queue:
                return
            sender, to, message = self._queue.popleft()
            member = self.members.get(to)
            if member is not None and not self.is_lost(sender, to, message):
                self.do(to, member.receive(sender, message, self.now))
                member.check()
        raise AssertionError("it does not come to rest")

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = Instant(self.now + int(seconds * SECOND))
        for _ in range(STEPS_MAX):
            self.settle()
            due = min((member.deadline for member in self.members.values()), default=end)
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            for node, member in list(self.members.items()):
                if member.deadline <= self.now:
                    self.do(node, member.fire(self.now))
                    member.check()
        raise AssertionError("time does not pass")

    def crash(self, node: NodeId) -> None:
        del self.members[node]

    def closest(self, key: int) -> NodeId:
        return self.space.closest(key, self.members)
