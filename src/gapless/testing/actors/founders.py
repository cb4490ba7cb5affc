"""Founders: clients that create and delete topics while everything else goes on.

Theory of operation
    A founder has a list of names and now and then creates or deletes one of them, as the dice say;
    two founders may want the same name, and want it otherwise. It repeats a request until it is
    answered, at the broker that it is sent to. Once, it creates a topic that is its alone and is
    never deleted, and has a publisher and a subscriber come up for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msgspec import structs

from gapless.core.client_messages import Done, Refused
from gapless.core.identity import BrokerName, ClientName, TopicName
from gapless.core.topic_messages import CreateTopic, DeleteTopic, TopicList, TopicsQuery
from gapless.node.directory.catalogue import topic_of
from gapless.testing.actors.clients import MILLISECOND, Publisher, Subscriber

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from gapless.core.messages import Message
    from gapless.node.network import Network
    from gapless.testing.actors.clients import PublisherPlan, SubscriberPlan
    from gapless.testing.links import Connection
    from gapless.testing.world import World


@dataclass(frozen=True, kw_only=True)
class FounderPlan:
    """How one founder behaves; times in microseconds."""

    name: str
    broker: BrokerName
    topics: tuple[TopicName, ...]
    """Names that it creates and deletes."""
    count: int
    """How many requests it makes about them."""
    pubends: int
    pause: int
    patience: int
    publisher: PublisherPlan
    """Of the topic that is its own."""
    subscriber: SubscriberPlan


class Founder:
    """Creates and deletes topics, whatever happens."""

    def __init__(
        self, world: World, plan: FounderPlan, add: Callable[[Publisher | Subscriber], None]
    ) -> None:
        """`add`: takes the clients that come up with its own topic."""
        self._world = world
        self.plan = plan
        self.is_quick = False
        self._add = add
        self._broker = plan.broker
        self._connection: Connection | None = None
        self._connections = 0
        self._request = 0
        self._left = plan.count + 2  # the first two are about its own topic
        self._open: CreateTopic | DeleteTopic | TopicsQuery | None = None
        self.connect()
        world.after(1 + world.dice.randrange(plan.pause), self._pump)

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"{self.plan.name}.{self._connections}")
        self._connection = self._world.connect(name, self, self._broker)
        if self._connection is None:
            self._world.after(20 * MILLISECOND, self.connect)
        else:
            self._send()

    def waiting(self) -> list[str]:
        open_one = self._open is not None
        return [f"{self.plan.name} has {self._left} requests to make"] * (
            bool(self._left) or open_one
        )

    def _pump(self) -> None:
        dice, plan = self._world.dice, self.plan
        if self._open is None:
            self._left -= 1
            self._request += 1
            own, name = plan.publisher.topic, dice.choice(plan.topics)
            if self._left == plan.count + 1:
                self._open = CreateTopic(self._request, own, pubends=plan.pubends)
            elif self._left == plan.count:
                self._open = TopicsQuery(self._request)
            elif dice.random() < 0.5:
                self._open = CreateTopic(self._request, name, pubends=plan.pubends)
            else:
                self._open = DeleteTopic(self._request, name)
            self._send()
        if self._left:
            pause = min(plan.pause, 5 * MILLISECOND) if self.is_quick else plan.pause
            self._world.after(1 + dice.randrange(2 * pause), self._pump)

    def _send(self) -> None:
        if self._open is not None and self._connection is not None:
            self._request += 1  # a number of its own for each attempt
            self._open = replace_request(self._open, self._request)
            self._world.watch.record.founded.ask(self._connection.name, self._open)
            self._connection.send(self._open)
            self._world.after(self.plan.patience, self._repeat, self._request)

    def _repeat(self, request: int) -> None:
        if self._open is not None and self._open.request == request:
            self._send()

    def tell(self, message: Message) -> None:
        if self._open is None or getattr(message, "request", None) != self._open.request:
            return
        match message:
            case Refused(elsewhere=places) if places:
                self._world.reached["a founder was sent to another broker"] += 1
                self._broker = BrokerName(places[0])
                self.hang_up()
            case Refused(retry=True):
                self._world.after(10 * MILLISECOND, self._send)
            case Refused() | Done():
                kind = "refused for good" if isinstance(message, Refused) else "done"
                self._world.reached[f"{type(self._open).__name__.lower()} {kind}"] += 1
                self._open = None
            case TopicList(topics=topics):
                [own] = [each for each in topics if each.name == self.plan.publisher.topic]
                self._world.watch.record.add_topic(topic_of(own))
                self._open = None
                publisher = replace(self.plan.publisher, broker=own.hosts[0])
                for actor in (
                    Publisher(self._world, publisher),
                    Subscriber(self._world, self.plan.subscriber),
                ):
                    actor.is_quick = self.is_quick
                    self._add(actor)
            case _:
                pass

    def hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self.cut_off()

    def cut_off(self) -> None:
        if self._connection is None or self._connection.is_open:
            return  # we hung up before we noticed
        self._connection = None
        self._world.after(self._world.dice.randrange(1, 30 * MILLISECOND), self.connect)


def replace_request(
    message: CreateTopic | DeleteTopic | TopicsQuery, request: int
) -> CreateTopic | DeleteTopic | TopicsQuery:
    return structs.replace(message, request=request)


def draw_founders(
    dice: random.Random,
    network: Network,
    publishers: tuple[PublisherPlan, ...],
    subscribers: tuple[SubscriberPlan, ...],
) -> tuple[FounderPlan, ...]:
    """One run in three has founders. The dice are their own, so that the others' runs stay as they
    are."""
    may = any(len(cell.brokers) == 1 for cell in network.cells)
    if dice.random() > 0.35 or not may or not publishers or not subscribers:
        return ()
    brokers = [broker.name for cell in network.cells for broker in cell.brokers]
    names = tuple(TopicName(f"y{number}") for number in range(dice.choice((1, 3))))
    plans: list[FounderPlan] = []
    for number in range(1, dice.choice((1, 2)) + 1):
        own = TopicName(f"x{number}")
        subscriber = dice.choice(subscribers)
        wishes = tuple((own, text, order) for _, text, order in subscriber.wishes)
        plans.append(
            FounderPlan(
                name=f"F{number}",
                broker=dice.choice(brokers),
                topics=names,
                count=dice.choice((0, 5, 20)),
                pubends=dice.choice((1, 2)),
                pause=dice.choice((5, 50)) * MILLISECOND,
                patience=dice.choice((30, 100)) * MILLISECOND,
                publisher=replace(
                    dice.choice(publishers),
                    name=f"PF{number}",
                    topic=own,
                    start_after=0,
                ),
                subscriber=replace(subscriber, name=f"CF{number}", wishes=wishes),
            )
        )
    return tuple(plans)
