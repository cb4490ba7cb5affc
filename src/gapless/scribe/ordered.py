"""Ordered, reliable delivery, built on the three upcalls.

Theory of operation
    `forward` puts an event into the stream of its topic: what is in order is handed out, what is
    new goes on to the children whatever its number, for they order by themselves. `fault` writes
    how far we are into the message that looks for a new parent; there `join` sends what is kept
    from that number on. What still lacks is asked for with every round, up the tree until a node
    keeps it; the answer comes straight back. Only a root that leads the topic's group may say that
    something is gone.

Source: the Scribe paper, section 4.2. Deviation: `Pull`, which the paper does not need as it counts
on TCP between parent and child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gapless.scribe.effects import Begun, Deliver, Effect, MissedRange, ToNode
from gapless.scribe.messages import Gone, Pull

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import Graft, TreeEvent
    from gapless.scribe.topic import TreeTopic

ANSWER_EVENTS_MAX = 64
"""Events sent for one question; a node that lacks more asks again."""


class Ordered:
    """See the module docstring."""

    def forward(self, topic: TreeTopic, event: TreeEvent) -> tuple[TreeEvent | None, list[Effect]]:
        assert topic.stream is not None
        is_new, ready = topic.stream.take(event)
        return event if is_new else None, self._hand_out(topic, ready)

    def _hand_out(self, topic: TreeTopic, ready: list[TreeEvent]) -> list[Effect]:
        if not topic.subscribed:
            return []
        return [Deliver(topic.identifier, event.number, event.body) for event in ready]

    def join(self, topic: TreeTopic, child: NodeId, position: int | None) -> list[Effect]:
        stream = topic.stream
        if position is None or stream is None or stream.position is None:
            return []
        return self._send(topic, child, position, stream.position)

    def _send(self, topic: TreeTopic, node: NodeId, start: int, end: int) -> list[Effect]:
        assert topic.stream is not None
        events = topic.stream.within(start, min(end, start + ANSWER_EVENTS_MAX))
        return [ToNode(node, event) for event in events or ()]

    def fault(self, topic: TreeTopic, subscribe: Graft) -> Graft:
        return msgspec.structs.replace(subscribe, position=topic.position)

    def hear(self, topic: TreeTopic, position: int | None) -> list[Effect]:
        """How far the parent is: where we start, if we had not, or what we may lack."""
        stream = topic.stream
        assert stream is not None
        if position is None:
            return []
        if stream.position is not None:
            stream.learn(position)
            return []
        return self.begin(topic, position)

    def begin(self, topic: TreeTopic, position: int) -> list[Effect]:
        """Start here, and hand out what came early."""
        assert topic.stream is not None
        ready = topic.stream.begin(position)
        if not topic.subscribed:
            return []
        return [Begun(topic.identifier, position), *self._hand_out(topic, ready)]

    def ask(self, topic: TreeTopic, own: NodeId) -> list[Effect]:
        """For what we lack, if there is a parent to ask."""
        if topic.stream is None or topic.parent is None or (gap := topic.stream.lacking) is None:
            return []
        return [ToNode(topic.parent, Pull(topic.identifier, own, *gap))]

    def answer(self, topic: TreeTopic, pull: Pull) -> list[Effect]:
        """From what we keep, or pass the question on."""
        stream = topic.stream
        if stream is None:
            return []
        if stream.within(pull.start, pull.end) is not None:
            return self._send(topic, pull.asker, pull.start, pull.end)
        if topic.leads and pull.start < stream.kept_from:
            return [ToNode(pull.asker, Gone(topic.identifier, stream.kept_from))]
        return [ToNode(topic.parent, pull)] if topic.parent is not None else []

    def skip(self, topic: TreeTopic, start: int) -> list[Effect]:
        """What we lack below `start` is gone."""
        if topic.stream is None:
            return []
        missed, ready = topic.stream.skip(start)
        effects: list[Effect] = []
        if missed is not None and topic.subscribed:
            effects.append(MissedRange(topic.identifier, *missed))
        return effects + self._hand_out(topic, ready)
