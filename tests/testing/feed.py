"""A network of real nodes with a reliable topic, clients at every broker, and faults from dice.

What each subscription gets of each source is held against what that source accepted. A client is
anonymous and gone with its broker; another takes its place when the broker is back.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.client_messages import (
    Consumed,
    Deliveries,
    Publish,
    Receipt,
    Refused,
    Subscribe,
    Subscribed,
    Unreached,
)
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, TopicName
from gapless.filters.filter import Filter
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.dispatch import KINDS
from gapless.node.network import Network, Topic
from gapless.node.node import Node
from gapless.testing.record import Record
from gapless.testing.shapes import cell
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes, encode_event
from gapless.wire.kinds import codec

if TYPE_CHECKING:
    from gapless.core.identity import Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker as Watched
    from gapless.testing.links import Connection

FEED = TopicName("feed")
CONDITIONS = ("", "k > 0", "k = 2", "k IN (0, 1)")
MILLISECOND = 1_000
STEP = 60 * MILLISECOND
A_WHILE = 600 * MILLISECOND
CONFIG = Config(failures_tolerated=2, tree_beat=20 * MILLISECOND, tree_patience=60 * MILLISECOND)


class Sent(Watch):
    """Notes which event got which place; nothing else that brokers do is looked at."""

    def __init__(self, network: Network) -> None:
        super().__init__(Record(network), [])
        self.requests: dict[tuple[str, int], list[int]] = {}  # what was asked for: values of k
        self.accepted: dict[str, dict[int, int]] = {}  # by source: tick and k

    def sent(self, broker: Watched, to: PeerName, message: Message) -> None:
        if isinstance(message, Receipt):
            asked = self.requests[to, message.request]
            places = dict(zip(message.ticks, asked, strict=True))
            self.accepted.setdefault(message.pubend, {}).update(places)

    def received(self, broker: Watched, sender: PeerName, message: Message) -> None: ...
    def told(self, client: ClientName, message: Message) -> None: ...


@dataclass
class Reader:
    """One client with one subscription, and what it got: by source, the ticks."""

    condition: str
    request: int
    accepted: dict[str, dict[int, int]]
    got: dict[str, list[int]] = field(default_factory=dict)
    has_begun: bool = False
    unreached: tuple[BrokerName, ...] = ()
    reached_at: dict[str, int] | None = (
        None  # by source, the ticks before it was told it reached all
    )
    is_refused: bool = False
    connection: Connection | None = None

    def tell(self, message: Message) -> None:
        match message:
            case Unreached(brokers=brokers):
                self.unreached = brokers
            case Subscribed():
                self.has_begun = True
            case Deliveries(pubend=pubend, ticks=ticks):
                assert self.has_begun
                self.got.setdefault(str(pubend), []).extend(ticks)
                if self.connection is not None:
                    self.connection.send(Consumed(len(ticks)))
            case Refused(request=request):
                self.is_refused |= request == self.request
            case _:
                pass
        if self.has_begun and not self.unreached and self.reached_at is None:
            self.reached_at = {source: max(ticks) for source, ticks in self.accepted.items()}

    def cut_off(self) -> None:
        self.connection = None


class Play:
    """The network, played from a seed."""

    def __init__(self, seed: int, brokers: int = 6) -> None:
        self.dice = random.Random(seed)
        names = [f"b{number}" for number in range(brokers)]
        cells = [cell(names[0], 1)]
        for number, name in enumerate(names[1:]):
            near = names[max(0, number - self.dice.randrange(3))]
            cells.append(cell(name, 1, [near]))
        network = Network(tuple(cells), (Topic(FEED, (), "reliable"),))
        self.sent = Sent(network)
        self.world = World(
            network, self._make, self.dice, Trace(), self.sent, codec=codec(*KINDS), check_every=7
        )
        self.network = network
        self.readers: dict[BrokerName, Reader] = {}
        self.past: list[Reader] = []
        self.requests = 0
        self.world.start()
        self.world.run(A_WHILE)

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Node:
        return Node(
            name, self.network, store, now, encoding=EventEncoding(decode_attributes), config=CONFIG
        )

    def reader(self, broker: BrokerName) -> Reader | None:
        """The client at a broker, with a subscription; None while the broker is down."""
        reader = self.readers.get(broker)
        if reader is not None and reader.connection is not None and reader.connection.is_open:
            if reader.is_refused:  # its broker had just started
                reader.is_refused = False
                reader.connection.send(Subscribe(FEED, reader.request, 1, reader.condition))
            return reader
        if reader is not None:
            self.past.append(self.readers.pop(broker))
        self.requests += 1
        reader = Reader(self.dice.choice(CONDITIONS), self.requests, self.sent.accepted)
        name = ClientName(f"{broker}.{self.requests}")
        reader.connection = self.world.connect(name, reader, broker)
        if reader.connection is None:
            return None
        self.readers[broker] = reader
        reader.connection.send(Subscribe(FEED, self.requests, 1, reader.condition))
        return reader

    def publish(self, broker: BrokerName, *values: int) -> None:
        """Events with these values of k, or some that dice choose."""
        reader = self.reader(broker)
        if reader is None or reader.connection is None:
            return
        self.requests += 1
        wanted = list(values) or [self.dice.randrange(4) for _ in range(1 + self.dice.randrange(3))]
        self.sent.requests[reader.connection.name, self.requests] = wanted
        batch = EventBatch.join([encode_event({"k": k}) for k in wanted])
        reader.connection.send(Publish(FEED, self.requests, batch))

    def storm(self, steps: int) -> None:
        """Publications everywhere, and at any time at most as many faults as are tolerated."""
        names, ends = list(self.world.processes), list[int]()
        for step in range(steps):
            ends = [end for end in ends if end > step]
            if len(ends) < CONFIG.failures_tolerated and self.dice.random() < 0.5:
                lasts = 1 + self.dice.randrange(8)
                ends.append(step + lasts + 3)
                self._fault(names, lasts * STEP)
            for name in names:
                self.publish(name)
            self.world.run(STEP)

    def _fault(self, names: list[BrokerName], lasts: int) -> None:
        one, other = self.dice.sample(names, 2)
        if self.dice.random() < 0.5:
            self.world.processes[one].crash(lasts)
            for name in names:
                if self.dice.random() < 0.5:
                    self.world.processes[name].link_down(ClientName(one))
            return
        for pair in ((one, other), (other, one)):
            self.world.links.cut(*pair)
            if self.dice.random() < 0.5:  # it may be told at once, or not
                self.world.processes[pair[0]].link_down(ClientName(pair[1]))
        self.world.after(lasts, self._mend, one, other)

    def _mend(self, one: BrokerName, other: BrokerName) -> None:
        for pair in ((one, other), (other, one)):
            self.world.links.cuts.pop(pair, None)

    # --- what must hold --------------------------------------------------------------------------

    def wanted(self, reader: Reader, source: str) -> list[int]:
        condition, accepted = Filter.parse(reader.condition), self.sent.accepted[source]
        return [tick for tick, k in sorted(accepted.items()) if condition.matches({"k": k})]

    def holes(self) -> list[str]:
        """Where what a subscription got of a source is no contiguous run of what it wants."""
        found: list[str] = []
        for reader in (*self.past, *self.readers.values()):
            for source, ticks in reader.got.items():
                wanted = self.wanted(reader, source)
                first = wanted.index(ticks[0]) if ticks[0] in wanted else len(wanted)
                if ticks != wanted[first : first + len(ticks)]:
                    found.append(f"{reader.condition!r} of {source}: {ticks} of {wanted}")
        return found

    def missing(self) -> list[str]:
        """Of sources that live, what those who are connected have not got of the last."""
        living = {source_of(self.node(name)) for name in self.world.processes}
        return [
            f"{reader.condition!r} of {source}"
            for reader in self.readers.values()
            for source in sorted(living & self.sent.accepted.keys())
            if (wanted := self.wanted(reader, source))
            and reader.got.get(source, [])[-1:] != wanted[-1:]
        ]

    def untold(self) -> list[str]:
        """Of sources that live, what those who were told that they reach everybody, and are
        connected, have missed since."""
        living = {source_of(self.node(name)) for name in self.world.processes}
        return [
            f"{reader.condition!r} of {source}: {sorted(missed)}"
            for reader in self.readers.values()
            if reader.reached_at is not None
            for source in sorted(living & self.sent.accepted.keys())
            if (
                missed := {
                    tick
                    for tick in self.wanted(reader, source)
                    if tick > reader.reached_at.get(source, 0)
                }.difference(reader.got.get(source, ()))
            )
        ]

    def waiting(self) -> list[str]:
        """What is not at rest though all is well."""
        return [
            f"{name} has {count} {what}"
            for name in self.world.processes
            for what, count in self.tree(name).items()
            if count and what.startswith(("part", "tagged", "asking", "queued", "held"))
        ]

    def node(self, name: BrokerName) -> Node:
        node = self.world.processes[name].node
        assert isinstance(node, Node)
        return node

    def tree(self, name: BrokerName) -> dict[str, object]:
        return self.node(name).services.by_name["reliable"].statistics()


def source_of(node: Node) -> str:
    return f"{FEED}/{node.name}/{node.epoch.number}"
