"""Cluster scenarios: small networks of real nodes, directed faults, and what subscribers get.

`brokers p-m1+m2-s1|s2`: levels from the host of topic t (one pubend, or `pubends 2` first) down to
the cells that host subscribers; `+` joins the brokers of one cell, `|` separates the last cells.
`wipe BROKER`: it crashes, and all that it has on its disk is gone.
`run MS` lists what every subscriber got since the last step and of which gaps it was told, in
order, and the nacks on each link.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gapless.core.broker_messages import Nack
from gapless.core.client_messages import Deliveries, Lost, Publish, Receipt, Refused, Subscribe
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, ClientName, TopicName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.node.node import Node
from gapless.testing.checkers.checker import Checker
from gapless.testing.lattice import strict
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.record import Publication, Record, Subscription
from gapless.testing.run import CHECKERS
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes, decode_event, encode_event
from tests.scenario import play

if TYPE_CHECKING:
    from gapless.core.identity import Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker as Watched
    from gapless.testing.links import Connection

SCENARIOS = sorted((Path(__file__).parent / "scenarios").glob("*.txt"))
TOPIC = TopicName("t")


class CountNacks(Checker):
    """How many nacks each link has carried."""

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self.links: Counter[str] = Counter()

    def sent(self, broker: Watched, to: PeerName, message: Message) -> None:
        if isinstance(message, Nack):
            self.links[f"{broker.name}->{to}"] += 1


class Watcher:
    """A client that notes what it is told."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    def tell(self, message: Message) -> None:
        if isinstance(message, Deliveries):
            for encoded, takers in zip(message.events, message.takers, strict=True):
                price = decode_event(encoded, TOPIC, "", 0).attributes["price"]  # type: ignore[arg-type]
                self.notes += [f"{self.name}#{number} got {price}" for number in takers]
        elif isinstance(message, Lost):
            gap = f"a gap of {message.pubend}"
            self.notes += [f"{self.name}#{each} is told {gap}" for each in message.subscriptions]
        elif isinstance(message, Receipt):
            self.notes.append(f"{self.name} has receipt {message.request}")
        elif isinstance(message, Refused):
            self.notes.append(f"{self.name} is refused {message.request}: {message.problem}")

    def cut_off(self) -> None:
        self.notes.append(f"{self.name} is cut off")


class ClusterScenario:
    """Performs the steps of one file."""

    def __init__(self) -> None:
        self.pubends = 1
        self.config = Config(propagates=False)
        self.notes: list[str] = []
        self.clients: dict[str, Connection] = {}
        self.requests = 0

    def __call__(self, verb: str, args: list[str]) -> list[str]:
        getattr(self, f"do_{verb}")(*args)
        notes = self.notes[:]
        self.notes.clear()
        return notes

    def do_propagate(self) -> None:
        self.config = Config()

    def do_pubends(self, count: str) -> None:
        self.pubends = int(count)

    def do_brokers(self, shape: str) -> None:
        self.network = read_shape(shape, self.pubends)
        record, config = Record(self.network), self.config
        self.nacks = CountNacks(record, config)
        checkers = [*(each(record, config) for each in CHECKERS), self.nacks]
        self.record = record
        watch = Watch(record, checkers)
        self.world = World(self.network, self.make, random.Random(1), Trace(), watch)
        self.world.start()

    def make(self, name: BrokerName, store: Store, now: Instant) -> Node:
        return Node(
            name,
            self.network,
            store,
            now,
            encoding=EventEncoding(decode_attributes),
            config=self.config,
            parts=strict(),
        )

    def client(self, broker: str) -> Connection:
        if broker not in self.clients or not self.clients[broker].is_open:
            name = ClientName(f"{broker}.{len(self.record.subscriptions)}.{self.requests}")
            connection = self.world.connect(name, Watcher(broker, self.notes), BrokerName(broker))
            assert connection is not None, f"{broker} is down"
            self.clients[broker] = connection
        return self.clients[broker]

    def do_subscribe(self, broker: str, condition: str = "", order: str = "publisher") -> None:
        connection = self.client(broker)
        number = len(self.record.subscriptions) + 1
        assert order in ("publisher", "total")
        subscription = Subscription(
            client=connection.name,
            number=number,
            topic=TOPIC,
            condition=condition,
            order="total" if order == "total" else "publisher",
        )
        self.record.subscribe(subscription)
        connection.send(Subscribe(TOPIC, number, number, condition, subscription.order))

    def do_publish(self, broker: str, *prices: str) -> None:
        self.requests += 1
        events = []
        for price in map(int, prices):
            encoded = encode_event({"price": price}, str(len(self.record.publications)).encode())
            self.record.publish(Publication(encoded, {"price": price}, TOPIC))
            events.append(encoded)
        message = Publish(TOPIC, self.requests, EventBatch.join(events))
        connection = self.client(broker)
        self.world.watch.asked(connection.name, message)
        connection.send(message)

    def do_run(self, milliseconds: str) -> None:
        before = self.nacks.links.copy()
        self.world.run(int(milliseconds) * 1_000)
        fresh = self.nacks.links - before
        self.notes += [f"nacks {link} {count}" for link, count in sorted(fresh.items())]

    def do_lose(self, link: str, count: str) -> None:
        sender, receiver = pair(link)
        self.world.links.lose_next(sender, receiver, int(count))

    def do_cut(self, link: str) -> None:
        for sender, receiver in both(link):
            self.world.links.cut(sender, receiver)

    def do_mend(self, link: str) -> None:
        for sender, receiver in both(link):
            self.world.links.mend(sender, receiver)

    def do_crash(self, broker: str) -> None:
        self.world.processes[BrokerName(broker)].crash()

    def do_wipe(self, broker: str) -> None:
        self.do_crash(broker)
        process = self.world.processes[BrokerName(broker)]
        process.disk.replace(MemoryVolume(identity=f"{broker} anew".encode()))
        self.world.watch.replaced(process)

    def do_restart(self, broker: str) -> None:
        self.world.restart(BrokerName(broker))

    def do_fill(self, broker: str) -> None:
        self.world.processes[BrokerName(broker)].disk.fill()

    def do_empty(self, broker: str) -> None:
        self.world.processes[BrokerName(broker)].disk.make_room()

    def do_show(self, name: str) -> None:
        for broker, process in self.world.processes.items():
            if process.node is not None:
                self.notes.append(f"{broker} {name}={process.statistics()[name]}")

    def do_filtered(self) -> None:
        for broker, process in self.world.processes.items():
            if not isinstance(process.node, Node):
                continue  # it is down
            interest = process.node.durable.interests.by_topic[TOPIC]
            if interest.filtered or interest.flooded:
                self.notes.append(
                    f"{broker} filtered {interest.filtered}, let {interest.flooded} pass unknown"
                )


def pair(link: str) -> tuple[BrokerName, BrokerName]:
    sender, receiver = link.split("->")
    return BrokerName(sender), BrokerName(receiver)


def both(link: str) -> list[tuple[BrokerName, BrokerName]]:
    """`a->b` is one way, `a-b` is both."""
    if "->" in link:
        return [pair(link)]
    one, other = map(BrokerName, link.split("-"))
    return [(one, other), (other, one)]


def read_shape(shape: str, pubends: int) -> Network:
    *upper, last = [level.split("|") for level in shape.split("-")]
    cells: list[Cell] = []
    above: tuple[CellName, ...] = ()
    for level in (*upper, last):
        for text in level:
            brokers = tuple(BrokerEntry(BrokerName(name)) for name in text.split("+"))
            cells.append(Cell(CellName(text), brokers, above, subscribers=level is last))
        above = (CellName(level[0]),)
    return Network(tuple(cells), (Topic(TOPIC, (cells[0].brokers[0].name,) * pubends),))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_takes_the_course_that_is_written(path: Path, rewrite: bool) -> None:
    play(path, ClusterScenario(), rewrite=rewrite)
