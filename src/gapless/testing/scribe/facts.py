"""The facts of one run of the multicast service, and what may be said of them at any moment.

Theory of operation
    Who subscribed, what was published and confirmed, what each subscriber was given. Every body is
    published once, so that bodies tell publications apart. What must always hold is checked as it
    happens, so that the trace ends there.

Invariants (`Violation` where broken)
    I1  of an ordered topic each subscriber gets consecutive numbers, from where it was told to
        begin, and is never told that it missed something unless that was allowed
    I2  one number of an ordered topic is one event, for everyone, and no event has two numbers
    I3  the same event of an unordered topic does not come twice; unless its root changed: then its
        publisher may have tried it with both
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.testing.record import Violation

if TYPE_CHECKING:
    from gapless.scribe.identifiers import NodeId, TopicId
    from gapless.scribe.member import RingMember
    from gapless.scribe.messages import TopicRecord

GAPLESS = "an ordered topic has no gap"
AGREED = "one number, one event"
ONCE = "at most once"


@dataclass(slots=True)
class Taken:
    """What one subscription was given, in one life of its node."""

    start: int | None = None
    end: int = 0
    """Ordered: all numbers from `start` to here."""
    bodies: set[bytes] = field(default_factory=set)


class Facts:
    """See the module docstring."""

    def __init__(self, check_every: int = 1) -> None:
        self.records: dict[TopicId, TopicRecord] = {}
        self.wishes: dict[tuple[NodeId, TopicId], Taken] = {}
        self.sent: dict[tuple[NodeId, TopicId, int], bytes] = {}
        self.confirmed: dict[TopicId, set[bytes]] = defaultdict(set)
        self.created: set[TopicId] = set()
        self.logs: dict[TopicId, dict[int, bytes]] = defaultdict(dict)
        self.numbers: dict[bytes, int] = {}
        self.forgotten: set[TopicId] = set()
        """Unordered topics whose replicas all failed at one moment."""
        self.is_troubled = False
        self.troubled: set[bytes] = set()
        """What was published while roots may have changed."""
        self.deliveries = 0
        self.steps = 0
        self._check_every = check_every

    def stepped(self, member: RingMember) -> None:
        self.steps += 1
        if self._check_every and self.steps % self._check_every == 0:
            member.check()

    def ended(self, node: NodeId) -> None:
        """A life is over, and its subscriptions and publications with it."""
        for key in [key for key in self.wishes if key[0] == node]:
            del self.wishes[key]
        for sent in [each for each in self.sent if each[0] == node]:
            del self.sent[sent]

    def subscribed(self, node: NodeId, topic: TopicId) -> None:
        self.wishes[node, topic] = Taken()

    def unsubscribed(self, node: NodeId, topic: TopicId) -> None:
        self.wishes.pop((node, topic), None)

    def published(self, node: NodeId, topic: TopicId, number: int, body: bytes) -> None:
        self.sent[node, topic, number] = body
        if self.is_troubled:
            self.troubled.add(body)

    def answered(self, node: NodeId, topic: TopicId, number: int | None, problem: str) -> None:
        if number is None:
            if not problem:
                self.created.add(topic)
            return
        body = self.sent.pop((node, topic, number))
        if not problem:
            self.confirmed[topic].add(body)

    def begun(self, node: NodeId, topic: TopicId, position: int) -> None:
        taken = self.wishes[node, topic]
        assert taken.start is None, "begun twice"
        taken.start = taken.end = position

    def missed(self, node: NodeId, topic: TopicId, start: int, end: int) -> None:
        raise Violation(GAPLESS, f"{node:x} was told that [{start},{end}) of {topic:x} is lost")

    def delivered(self, node: NodeId, topic: TopicId, number: int, body: bytes) -> None:
        self.deliveries += 1
        taken = self.wishes[node, topic]
        ordered = self.records[topic].ordered
        if body in taken.bodies and (ordered or body not in self.troubled):
            raise Violation(ONCE, f"{node:x} got {body!r} twice")
        taken.bodies.add(body)
        if not ordered:
            return
        if taken.start is None or number != taken.end:
            expected = taken.end if taken.start is not None else "nothing"
            raise Violation(GAPLESS, f"{node:x} got {number} where {expected} was due")
        taken.end += 1
        if self.logs[topic].setdefault(number, body) != body:
            raise Violation(AGREED, f"{number} is {body!r} and {self.logs[topic][number]!r}")
        if self.numbers.setdefault(body, number) != number:
            raise Violation(AGREED, f"{body!r} is {number} and {self.numbers[body]}")
