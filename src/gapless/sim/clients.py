"""Clients as small actors: publishers that retry, subscribers that come and go.

Theory of operation
    A client has at most one connection and makes a new one when it breaks. A named publisher
    numbers its events, keeps several requests in flight, and sends the same request again after a
    reconnection, a timeout or a refusal, until it has the receipt. An anonymous one sends each
    request once and takes "unknown" for an answer when its broker dies before the receipt.
    A subscriber consumes at its own pace, changes its subscriptions now and then, and starts
    afresh on every connection. All choices come from the world's dice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Ended,
    Publish,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, PublisherName
from gapless.sim.record import Subscription
from gapless.sim.workload import draw_publication

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.identity import TopicName
    from gapless.core.messages import Message
    from gapless.sim.links import Connection
    from gapless.sim.world import World

MILLISECOND = 1_000


@dataclass(frozen=True, kw_only=True)
class PublisherPlan:
    """How one publisher behaves; times in microseconds."""

    name: str
    broker: BrokerName
    topic: TopicName
    is_named: bool
    event_count: int
    batch_max: int
    window: int
    pause: int
    patience: int
    start_after: int = 0
    """When its first event comes."""


@dataclass(frozen=True, kw_only=True)
class SubscriberPlan:
    """How one subscriber behaves; times in microseconds."""

    name: str
    broker: BrokerName
    wishes: tuple[tuple[TopicName, str, Order], ...]
    """What it may subscribe to: topic, condition, order."""
    pause: int
    """How long it takes over an event."""
    change_after: int
    """About how often it changes its subscriptions."""


class Publisher:
    """Publishes its share, whatever happens."""

    def __init__(self, world: World, plan: PublisherPlan) -> None:
        self._world = world
        self.plan = plan
        self.is_quick = False
        self._broker = plan.broker
        self._connection: Connection | None = None
        self._connections = 0
        self._made = 0
        self._requests = 0
        self._outstanding: dict[int, Publish] = {}
        self._sends: dict[int, int] = {}  # by request: how often it was sent
        self.connect()
        world.after(plan.start_after, self._pump)

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"{self.plan.name}.{self._connections}")
        self._connection = self._world.connect(name, self, self._broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self.connect)
            return
        for request in list(self._outstanding):
            self._send(request)

    def waiting(self) -> list[str]:
        left = self.plan.event_count - self._made
        requests = " ".join(map(str, self._outstanding))
        return [f"{self.plan.name} waits: {left} to send, receipts for {requests or 'none'}"] * (
            bool(left) or bool(self._outstanding)
        )

    def _pump(self) -> None:
        plan, dice = self.plan, self._world.dice
        if self._made >= plan.event_count:
            return
        if self._connection is not None and len(self._outstanding) < plan.window:
            self._publish(min(dice.randint(1, plan.batch_max), plan.event_count - self._made))
        pause = min(plan.pause, 5 * MILLISECOND) if self.is_quick else plan.pause
        self._world.after(1 + int(dice.random() * 2 * pause), self._pump)

    def _publish(self, count: int) -> None:
        plan, dice, record = self.plan, self._world.dice, self._world.watch.record
        encoded: list[bytes] = []
        publisher = PublisherName(plan.name) if plan.is_named else None
        for sequence in range(self._made, self._made + count):
            named = (publisher, sequence) if publisher else None
            publication = draw_publication(dice, plan.topic, f"{plan.name}:{sequence}", named)
            record.publish(publication)
            encoded.append(publication.encoded)
        self._requests += 1
        self._outstanding[self._requests] = Publish(
            plan.topic,
            self._requests,
            EventBatch.join(encoded),
            publisher,
            self._made if publisher else 0,
        )
        self._made += count
        self._send(self._requests)

    def _send(self, request: int) -> None:
        if self._connection is not None and request in self._outstanding:
            message = self._outstanding[request]
            self._world.watch.asked(self._connection.name, message)
            self._connection.send(message)
            if self.plan.is_named:
                self._sends[request] = attempt = self._sends.get(request, 0) + 1
                self._world.after(self.plan.patience, self._repeat, request, attempt)

    def _repeat(self, request: int, attempt: int) -> None:
        """Nothing was heard for too long: ask again, the same."""
        if self._sends[request] == attempt and request in self._outstanding:
            self._world.reached["a publisher lost patience"] += 1
            self._send(request)

    def tell(self, message: Message) -> None:
        if isinstance(message, Receipt):
            self._outstanding.pop(message.request, None)
        elif isinstance(message, Refused) and message.elsewhere:
            self._world.reached["a publisher was sent to another broker"] += 1
            self._broker = BrokerName(message.elsewhere[0])
            self.hang_up()
        elif isinstance(message, Refused) and message.retry:
            self._world.reached["a publication was refused for a while"] += 1
            self._world.after(10 * MILLISECOND, self._send, message.request)

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._connection is None or self._connection.is_open:
            return  # we hung up before we noticed
        self._connection = None
        if not self.plan.is_named:
            if self._outstanding:
                self._world.reached["an anonymous publisher never knew"] += 1
            self._outstanding.clear()
        self._world.after(self._world.dice.randrange(1, 30 * MILLISECOND), self.connect)


class Subscriber:
    """Subscribes, consumes, changes its mind."""

    def __init__(self, world: World, plan: SubscriberPlan) -> None:
        self._world = world
        self.plan = plan
        self.is_quick = False
        self._connection: Connection | None = None
        self._connections = 0
        self._numbers = 0
        self._queue = 0
        self._is_taking = False
        self._asked: dict[int, str] = {}
        self._live: dict[int, None] = {}
        self.connect()
        world.after(1 + world.dice.randrange(2 * plan.change_after), self._change)

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"{self.plan.name}.{self._connections}")
        self._connection = self._world.connect(name, self, self.plan.broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self.connect)
            return
        self._queue = 0
        for _ in range(self._world.dice.randint(1, 3)):
            self._subscribe()

    def waiting(self) -> list[str]:
        if self._connection is None:
            return [f"{self.plan.name} waits for a connection"]
        return [f"{self._connection.name}#{n} waits for its {w}" for n, w in self._asked.items()]

    def _subscribe(self) -> None:
        if self._connection is None or not self._connection.is_open:
            return
        self._numbers += 1
        number = self._numbers
        topic, condition, order = self._world.dice.choice(self.plan.wishes)
        client = self._connection.name
        self._world.watch.record.subscribe(
            Subscription(
                client=client,
                number=number,
                topic=topic,
                condition=condition,
                order=order,
                broker=self.plan.broker,
            )
        )
        self._asked[number] = "start"
        self._connection.send(Subscribe(topic, number, number, condition, order))

    def _change(self) -> None:
        """Now and then: one subscription more, or one less, or a new connection."""
        if self.is_quick:
            return
        dice = self._world.dice
        choice = dice.random()
        if choice < 0.3 and self._live and self._connection is not None:
            number = dice.choice(list(self._live))
            del self._live[number]
            self._asked[number] = "end"
            self._connection.send(Unsubscribe(number))
        elif choice < 0.8 and len(self._live) + len(self._asked) < 5:
            self._subscribe()
        elif choice > 0.9:
            self.hang_up()
        self._world.after(1 + dice.randrange(2 * self.plan.change_after), self._change)

    def tell(self, message: Message) -> None:
        match message:
            case Deliveries():
                self._queue += len(message.ticks)
                self._take_later()
            case Subscribed():
                if self._asked.get(message.subscription) == "start":
                    del self._asked[message.subscription]
                    self._live[message.subscription] = None
            case Ended():
                self._asked.pop(message.subscription, None)
                self._live.pop(message.subscription, None)
                if message.problem:
                    self._world.reached["a slow subscriber was sent away"] += 1
                    self._world.after(self.plan.pause, self._subscribe)
            case Refused():
                self._asked.pop(message.request, None)
                self._world.watch.record.drop(self._name, message.request)
                self._world.after(10 * MILLISECOND, self._subscribe)
            case _:
                pass

    @property
    def _name(self) -> ClientName:
        assert self._connection is not None
        return self._connection.name

    def _take_later(self) -> None:
        if self._queue and not self._is_taking:
            self._is_taking = True
            pause = 0 if self.is_quick else int(self._world.dice.random() * 2 * self.plan.pause)
            self._world.after(pause, self._take, self._connections)

    def _take(self, connection_number: int) -> None:
        self._is_taking = False
        if self._connection is None or connection_number != self._connections:
            self._take_later()
            return
        count = self._queue if self.is_quick else self._world.dice.randint(1, self._queue)
        self._queue -= count
        self._connection.send(Consumed(count))
        self._take_later()

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._connection is None or self._connection.is_open:
            return  # we hung up before we noticed
        self._connection = None
        self._queue = 0
        self._asked.clear()
        self._live.clear()
        self._world.after(self._world.dice.randrange(1, 30 * MILLISECOND), self.connect)
