"""The world: determinism, time, crashes, disks and clocks, played with a simple stand-in broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gapless.core.effects import Effect, Persist, Put, Tell
from gapless.core.errors import ProtocolError
from gapless.core.identity import BrokerName, Instant
from gapless.core.messages import Ping
from gapless.testing.actors.clients import Publisher, PublisherPlan, Subscriber, SubscriberPlan
from gapless.testing.clock import START
from gapless.testing.record import Violation
from gapless.testing.run import CHECKERS
from tests.testing.standin import PUBEND, Simple, make_world

if TYPE_CHECKING:
    from gapless.core.identity import PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.world import World

A, B = BrokerName("a"), BrokerName("b")


def populate(world: World, *, named: bool = True, events: int = 40) -> tuple[Publisher, Subscriber]:
    topic = world.network.topics[0].name
    publisher = PublisherPlan(
        name="P1",
        broker=A,
        topic=topic,
        is_named=named,
        event_count=events,
        batch_max=3,
        window=4,
        pause=2_000,
        patience=10**9,
    )
    subscriber = SubscriberPlan(
        name="C1", broker=A, wishes=((topic, "", "publisher"),), pause=100, change_after=10**9
    )
    return Publisher(world, publisher), Subscriber(world, subscriber)


def played(seed: int) -> tuple[str, list[str]]:
    lines: list[str] = []
    world = make_world(seed, checkers=CHECKERS, out=lines.append)
    populate(world, named=False)
    world.after(30_000, world.processes[A].crash, 20_000)
    world.run(400_000)
    return world.trace.digest, lines


def test_the_same_seed_takes_the_same_course_and_another_does_not() -> None:
    assert played(3) == played(3)
    assert played(3)[0] != played(4)[0]


def test_what_happens_at_one_instant_happens_in_the_order_it_was_asked_for() -> None:
    world, seen = make_world(), list[str]()
    for name in "abc":
        world.at(Instant(START + 5), seen.append, name)
    world.at(Instant(START + 4), seen.append, "first")
    world.run(4)
    assert (seen, world.now) == (["first"], START + 4)
    world.run(100)
    assert (seen, world.now) == (["first", "a", "b", "c"], START + 104)


def test_everything_published_is_delivered_and_acknowledged() -> None:
    world = make_world(checkers=CHECKERS)
    publisher, _ = populate(world)
    world.run(2_000_000)
    assert publisher.waiting() == []
    record = world.watch.record
    [subscription] = record.live()[:1]
    wanted = record.wanted(subscription, PUBEND, subscription.start[PUBEND], 1 << 63)
    assert len(record.logs[PUBEND].ticks) == 40
    assert [tick for _, tick in subscription.delivered] == wanted


def test_a_storm_of_steps_is_found() -> None:
    world = make_world()

    def again() -> None:
        world.after(0, again)

    again()
    with pytest.raises(Violation, match="comes to rest"):
        world.run(1)


class Restless(Simple):
    """Wants to be woken now, always."""

    def __init__(self, name: BrokerName, store: Store, now: Instant) -> None:
        super().__init__(name, store, now)
        self.deadline = now


def test_a_broker_that_never_lets_time_go_on_is_found() -> None:
    world = make_world(make=Restless)
    with pytest.raises(Violation, match="time goes on"):
        world.run(1)


class Hasty(Restless):
    """Wants to be woken a microsecond later, always, and does nothing then."""

    def fire(self, now: Instant) -> list[Effect]:
        self.deadline = Instant(now + 1)
        return []


class Busy(Hasty):
    """Does something whenever it wakes, until there is no more to do."""

    def fire(self, now: Instant) -> list[Effect]:
        super().fire(now)
        return [Tell(Ping(1))]


def test_a_broker_that_wakes_again_and_again_for_nothing_is_found() -> None:
    world = make_world(make=Hasty)
    with pytest.raises(Violation, match="for nothing"):
        world.run(1_000)
    make_world(make=Busy).run(1_000)


class Refuses(Simple):
    """Takes every ping for an offence."""

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        if isinstance(message, Ping):
            raise ProtocolError("no pings here")
        return super().receive(sender, message, now)


def test_a_refused_message_between_correct_brokers_is_found() -> None:
    world = make_world(make=Refuses)
    world.send(A, B, Ping(1))
    with pytest.raises(Violation, match="breaks the protocol"):
        world.run(10_000)


class Sleeper(Simple):
    """Wakes once, a second after it started; writes down when."""

    def __init__(self, name: BrokerName, store: Store, now: Instant) -> None:
        super().__init__(name, store, now)
        self.deadline = Instant(now + 1_000_000)
        self.woken: Instant | None = None

    def fire(self, now: Instant) -> list[Effect]:
        self.deadline, self.woken = None, now
        return []


@pytest.mark.parametrize(("jump", "wakes_after"), [(0, 1_000), (-500, 1_500), (700, 300)])
def test_a_deadline_is_on_the_brokers_own_clock(jump: int, wakes_after: int) -> None:
    world = make_world(make=Sleeper)
    process = world.processes[A]
    node = process.node
    assert isinstance(node, Sleeper)
    process.jump(jump * 1_000)
    world.run(wakes_after * 1_000 - 1)
    assert node.woken is None
    world.run(1)
    assert node.woken == START + 1_000_000


def keep(*keys: str) -> Persist:
    return Persist(
        tuple(Put("facts", key, b"x") for key in keys), (Tell(Ping(1)),), (Tell(Ping(2)),)
    )


def told(world: World) -> list[int]:
    node = world.processes[A].node
    assert isinstance(node, Simple)
    return [message.number for _, message in node.heard if isinstance(message, Ping)]


def test_nothing_follows_a_write_before_it_is_durable() -> None:
    world = make_world()
    process = world.processes[A]
    process.carry_out([keep("one")])
    assert (process.store.get("facts", "one"), told(world)) == (None, [])
    world.run(10_000)
    assert (process.store.get("facts", "one"), told(world)) == (b"x", [1])


def test_writes_that_wait_go_out_together_in_order() -> None:
    world = make_world()
    process = world.processes[A]
    process.carry_out([keep("one"), keep("two"), keep("three")])
    world.run(10_000)
    assert told(world) == [1, 1, 1]
    assert world.reached["several writes in one commit"] == 1


def test_a_full_disk_refuses_and_takes_writes_again_when_it_has_room() -> None:
    world = make_world()
    process = world.processes[A]
    process.disk.fill()
    process.carry_out([keep("one")])
    world.run(10_000)
    assert (process.store.get("facts", "one"), told(world)) == (None, [2])
    process.disk.make_room()
    process.carry_out([keep("one")])
    world.run(10_000)
    assert (process.store.get("facts", "one"), told(world)) == (b"x", [2, 1])


def test_a_crash_in_a_commit_keeps_a_prefix_of_it_and_tells_nobody() -> None:
    outcomes = set()
    for seed in range(40):
        world = make_world(seed)
        process = world.processes[A]
        process.carry_out([keep("zero")])
        process.carry_out([keep("one"), keep("two")])
        world.run(700)
        process.crash(down_for=1_000)
        world.run(10_000)
        kept = tuple(key for key in ("zero", "one", "two") if process.store.get("facts", key))
        assert kept == ("zero", "one", "two")[: len(kept)]
        assert told(world) == []
        outcomes.add((len(kept), world.reached["a torn write was cut"]))
    assert {count for count, _ in outcomes} == {0, 1, 2, 3}
    assert any(torn for _, torn in outcomes)


def test_a_failed_sync_stops_the_broker_and_it_comes_back() -> None:
    world = make_world()
    process = world.processes[A]
    process.disk.sync_fails = True
    process.carry_out([keep("one")])
    states = []
    for _ in range(2):
        states.append(process.is_up)
        world.run(2_000)
    world.run(1_000_000)
    assert (states, process.is_up) == ([True, False], True)
    assert told(world) == []
