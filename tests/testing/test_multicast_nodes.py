"""Whole brokers with an ordered multicast topic, under loss and crashes: the same `Node` that runs.

Every client that is connected gets consecutive ticks of one and the same log from where it was told
to begin, or a gap that says what it missed; and all that was confirmed reaches all in the end.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Lost,
    Publish,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
)
from gapless.core.events import EventBatch
from gapless.core.identity import ClientName, TopicName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.dispatch import KINDS
from gapless.node.multicast.name_book import SPACE
from gapless.node.multicast.requests import TICK_BITS
from gapless.node.node import Node
from gapless.testing.links import LinkOptions
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes, encode_event
from gapless.wire.kinds import codec
from tests.node.ring import star, topic

if TYPE_CHECKING:
    from gapless.core.identity import BrokerName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.links import Connection

SECOND = 1_000_000
NEWS = TopicName("news9")
"""Its owner is its root too: so one that comes back creates what it had been the root of."""
CONFIG = Config(multicast_beat=SECOND // 4, multicast_children_max=2)
LOSSY = LinkOptions(loss=0.03, duplicate=0.03, overtake=0.05)


class NoWatch(Watch):
    """What the checkers of the durable service look for is not here."""

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        pass

    def told(self, client: ClientName, message: Message) -> None:
        pass

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        pass

    def gone(self, client: ClientName) -> None:
        pass


class Customer:
    """At one broker: subscribes on every connection, publishes now and then."""

    def __init__(self, world: World, broker: BrokerName, log: dict[int, int]) -> None:
        self.world = world
        self.broker = broker
        self.log = log
        self.position: int | None = None  # of the present session
        self.confirmed: list[int] = []
        self.gaps = 0
        self._connections = 0
        self._asked: dict[int, int] = {}
        self._request = 0
        self._connection: Connection | None = None
        self.connect()

    def connect(self) -> None:
        self._connections += 1
        name = ClientName(f"{self.broker}.{self._connections}")
        self.position = None
        self._connection = self.world.connect(name, self, self.broker)
        if self._connection is None:
            self.world.after(SECOND // 2, self.connect)
        else:
            self._connection.send(Subscribe(NEWS, 1, 1))

    def cut_off(self) -> None:
        self._asked.clear()  # it may be published or not
        self.connect()

    def publish(self, number: int) -> None:
        if self._connection is None:
            return
        self._request += 1
        batch = EventBatch((encode_event({"i": number}),))
        self._asked[1 + self._request] = number
        self._connection.send(Publish(NEWS, 1 + self._request, batch))

    def tell(self, message: Message) -> None:
        match message:
            case Subscribed(start=start):
                [self.position] = start.values()
            case Deliveries(ticks=ticks, events=events, through=through):
                for tick, each in zip(ticks, decode_attributes(events), strict=True):
                    assert tick == self.position, "an event is missing, or comes twice"
                    assert self.log.setdefault(tick, int(str(each["i"]))) == each["i"], "two orders"
                    self.position = through
                assert self._connection is not None
                self._connection.send(Consumed(len(ticks)))
            case Lost(span=span):
                assert span.start == self.position
                self.position = span.end
                self.gaps += 1
            case Receipt(request=request, ticks=(tick,)):
                number = self._asked.pop(request)
                assert tick == -1 or self.log.setdefault(tick, number) == number
                self.confirmed.append(number)
            case Refused(request=1):
                self.world.after(SECOND // 2, self._again)
            case Refused(request=request):
                self._asked.pop(request)
            case _:
                raise AssertionError(message)

    def _again(self) -> None:
        if self._connection is not None and self._connection.is_open and self.position is None:
            self._connection.send(Subscribe(NEWS, 1, 1))


class Play:
    """Five brokers, a customer at each; what happens is drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.network = star(5, topic(NEWS, ordered=True))
        self.log: dict[int, int] = {}
        self.world = World(
            self.network,
            self._make,
            self.dice,
            Trace(),
            NoWatch(Record(self.network), []),
            links=LOSSY,
            codec=codec(*KINDS),
            check_every=7,
        )
        self.world.start()
        self.customers = [Customer(self.world, name, self.log) for name in self.world.processes]

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Node:
        return Node(
            name, self.network, store, now, encoding=EventEncoding(decode_attributes), config=CONFIG
        )

    @property
    def root(self) -> BrokerName:
        nodes = {SPACE.node_id(name): name for name in self.world.processes}
        return nodes[SPACE.closest(SPACE.topic_id(NEWS, ""), nodes)]

    def go_on(self, first: int, count: int) -> None:
        for number in range(first, first + count):
            self.dice.choice(self.customers).publish(number)
            self.world.run(SECOND // 5)


@pytest.mark.parametrize("seed", range(4))
def test_an_ordered_topic_is_gapless_at_whole_brokers_through_crashes(seed: int) -> None:
    play = Play(seed)
    play.world.run(4 * SECOND)
    for round_number in range(3):
        names = list(play.world.processes) if round_number else [play.root]
        down_for = play.dice.choice((SECOND // 5, SECOND, 5 * SECOND))
        play.world.processes[play.dice.choice(names)].crash(down_for)
        play.go_on(100 * round_number, 30)
        play.world.run(3 * SECOND)  # a majority must be there again
    play.world.heal()
    play.world.run(12 * SECOND)
    play.go_on(1_000, 5)
    play.world.run(4 * SECOND)
    positions = {each.position for each in play.customers}
    assert len(positions) == 1, "someone lags behind"
    confirmed = [number for each in play.customers for number in each.confirmed]
    assert len(confirmed) == len(set(confirmed)) > 40
    assert set(confirmed) <= set(play.log.values())
    assert len(set(play.log.values())) == len(play.log), "one event has two places"
    assert all(tick % (1 << TICK_BITS) == 0 for tick in play.log)
    assert not any(each.gaps for each in play.customers)


def test_the_same_seed_takes_the_same_course() -> None:
    def digest(seed: int) -> str:
        play = Play(seed)
        play.world.run(2 * SECOND)
        play.go_on(0, 10)
        return play.world.trace.digest

    assert digest(1) == digest(1)
    assert digest(1) != digest(2)
