"""Publications of one node that their roots have not confirmed yet.

Theory of operation
    Each topic's publications are numbered from 1. They go straight to the root, once its address
    is known from an answer, and by a route before, and again whenever no answer comes. The root
    tells repeats by their numbers. One to an ordered topic is repeated for as long as it takes; the
    others are given up after a few times.

Invariants (checked by `check`)
    I1  at most `publish_pending_max` wait for an answer, of at most `publish_topics_max` topics
    I2  those that wait are kept in the order in which they are due, and by topic as numbered
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.errors import UsageError
from gapless.core.identity import Instant
from gapless.scribe.effects import Effect, RequestOutcome, ToNode
from gapless.scribe.messages import RootPublication

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.messages import Credential, Published
    from gapless.scribe.pastry import Pastry
    from gapless.scribe.settings import RingSettings


@dataclass(slots=True)
class PendingPublication:
    """One publication that is not confirmed."""

    body: bytes
    credential: Credential | None
    ordered: bool
    due: Instant
    attempt: int = 1


class Publishing:
    """See the module docstring."""

    __slots__ = ("_last", "_open", "_pastry", "_pending", "_roots", "_settings")

    def __init__(self, pastry: Pastry, settings: RingSettings) -> None:
        self._pastry = pastry
        self._settings = settings
        self._last: dict[TopicId, int] = {}
        self._pending: dict[
            tuple[TopicId, int], PendingPublication
        ] = {}  # in the order in which it is due
        self._open: dict[TopicId, dict[int, None]] = {}  # the numbers of each, in order
        self._roots: dict[TopicId, NodeId] = {}

    def publish(
        self,
        topic: TopicId,
        body: bytes,
        now: Instant,
        *,
        ordered: bool,
        credential: Credential | None,
    ) -> tuple[int, list[Effect]]:
        """Its number, by which an `RequestOutcome` will come."""
        if len(self._pending) >= self._settings.publish_pending_max:
            raise UsageError(
                f"{len(self._pending)} publications wait for an answer",
                "Wait until some are answered, then publish this one.",
            )
        if topic not in self._last and len(self._last) >= self._settings.publish_topics_max:
            raise UsageError(
                f"this node has published to {len(self._last)} topics, as many as it may",
                "Publish to this one through another node, or raise multicast_topics_max.",
            )
        number = self._last[topic] = self._last.get(topic, 0) + 1
        pending = PendingPublication(body, credential, ordered, self._due(now))
        self._pending[topic, number] = pending
        self._open.setdefault(topic, {})[number] = None
        return number, self._send(topic, number, pending, now)

    @property
    def room(self) -> int:
        return self._settings.publish_pending_max - len(self._pending)

    def _due(self, now: Instant) -> Instant:
        return Instant(now + self._settings.publish_repeat)

    def _send(
        self, topic: TopicId, number: int, pending: PendingPublication, now: Instant
    ) -> list[Effect]:
        oldest = next(iter(self._open[topic]))
        publication = RootPublication(
            topic, self._pastry.seat, number, oldest, pending.body, pending.credential
        )
        root = self._roots.get(topic)
        if root is None or root == self._pastry.seat.node:
            return self._pastry.route(publication, topic, now)
        return [ToNode(root, publication)]

    def receive(self, sender: NodeId, published: Published) -> list[Effect]:
        topic, number = published.topic, published.number
        pending = self._pending.get((topic, number))
        if pending is None or published.source != self._pastry.seat:
            return []
        if published.problem and not published.final:
            self._roots.pop(topic, None)
            return []  # it may come to know the topic yet
        if not published.problem:
            self._roots[topic] = sender
        self._end(topic, number)
        return [RequestOutcome(topic, number, published.problem, published.position)]

    def _end(self, topic: TopicId, number: int) -> PendingPublication:
        del self._open[topic][number]
        if not self._open[topic]:
            del self._open[topic]
        return self._pending.pop((topic, number))

    def forget(self, topic: TopicId) -> list[Effect]:
        """The topic is no more."""
        self._roots.pop(topic, None)
        numbers = list(self._open.get(topic, ()))
        for number in numbers:
            self._end(topic, number)
        return [
            RequestOutcome(topic, number, "the topic was deleted; use another")
            for number in numbers
        ]

    @property
    def deadline(self) -> Instant | None:
        return next((pending.due for pending in self._pending.values()), None)

    def fire(self, now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        due = [key for key, pending in self._pending.items() if pending.due <= now]
        for topic, number in due:
            self._roots.pop(topic, None)  # it does not answer: ask the ring
            pending = self._pending.pop((topic, number))
            self._pending[topic, number] = pending  # it will be the last that is due
            if not pending.ordered and pending.attempt >= self._settings.publish_attempts_max:
                self._end(topic, number)
                problem = "the root of the topic did not answer; try again later"
                effects.append(RequestOutcome(topic, number, problem))
                continue
            pending.attempt += 1
            pending.due = self._due(now)
            effects += self._send(topic, number, pending, now)
        return effects

    def check(self) -> None:
        assert len(self._pending) <= self._settings.publish_pending_max, "I1"
        assert sum(map(len, self._open.values())) == len(self._pending), "I2"
        dues = [pending.due for pending in self._pending.values()]
        assert dues == sorted(dues), "I2"
        assert len(self._roots) <= len(self._last) <= self._settings.publish_topics_max, "I1"
