"""The trees of all topics that a node takes part in: subscribing, heartbeats, repair, multicast.

Theory of operation
    A `Graft` is routed towards the topic. The first node on its way takes the sender on as a
    child and ends it there; if it was not in the tree it becomes a forwarder and subscribes itself.
    So the tree is made of the routes, and the node responsible for the topic is its root.
    A parent shows itself to its children by events or heartbeats, a child confirms itself now and
    then. A child whose parent is silent subscribes again; the route leads elsewhere by then. When
    the leaf set changes, roots ask themselves whether they still are, and others whether they are.
    Heartbeats carry the path up to the root. A node that finds itself there is in a circle, and
    lets go of its parent; a node above us is not taken on as a child. So circles do not last. They
    also say whether the root is at its end: only then may subscribers count on the topic. A node
    that has as many children as it takes sends one more to one of them.

Invariants (checked by `check`)
    I1  every topic here has a reason: a subscriber, or a child
    I2  what `TreeTopic` promises: no root has a parent, no node is above itself

Source: the Scribe paper, sections 3 and 4. Deviation: paths; a parent makes itself known at once,
so that nothing has to wait for the first event; one message carries all topics of two nodes; too
many children are never taken on, where Scribe's later bottleneck remover drops one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gapless.core.identity import Instant
from gapless.scribe.effects import Begun, Effect, ToNode
from gapless.scribe.messages import (
    AccessDenied,
    Adopted,
    Divert,
    Graft,
    Heartbeat,
    Prune,
    Refresh,
    TopicBeat,
)
from gapless.scribe.stream import Stream
from gapless.scribe.topic import TreeTopic

if TYPE_CHECKING:
    from gapless.scribe.credentials import Guard
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.messages import Credential, Gone, Pull, TreeEvent
    from gapless.scribe.ordered import Ordered
    from gapless.scribe.pastry import Pastry
    from gapless.scribe.settings import RingSettings
    from gapless.scribe.upcalls import BestEffort, Upcalls

TOPICS_AT_ONCE = 1_000
"""Topics in one message between two nodes; more go into several."""

ItemT = TypeVar("ItemT")
Wanted = tuple["TopicId", bool, int | None]  # as in a `Refresh`


class Tree:
    """See the module docstring."""

    __slots__ = (
        "_best_effort",
        "_guard",
        "_ordered",
        "_own",
        "_pastry",
        "_round_due",
        "_settings",
        "topics",
    )

    def __init__(
        self,
        pastry: Pastry,
        settings: RingSettings,
        guard: Guard,
        best_effort: BestEffort,
        ordered: Ordered,
    ) -> None:
        self._pastry = pastry
        self._own = pastry.seat.node
        self._settings = settings
        self._guard = guard
        self._best_effort = best_effort
        self._ordered = ordered
        self._round_due = Instant(0)
        self.topics: dict[TopicId, TreeTopic] = {}

    # --- what users want -------------------------------------------------------------------------

    def subscribe(
        self, identifier: TopicId, now: Instant, *, ordered: bool, credential: Credential | None
    ) -> list[Effect]:
        topic = self.topics.get(identifier)
        if topic is None:
            topic = self._enter(identifier, ordered, credential, now)
            topic.subscribed = True
            return self._find_parent(topic, now)
        if topic.subscribed:
            return []
        topic.subscribed = True
        if topic.position is not None:
            return [Begun(identifier, topic.position)]
        return self._begin_unordered(topic)

    def unsubscribe(self, identifier: TopicId) -> list[Effect]:
        topic = self.topics.get(identifier)
        if topic is None:
            return []
        topic.subscribed = topic.has_begun = False
        return self._leave_if_idle(topic)

    def _begin_unordered(self, topic: TreeTopic) -> list[Effect]:
        """Tell the subscribers, once, that there is a way down to us."""
        is_due = topic.subscribed and topic.is_rooted and not topic.has_begun
        if topic.stream is not None or not is_due:
            return []
        topic.has_begun = True
        return [Begun(topic.identifier, 0)]

    # --- subscribing -----------------------------------------------------------------------------

    def forward(self, subscribe: Graft, now: Instant) -> tuple[Graft | None, list[Effect]]:
        """A subscription comes by: it ends here unless its sender is above us already."""
        if subscribe.child == self._own:
            return subscribe, []
        topic = self.topics.get(subscribe.topic)
        if topic is not None and subscribe.child in topic.path:
            return subscribe, []
        if topic is None and len(self.topics) >= self._settings.topics_max:
            return subscribe, []
        return None, self._take_on(subscribe, now)

    def deliver(self, subscribe: Graft, now: Instant) -> list[Effect]:
        """A subscription has arrived: we are the root."""
        topic = self.topics.get(subscribe.topic)
        effects = [] if topic is None else self._become_root(topic)
        return effects if subscribe.child == self._own else effects + self._take_on(subscribe, now)

    def _take_on(self, subscribe: Graft, now: Instant) -> list[Effect]:
        identifier, child = subscribe.topic, subscribe.child
        if problem := self._guard.problem(subscribe.credential, identifier, "subscribe"):
            return [ToNode(child, AccessDenied(identifier, problem))]
        topic, effects = self.topics.get(identifier), []
        if topic is None:
            topic = self._enter(identifier, subscribe.ordered, subscribe.credential, now)
            topic.children[child] = self._expiry(now)
            effects = self._find_parent(topic, now)
        elif child not in topic.children and len(topic.children) >= self._settings.children_max:
            return [ToNode(child, Divert(identifier, tuple(topic.children)))]
        topic.children[child] = self._expiry(now)
        adopted = Adopted(identifier, topic.path, topic.position, topic.is_rooted)
        effects.append(ToNode(child, adopted))
        return effects + self._upcalls(topic).join(topic, child, subscribe.position)

    def _enter(
        self, identifier: TopicId, ordered: bool, credential: Credential | None, now: Instant
    ) -> TreeTopic:
        limits = self._settings.buffer_events_max, self._settings.buffer_bytes_max
        stream = Stream(*limits) if ordered else None
        topic = TreeTopic(identifier, stream, credential=credential)
        if not self.topics:
            self._round_due = Instant(now + self._settings.heartbeat)
        topic.refresh_due = Instant(now + self._settings.refresh_every)
        self.topics[identifier] = topic
        return topic

    def _find_parent(self, topic: TreeTopic, now: Instant) -> list[Effect]:
        topic.ask_due = Instant(now + self._settings.subscribe_repeat)
        return self._pastry.route(self._wish(topic), topic.identifier, now)

    def _wish(self, topic: TreeTopic) -> Graft:
        wish = Graft(
            topic.identifier,
            self._own,
            ordered=topic.stream is not None,
            credential=topic.credential,
        )
        return self._upcalls(topic).fault(topic, wish)

    def _become_root(self, topic: TreeTopic) -> list[Effect]:
        parent, was_rooted = topic.parent, topic.is_rooted
        topic.become_root()
        effects = self._begin_unordered(topic)
        if not was_rooted:
            effects += self._show(topic)
        if parent is not None:
            effects.append(ToNode(parent, Prune((topic.identifier,))))
        return effects

    def _show(self, topic: TreeTopic) -> list[Effect]:
        """To the children at once where we stand now: they wait for it."""
        beat = Heartbeat((topic.beat,))
        return [ToNode(child, beat) for child in topic.children]

    def _leave_if_idle(self, topic: TreeTopic) -> list[Effect]:
        if topic.is_needed:
            return []
        del self.topics[topic.identifier]
        if topic.parent is None:
            return []  # a node that takes us on after all is told that we are not here
        return [ToNode(topic.parent, Prune((topic.identifier,)))]

    def _expiry(self, now: Instant) -> Instant:
        return Instant(now + self._settings.child_expiry)

    def _upcalls(self, topic: TreeTopic) -> Upcalls:
        return self._best_effort if topic.stream is None else self._ordered

    # --- messages --------------------------------------------------------------------------------

    def receive_adopted(self, sender: NodeId, adopted: Adopted, now: Instant) -> list[Effect]:
        beat = TopicBeat(adopted.topic, adopted.path, adopted.position, adopted.rooted)
        return self._hear_parent(sender, beat, now, adopts=True)

    def receive_heartbeat(self, sender: NodeId, heartbeat: Heartbeat, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for beat in heartbeat.beats:
            effects += self._hear_parent(sender, beat, now, adopts=False)
        return effects

    def _hear_parent(
        self, sender: NodeId, beat: TopicBeat, now: Instant, *, adopts: bool
    ) -> list[Effect]:
        """A node says that it is our parent. If we do not want that, it is told so."""
        topic = self.topics.get(beat.topic)
        refusal: list[Effect] = [ToNode(sender, Prune((beat.topic,)))]
        if topic is None or topic.is_root:
            return refusal
        if self._own in beat.path or sender in topic.children:
            if topic.parent == sender:
                topic.become_orphan(now)
            return refusal
        before = topic.parent
        if before not in (None, sender) and not adopts:
            return refusal
        was_rooted, position = topic.is_rooted, topic.position
        topic.become_child(sender, beat.path, now, is_rooted=beat.rooted)
        effects = self._begin_unordered(topic)
        if before is not None and before != sender:
            effects.append(ToNode(before, Prune((beat.topic,))))
        if topic.stream is not None:
            effects += self._ordered.hear(topic, beat.position)
        if (position is None and topic.position is not None) or topic.is_rooted > was_rooted:
            effects += self._show(topic)
        return effects

    def receive_subscribe(self, subscribe: Graft, now: Instant) -> list[Effect]:
        """Straight from a node that our parent has sent to us. If it is above us, it asks again."""
        topic = self.topics.get(subscribe.topic)
        if topic is None or subscribe.child in (self._own, *topic.path):
            return []
        return self._take_on(subscribe, now)

    def receive_divert(self, divert: Divert, now: Instant) -> list[Effect]:
        topic = self.topics.get(divert.topic)
        siblings = [node for node in divert.siblings if node != self._own]
        if topic is None or topic.is_root or topic.parent is not None or not siblings:
            return []
        topic.ask_due = Instant(now + self._settings.subscribe_repeat)
        chosen = min(siblings, key=lambda node: (node ^ self._own, node))  # each another
        return [ToNode(chosen, self._wish(topic))]

    def receive_refresh(self, sender: NodeId, refresh: Refresh, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for identifier, ordered, position in refresh.topics:
            topic = self.topics.get(identifier)
            if topic is not None and sender in topic.children:
                topic.children[sender] = self._expiry(now)
            elif topic is None or sender not in topic.path:
                wish = Graft(identifier, sender, ordered=ordered, position=position)
                if not self._guard.problem(None, identifier, "subscribe"):
                    effects += self._take_on(wish, now)
        return effects

    def receive_unsubscribe(self, sender: NodeId, message: Prune) -> list[Effect]:
        effects: list[Effect] = []
        for identifier in message.topics:
            topic = self.topics.get(identifier)
            if topic is not None and topic.children.pop(sender, None) is not None:
                effects += self._leave_if_idle(topic)
        return effects

    def receive_leave(self, sender: NodeId, now: Instant) -> list[Effect]:
        """A parent or a child goes: there is no need to miss it first."""
        effects = self.parent_failed(sender, now)
        for topic in list(self.topics.values()):
            if topic.children.pop(sender, None) is not None:
                effects += self._leave_if_idle(topic)
        return effects

    def parent_failed(self, node: NodeId, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for topic in [each for each in self.topics.values() if each.parent == node]:
            topic.become_orphan(now)
            effects += self._find_parent(topic, now)
        return effects

    def receive_event(self, sender: NodeId, event: TreeEvent, now: Instant) -> list[Effect]:
        topic = self.topics.get(event.topic)
        if topic is None:
            return [ToNode(sender, Prune((event.topic,)))]
        if sender == topic.parent:
            topic.parent_heard = now
        return self.multicast(topic, event, now)

    def multicast(self, topic: TreeTopic, event: TreeEvent, now: Instant) -> list[Effect]:
        """Take an event, and pass it on to the children."""
        onward, effects = self._upcalls(topic).forward(topic, event)
        if onward is not None:
            topic.told = now
            effects = [ToNode(child, onward) for child in topic.children] + effects
        return effects

    def receive_pull(self, pull: Pull) -> list[Effect]:
        topic = self.topics.get(pull.topic)
        return [] if topic is None else self._ordered.answer(topic, pull)

    def receive_gone(self, gone: Gone) -> list[Effect]:
        topic = self.topics.get(gone.topic)
        return [] if topic is None else self._ordered.skip(topic, gone.start)

    def begin(self, topic: TreeTopic, position: int) -> list[Effect]:
        """The root of an ordered topic knows where it stands."""
        return self._ordered.begin(topic, position) + self._show(topic)

    def skip(self, topic: TreeTopic, start: int) -> list[Effect]:
        """The root of an ordered topic finds that what came before is no longer kept."""
        return self._ordered.skip(topic, start)

    # --- time ------------------------------------------------------------------------------------

    @property
    def deadline(self) -> Instant | None:
        return self._round_due if self.topics else None

    def leaves_changed(self, now: Instant) -> list[Effect]:
        """Are we still root where we were, and are we where we were not?"""
        effects: list[Effect] = []
        for topic in self.topics.values():
            responsible = self._pastry.contacts.is_responsible(topic.identifier)
            if responsible and not topic.is_root:
                effects += self._become_root(topic)
            elif topic.is_root and not responsible:
                topic.become_orphan(now)
                effects += self._find_parent(topic, now)
        return effects

    def fire(self, now: Instant) -> list[Effect]:
        if not self.topics or now < self._round_due:
            return []
        self._round_due = Instant(now + self._settings.heartbeat)
        effects: list[Effect] = []
        beats: dict[NodeId, list[TopicBeat]] = {}
        wanted: dict[NodeId, list[Wanted]] = {}
        for topic in list(self.topics.values()):
            for child in [c for c, expiry in topic.children.items() if expiry <= now]:
                del topic.children[child]
            if not topic.is_needed:
                effects += self._leave_if_idle(topic)
                continue
            effects += self._keep_parent(topic, wanted, now) + self._ordered.ask(topic, self._own)
            if now - topic.told >= self._settings.heartbeat:
                beat = topic.beat
                for child in topic.children:
                    beats.setdefault(child, []).append(beat)
        for child, each in beats.items():
            effects += [ToNode(child, Heartbeat(some)) for some in _cut(each)]
        for parent, more in wanted.items():
            effects += [ToNode(parent, Refresh(some)) for some in _cut(more)]
        return effects

    def _keep_parent(
        self, topic: TreeTopic, wanted: dict[NodeId, list[Wanted]], now: Instant
    ) -> list[Effect]:
        """Notice a parent that failed; look for one where there is none; confirm where there is."""
        if topic.is_root:
            return []
        if topic.parent is not None:
            if now - topic.parent_heard < self._settings.parent_dead_after:
                if now >= topic.refresh_due:
                    topic.refresh_due = Instant(now + self._settings.refresh_every)
                    want = (topic.identifier, topic.stream is not None, topic.position)
                    wanted.setdefault(topic.parent, []).append(want)
                return []
            topic.become_orphan(now)
        return self._find_parent(topic, now) if now >= topic.ask_due else []

    def check(self) -> None:
        for topic in self.topics.values():
            assert topic.is_needed, "I1"
            assert len(topic.children) <= self._settings.children_max
            topic.check(self._own)


def _cut(items: list[ItemT]) -> list[tuple[ItemT, ...]]:
    starts = range(0, len(items), TOPICS_AT_ONCE)
    return [tuple(items[start : start + TOPICS_AT_ONCE]) for start in starts]
