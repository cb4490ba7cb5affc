"""The world of the multicast service: nodes on a plane, and messages that take their time.

Theory of operation
    Every node can send to every other; how long it takes grows with their distance, which is also
    the proximity that routing tables go by. Messages are lost, doubled, and cut off between the
    sides of a partition. A crash loses all that a node knew: when it comes back it is another life.

Invariants
    I1  nothing arrives at a life of a node to which it was not sent
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

from gapless.core.identity import Instant
from gapless.scribe.effects import Begun, Deliver, MissedRange, RequestOutcome, ToNode
from gapless.scribe.identifiers import Identifier, NodeId, Space
from gapless.scribe.member import RingMember
from gapless.scribe.messages import Routed, Seat
from gapless.testing.stage import Stage

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from gapless.scribe.effects import Effect
    from gapless.scribe.messages import ScribeMessage, TopicRecord
    from gapless.scribe.settings import RingSettings
    from gapless.testing.scribe.facts import Facts
    from gapless.testing.trace import Trace
    from gapless.testing.watch import Watch

PLANE = 1_000
"""How wide the plane is; a unit of distance takes `UNIT_DELAY`."""
UNIT_DELAY = 10
DELAY_MIN = 200


@dataclass(slots=True)
class Place:
    """Where a node is, and the life that it has now, if any."""

    node: NodeId
    x: int
    y: int
    life: int = 0
    member: RingMember | None = None
    wake: Instant | None = None
    seeds: list[NodeId] = field(default_factory=list)


@dataclass(slots=True)
class Troubles:
    """What happens to messages at the moment. Chances are per message."""

    loss: float = 0.0
    duplicate: float = 0.0
    overtake: float = 0.0
    sides: dict[NodeId, int] = field(default_factory=dict)
    """Between different sides nothing passes; who is not listed is on side 0."""


class ScribeWorld(Stage):
    """See the module docstring."""

    def __init__(
        self,
        dice: random.Random,
        trace: Trace,
        facts: Facts,
        settings: RingSettings,
        make: Callable[[Seat, Callable[[NodeId], int]], RingMember] | None = None,
        space: Space | None = None,
    ) -> None:
        super().__init__(dice, trace, cast("Watch", None))  # there are no clients to watch
        self.space = space or Space()
        self.facts = facts
        self.settings = settings
        self.places: dict[NodeId, Place] = {}
        self.troubles = Troubles()
        self.messages = 0
        self.is_traced = True
        self._make = make or self._usual
        self._lives = 0

    def _usual(self, seat: Seat, proximity: Callable[[NodeId], int]) -> RingMember:
        return RingMember(seat, proximity, settings=self.settings, space=self.space)

    # --- nodes -----------------------------------------------------------------------------------

    def add(self, node: NodeId | None = None) -> Place:
        """A place for a node, which is not up yet."""
        if node is None:
            node = NodeId(Identifier(self.dice.getrandbits(self.space.bits)))
        place = Place(node, self.dice.randrange(PLANE), self.dice.randrange(PLANE))
        self.places[node] = place
        return place

    def live(self) -> list[Place]:
        return [place for place in self.places.values() if place.member is not None]

    def active(self) -> list[RingMember]:
        return [p.member for p in self.places.values() if p.member and p.member.is_active]

    def distance(self, one: NodeId, other: NodeId) -> int:
        a, b = self.places[one], self.places[other]
        return abs(a.x - b.x) + abs(a.y - b.y)

    def start(self, place: Place) -> RingMember:
        """A new life; it joins by whom it knew and by nodes that are up, or founds the ring.

        Both: two that knew only each other would wait for each other for ever.
        """
        assert place.member is None
        self._lives += 1
        place.life, place.wake = self._lives, None
        node = place.node
        seeds = [*place.seeds, *self._seeds(node)]
        member = self._make(Seat(node, place.life), lambda other: self.distance(node, other))
        place.member = member
        self.say(f"{self.space.show(node)} starts")
        if seeds:
            self.carry_out(place, member.join(seeds, self.now))
        else:
            self.carry_out(place, member.found(self.now))
        return member

    def _seeds(self, node: NodeId) -> list[NodeId]:
        """Nodes that are up, the nearest of a few first."""
        others = [member.node for member in self.active()]
        chosen = self.dice.sample(others, min(3, len(others)))
        return sorted(chosen, key=lambda other: (self.distance(node, other), other))

    def crash(self, place: Place, *, down_for: int | None = None) -> None:
        if place.member is None:
            return
        self.say(f"{self.space.show(place.node)} crashes")
        place.seeds = place.member.known_nodes
        self._end(place)
        if down_for is not None:
            self.after(down_for, self.come_back, place)

    def leave(self, place: Place) -> None:
        if place.member is None:
            return
        self.say(f"{self.space.show(place.node)} leaves")
        self.carry_out(place, place.member.leave())
        self._end(place)

    def _end(self, place: Place) -> None:
        place.member = None
        self.facts.ended(place.node)

    def come_back(self, place: Place) -> None:
        if place.member is None:
            self.start(place)

    # --- messages --------------------------------------------------------------------------------

    def carry_out(self, place: Place, effects: list[Effect]) -> None:
        facts, node = self.facts, place.node
        for effect in effects:
            match effect:
                case ToNode(to, message):
                    self._send(place, to, message)
                case Deliver(topic, number, body):
                    facts.delivered(node, topic, number, body)
                case Begun(topic, position):
                    facts.begun(node, topic, position)
                case MissedRange(topic, start, end):
                    facts.missed(node, topic, start, end)
                case RequestOutcome(topic, number, problem):
                    facts.answered(node, topic, number, problem)
        self._schedule(place)

    def _send(self, place: Place, to: NodeId, message: ScribeMessage) -> None:
        self.messages += 1
        troubles, dice = self.troubles, self.dice
        receiver = self.places.get(to)
        if receiver is None or receiver.member is None:
            return
        if troubles.sides and troubles.sides.get(place.node, 0) != troubles.sides.get(to, 0):
            return
        if troubles.loss and dice.random() < troubles.loss:
            return
        delay = DELAY_MIN + UNIT_DELAY * self.distance(place.node, to)
        copies = 2 if troubles.duplicate and dice.random() < troubles.duplicate else 1
        for _ in range(copies):
            late = 0
            if troubles.overtake and dice.random() < troubles.overtake:
                late = dice.randrange(10 * PLANE * UNIT_DELAY)
            self.after(delay + late, self._arrive, place.node, receiver, receiver.life, message)

    def _arrive(self, sender: NodeId, place: Place, life: int, message: ScribeMessage) -> None:
        if place.member is None or place.life != life:
            return
        if self.is_traced:
            self.say(f"{self.space.show(place.node)} <- {self.space.show(sender)} {brief(message)}")
        self.carry_out(place, place.member.receive(sender, message, self.now))
        self.facts.stepped(place.member)

    def _schedule(self, place: Place) -> None:
        member = place.member
        if member is None:
            return
        due = max(member.deadline, Instant(self.now + 1))
        if place.wake is None or due < place.wake:
            place.wake = due
            self.at(due, self._wake, place, place.life, due)

    def _wake(self, place: Place, life: int, due: Instant) -> None:
        member = place.member
        if member is None or place.life != life or place.wake != due:
            return
        place.wake = None
        if member.deadline <= self.now:
            self.carry_out(place, member.fire(self.now))
            self.facts.stepped(member)
        else:
            self._schedule(place)

    # --- what users do ---------------------------------------------------------------------------

    def create(self, place: Place, record: TopicRecord) -> None:
        if place.member is not None:
            self.carry_out(place, place.member.create(record, self.now))

    def subscribe(self, place: Place, record: TopicRecord) -> None:
        if place.member is not None:
            self.facts.subscribed(place.node, record.topic)
            effects = place.member.subscribe(record.topic, self.now, ordered=record.ordered)
            self.carry_out(place, effects)

    def unsubscribe(self, place: Place, record: TopicRecord) -> None:
        if place.member is not None:
            self.facts.unsubscribed(place.node, record.topic)
            self.carry_out(place, place.member.unsubscribe(record.topic, self.now))

    def publish(self, place: Place, record: TopicRecord, body: bytes) -> None:
        if place.member is not None:
            number, effects = place.member.publish(
                record.topic, body, self.now, ordered=record.ordered
            )
            self.facts.published(place.node, record.topic, number, body)
            self.carry_out(place, effects)

    def heal(self) -> None:
        self.say("heal")
        self.troubles = Troubles()


def brief(message: ScribeMessage) -> str:
    """One short line about a message."""
    kind = type(message).__name__.lower()
    return f"{kind} {brief_payload(message)}" if isinstance(message, Routed) else kind


def brief_payload(routed: Routed) -> str:
    return type(routed.payload).__name__.lower()
