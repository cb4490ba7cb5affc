"""Clients with nothing to hide: publishers that never tire, subscribers that keep up.

Theory of operation
    A publisher makes an event every `period`, whatever happens (an open loop): what cannot be sent
    waits, so that latency counts from when the application had the event. It is named and repeats
    what has no receipt when it is connected again. A subscriber takes everything at once and notes
    when each event came, also the ones it should not have got.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Publish,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, PublisherName
from gapless.testing.record import Publication, Subscription
from gapless_lab.experiments.exactly_once.layout import HOST, make_event

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, Instant, TopicName
    from gapless.core.messages import Message
    from gapless.testing.links import Connection
    from gapless.testing.world import World

RECONNECT_PAUSE = 20_000
"""Microseconds between two attempts of a publisher to connect."""


class SteadyPublisher:
    """Publishes to one topic, one event a request, every `period` microseconds."""

    def __init__(self, world: World, topic: TopicName, period: int, *, is_named: bool) -> None:
        self._world = world
        self._topic = topic
        self._period = period
        self._publisher = PublisherName(f"publisher of {topic}") if is_named else None
        self._connection: Connection | None = None
        self._connections = 0
        self._is_stopped = False
        self._open: dict[int, Publish] = {}  # by request, which is the event's number
        self.published: dict[bytes, tuple[int, Instant]] = {}
        """By event: its number, and when it was made."""
        self._connect()
        world.after(period, self._publish)

    def stop(self) -> None:
        self._is_stopped = True

    def _connect(self) -> None:
        self._connections += 1
        name = ClientName(f"publisher of {self._topic}.{self._connections}")
        self._connection = self._world.connect(name, self, HOST)
        if self._connection is None:
            self._world.after(RECONNECT_PAUSE, self._connect)
            return
        for request in list(self._open):
            self._send(request)

    def _publish(self) -> None:
        if self._is_stopped:
            return
        number, publisher = len(self.published), self._publisher
        encoded = make_event(self._topic, number)
        self._world.watch.record.publish(
            Publication(encoded, {"number": number}, self._topic, publisher, number)
        )
        self.published[encoded] = number, self._world.now
        sequence = number if publisher else 0
        batch = EventBatch.join([encoded])
        self._open[number] = Publish(self._topic, number, batch, publisher, sequence)
        self._send(number)
        if publisher is None:
            del self._open[number]
        self._world.after(self._period, self._publish)

    def _send(self, request: int) -> None:
        if self._connection is not None and request in self._open:
            self._world.watch.asked(self._connection.name, self._open[request])
            self._connection.send(self._open[request])

    def tell(self, message: Message) -> None:
        if isinstance(message, Receipt):
            self._open.pop(message.request, None)
        elif isinstance(message, Refused) and message.retry:
            self._world.after(RECONNECT_PAUSE, self._send, message.request)

    def cut_off(self) -> None:
        self._connection = None
        self._world.after(RECONNECT_PAUSE, self._connect)


class SteadySubscriber:
    """One subscription to each of its topics, on one connection to one broker."""

    def __init__(
        self,
        world: World,
        broker: BrokerName,
        topics: tuple[TopicName, ...],
        *,
        condition: str = "",
        name: str = "",
    ) -> None:
        self._world = world
        self.broker = broker
        self.name = ClientName(name or f"subscriber at {broker}")
        self.started = 0
        self.received: Counter[bytes] = Counter()
        """How often each event came; once is right."""
        self.arrivals: list[tuple[TopicName, bytes, Instant]] = []
        connection = world.connect(self.name, self, broker)
        assert connection is not None, f"{broker} is not up"
        self._connection = connection
        for number, topic in enumerate(topics):
            self._subscribe(number, topic, condition)

    def _subscribe(self, number: int, topic: TopicName, condition: str) -> None:
        subscription = Subscription(
            client=self.name, number=number, topic=topic, condition=condition, order="publisher"
        )
        self._world.watch.record.subscribe(subscription)
        self._connection.send(Subscribe(topic, number, number, condition))

    def tell(self, message: Message) -> None:
        if isinstance(message, Subscribed):
            self.started += 1
        elif isinstance(message, Deliveries) and message.ticks:
            for encoded in message.events:
                self.received[encoded] += 1
                self.arrivals.append((message.topic, encoded, self._world.now))
            self._connection.send(Consumed(len(message.ticks)))

    def cut_off(self) -> None:
        raise AssertionError("no broker with subscribers fails in these experiments")
