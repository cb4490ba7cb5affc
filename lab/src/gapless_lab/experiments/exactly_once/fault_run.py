"""One fault in an otherwise healthy network: who was delayed, what was asked for, what arrived.

Theory of operation
    The network starts, subscribers subscribe, publishers begin; after `before_s` the fault strikes,
    after `fault_s` it is over, and the run goes on for `after_s`. Then publishers stop and the
    network may come to rest before the books are closed: what has not arrived then is lost.
    A stream is what one subscriber host gets of one topic. Times count from the first publication.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.ticks import PUBEND_BITS
from gapless.node.config import Config
from gapless.node.context import EventEncoding
from gapless.node.node import Node
from gapless.testing.clock import START
from gapless.testing.record import Record
from gapless.testing.trace import Trace
from gapless.testing.watch import Watch
from gapless.testing.world import World
from gapless.wire.events import decode_attributes
from gapless_lab.experiments.exactly_once.actors import SteadyPublisher, SteadySubscriber
from gapless_lab.experiments.exactly_once.layout import (
    TOPICS,
    level_of,
    paper_network,
    subscriber_hosts,
)
from gapless_lab.experiments.meter import SECOND, Meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from gapless.core.identity import BrokerName, Instant
    from gapless.core.store import Store
    from gapless.node.network import Network
    from gapless.testing.process import Machine

START_S = 2
"""How long the network has to come up, and then subscriptions to start, before publishing."""

STEP_S = 0.25
"""The resolution of time lines."""

REST_S = 10
"""How long what is under way at the end has to arrive."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a run."""

    seed: int
    host_count: int = 5
    events_per_s: int = 50
    """For each of the two topics."""
    before_s: float = 10.0
    fault_s: float = 20.0
    after_s: float = 20.0


class Sample(NamedTuple):
    """One delivery."""

    host: str
    topic: str
    published_s: float
    latency_s: float


@dataclass(kw_only=True)
class Course:
    """What a run showed."""

    fault: str
    begin_s: float
    end_s: float
    behind: list[tuple[str, str]]
    """The streams, by host and topic, that pass where the fault strikes."""
    digest: str
    published: int
    lost: int
    duplicated: int
    out_of_order: int
    samples: list[Sample] = field(repr=False)
    nacks_by_level: dict[str, dict[int, int]]
    """By level of the network: nacks in each second."""
    nacked_s_by_level: dict[str, float]
    """By level: how many seconds of stream were asked for, over all its links."""

    def worst(
        self, begin_s: float = 0.0, end_s: float = float("inf")
    ) -> dict[tuple[str, str], float]:
        """By stream: the longest latency of what was published in that time."""
        found: dict[tuple[str, str], float] = {}
        for host, topic, published_s, latency_s in self.samples:
            if begin_s <= published_s < end_s:
                found[host, topic] = max(latency_s, found.get((host, topic), 0.0))
        return found

    def time_line(self) -> dict[tuple[str, str], list[tuple[float, float]]]:
        """By stream: when published, in steps, and the longest latency in that step."""
        found: dict[tuple[str, str], dict[float, float]] = {}
        for host, topic, published_s, latency_s in self.samples:
            steps = found.setdefault((host, topic), {})
            step = published_s // STEP_S * STEP_S
            steps[step] = max(latency_s, steps.get(step, 0.0))
        return {stream: sorted(steps.items()) for stream, steps in sorted(found.items())}

    def plain(self) -> dict[str, object]:
        """For JSON: all but the single deliveries."""
        rest = {each.name: getattr(self, each.name) for each in fields(self)}
        del rest["samples"]
        lines = {f"{host} {topic}": line for (host, topic), line in self.time_line().items()}
        return {**rest, "worst_latency_s": lines}

    def longest_pause_s(self) -> float:
        """The longest time in which some stream brought nothing."""
        arrivals: dict[tuple[str, str], list[float]] = {}
        for host, topic, published_s, latency_s in self.samples:
            arrivals.setdefault((host, topic), []).append(published_s + latency_s)
        return max(
            later - sooner
            for instants in map(sorted, arrivals.values())
            for sooner, later in pairwise(instants)
        )

    def nacks(self, level: str, begin_s: float = 0.0) -> int:
        counts = self.nacks_by_level.get(level, {})
        return sum(count for second, count in counts.items() if second >= begin_s)


class Struck(NamedTuple):
    """What a fault has hit: a name for it, and the streams that pass there."""

    name: str
    behind: list[tuple[str, str]]


def play(plan: Plan, fault: Callable[[World, Meter, Plan], Struck]) -> Course:
    """Play the fault out; see the module docstring."""
    network = paper_network(plan.host_count)
    config = Config(propagates=False)
    record = Record(network)
    meter = Meter(record, config)
    trace = Trace()
    world = World(
        network,
        node_maker(network, config),
        random.Random(plan.seed),
        trace,
        Watch(record, [meter]),
        check_every=1_000,
    )
    for name in world.processes:  # not all at once, or all would find a fault at the same time
        world.after(world.dice.randrange(config.heartbeat), world.restart, name)
    run(world, START_S)
    subscribers = [
        SteadySubscriber(world, name, TOPICS) for name in subscriber_hosts(plan.host_count)
    ]
    run(world, START_S)
    assert all(each.started == len(TOPICS) for each in subscribers), "somebody has no start"
    meter.reset()
    origin = world.now
    period = SECOND // plan.events_per_s
    publishers = [SteadyPublisher(world, topic, period, is_named=True) for topic in TOPICS]
    run(world, plan.before_s)
    struck = fault(world, meter, plan)
    run(world, plan.fault_s + plan.after_s)
    for publisher in publishers:
        publisher.stop()
    run(world, REST_S)
    return close_books(plan, struck, origin, meter, trace, publishers, subscribers)


def node_maker(network: Network, config: Config) -> Callable[[BrokerName, Store, Instant], Machine]:
    def make(name: BrokerName, store: Store, now: Instant) -> Machine:
        return Node(
            name, network, store, now, config=config, encoding=EventEncoding(decode_attributes)
        )

    return make


def run(world: World, seconds: float) -> None:
    """Play on, a second at a time: the stage takes a great many steps at once for a storm."""
    end = world.now + int(seconds * SECOND)
    while world.now < end:
        world.run(min(SECOND, end - world.now))


def close_books(
    plan: Plan,
    struck: Struck,
    origin: Instant,
    meter: Meter,
    trace: Trace,
    publishers: list[SteadyPublisher],
    subscribers: list[SteadySubscriber],
) -> Course:
    made = {event: fact for each in publishers for event, fact in each.published.items()}
    samples: list[Sample] = []
    out_of_order = 0
    for subscriber in subscribers:
        newest: dict[str, int] = {}
        for topic, event, arrived in subscriber.arrivals:
            number, published = made[event]
            out_of_order += number < newest.get(topic, 0)
            newest[topic] = max(number, newest.get(topic, 0))
            samples.append(
                Sample(
                    subscriber.broker,
                    topic,
                    (published - origin) / SECOND,
                    (arrived - published) / SECOND,
                )
            )
    nacks: dict[str, dict[int, int]] = {}
    offset = (origin - START) // SECOND
    for (link, second), count in sorted(meter.nacks.items()):
        counts = nacks.setdefault(level_of(*link), {})
        counts[second - offset] = counts.get(second - offset, 0) + count
    nacked: dict[str, float] = {}
    for link, ticks in sorted(meter.nacked_ticks.items()):
        nacked[level_of(*link)] = nacked.get(level_of(*link), 0.0) + seconds_of(ticks)
    return Course(
        fault=struck.name,
        begin_s=plan.before_s,
        end_s=plan.before_s + plan.fault_s,
        behind=struck.behind,
        digest=trace.digest,
        published=len(made),
        lost=sum(len(made) - len(each.received) for each in subscribers),
        duplicated=sum(each.received.total() - len(each.received) for each in subscribers),
        out_of_order=out_of_order,
        samples=samples,
        nacks_by_level=nacks,
        nacked_s_by_level=nacked,
    )


def seconds_of(ticks: int) -> float:
    """How much time this many ticks are."""
    return (ticks >> PUBEND_BITS) / SECOND
