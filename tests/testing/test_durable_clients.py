"""Clients with named subscriptions, at one real broker: they leave, return, come twice, forget."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, Instant, SubscriptionName, TopicName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import Network, Topic
from gapless.node.node import Node
from gapless.testing.actors.clients import MILLISECOND, Publisher, PublisherPlan
from gapless.testing.actors.durable_clients import DurableSubscriber
from gapless.testing.actors.durable_plans import DurablePlan, Wish, draw_birth, draw_durables
from gapless.testing.named import Birth
from gapless.testing.record import Record
from gapless.testing.run import CHECKERS
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import check_events, decode_attributes

if TYPE_CHECKING:
    from gapless.core.store import Store
    from gapless.testing.named import Named

HOST, TOPIC = BrokerName("a"), TopicName("t")
NEVER = 1 << 40


class Stage:
    """One broker, one publisher, one client with one name, all checkers."""

    def __init__(self, seed: int = 1, pause: int = 0) -> None:
        network = Network((cell("a", 1, subscribers=True),), (Topic(TOPIC, (HOST,)),))
        record = Record(network)
        self.lines: list[str] = []
        watch = Watch(record, [each(record, Config()) for each in CHECKERS])
        dice, trace = random.Random(seed), Trace(self.lines.append)
        self.world = World(network, self._make(network), dice, trace, watch)
        self.world.start()
        self.log = record.logs[network.topics[0].pubends[0].name]
        wish = Wish(name=SubscriptionName("desk"), topic=TOPIC, condition="", tokens="client")
        self.client = DurableSubscriber(
            self.world,
            DurablePlan(
                name="D1",
                brokers=(HOST,),
                wishes=(wish,),
                has_anonymous=True,
                pause=pause,
                acknowledge_after=NEVER,
                change_after=NEVER,
                away_max=20 * MILLISECOND,
            ),
        )
        self.slot = self.client.slots[0]
        self.world.run(20 * MILLISECOND)

    def _make(self, network: Network) -> type[Node]:
        def make(name: BrokerName, store: Store, now: Instant) -> Node:
            return Node(
                name,
                network,
                store,
                now,
                encoding=EventEncoding(decode_attributes, check_events),
            )

        return make  # type: ignore[return-value]  # it is called like the class

    @property
    def named(self) -> Named:
        assert self.slot.named
        return self.slot.named

    def publish(self, count: int) -> None:
        plan = PublisherPlan(
            name=f"P{len(self.log.ticks)}",
            broker=HOST,
            topic=TOPIC,
            is_named=True,
            event_count=count,
            batch_max=1,
            window=9,
            pause=MILLISECOND,
            patience=NEVER,
        )
        Publisher(self.world, plan)
        self.world.run(100 * MILLISECOND)

    def consumed(self) -> list[int]:
        [ticks] = self.named.consumed.values()
        return ticks


def test_a_client_that_hangs_up_goes_on_where_it_was() -> None:
    stage = Stage()
    start = len(stage.log.ticks)
    stage.publish(5)
    stage.client.hang_up()
    assert stage.client.waiting() == ["D1 waits for a connection"]
    stage.publish(5)
    assert stage.client.waiting() == []
    assert stage.consumed() == stage.log.ticks[start:]
    assert len(stage.consumed()) == 10


def test_a_token_moves_as_events_are_consumed_and_not_as_they_come() -> None:
    stage = Stage(pause=NEVER)
    stage.publish(5)
    assert len(stage.log.ticks) == 5
    assert stage.consumed() == []
    assert stage.client.waiting() == ["D1 has 10 to consume"]
    stage.client.is_quick = True
    stage.client.hang_up()
    stage.world.run(100 * MILLISECOND)
    assert stage.client.waiting() == []
    assert stage.consumed() == stage.log.ticks


def test_a_token_moves_with_silence_too() -> None:
    stage = Stage()
    stage.publish(1)
    stage.world.run(3_000 * MILLISECOND)
    [position] = stage.named.position.values()
    assert position > stage.log.ticks[-1] + 1


def test_a_client_that_comes_twice_is_listened_to_on_the_newer_connection() -> None:
    stage = Stage()
    stage.publish(2)
    old = stage.client.line
    stage.client.connect()
    stage.publish(3)
    assert any("taken over" in line for line in stage.lines)
    assert stage.consumed() == stage.log.ticks
    assert old is not stage.client.line


def test_a_name_that_was_forgotten_and_made_anew_has_another_life() -> None:
    stage = Stage()
    stage.publish(2)
    before = stage.named
    stage.client.forget(stage.slot)
    stage.world.run(100 * MILLISECOND)
    assert before.is_over
    assert stage.named is not before
    stage.publish(2)
    stage.world.watch.finish()


def test_everything_is_released_once_all_have_concluded() -> None:
    stage = Stage()
    stage.publish(5)
    stage.client.is_quick = True
    stage.world.run(2_000 * MILLISECOND)
    assert stage.log.chopped <= stage.log.ticks[0]
    stage.client.conclude()
    stage.world.run(2_000 * MILLISECOND)
    assert stage.client.waiting() == []
    assert stage.log.chopped > stage.log.ticks[-1]


def test_every_kind_of_start_and_of_client_is_drawn() -> None:
    stage = Stage()
    stage.publish(3)
    births = Counter(draw_birth(stage.world, TOPIC).at for _ in range(100))
    assert set(births) == {"latest", "earliest", "token", "instant"}
    assert Birth().token is None
    dice = random.Random(1)
    network = stage.world.network
    plans = [draw_durables(dice, network, {HOST: ("", "price > 3")}) for _ in range(40)]
    assert {len(some) for some in plans} == {0, 1, 2}
    names = [[wish.name for plan in some for wish in plan.wishes] for some in plans]
    assert all(len(set(some)) == len(some) for some in names)
