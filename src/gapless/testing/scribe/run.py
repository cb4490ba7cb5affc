"""One run of the multicast service: a ring grows, lives through faults, is healed, and judged.

Theory of operation
    Nodes join, topics are created, some nodes subscribe. Then for a while faults strike while
    events are published and interests change; what must always hold is checked as it happens. Then
    everything is healed: leaf sets, routes and trees must become right, every ordered event that
    was confirmed must have arrived, and one more event to each topic must reach all its
    subscribers. Every wait is bounded in virtual time, and every virtual second in steps.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.errors import GaplessError
from gapless.core.identity import Instant
from gapless.scribe.identifiers import Identifier
from gapless.scribe.member import RingMember
from gapless.scribe.messages import TopicRecord
from gapless.testing.record import Violation
from gapless.testing.scribe import checkers
from gapless.testing.scribe.facts import Facts
from gapless.testing.scribe.options import SECOND, draw_scribe_options
from gapless.testing.scribe.world import Place, ScribeWorld
from gapless.testing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.scribe.effects import Effect
    from gapless.scribe.identifiers import NodeId
    from gapless.scribe.messages import Payload, Seat
    from gapless.scribe.parts import RingParts
    from gapless.testing.scribe.options import ScribeOptions

PATIENCE = 20 * SECOND
"""How long a healed ring may take to become right, in virtual time."""


@dataclass(slots=True)
class ScribeOutcome:
    """What came of a run."""

    options: ScribeOptions
    violation: str = ""
    digest: str = ""
    steps: int = 0
    messages: int = 0
    deliveries: int = 0
    standing_still: int = 0
    """Ordered topics that lost the majority of a group."""
    healed_after: int = 0
    last: list[str] = field(default_factory=list)


def simulate_scribe(
    seed: int,
    *,
    parts: RingParts | None = None,
    out: Callable[[str], object] | None = None,
) -> ScribeOutcome:
    """Play the run of this seed; with other `parts` for members, to see that faults are found."""
    dice = random.Random(f"scribe {seed}")
    options = draw_scribe_options(seed, dice)
    trace = Trace(out)
    outcome = ScribeOutcome(options)
    run = ScribeRun(options, dice, trace, parts)
    try:
        run.play(outcome)
    except (Violation, AssertionError, GaplessError) as error:
        outcome.violation = str(error) if isinstance(error, Violation) else f"{error!r}"
    outcome.digest = trace.digest
    outcome.steps = run.facts.steps
    outcome.messages = run.world.messages
    outcome.deliveries = run.facts.deliveries
    outcome.last = list(trace.last)
    return outcome


class ScribeRun:
    """See the module docstring."""

    def __init__(
        self,
        options: ScribeOptions,
        dice: random.Random,
        trace: Trace,
        parts: RingParts | None,
    ) -> None:
        self.options = options
        self.dice = dice
        self.facts = Facts(check_every=10)
        self._parts = parts
        self.world = ScribeWorld(dice, trace, self.facts, options.settings, self._make)
        self._bodies = 0
        self._is_strict = options.is_calm

    def _make(self, seat: Seat, proximity: Callable[[NodeId], int]) -> RingMember:
        member = WatchedMember(
            seat,
            proximity,
            settings=self.options.settings,
            space=self.world.space,
            parts=self._parts,
        )
        member.arrived = self._arrived if self.options.is_calm else None
        return member

    def _arrived(self, node: NodeId, key: Identifier) -> None:
        """Where only adjacent nodes fail, too few to matter, every message finds the closest."""
        closest = self.world.space.closest(key, [member.node for member in self.world.active()])
        if node != closest and self._is_strict:
            show = self.world.space.show
            raise Violation(checkers.ARRIVES, f"{show(key)} came to {show(node)}")

    # --- the play --------------------------------------------------------------------------------

    def play(self, outcome: ScribeOutcome) -> None:
        self._grow()
        self._wait_until_right()
        self._create_topics()
        world, options = self.world, self.options
        for _ in range(options.wishes):
            self._subscribe()
        world.run(2 * SECOND)
        self.facts.is_troubled = True
        self._plan_faults()
        for _ in range(options.publications):
            world.after(self.dice.randrange(options.duration), self._publish)
        for _ in range(options.wishes // 2):
            world.after(self.dice.randrange(options.duration), self._change_mind)
        self._run(options.duration)
        world.heal()
        self._is_strict = False  # newcomers change who is closest while messages are on their way
        for place in world.places.values():
            if place.member is None and self.dice.random() < 0.5:
                world.start(place)
        healed = world.now
        self._wait_until_right()
        outcome.healed_after = world.now - healed
        self.facts.is_troubled = False
        self._reach_everyone()
        ordered = [topic for topic, record in self.facts.records.items() if record.ordered]
        outcome.standing_still = sum(checkers.is_lost(world, topic) for topic in ordered)

    def _run(self, duration: int) -> None:
        """In short pieces: each may take a bounded number of steps."""
        end = self.world.now + duration
        while self.world.now < end:
            self.world.run(min(SECOND // 5, end - self.world.now))

    def _grow(self) -> None:
        for _ in range(self.options.nodes):
            self.world.start(self.world.add())
            self.world.run(self.dice.choice((1, 20, 300)) * 1_000)

    def _create_topics(self) -> None:
        world = self.world
        for index in range(self.options.topics):
            topic = world.space.topic_id(f"t{index}", "swarm")
            record = TopicRecord(topic, "swarm", ordered=index < self.options.ordered)
            self.facts.records[topic] = record
            world.create(self._someone(), record)
        for _ in range(20):
            world.run(SECOND // 5)
            if len(self.facts.created) == self.options.topics:
                return
        raise Violation("topics are created", "some were not")

    def _someone(self) -> Place:
        return self.dice.choice([p for p in self.world.live() if p.member and p.member.is_active])

    def _record(self) -> TopicRecord:
        return self.dice.choice(list(self.facts.records.values()))

    def _subscribe(self) -> None:
        place, record = self._someone(), self._record()
        if (place.node, record.topic) not in self.facts.wishes:
            self.world.subscribe(place, record)

    def _change_mind(self) -> None:
        if self.dice.random() < 0.5 and self.facts.wishes:
            node, topic = self.dice.choice(list(self.facts.wishes))
            self.world.unsubscribe(self.world.places[node], self.facts.records[topic])
        else:
            self._subscribe()

    def _publish(self) -> None:
        self._bodies += 1
        self.world.publish(self._someone(), self._record(), f"e{self._bodies}".encode())

    # --- faults ----------------------------------------------------------------------------------

    def _plan_faults(self) -> None:
        options, dice, world = self.options, self.dice, self.world
        world.troubles.loss = options.loss
        world.troubles.duplicate = options.duplicate
        world.troubles.overtake = options.overtake
        half = options.duration // 2
        if options.is_calm:
            world.after(half, self._fail_adjacent)
        if options.churn:
            world.after(dice.randrange(half), self._fail_many)
        if options.partition:
            world.after(dice.randrange(half), self._split)
        for count, action in (
            (options.joins, self._join),
            (options.leaves, self._leave),
            (options.crashes, self._crash),
        ):
            for _ in range(count):
                world.after(dice.randrange(options.duration), action)

    def _fail_adjacent(self) -> None:
        """As many next to each other as a leaf set can bear, the root of a topic among them."""
        ring = sorted(place.node for place in self.world.live())
        count = min(self.options.settings.leaf_set_size // 2 - 1, len(ring) - 2)
        root = self.world.space.closest(self._record().topic, ring)
        first = ring.index(root) - self.dice.randrange(max(1, count))
        for step in range(count):
            self.world.crash(self.world.places[ring[(first + step) % len(ring)]])
        self._note_forgotten()

    def _fail_many(self) -> None:
        live = self.world.live()
        for place in self.dice.sample(live, int(self.options.churn * len(live))):
            back = self.dice.choice((None, self.dice.randrange(self.options.duration)))
            self.world.crash(place, down_for=back)
        self._note_forgotten()

    def _note_forgotten(self) -> None:
        """A record dies with the last that has it. To let go of one on purpose does not count."""
        live = [place.member for place in self.world.live() if place.member]
        for topic, record in self.facts.records.items():
            if not record.ordered and not any(topic in m.roots.records for m in live):
                self.facts.forgotten.add(topic)

    def _split(self) -> None:
        self.world.say("split")
        share = self.dice.choice((0.1, 0.5))
        self.world.troubles.sides = {
            node: 1 for node in self.world.places if self.dice.random() < share
        }
        self.world.after(self.dice.randrange(self.options.duration), self._join_sides)

    def _join_sides(self) -> None:
        self.world.troubles.sides = {}

    def _join(self) -> None:
        self.world.start(self.world.add())

    def _leave(self) -> None:
        if len(self.world.active()) > 3:
            self.world.leave(self._someone())
            self._note_forgotten()

    def _crash(self) -> None:
        if len(self.world.active()) > 3:
            self.world.crash(self._someone(), down_for=self.dice.randrange(2 * SECOND))
            self._note_forgotten()

    # --- judgement -------------------------------------------------------------------------------

    def _wait_until_right(self) -> None:
        world = self.world
        keys = [Identifier(self.dice.getrandbits(world.space.bits)) for _ in range(100)]
        end = Instant(world.now + PATIENCE)
        while True:
            self._run(SECOND // 5)
            found = self._first_wrong(keys)
            if found is None:
                return
            if world.now > end:
                raise Violation(*found)

    def _first_wrong(self, keys: list[Identifier]) -> tuple[str, str] | None:
        world = self.world
        if len(world.active()) < len(world.live()):
            return "everyone joins", "some have not"
        for promise, wrong in (
            (checkers.LEAVES, checkers.wrong_leaf_sets(world)),
            (checkers.ROUTES, checkers.wrong_routes(world, keys)),
            (checkers.TREES, checkers.wrong_trees(world)),
            (checkers.EVERYTHING, checkers.missing_events(world)),
        ):
            if found := next(wrong, None):
                return promise, found
        return None

    def _reach_everyone(self) -> None:
        """One more event to each topic: all its subscribers get it."""
        world, facts = self.world, self.facts
        probes: dict[bytes, TopicRecord] = {}
        for topic, record in facts.records.items():
            if topic in facts.forgotten or (record.ordered and checkers.is_lost(world, topic)):
                continue
            probes[body := f"last of {topic:x}".encode()] = record
            world.publish(self._someone(), record, body)
        end = Instant(world.now + PATIENCE)
        while True:
            self._run(SECOND // 5)
            lacking = [
                f"{world.space.show(node)} did not get {body.decode()}"
                for body, record in probes.items()
                for (node, topic), taken in facts.wishes.items()
                if topic == record.topic and body not in taken.bodies
            ]
            if not lacking:
                return
            if world.now > end:
                raise Violation(checkers.EVERYTHING, lacking[0])


class WatchedMember(RingMember):
    """Says where messages arrive."""

    __slots__ = ("arrived",)
    arrived: Callable[[NodeId, Identifier], None] | None

    def deliver(self, payload: Payload, key: Identifier, now: Instant) -> list[Effect]:
        if self.arrived is not None:
            self.arrived(self.node, key)
        return super().deliver(payload, key, now)
