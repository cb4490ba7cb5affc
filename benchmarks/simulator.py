"""The simulator: deliveries per real second in a network of 50 brokers, and seeds per second."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from benchmarks.report import Report
from gapless.core.client_messages import Consumed, Deliveries, Subscribe
from gapless.core.identity import BrokerName, ClientName, TopicName
from gapless.node.config import Config
from gapless.node.network import Network, Topic
from gapless.testing.actors.clients import Publisher, PublisherPlan
from gapless.testing.links import CLEAN, Connection
from gapless.testing.options import Options
from gapless.testing.record import Subscription
from gapless.testing.run import make_world, node_maker, simulate
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace

if TYPE_CHECKING:
    from gapless.core.messages import Message
    from gapless.testing.world import World

TOPIC = TopicName("t")
INNER, MEMBERS, LEAVES = 7, 2, 35


def network_of_fifty() -> Network:
    """A host, seven cells of two brokers in a binary tree below it, 35 leaves below those."""
    cells = [cell("p", 1)]
    for number in range(INNER):
        above = "p" if number == 0 else f"m{(number - 1) // 2}"
        cells.append(cell(f"m{number}", MEMBERS, [above]))
    cells += [
        cell(f"s{number}", 1, [f"m{3 + number % 4}"], subscribers=True) for number in range(LEAVES)
    ]
    return Network(tuple(cells), (Topic(TOPIC, (BrokerName("p"),)),))


class Consumer:
    """A client that takes everything at once."""

    connection: Connection | None = None

    def tell(self, message: Message) -> None:
        if isinstance(message, Deliveries) and message.ticks and self.connection:
            self.connection.send(Consumed(len(message.ticks)))

    def cut_off(self) -> None:
        self.connection = None


def subscribe_all(world: World, each: int) -> None:
    for number in range(LEAVES):
        for order in range(each):
            consumer, name = Consumer(), ClientName(f"c{number}.{order}")
            consumer.connection = world.connect(name, consumer, BrokerName(f"s{number}"))
            assert consumer.connection is not None
            condition = "" if order else "price > 50"
            world.watch.record.subscribe(
                Subscription(
                    client=name, number=1, topic=TOPIC, condition=condition, order="publisher"
                )
            )
            consumer.connection.send(Subscribe(TOPIC, 1, 1, condition))


def fifty_brokers(events: int, check_every: int) -> tuple[int, int, float]:
    """Deliveries, steps and CPU seconds of a run on fifty brokers."""
    network = network_of_fifty()
    options = Options(
        seed=1,
        network=network,
        config=Config(),
        links=CLEAN,
        offsets={},
        fault_rates={},
        duration=0,
        is_encoded=False,
        conditions={},
        publishers=(),
        durables=(),
        subscribers=(),
        clock_jump_max=1,
        check_every=check_every,
    )
    world = make_world(options, random.Random(1), Trace(), node_maker(options))
    world.start()
    subscribe_all(world, each=2)
    world.run(2_000_000)
    plan = PublisherPlan(
        name="P",
        broker=BrokerName("p"),
        topic=TOPIC,
        is_named=True,
        event_count=events,
        batch_max=20,
        window=8,
        pause=5_000,
        patience=10**9,
    )
    begin, steps = time.process_time(), world.trace.count
    publisher = Publisher(world, plan)
    while publisher.waiting():
        world.run(100_000)
    world.run(2_000_000)
    took = time.process_time() - begin
    return world.watch.record.deliveries, world.trace.count - steps, took


def run(quick: bool) -> list[Report]:
    network = Report(
        "simulator-network",
        "50 brokers, 70 subscriptions, clean links",
        ("checks", "events", "deliveries", "steps", "deliveries/CPU s", "target 2,000"),
    )
    events = 100 if quick else 400
    for every, label in ((1, "after every step"), (100, "after every 100th step")):
        deliveries, steps, took = fifty_brokers(events, every)
        rate = deliveries / took
        network.add(
            label, events, f"{deliveries:,}", f"{steps:,}", f"{rate:,.0f}", f"{rate / 2000:.1f}x"
        )
    swarm = Report(
        "simulator-swarm",
        "drawn runs, one core",
        ("seeds", "steps/seed", "virtual s/seed", "seeds/CPU s", "virtual time/CPU time"),
    )
    count = 20 if quick else 100
    begin = time.process_time()
    outcomes = [simulate(seed) for seed in range(count)]
    took = time.process_time() - begin
    virtual = sum(outcome.virtual_us for outcome in outcomes) / 1e6
    swarm.add(
        count,
        f"{sum(outcome.steps for outcome in outcomes) / count:,.0f}",
        f"{virtual / count:.2f}",
        f"{count / took:.1f}",
        f"{virtual / took:.1f}x",
    )
    network.notes.append("All checkers on; the trace is made and hashed as in any run.")
    return [network, swarm]
