"""The setting: a host of pubends, hosts of subscribers right below it, and what is noted of them.

Theory of operation
    One topic with four pubends, all at `p`; an event says to which of four groups it belongs, so
    that a subscription to one group gets a quarter. Every broker is a real node on a processor
    that takes time. Links take 0.2 to 1.0 ms; a write takes what `sync_us` says.
    Ten times a second it is noted how far a host's consolidated stream is, and what is released.

Source: DSN 2003, fig. 3.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from gapless.core.broker_messages import Knowledge, Nack
from gapless.core.effects import Put
from gapless.core.identity import BrokerName, CellName, TopicName
from gapless.core.ticks import PUBEND_BITS
from gapless.durable.subscriptions import RELEASED
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.network import BrokerEntry, Cell, Network, Topic
from gapless.node.node import Node
from gapless.testing.clock import START
from gapless.testing.disk import DiskOptions
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import check_events, decode_attributes
from gapless_lab.experiments.durable.processor import SLOW, Costs, Processor
from gapless_lab.experiments.exactly_once.overhead import Clocked
from gapless_lab.experiments.meter import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gapless.core.effects import Write
    from gapless.core.identity import ClientName, Instant, PeerName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.testing.checkers.checker import Broker as Seen
    from gapless.testing.process import Machine

TOPIC = TopicName("trades")
PUBEND_COUNT = 4
GROUP_COUNT = 4
HOST = BrokerName("p")
SYNC_US = 2_000
"""How long a write takes, where nothing else is said."""

RATE_SCALE = 10
"""Rates are that much lower than the paper's."""

SAMPLES_PER_S = 10

START_S = 2
SLICE = SECOND // 20
"""Played at once: the stage takes a great many steps in one go for a storm."""


class NeverLevelError(Exception):
    """A run does not end: there is more to do than the processor can ever catch up with."""


def config_for(costs: Costs) -> Config:
    """For rates that are a tenth, limits that count events or bytes are a tenth too."""
    if costs is not SLOW:
        return Config()
    names = (
        "catch_up_window",
        "catch_up_total_max",
        "nack_spans_max",
        "filtered_read_max",
        "filtered_walk_max",
        "cache_events_max",
        "waiting_events_max",
        "client_queue_max",
        "catch_up_spans_max",
        "answer_bytes_max",
    )
    usual = Config()
    return replace(usual, **{name: getattr(usual, name) // RATE_SCALE for name in names})


def star(host_count: int, pubend_count: int = PUBEND_COUNT) -> Network:
    """p with s1 .. sN right below it; with none, p hosts the subscribers itself."""
    cell = CellName(HOST)
    return Network(
        cells=(
            Cell(cell, (BrokerEntry(HOST),), subscribers=not host_count),
            *(
                Cell(CellName(name), (BrokerEntry(name),), (cell,), subscribers=True)
                for name in subscriber_hosts(host_count)
            ),
        ),
        topics=(Topic(TOPIC, (HOST,) * pubend_count),),
    )


def chain(broker_count: int) -> Network:
    """p, then relays, then s1: one pubend."""
    names = [HOST, *(BrokerName(f"r{n + 1}") for n in range(broker_count - 2)), BrokerName("s1")]
    return Network(
        cells=tuple(
            Cell(
                CellName(name),
                (BrokerEntry(name),),
                (CellName(names[place - 1]),) if place else (),
                subscribers=name == names[-1],
            )
            for place, name in enumerate(names)
        ),
        topics=(Topic(TOPIC, (HOST,)),),
    )


def subscriber_hosts(count: int) -> list[BrokerName]:
    return [BrokerName(f"s{number + 1}") for number in range(count)]


class QuietWatch(Watch):
    """Counts what brokers ask of one another and answer; clients keep their own books."""

    def __init__(self, record: Record) -> None:
        super().__init__(record, [])
        self.nacks: Counter[tuple[str, int]] = Counter()
        """By sender and second: nacks to other brokers."""
        self.answered: Counter[tuple[str, int]] = Counter()
        """By sender and second: events sent again to another broker because it asked."""
        self.commits: list[int] = []
        """For each write of tokens that became durable: how many were in it."""

    def sent(self, broker: Seen, to: PeerName, message: Message) -> None:
        key = str(broker.name), (broker.now - START) // SECOND
        if isinstance(message, Nack):
            self.nacks[key] += 1
        elif isinstance(message, Knowledge) and message.requested:
            self.answered[key] += len(message.ticks)

    def received(self, broker: Seen, sender: PeerName, message: Message) -> None:
        pass

    def committed(self, broker: Seen, writes: Iterable[Write]) -> None:
        tokens = sum(isinstance(each, Put) and each.table == RELEASED for each in writes)
        if tokens:
            self.commits.append(tokens)

    def told(self, client: ClientName, message: Message) -> None:
        pass


@dataclass(kw_only=True)
class Position:
    """One pubend at one host of subscribers, at one moment."""

    second: float
    latest_ms: float
    """Below it everything is delivered and logged; in milliseconds since the start."""
    released_ms: float
    is_up: bool


@dataclass(kw_only=True)
class Positions:
    """One pubend at one host, again and again."""

    rows: list[Position] = field(default_factory=list)

    def rates(self, of: Callable[[Position], float]) -> list[tuple[float, float]]:
        """By second: milliseconds of ticks that were advanced in the second before."""
        whole = self.rows[::SAMPLES_PER_S]
        return [(later.second, of(later) - of(sooner)) for sooner, later in pairwise(whole)]


class Setting:
    """A network that is up."""

    def __init__(
        self,
        network: Network,
        *,
        seed: int,
        sync_us: int = SYNC_US,
        costs: Costs = SLOW,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.network = network
        self.nodes: dict[BrokerName, Node] = {}
        self.clocked: dict[BrokerName, Clocked] = {}
        self.busy_us: dict[BrokerName, Counter[int]] = {}
        self._costs = costs
        self._clock = clock
        self._config = config_for(costs)
        self.trace = Trace()
        self.watch = QuietWatch(Record(network))
        self.world = World(
            network, self._make, random.Random(seed), self.trace, self.watch, check_every=5_000
        )
        for process in self.world.processes.values():
            process.disk.options = DiskOptions(sync_min=sync_us, sync_spread=1)
        self.world.start()
        self.play(START_S)

    def _make(self, name: BrokerName, store: Store, now: Instant) -> Machine:
        self.nodes[name] = node = Node(
            name,
            self.network,
            store,
            now,
            config=self._config,
            encoding=EventEncoding(decode_attributes, check_events),
        )
        machine: Machine = node
        if self._clock is not None:
            before = self.clocked.get(name)
            machine = self.clocked[name] = Clocked(name, node, self._clock)
            machine.cpu_s = before.cpu_s if before else 0.0
        processor = Processor(machine, self._costs)
        processor.busy_us = self.busy_us.setdefault(name, processor.busy_us)
        return processor

    @property
    def second(self) -> int:
        return (self.world.now - START) // SECOND

    @property
    def instant_s(self) -> float:
        return (self.world.now - START) / SECOND

    def play(self, seconds: float) -> None:
        end = self.world.now + round(seconds * SECOND)
        while self.world.now < end:
            self.world.run(min(SLICE, end - self.world.now))

    def play_until(self, is_done: Callable[[], bool], seconds_max: float) -> float:
        """Play until it is so; the second at which it was. NeverLevelError if it takes too long."""
        limit = self.world.now + round(seconds_max * SECOND)
        while not is_done():
            if self.world.now >= limit:
                raise NeverLevelError(f"not level again within {seconds_max:g} s")
            self.play(0.1)
        return self.instant_s

    def busy(self, name: BrokerName, begin: int, end: int) -> float:
        """What share of these seconds the broker's processor was busy."""
        counts = self.busy_us.get(name, Counter[int]())
        return sum(counts[second] for second in range(begin, end)) / (end - begin) / SECOND

    def observe(self, host: BrokerName, positions: Positions) -> None:
        """Note from now on where pubend 0 stands at a host."""
        pubend = self.network.topic[TOPIC].pubends[0].name
        is_up = self.world.processes[host].is_up
        durables = self.nodes[host].durable.named  # of one that is down: what it was
        latest, released = durables.position(pubend, 0)
        positions.rows.append(
            Position(
                second=self.instant_s,
                latest_ms=ms_of(latest),
                released_ms=ms_of(released),
                is_up=is_up,
            )
        )
        self.world.after(SECOND // SAMPLES_PER_S, self.observe, host, positions)


def ms_of(tick: int) -> float:
    return ((tick >> PUBEND_BITS) - START) / 1000
