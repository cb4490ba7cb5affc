"""One played network of real nodes, with crowds of publishers and listeners.

Theory of operation
    A crowd stands for many publishers at one broker: one event a request, evenly spread in time,
    whoever's turn it is. A listener is one connection with any number of subscriptions; it takes
    everything at once and notes what came when. Links and disks are those of the simulator without
    faults: 0.2 to 1.0 ms a link, 0.2 to 1.2 ms a write. Handling takes no virtual time; where
    asked for, processor time is measured on a clock that the caller passes in.
"""

from __future__ import annotations

import gc
import random
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Publish,
    Subscribe,
    Subscribed,
    Unsubscribe,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.node import Node
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import check_events, decode_attributes, encode_event
from gapless_lab.experiments.exactly_once.overhead import Clocked
from gapless_lab.experiments.meter import SECOND
from gapless_lab.experiments.propagation.tally import Tallies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.effects import Write
    from gapless.core.events import Attributes
    from gapless.core.identity import Instant, PeerName, TopicName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.testing.checkers.checker import Broker
    from gapless.testing.process import Machine

Scheme = str
PROPAGATION: Scheme = "propagation"
FLOODING: Scheme = "flooding"
SCHEMES = (PROPAGATION, FLOODING)

BODY_BYTES = 200
"""Of each event; with its attributes it is some 250 bytes long."""

SLICE = SECOND // 50
"""Played at once: the stage takes a great many steps in one go for a storm."""


class TallyWatch(Watch):
    """Shows everything to the tallies; clients keep their own books."""

    def __init__(self, record: Record, tallies: Tallies) -> None:
        super().__init__(record, [])
        self._tallies = tallies

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        self._tallies.sent(broker, to, message)

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        self._tallies.received(broker, sender, message)

    def committed(self, broker: Broker, writes: Iterable[Write]) -> None:
        pass

    def told(self, client: ClientName, message: Message) -> None:
        pass


class Setting:
    """A network that is up. What brokers handle is in `tallies`; nodes are at hand in `nodes`."""

    def __init__(
        self,
        network: Network,
        scheme: Scheme,
        *,
        seed: int,
        clock: Callable[[], float] | None = None,
        machine_of: dict[BrokerName, str] | None = None,
    ) -> None:
        self.network = network
        self.nodes: dict[BrokerName, Node] = {}
        self.clocked: dict[BrokerName, Clocked] = {}
        self._config = Config(propagates=scheme == PROPAGATION)
        self._clock = clock
        record = Record(network)
        self.tallies = Tallies(record, self._config, machine_of or {})
        self.trace = Trace()
        self.world = World(
            network,
            self._make,
            random.Random(seed),
            self.trace,
            TallyWatch(record, self.tallies),
            check_every=100_000,
        )
        self.world.start()
        self.play(2)

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Machine:
        tally = self.tallies.of(name)

        def attributes_of(batch: EventBatch) -> list[Attributes]:
            tally.matchings += 1  # nobody else asks for attributes
            tally.matches += len(batch)
            return decode_attributes(batch)

        self.nodes[name] = node = Node(
            name,
            self.network,
            store,
            now,
            config=self._config,
            encoding=EventEncoding(attributes_of, check_events),
        )
        if self._clock is None:
            return node
        self.clocked[name] = Clocked(name, node, self._clock)
        return self.clocked[name]

    def play(self, seconds: float) -> None:
        end = self.world.now + int(seconds * SECOND)
        while self.world.now < end:
            self.world.run(min(SLICE, end - self.world.now))

    def count(self, seconds: float) -> None:
        """Play on, and count nothing else. What all the brokers hold in this one process is set
        aside for the time, or each would pay for looking through it again and again."""
        self.tallies.reset()
        for machine in self.clocked.values():
            machine.cpu_s = 0.0
        gc.collect()
        gc.freeze()
        self.play(seconds)
        gc.unfreeze()


class Crowd:
    """Publishers at one broker, who take turns. `make` says what event number n is."""

    def __init__(
        self,
        setting: Setting,
        broker: BrokerName,
        make: Callable[[int], tuple[TopicName, Attributes]],
        name: str = "crowd",
    ) -> None:
        self._world = setting.world
        self._make = make
        self._name = ClientName(name)
        self.published: dict[bytes, tuple[int, Instant]] = {}
        """By event: its number, and when it was made."""
        connection = self._world.connect(self._name, self, broker)
        assert connection is not None, f"{broker} is not up"
        self._connection = connection
        self._pace = 0  # which call of `publish` counts
        self._begun = self._world.now
        self._made = 0  # since then

    def publish(self, events_per_s: float) -> None:
        """From now on at this rate; 0 stops."""
        self._pace += 1
        self._begun, self._made = self._world.now, 0
        if events_per_s:
            self._next(self._pace, events_per_s)

    def _next(self, pace: int, events_per_s: float) -> None:
        due = self._begun + int((self._made + 0.5) * SECOND / events_per_s)
        self._world.after(due - self._world.now, self._publish, pace, events_per_s)

    def _publish(self, pace: int, events_per_s: float) -> None:
        if pace != self._pace:
            return
        number = len(self.published)
        topic, attributes = self._make(number)
        body = f"{self._name} {number} ".encode().ljust(BODY_BYTES, b".")
        encoded = encode_event(attributes, body)
        self.published[encoded] = number, self._world.now
        message = Publish(topic, number, EventBatch.join([encoded]))
        self._connection.send(message)
        self._made += 1
        self._next(pace, events_per_s)

    def tell(self, message: Message) -> None:
        """Receipts: nothing fails here that would need one."""

    def cut_off(self) -> None:
        raise AssertionError("no broker with publishers fails in these experiments")


class Listener:
    """One connection with subscriptions, by number."""

    def __init__(self, setting: Setting, broker: BrokerName, name: str) -> None:
        self._world = setting.world
        connection = self._world.connect(ClientName(name), self, broker)
        assert connection is not None, f"{broker} is not up"
        self._connection = connection
        self.asked: dict[int, Instant] = {}
        self.started: dict[int, Instant] = {}
        self.starts: dict[int, dict[str, int]] = {}
        self.first: dict[int, Instant] = {}
        """By subscription: when its first event came."""
        self.arrivals: list[tuple[bytes, tuple[int, ...], int, Instant]] = []
        """Event, the subscriptions that get it, its tick, when it came."""
        self.on_start: Callable[[int], object] = lambda _number: None

    def subscribe(self, topic: TopicName, condition: str) -> int:
        number = len(self.asked)
        self.asked[number] = self._world.now
        self._connection.send(Subscribe(topic, number, number, condition))
        return number

    def unsubscribe(self, number: int) -> None:
        self._connection.send(Unsubscribe(number))

    @property
    def is_started(self) -> bool:
        return len(self.started) == len(self.asked)

    def tell(self, message: Message) -> None:
        now = self._world.now
        if isinstance(message, Subscribed):
            self.started[message.subscription] = now
            self.starts[message.subscription] = message.start
            self.on_start(message.subscription)
        elif isinstance(message, Deliveries) and message.ticks:
            for tick, encoded, takers in zip(
                message.ticks, message.events, message.takers, strict=True
            ):
                self.arrivals.append((encoded, takers, tick, now))
                for number in takers:
                    self.first.setdefault(number, now)
            self._connection.send(Consumed(len(message.ticks)))

    def cut_off(self) -> None:
        raise AssertionError("no broker with subscribers fails in these experiments")
