"""One node of the multicast service: ring, trees, roots and publications in one machine.

Theory of operation
    Messages come in by `receive` and time by `fire`; what is to be done comes out. `deadline` says
    when to call `fire` at the latest. A member keeps nothing on disk: one that comes back is new,
    joins by nodes it knew before (`known_nodes`), and has another `born`.

Invariants: those of its parts, see `check`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.scribe import messages as m
from gapless.scribe.credentials import Guard
from gapless.scribe.effects import Effect, RequestOutcome, ToNode
from gapless.scribe.identifiers import Space
from gapless.scribe.parts import RingParts
from gapless.scribe.pastry import RingPhase
from gapless.scribe.publishing import Publishing
from gapless.scribe.roots import Roots
from gapless.scribe.settings import RingSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.identity import Instant
    from gapless.scribe.identifiers import Identifier, NodeId, TopicId


class RingMember:
    """See the module docstring."""

    __slots__ = ("_changes", "_publishing", "pastry", "roots", "tree")

    def __init__(
        self,
        seat: m.Seat,
        proximity: Callable[[NodeId], int],
        *,
        settings: RingSettings | None = None,
        space: Space | None = None,
        guard: Guard | None = None,
        parts: RingParts | None = None,
    ) -> None:
        settings, guard, parts = settings or RingSettings(), guard or Guard(), parts or RingParts()
        self.pastry = parts.pastry(seat, self, settings, space or Space(), proximity)
        self.tree = parts.tree(self.pastry, settings, guard, parts.best_effort(), parts.ordered())
        self.roots = Roots(self.pastry, self.tree, settings, guard, parts.group)
        self._publishing = Publishing(self.pastry, settings)
        self._changes = 0

    # --- what users want -------------------------------------------------------------------------

    @property
    def node(self) -> NodeId:
        return self.pastry.seat.node

    @property
    def is_active(self) -> bool:
        return self.pastry.phase is RingPhase.ACTIVE

    @property
    def known_nodes(self) -> list[NodeId]:
        """Nodes to join by, after coming back."""
        return list(self.pastry.contacts.leaves.members)

    def found(self, now: Instant) -> list[Effect]:
        return self._settle(self.pastry.found(now), now)

    def join(self, seeds: Iterable[NodeId], now: Instant) -> list[Effect]:
        return self._settle(self.pastry.join(seeds, now), now)

    def join_too(self, seed: NodeId, now: Instant) -> list[Effect]:
        """Ask another one, besides those we know; if we are in a ring already, it may be apart."""
        return self._settle(self.pastry.join_too(seed, now), now)

    def suspect(self, node: NodeId, now: Instant) -> list[Effect]:
        """A link to a node broke. If we count on it, see whether it is still there."""
        is_near = node in self.pastry.contacts.leaves
        if not is_near and all(topic.parent != node for topic in self.tree.topics.values()):
            return []
        return self._settle(self.pastry.suspect(node, now), now)

    def leave(self) -> list[Effect]:
        """Go in good order: parents, children and the leaf set need not find out."""
        trees = {
            node
            for topic in self.tree.topics.values()
            for node in (topic.parent, *topic.children)
            if node is not None
        }
        leaves = self.pastry.leave()
        told = {effect.node for effect in leaves if isinstance(effect, ToNode)}
        return [*leaves, *(ToNode(node, m.Leave()) for node in sorted(trees - told))]

    def create(
        self, record: m.TopicRecord, now: Instant, credential: m.Credential | None = None
    ) -> list[Effect]:
        """An `RequestOutcome` without a number says what became of it; ask again if none comes."""
        create = m.Create(record, self.node, credential)
        return self._settle(self.pastry.route(create, record.topic, now), now)

    def subscribe(
        self,
        topic: TopicId,
        now: Instant,
        *,
        ordered: bool = False,
        credential: m.Credential | None = None,
    ) -> list[Effect]:
        effects = self.tree.subscribe(topic, now, ordered=ordered, credential=credential)
        return self._settle(effects, now)

    def unsubscribe(self, topic: TopicId, now: Instant) -> list[Effect]:
        return self._settle(self.tree.unsubscribe(topic), now)

    def publish(
        self,
        topic: TopicId,
        body: bytes,
        now: Instant,
        *,
        ordered: bool = False,
        credential: m.Credential | None = None,
    ) -> tuple[int, list[Effect]]:
        """Its number, by which an `RequestOutcome` comes."""
        number, effects = self._publishing.publish(
            topic, body, now, ordered=ordered, credential=credential
        )
        return number, self._settle(effects, now)

    @property
    def publish_room(self) -> int:
        """How many more publications may wait for an answer."""
        return self._publishing.room

    def forget(self, topic: TopicId, now: Instant) -> list[Effect]:
        """The topic is no more: neither its subscribers here nor what we know as its root."""
        self.roots.forget(topic)
        answers = self._publishing.forget(topic)
        return [*answers, *self.unsubscribe(topic, now)]

    # --- messages and time -----------------------------------------------------------------------

    def receive(self, sender: NodeId, message: m.ScribeMessage, now: Instant) -> list[Effect]:
        return self._settle(self._receive(sender, message, now), now)

    def _receive(self, sender: NodeId, message: m.ScribeMessage, now: Instant) -> list[Effect]:
        match message:
            case (
                m.TreeEvent()
                | m.Heartbeat()
                | m.Adopted()
                | m.Divert()
                | m.Graft()
                | m.Refresh()
                | m.Prune()
                | m.Pull()
                | m.Gone()
                | m.AccessDenied()
            ):
                return self._receive_in_tree(sender, message, now)
            case m.TopicCreated(topic, problem):
                return [RequestOutcome(topic, None, problem)]
            case m.RootPublication():
                return self.roots.publish(message, now) if self.is_active else []
            case m.Published():
                return self._publishing.receive(sender, message)
            case m.Replica():
                return self.roots.receive_replica(sender, message)
            case (
                m.Prepare()
                | m.Promise()
                | m.Outvoted()
                | m.Accept()
                | m.LogAppend()
                | m.Appended()
                | m.Hint()
                | m.Retired()
            ):
                return self.roots.receive_group(sender, message, now)
            case m.Leave():
                left = self.pastry.receive(sender, message, now)
                return left + self.tree.receive_leave(sender, now)
            case _:
                return self.pastry.receive(sender, message, now)

    def _receive_in_tree(
        self, sender: NodeId, message: m.BranchMessage, now: Instant
    ) -> list[Effect]:
        match message:
            case m.TreeEvent():
                return self.tree.receive_event(sender, message, now)
            case m.Heartbeat():
                return self.tree.receive_heartbeat(sender, message, now)
            case m.Adopted():
                return self.tree.receive_adopted(sender, message, now)
            case m.Divert():
                return self.tree.receive_divert(message, now)
            case m.Graft():
                return self.tree.receive_subscribe(message, now)
            case m.Refresh():
                return self.tree.receive_refresh(sender, message, now)
            case m.Prune():
                return self.tree.receive_unsubscribe(sender, message)
            case m.Pull():
                return self.tree.receive_pull(message)
            case m.Gone():
                return self.tree.receive_gone(message)
            case m.AccessDenied(topic, problem):
                return [*self.tree.unsubscribe(topic), RequestOutcome(topic, None, problem)]

    @property
    def deadline(self) -> Instant:
        due = self.pastry.deadline
        if not self.is_active:
            return due
        for other in (self.tree.deadline, self.roots.deadline, self._publishing.deadline):
            if other is not None and other < due:
                due = other
        return due

    def fire(self, now: Instant) -> list[Effect]:
        effects = self.pastry.fire(now)
        if self.is_active:
            effects += self.tree.fire(now) + self.roots.fire(now) + self._publishing.fire(now)
        return self._settle(effects, now)

    def _settle(self, effects: list[Effect], now: Instant) -> list[Effect]:
        """Follow up on changes of the leaf set; take in what is for ourselves."""
        out: list[Effect] = []
        while True:
            if self._changes != self.pastry.members.changes and self.is_active:
                self._changes = self.pastry.members.changes
                effects = effects + self.tree.leaves_changed(now)
            own: list[Effect] = []
            for effect in effects:
                if isinstance(effect, ToNode) and effect.node == self.node:
                    own += self._receive(self.node, effect.message, now)
                else:
                    out.append(effect)
            if not own:
                return out
            effects = own

    # --- the ring calls --------------------------------------------------------------------------

    def forward(
        self, payload: m.Payload, key: Identifier, hop: NodeId, now: Instant
    ) -> tuple[m.Payload | None, list[Effect]]:
        if isinstance(payload, m.Graft):
            return self.tree.forward(payload, now)
        return payload, []

    def failed(self, node: NodeId, now: Instant) -> list[Effect]:
        return self.tree.parent_failed(node, now)

    def deliver(self, payload: m.Payload, key: Identifier, now: Instant) -> list[Effect]:
        match payload:
            case m.Graft():
                return self.tree.deliver(payload, now) + self.roots.joined(payload.topic, now)
            case m.Create():
                return self.roots.create(payload, now)
            case m.RootPublication():
                return self.roots.publish(payload, now)
            case m.RingJoin():
                raise AssertionError("joins are the ring's own business")

    def check(self) -> None:
        self.pastry.check()
        self.tree.check()
        self.roots.check()
        self._publishing.check()
