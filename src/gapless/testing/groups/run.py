"""One run of a group: a seed becomes a network with faults and members, and checkers watch.

The network, its timers, its faults and its publishers are drawn as for every other run
(`testing.options`); nothing is retained for less than it is wanted. Beside the topics stands one
for dead letters. When the time is over, everything is healed; then everything must be finished.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapless.core.client_messages import Deliveries, Ended, Subscribed
from gapless.core.identity import Instant, SubscriptionName, TopicName
from gapless.node.network import Network, Topic
from gapless.testing.actors.clients import MILLISECOND, Publisher
from gapless.testing.checkers.bounded_memory import BoundedMemory
from gapless.testing.checkers.durable import DurableBeforeAcknowledged
from gapless.testing.faults import Faults
from gapless.testing.groups.checkers import GroupPromises
from gapless.testing.groups.members import GroupPlan, Member
from gapless.testing.options import FAULTS, Options, draw_options
from gapless.testing.record import Record, Violation
from gapless.testing.run import node_maker
from gapless.testing.shapes import draw_network
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from gapless.core.identity import BrokerName, ClientName, PeerName
    from gapless.core.messages import Message
    from gapless.node.parts import Parts
    from gapless.testing.checkers.checker import Broker
    from gapless.wire.codec import Codec

DEAD = TopicName("dead")
PATIENCE = 120_000_000
"""Microseconds within which everything is finished once all is healed."""


@dataclass(slots=True)
class GroupOutcome:
    """What came of a run."""

    seed: int
    digest: str
    steps: int
    finished: int
    letters: int
    repeats: int
    reached: Counter[str]
    options: list[str]
    violation: str = ""
    last_lines: list[str] = field(default_factory=list)


class GroupWatch(Watch):
    """Shows what happens to the checkers; members have no positions that it could record."""

    promises: GroupPromises

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        if isinstance(message, Subscribed | Ended | Deliveries):
            for check in self._sent:
                check(broker, to, message)
        else:
            super().sent(broker, to, message)

    def told(self, client: ClientName, message: Message) -> None:
        """Members listen by themselves."""

    def gone(self, client: ClientName) -> None:
        self.promises.gone(client)


class GroupWorld(World):
    """Tells the checker when the broker of the group has lost its memory."""

    def crashed(self, name: BrokerName, down_for: int | None) -> None:
        super().crashed(name, down_for)
        assert isinstance(self.watch, GroupWatch)
        self.watch.promises.crashed(name)


def draw_group(dice: random.Random, seed: int) -> tuple[Options, GroupPlan]:
    """The network and its faults, and a group in it."""
    drawn = draw_network(dice)
    edges = [each.brokers[0].name for each in drawn.cells if each.subscribers]
    alone = [e for e in edges if len(drawn.cell_of[e].brokers) == 1]
    topics = (*drawn.topics, Topic(DEAD, (dice.choice(alone),)))
    options = draw_options(seed, dice, Network(cells=drawn.cells, topics=topics))
    publishers = tuple(
        replace(each, event_count=dice.randint(10, 60), opens="", leave_after=0)
        for each in options.publishers
        if each.topic != DEAD and each.name[-1].isdecimal()
    )
    config = options.config
    if dice.random() < 0.5:
        config = replace(config, group_member_events_max=dice.choice((1, 2, 5)))
    if dice.random() < 0.2:
        config = replace(config, group_keys_max=2)
    attempts_max = dice.choice((0, 0, 1, 3, 10))
    plan = GroupPlan(
        name=SubscriptionName("g"),
        topic=publishers[0].topic,
        condition=dice.choice(("", "", "price > 20", "symbol <> 'IBM'")),
        share_by=dice.choice(("symbol", "symbol", "price", "urgent", "nothing")),
        attempts_max=attempts_max,
        dead_letters=DEAD if attempts_max else None,
        brokers=tuple(edges),
        members=dice.choice((1, 2, 4, 8)),
        handling=dice.choice((1, 5, 30)) * MILLISECOND,
        rejects=dice.choice((0.0, 0.05, 0.3)),
        unconfirmed=dice.choice((0.0, 0.5, 1.0)),
        crash_after=dice.choice((0, 100, 400, 1_000)) * MILLISECOND,
        leave_after=dice.choice((0, 200, 1_000)) * MILLISECOND,
        broker_crash=dice.choice((0.0, 0.02, 0.1)),
    )
    rates = {kind: rate for kind, rate in options.fault_rates.items() if kind in FAULTS}
    return (
        replace(
            options,
            publishers=publishers,
            subscribers=(),
            durables=(),
            jobs=(),
            founders=(),
            fault_rates=rates,
            config=config,
        ),
        plan,
    )


def simulate_group(
    seed: int, *, out: Callable[[str], object] | None = None, parts: Parts | None = None
) -> GroupOutcome:
    """Play one seed to its end, or to the first violation."""
    dice = random.Random(f"group {seed}")
    options, plan = draw_group(dice, seed)
    lines = [*options.lines(), f"group {plan}"]
    for line in lines if out is not None else ():
        out(line)  # type: ignore[misc]  # not None in this loop
    trace = Trace(out)
    world, promises = make_world(options, plan, dice, trace, parts)
    violation = ""
    try:
        play(world, promises, options, plan)
    except Violation as found:
        violation = str(found)
    except Exception as error:  # a broken invariant, or a crash of ours: found all the same
        violation = f"{type(error).__name__}: {error}"
    return GroupOutcome(
        seed=seed,
        digest=trace.digest,
        steps=trace.count,
        finished=promises.finished_count,
        letters=promises.letter_count,
        repeats=promises.repeats,
        reached=world.reached,
        options=lines if violation else [],
        violation=violation,
        last_lines=list(trace.last) if violation else [],
    )


def make_world(
    options: Options,
    plan: GroupPlan,
    dice: random.Random,
    trace: Trace,
    parts: Parts | None,
    codec: Codec | None = None,
) -> tuple[GroupWorld, GroupPromises]:
    record = Record(options.network)
    promises = GroupPromises(record, options.config)
    promises.plan = plan
    others = (
        BoundedMemory(record, options.config),
        DurableBeforeAcknowledged(record, options.config),
    )
    watch = GroupWatch(record, [promises, *others])
    watch.promises = promises
    world = GroupWorld(
        options.network,
        node_maker(options, parts),
        dice,
        trace,
        watch,
        links=options.links,
        offsets=options.offsets,
        codec=codec,
        check_every=options.check_every,
    )
    return world, promises


def play(world: GroupWorld, promises: GroupPromises, options: Options, plan: GroupPlan) -> None:
    """Faults first, then everything is healed and must be finished; raises `Violation`."""
    world.start()
    members = [Member(world, plan, number) for number in range(plan.members)]
    publishers = [Publisher(world, each) for each in options.publishers]
    actors: list[Publisher | Member] = [*publishers, *members]
    end = Instant(world.now + options.duration)
    Faults(world, options, actors, end)
    while world.now < end:
        world.run(min(options.config.heartbeat, end - world.now))
    world.heal()
    for each in actors:
        each.is_quick = True
    limit = world.now + PATIENCE
    while True:
        world.run(200 * MILLISECOND)
        waiting = [line for each in actors for line in each.waiting()]
        waiting = waiting or promises.waiting()
        if not waiting:
            return
        if world.now > limit:
            raise Violation("everything is finished", "; ".join(waiting[:5]))
