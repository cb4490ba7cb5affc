"""Small networks for tests, events that say what colour they are, and a node with a disk."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Publish, Subscribe
from gapless.core.effects import Effect, Persist, Send, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, PublisherName, TopicName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import Network, parse_network
from gapless.node.node import Node
from gapless.node.parts import Parts
from gapless.testing.lattice import strict
from gapless.testing.world import known_volume
from gapless.wire.events import decode_attributes, encode_event
from tests.bounds import so_long_as

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.client_messages import Order
    from gapless.core.messages import Message

TOWN = """
[network]
name = "town"

[[cell]]
name = "source"
brokers = [{ name = "s" }]
links = ["middle"]

[[cell]]
name = "middle"
brokers = [{ name = "m1" }, { name = "m2" }]
links = ["left", "right"]

[[cell]]
name = "left"
brokers = [{ name = "l" }]
subscribers = true

[[cell]]
name = "right"
brokers = [{ name = "r" }]
subscribers = true

[[topic]]
name = "news"
pubends = ["s"]
"""
"""A host, two relays that back each other up, and two brokers with subscribers."""

ALONE = """
[[cell]]
name = "home"
brokers = [{ name = "h" }]
subscribers = true

[[topic]]
name = "news"
pubends = ["h", "h"]
"""
"""One broker that does everything, with two pubends."""

CHAIN = """
[[cell]]
name = "top"
brokers = [{ name = "t" }]
links = ["half"]

[[cell]]
name = "half"
brokers = [{ name = "h" }]
links = ["foot"]
subscribers = true

[[cell]]
name = "foot"
brokers = [{ name = "f" }]
subscribers = true

[[topic]]
name = "news"
pubends = ["t"]
"""
"""Three in a row; the one in the middle relays and has subscribers of its own."""

CONFIG = Config(propagates=False)
NEWS = TopicName("news")
ANN = ClientName("ann")


def event(colour: str) -> bytes:
    return encode_event({"colour": colour})


def colours(events: Iterable[bytes]) -> list[str]:
    return [str(each["colour"]) for each in decode_attributes(EventBatch.join(events))]


def publish(*which: str, name: str | None = None, sequence: int = 0, topic: str = NEWS) -> Publish:
    publisher = None if name is None else PublisherName(name)
    batch = EventBatch.join(map(event, which))
    return Publish(TopicName(topic), 1, batch, publisher, sequence)


def subscribe(
    number: int, condition: str = "", order: Order = "publisher", topic: str = NEWS
) -> Subscribe:
    return Subscribe(TopicName(topic), number, number, condition, order)


class Town:
    """One node of a network, its disk, and what it has sent."""

    def __init__(
        self,
        name: str,
        text: str = TOWN,
        now: int = 1_000,
        *,
        joins: bool = False,
        parts: Parts | None = None,
        **limits: Any,
    ) -> None:
        self.network: Network = replace(parse_network(text), joins=joins)
        self.volume = known_volume(self.network)
        self.now = Instant(now)
        self.node = Node(
            BrokerName(name),
            self.network,
            self.volume,
            self.now,
            encoding=EventEncoding(decode_attributes),
            config=replace(CONFIG, **limits),
            parts=strict(parts or Parts()),
        )
        self.sent: list[tuple[str, Message]] = []
        self.slow: list[Persist] | None = None  # writes that may fail wait here, if it is a list
        self._do(self.node.start(self.now))

    def _do(self, effects: Iterable[Effect]) -> None:
        rest = deque(effects)
        for _ in so_long_as(lambda: rest):
            match rest.popleft():
                case Send(to, message):
                    self.sent.append((to, message))
                case Persist() as write if write.otherwise and self.slow is not None:
                    self.slow.append(write)
                case Persist(writes, then):
                    self.volume.commit(writes)
                    rest.extend(then)
                case Tell(message):
                    rest.extend(self.node.receive(self.node.name, message, self.now))
            self.node.check()

    def receive(self, sender: str, message: Message) -> list[tuple[str, Message]]:
        """What the node sends because of this message."""
        peer = BrokerName(sender)
        self._do(self.node.receive(peer, message, self.now))
        return self.flush()

    def connect(self, client: str = ANN) -> None:
        self._do(self.node.link_up(ClientName(client), self.now))

    def link(self, broker: str) -> list[tuple[str, Message]]:
        """There is a new link to a neighbour."""
        self._do(self.node.link_up(BrokerName(broker), self.now))
        return self.flush()

    def leave(self, peer: str) -> None:
        self._do(self.node.link_down(ClientName(peer), self.now))

    def wait(self, microseconds: int) -> list[tuple[str, Message]]:
        """Let time pass, as a driver does: `fire` at every deadline on the way."""
        end = self.now + microseconds
        for _ in so_long_as(lambda: (self.node.deadline or end + 1) <= end):
            assert self.node.deadline is not None
            self.now = Instant(max(self.now, self.node.deadline))
            self._do(self.node.fire(self.now))
        self.now = Instant(end)
        return self.flush()

    def flush(self) -> list[tuple[str, Message]]:
        sent, self.sent = self.sent, []
        return sent
