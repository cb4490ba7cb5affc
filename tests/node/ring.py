"""Brokers of the multicast service, with nothing between them but a queue, for tests."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import Deliveries, Lost, Publish, Receipt, Refused, Subscribe
from gapless.core.effects import Send
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, CellName, ClientName, Instant, TopicName
from gapless.node.config import Config
from gapless.node.context import Context, EventEncoding
from gapless.node.delivery.connections import ClientConnections
from gapless.node.delivery.subscribers import Subscribers
from gapless.node.multicast.name_book import SPACE
from gapless.node.multicast.service import Multicast
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes, encode_event

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.effects import Effect
    from gapless.core.messages import Message

SECOND = 1_000_000
STEPS_MAX = 100_000
CLIENT = ClientName("c")


def star(count: int, *topics: Topic) -> Network:
    """A hub and brokers around it."""
    names = [f"b{index}" for index in range(count)]
    cells = [
        Cell(
            CellName(name),
            (BrokerEntry(BrokerName(name)),),
            () if name == "b0" else (CellName("b0"),),
            subscribers=True,
        )
        for name in names
    ]
    return Network(tuple(cells), topics)


def topic(name: str = "news", *, ordered: bool = False) -> Topic:
    return Topic(TopicName(name), (), "multicast", ordered=ordered)


class Place:
    """One broker: its service, and what its one client was sent."""

    def __init__(self, name: BrokerName, network: Network, config: Config, now: Instant) -> None:
        volume = MemoryVolume()
        self.network = network.own()
        self.subscribers = Subscribers(config, decode_attributes, ClientConnections())
        self.subscribers.clients.connect(CLIENT)
        context = Context(name, self.network, volume, now, EventEncoding(decode_attributes), config)
        context.epoch.is_durable = True
        self.service = Multicast(context, self.subscribers)
        self.told: list[Message] = []


class Ring:
    """Brokers by name."""

    def __init__(self, count: int, *topics: Topic, is_started: bool = True, **limits: Any) -> None:
        self.network = star(count, *topics)
        self.config = Config(**limits)
        self.now = Instant(1_000 * SECOND)
        self.places: dict[str, Place] = {}
        self.is_lost: Callable[[str, str, Message], bool] = lambda *_: False
        self.request = 0
        self._queue: deque[tuple[str, str, Message]] = deque()
        for name in self.network.cell_of if is_started else ():
            self.start(name)
        self.run(6)

    def start(self, name: str) -> Place:
        place = Place(BrokerName(name), self.network, self.config, self.now)
        self.places[name] = place
        self.do(name, place.service.start(self.now))
        return place

    def join(self, name: str, at: str) -> Place:
        """A broker that is in no file and knows of nobody but the one that it is linked to."""
        cell = Cell(CellName(name), (BrokerEntry(BrokerName(name)),), subscribers=True)
        place = Place(BrokerName(name), Network((cell,)), self.config, self.now)
        place.service.joins = True
        self.places[name] = place
        self.do(name, place.service.start(self.now))
        for each in self.network.topics:
            place.network.put_topic(each)
            self.do(name, place.service.add(each, self.now))
        self.do(name, place.service.join(BrokerName(at), self.now))
        return place

    def __getitem__(self, name: str) -> Multicast:
        return self.places[name].service

    def do(self, name: str, effects: list[Effect]) -> None:
        for effect in effects:
            assert isinstance(effect, Send)
            if effect.to == CLIENT:
                self.places[name].told.append(effect.message)
            else:
                self._queue.append((name, effect.to, effect.message))

    def settle(self) -> None:
        for _ in range(STEPS_MAX):
            if not self._queue:
                return
            sender, to, message = self._queue.popleft()
            if to in self.places and not self.is_lost(sender, to, message):
                service = self[to]
                self.do(to, service.receive(BrokerName(sender), message, self.now))
                service.check()
        raise AssertionError("it does not come to rest")

    def run(self, seconds: float) -> None:
        end = Instant(self.now + int(seconds * SECOND))
        for _ in range(STEPS_MAX):
            self.settle()
            dues = [place.service.deadline for place in self.places.values()]
            due = min((each for each in dues if each is not None), default=Instant(end + 1))
            if due > end:
                self.now = end
                return
            self.now = max(self.now, due)
            for name, place in list(self.places.items()):
                if (at := place.service.deadline) is not None and at <= self.now:
                    self.do(name, place.service.fire(self.now))
                    place.service.check()
        raise AssertionError("time does not pass")

    # --- clients ---------------------------------------------------------------------------------

    def subscribe(self, name: str, number: int = 1, condition: str = "", to: str = "news") -> None:
        message = Subscribe(TopicName(to), 100 + number, number, condition)
        self.do(name, self[name].request(CLIENT, message, self.now))
        self.settle()

    def publish(self, name: str, *colours: str, to: str = "news") -> int:
        self.request += 1
        batch = EventBatch.join(encode_event({"colour": each}) for each in colours)
        message = Publish(TopicName(to), self.request, batch)
        self.do(name, self[name].request(CLIENT, message, self.now))
        self.settle()
        return self.request

    def got(self, name: str, number: int = 1) -> list[str]:
        """The colours that a subscription was sent."""
        return [colour for _, colour in self.stream(name, number) if colour]

    def stream(self, name: str, number: int = 1) -> list[tuple[int, str]]:
        """The same with their ticks; a gap has its end and no colour."""
        found: list[tuple[int, str]] = []
        for message in self.places[name].told:
            if isinstance(message, Lost) and number in message.subscriptions:
                found.append((message.span.end, ""))
            if isinstance(message, Deliveries):
                attributes = decode_attributes(message.events)
                for tick, takers, each in zip(
                    message.ticks, message.takers, attributes, strict=True
                ):
                    if number in takers:
                        found.append((tick, str(each["colour"])))
        return found

    def answers(self, name: str) -> list[Message]:
        return [each for each in self.places[name].told if isinstance(each, Receipt | Refused)]


def told(ring: Ring, name: str, kind: type[Message]) -> list[Message]:
    return [each for each in ring.places[name].told if isinstance(each, kind)]


def root_of(ring: Ring, to: str = "news") -> str:
    """The broker that is closest to the topic."""
    book = ring["b0"].book
    names = {book.id_of(BrokerName(name)): name for name in ring.places}
    return names[SPACE.closest(SPACE.topic_id(to, ""), names)]
