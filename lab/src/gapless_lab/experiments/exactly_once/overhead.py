"""What exactly-once delivery costs beyond best effort: messages, bytes and processor time.

Theory of operation
    The same network, events and subscriptions are played twice: with real nodes, and with the ones
    of `best_effort`. Each subscription has a connection of its own and wants every tenth event of
    one topic. Counting begins when all subscriptions have started. Processor time is that of each
    broker's machine, with decoding what it gets and encoding what it sends, on a clock that the
    caller passes in; disk and sockets are not played and not counted.

Cost: real time grows with events times subscriptions; a thousand of those get 50 copies of each.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gapless.core.effects import Persist, Send
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.node import Node
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes
from gapless.wire.kinds import codec
from gapless_lab.best_effort import BestEffort
from gapless_lab.experiments.exactly_once.actors import SteadyPublisher, SteadySubscriber
from gapless_lab.experiments.exactly_once.fault_run import START_S, run
from gapless_lab.experiments.exactly_once.layout import (
    HOST,
    LOWER,
    SYMBOL_COUNT,
    TOPICS,
    UPPER,
    paper_network,
    subscriber_hosts,
)
from gapless_lab.experiments.meter import SECOND, Meter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.core.effects import Effect
    from gapless.core.identity import BrokerName, ClientName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.process import Machine

Protocol = Literal["exactly once", "best effort"]
PROTOCOLS: tuple[Protocol, ...] = ("exactly once", "best effort")

ROLES = ("pubend host", "relays", "subscriber hosts")

HOST_COUNT = 5


@dataclass(kw_only=True)
class Load:
    """What one run cost."""

    protocol: Protocol
    subscriptions: int
    published: int
    delivered: int
    digest: str
    link_messages: int
    """Between brokers, heartbeats included."""
    link_bytes: int
    client_messages: int
    """From brokers to clients."""
    client_bytes: int
    messages_by_kind: dict[str, int]
    """All that brokers sent."""
    cpu_s: dict[str, float]
    """By role: processor time of all brokers that have it."""


class Clocked:
    """A machine whose processor time is measured, with the codec's share."""

    def __init__(self, name: BrokerName, machine: Machine, clock: Callable[[], float]) -> None:
        self._name = name
        self._machine = machine
        self._clock = clock
        self._codec = codec()
        self.cpu_s = 0.0

    @property
    def deadline(self) -> Instant | None:
        begin = self._clock()
        deadline = self._machine.deadline
        self.cpu_s += self._clock() - begin
        return deadline

    def start(self, now: Instant) -> list[Effect]:
        return self._machine.start(now)

    def receive(self, sender: PeerName, message: Message, now: Instant) -> list[Effect]:
        if sender == self._name:  # never was on a link
            begin = self._clock()
        else:
            payload = self._codec.encode(message)
            begin = self._clock()
            self._codec.decode(payload)
        return self._done(self._machine.receive(sender, message, now), begin)

    def fire(self, now: Instant) -> list[Effect]:
        begin = self._clock()
        return self._done(self._machine.fire(now), begin)

    def _done(self, effects: list[Effect], begin: float) -> list[Effect]:
        encoded: set[int] = set()  # as in the broker: a message that goes to many is encoded once
        for effect in effects:
            for each in effect.then if isinstance(effect, Persist) else (effect,):
                if isinstance(each, Send) and id(each.message) not in encoded:
                    self._codec.encode(each.message)
                    encoded.add(id(each.message))
        self.cpu_s += self._clock() - begin
        return effects

    def link_up(self, peer: PeerName, now: Instant) -> list[Effect]:
        return self._machine.link_up(peer, now)

    def link_down(self, peer: PeerName, now: Instant) -> list[Effect]:
        return self._machine.link_down(peer, now)

    def check(self) -> None:
        self._machine.check()

    def statistics(self) -> Mapping[str, object]:
        return self._machine.statistics()


class QuietWatch(Watch):
    """Shows what is sent to the meter; clients' books are not kept, for they are many."""

    def told(self, client: ClientName, message: Message) -> None:
        pass


def measure(
    protocol: Protocol,
    subscription_count: int,
    *,
    seed: int,
    seconds: float,
    clock: Callable[[], float],
    events_per_s: int = 50,
) -> Load:
    """Play one load for some virtual seconds, and count."""
    network, config = paper_network(HOST_COUNT), Config(propagates=False)
    record = Record(network)
    meter = Meter(record, config, counts_bytes=True)
    machines: dict[BrokerName, Clocked] = {}

    def make(name: BrokerName, store: Store, now: Instant) -> Machine:
        machine: Machine
        if protocol == "exactly once":
            machine = Node(
                name, network, store, now, config=config, encoding=EventEncoding(decode_attributes)
            )
        else:
            machine = BestEffort(name, network, now, config=config, attributes_of=decode_attributes)
        machines[name] = Clocked(name, machine, clock)
        return machines[name]

    trace = Trace()
    world = World(
        network,
        make,
        random.Random(seed),
        trace,
        QuietWatch(record, [meter]),
        check_every=100_000,
    )
    world.start()
    subscribers = subscribe(world, subscription_count)
    publishers = [
        SteadyPublisher(world, topic, SECOND // events_per_s, is_named=False) for topic in TOPICS
    ]
    run(world, START_S)
    assert all(each.started for each in subscribers), "somebody has no start"
    begun = Marks(meter, machines, publishers, subscribers)
    run(world, seconds)
    return begun.load(protocol, trace.digest)


def subscribe(world: World, count: int) -> list[SteadySubscriber]:
    """Spread over the hosts, the topics and the symbols, in this order."""
    hosts = subscriber_hosts(HOST_COUNT)
    found = []
    for number in range(count):
        rest, host = divmod(number, len(hosts))
        rest, topic = divmod(rest, len(TOPICS))
        found.append(
            SteadySubscriber(
                world,
                hosts[host],
                (TOPICS[topic],),
                condition=f"symbol = 'S{rest % SYMBOL_COUNT}'",
                name=f"subscriber {number}",
            )
        )
    return found


class Marks:
    """Where all counts stood when counting began."""

    def __init__(
        self,
        meter: Meter,
        machines: dict[BrokerName, Clocked],
        publishers: list[SteadyPublisher],
        subscribers: list[SteadySubscriber],
    ) -> None:
        meter.reset()
        for machine in machines.values():
            machine.cpu_s = 0.0
        self._meter = meter
        self._machines = machines
        self._publishers = publishers
        self._subscribers = subscribers
        self._published, self._delivered = self._events()

    def _events(self) -> tuple[int, int]:
        return (
            sum(len(each.published) for each in self._publishers),
            sum(len(each.arrivals) for each in self._subscribers),
        )

    def load(self, protocol: Protocol, digest: str) -> Load:
        published, delivered = self._events()
        kinds: dict[str, int] = {}
        messages, volumes = [0, 0], [0, 0]
        for (link, kind), count in sorted(self._meter.messages.items()):
            to_client = link[1] not in self._machines
            messages[to_client] += count
            volumes[to_client] += self._meter.bytes[link, kind]
            kinds[kind] = kinds.get(kind, 0) + count
        cpu: dict[str, float] = {}
        for name, machine in self._machines.items():
            cpu[role_of(name)] = cpu.get(role_of(name), 0.0) + machine.cpu_s
        return Load(
            protocol=protocol,
            subscriptions=len(self._subscribers),
            published=published - self._published,
            delivered=delivered - self._delivered,
            digest=digest,
            link_messages=messages[0],
            link_bytes=volumes[0],
            client_messages=messages[1],
            client_bytes=volumes[1],
            messages_by_kind=kinds,
            cpu_s=cpu,
        )


def role_of(name: BrokerName) -> str:
    """The one of `ROLES` that this broker has."""
    if name == HOST:
        return ROLES[0]
    return ROLES[1] if name in UPPER + LOWER else ROLES[2]
