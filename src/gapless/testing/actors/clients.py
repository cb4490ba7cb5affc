"""Clients as small actors: publishers that retry, subscribers that come and go.

Theory of operation
    A client has at most one connection and makes a new one when it breaks. A named publisher
    numbers its events, keeps several requests in flight, and sends the same request again after a
    reconnection, a timeout or a refusal, until it has the receipt. An anonymous one sends each
    request once and takes "unknown" for an answer when its broker dies before the receipt.
    Some named ones are several processes with one name: a successor takes it over, asking on each
    connection until it has an answer, and numbers its events from there. The one before knows
    nothing of it: perhaps it is away just then, and comes back to go on where it was. Who is
    refused because its name was taken over has failed; the last of them opens it again instead.
    A subscriber consumes at its own pace, changes its subscriptions now and then, and starts
    afresh on every connection. All choices come from the world's dice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Ended,
    Publish,
    PublisherPosition,
    PublisherQuery,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, PublisherName
from gapless.testing.record import Subscription
from gapless.testing.workload import draw_publication

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.identity import TopicName
    from gapless.core.messages import Message
    from gapless.testing.links import Connection
    from gapless.testing.world import World

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
    opens: str = ""
    """The name that it asks about, and so takes over; without, it uses its own as the first."""
    insists: bool = False
    """Whether it opens its name again when that was taken over."""
    leave_after: int = 0
    """When it has no connection for a while; 0: never."""
    away: int = 0
    """For how long."""


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
        self._publisher = PublisherName(plan.opens or plan.name) if plan.is_named else None
        self._number = 0  # of its next event
        self._term = 0
        self._is_asking = False
        self._openings = 0
        self._back_at = world.now
        self._requests = 0
        self._outstanding: dict[int, Publish] = {}
        self._sends: dict[int, int] = {}  # by request: how often it was sent
        self.connect()
        world.after(plan.start_after, self._begin)
        if plan.leave_after:
            world.after(plan.leave_after, self._leave)

    def connect(self) -> None:
        if self._world.now < self._back_at:
            self._world.at(self._back_at, self.connect)
            return
        self._connections += 1
        name = ClientName(f"{self.plan.name}.{self._connections}")
        self._connection = self._world.connect(name, self, self._broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self.connect)
            return
        self._ask()
        for request in list(self._outstanding):
            self._send(request)

    # --- names that are taken over ---------------------------------------------------------------

    def _begin(self) -> None:
        if self.plan.opens:
            self._open()
        self._pump()

    def _open(self) -> None:
        self._is_asking = True
        self._openings += 1
        self._ask()

    def _ask(self) -> None:
        """Once on each connection, until there is an answer."""
        if self._is_asking and self._connection is not None and self._publisher is not None:
            self._requests += 1
            opening = crc32(f"{self.plan.name} {self._openings}".encode()) + 1
            query = PublisherQuery(self._requests, self.plan.topic, self._publisher, opening)
            self._world.watch.record.openings.ask(self.plan.name, query)
            self._connection.send(query)

    def _taken_over(self) -> None:
        """Nothing that it still holds will ever be published under its numbers."""
        self._world.reached["a publisher whose name was taken over was refused"] += 1
        self._outstanding.clear()
        if not self.plan.insists:
            self._made = self.plan.event_count
        elif not self._is_asking:
            self._open()

    def _leave(self) -> None:
        self._back_at = Instant(self._world.now + self.plan.away)
        self.hang_up()

    # --- publishing ------------------------------------------------------------------------------

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
        is_open = self._connection is not None and not self._is_asking
        if is_open and len(self._outstanding) < plan.window:
            self._publish(min(dice.randint(1, plan.batch_max), plan.event_count - self._made))
        pause = min(plan.pause, 5 * MILLISECOND) if self.is_quick else plan.pause
        self._world.after(1 + int(dice.random() * 2 * pause), self._pump)

    def _publish(self, count: int) -> None:
        plan, dice, record = self.plan, self._world.dice, self._world.watch.record
        encoded: list[bytes] = []
        publisher = self._publisher
        for made in range(count):
            named = (publisher, self._number + made) if publisher else None
            body = f"{plan.name}:{self._made + made}"
            publication = draw_publication(dice, plan.topic, body, named)
            record.publish(publication)
            encoded.append(publication.encoded)
        self._requests += 1
        self._outstanding[self._requests] = Publish(
            plan.topic,
            self._requests,
            EventBatch.join(encoded),
            publisher,
            self._number if publisher else 0,
            self._term,
        )
        self._made += count
        self._number += count
        self._send(self._requests)

    def _send(self, request: int) -> None:
        if self._connection is not None and request in self._outstanding:
            message = self._outstanding[request]
            watch, name = self._world.watch, self._connection.name
            watch.asked(name, message)
            self._connection.send(message)
            if self.plan.is_named:
                watch.record.openings.publish(self.plan.name, name, message)
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
        elif isinstance(message, PublisherPosition):
            self._world.reached["a publisher's name was opened"] += 1
            self._number, self._term, self._is_asking = message.sequence, message.term, False
        elif isinstance(message, Refused) and message.elsewhere:
            self._world.reached["a publisher was sent to another broker"] += 1
            self._broker = BrokerName(message.elsewhere[0])
            self.hang_up()
        elif isinstance(message, Refused) and message.retry:
            self._world.reached["a publication was refused for a while"] += 1
            again = self._send if message.request in self._outstanding else self._again
            self._world.after(10 * MILLISECOND, again, message.request)
        elif isinstance(message, Refused) and message.request in self._outstanding:
            self._taken_over()

    def _again(self, request: int) -> None:
        """The last question, if there was no answer since."""
        if request == self._requests:
            self._ask()

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
