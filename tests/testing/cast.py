"""A network of real nodes with one client at each broker, watched by all checkers, for tests."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge
from gapless.core.client_messages import Deliveries, Publish, Subscribe, Subscribed, Unsubscribe
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, PublisherName, TopicName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import Network, Topic
from gapless.node.node import Node
from gapless.testing.checkers.checker import Checker
from gapless.testing.checkers.liveness import EverythingArrives
from gapless.testing.checkers.routing_tables import RoutingTables
from gapless.testing.record import Publication, Record, Subscription
from gapless.testing.run import CHECKERS
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes, decode_event, encode_event

if TYPE_CHECKING:
    from gapless.core.identity import Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.durable.topic_interest import TopicInterest
    from gapless.node.parts import Parts
    from gapless.testing.checkers.checker import Broker as Watched
    from gapless.testing.links import Connection

T = TopicName("t")
P, Q = BrokerName("p"), BrokerName("q")
A_WHILE = Config().dead_after + Config().heartbeat
"""Longer than it takes to count a broker as dead."""


class CountCarried(Checker):
    """Which neighbour was sent how many messages with events, by sender."""

    def __init__(self, record: Record, config: Config) -> None:
        super().__init__(record, config)
        self.links: Counter[tuple[str, str]] = Counter()

    def sent(self, broker: Watched, to: PeerName, message: Message) -> None:
        if isinstance(message, Knowledge) and message.ticks:
            self.links[broker.name, to] += 1


class Client:
    """Notes the prices it gets, and the numbers of subscriptions that have started."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.started: list[int] = []

    def tell(self, message: Message) -> None:
        if isinstance(message, Subscribed):
            self.started.append(message.subscription)
        elif isinstance(message, Deliveries):
            for encoded in message.events:
                price = decode_event(encoded, T, "", 0).attributes["price"]  # type: ignore[arg-type]
                assert isinstance(price, int)
                self.got.append(price)

    def cut_off(self) -> None:
        pass


class Play:
    """A network with one client at each broker, watched by all checkers."""

    def __init__(self, network: Network, parts: Parts | None = None) -> None:
        self.network = network
        self.parts = parts
        self.record = Record(network)
        config = Config()
        self.carried = CountCarried(self.record, config)
        checkers = [*(each(self.record, config) for each in CHECKERS), self.carried]
        self.world = World(
            network, self._make, random.Random(1), Trace(), Watch(self.record, checkers)
        )
        self.clients: dict[str, tuple[Client, Connection]] = {}
        self.requests = 0
        self.world.start()
        self.run(A_WHILE)

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Node:
        return Node(
            name,
            self.network,
            store,
            now,
            encoding=EventEncoding(decode_attributes),
            parts=self.parts,
        )

    def run(self, microseconds: int) -> None:
        self.world.run(microseconds)

    def at(self, broker: str) -> tuple[Client, Connection]:
        if broker not in self.clients or not self.clients[broker][1].is_open:
            client = Client()
            name = ClientName(f"{broker}.{self.requests}")
            connection = self.world.connect(name, client, BrokerName(broker))
            assert connection is not None
            self.clients[broker] = client, connection
        return self.clients[broker]

    def subscribe(self, broker: str, condition: str) -> int:
        self.requests += 1
        number, (_, connection) = self.requests, self.at(broker)
        self.record.subscribe(
            Subscription(
                client=connection.name,
                number=number,
                topic=T,
                condition=condition,
                order="publisher",
                broker=BrokerName(broker),
            )
        )
        connection.send(Subscribe(T, number, number, condition))
        return number

    def unsubscribe(self, broker: str, number: int) -> None:
        self.at(broker)[1].send(Unsubscribe(number))

    def publish(self, broker: str, *prices: int, publisher: str = "") -> None:
        """One event for each price; with the publisher's name, bound to the pubend it picks."""
        self.requests += 1
        name = PublisherName(publisher) if publisher else None
        events = []
        for sequence, price in enumerate(prices):
            body = f"{self.requests} {sequence}".encode()
            encoded = encode_event({"price": price}, body, name, sequence if name else None)
            self.record.publish(Publication(encoded, {"price": price}, T, name, sequence))
            events.append(encoded)
        message = Publish(T, self.requests, EventBatch.join(events), name)
        connection = self.at(broker)[1]
        self.world.watch.asked(connection.name, message)
        connection.send(message)

    def got(self, broker: str) -> list[int]:
        return self.at(broker)[0].got

    def node(self, broker: str) -> Node:
        node = self.world.processes[BrokerName(broker)].node
        assert isinstance(node, Node)
        return node

    def interest(self, broker: str) -> TopicInterest:
        return self.node(broker).durable.interests.by_topic[T]

    def crash(self, broker: str) -> None:
        self.world.processes[BrokerName(broker)].crash()

    def restart(self, broker: str) -> None:
        self.world.restart(BrokerName(broker))

    def cut(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.world.links.cut(*map(BrokerName, pair))

    def wrong(self) -> list[str]:
        """What is missing or not right in quiet times."""
        processes = self.world.processes.values()
        nodes = [each.node for each in processes if isinstance(each.node, Node)]
        arrives = EverythingArrives(self.record, Config())
        return arrives.waiting() + RoutingTables(self.record, nodes).wrong()


def tree(members: int, *leaves: str, pubends: int = 1) -> Network:
    """A host, one cell of relays, and cells that host subscribers."""
    below = [cell(name, 1, ["m"], subscribers=True) for name in leaves]
    return Network((cell("p", 1), cell("m", members, ["p"]), *below), (Topic(T, (P,) * pubends),))
