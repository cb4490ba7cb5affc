"""Topics: what one step of a broker costs with ten topics and with thousands."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from benchmarks.report import Report, cpu_seconds
from gapless.core.client_messages import Consumed, Deliveries, Publish, Subscribe
from gapless.core.effects import Persist, Send, Tell
from gapless.core.events import EventBatch
from gapless.core.identity import BrokerName, ClientName, Instant, TopicName
from gapless.core.topic_messages import CreateTopic
from gapless.node.context import EventEncoding
from gapless.node.network import parse_network
from gapless.node.node import Node
from gapless.testing.memory_volume import MemoryVolume
from gapless.wire.events import decode_attributes, encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gapless.core.effects import Effect

NETWORK = 'cell = [{name = "c", brokers = [{name = "b"}], subscribers = true}]'
ANN = ClientName("ann")
EVENT = EventBatch.join([encode_event({"price": 92.5}, b"x" * 100)])
SECOND = 1_000_000


class Stand:
    """One broker with a client, a disk in memory and a clock of its own."""

    def __init__(self, topics: int) -> None:
        self.now = Instant(SECOND)
        self.volume = MemoryVolume()
        self.node = Node(
            BrokerName("b"),
            parse_network(NETWORK),
            self.volume,
            self.now,
            encoding=EventEncoding(decode_attributes),
        )
        self.do(self.node.start(self.now))
        self.do(self.node.link_up(ANN, self.now))
        for number in range(topics):
            self.receive(CreateTopic(number + 1, TopicName(f"t{number}")))
        self.idle(SECOND)
        self.receive(Subscribe(TopicName("t0"), topics + 1, 1))

    def do(self, effects: Iterable[Effect]) -> None:
        rest = deque(effects)
        while rest:
            match rest.popleft():
                case Persist(writes, then):
                    self.volume.commit(writes)
                    rest.extend(then)
                case Tell(message):
                    rest.extend(self.node.receive(self.node.name, message, self.now))
                case Send(_, Deliveries(ticks=ticks)) if ticks:
                    rest.extend(self.node.receive(ANN, Consumed(len(ticks)), self.now))
                case _:
                    pass

    def receive(self, message: CreateTopic | Subscribe | Publish) -> None:
        self.do(self.node.receive(ANN, message, self.now))

    def publish(self) -> None:
        """One event published, stored and delivered; and when to be woken next."""
        self.now = Instant(self.now + 1)
        self.receive(Publish(TopicName("t0"), 1, EVENT))
        assert self.node.deadline is not None

    def idle(self, duration: int) -> None:
        end = self.now + duration
        while self.node.deadline is not None and self.node.deadline <= end:
            self.now = Instant(max(self.now, self.node.deadline))
            self.do(self.node.fire(self.now))
        self.now = Instant(end)


def run(quick: bool) -> list[Report]:
    report = Report(
        "topics",
        "One event published and delivered, by how many topics there are",
        ("topics", "µs", "× ten topics", "ms for an idle second", "µs of it per topic"),
        notes=["An idle topic says twice a second that it is silent, which is what idling costs."],
    )
    first = 0.0
    for count in (10, 1_000) if quick else (10, 100, 1_000, 10_000):
        stand = Stand(count)
        figure = cpu_seconds(stand.publish)
        first = first or figure
        idle = cpu_seconds(lambda: stand.idle(SECOND), repeats=1)  # noqa: B023 - used at once
        cells = f"{figure * 1e6:.0f}", f"{figure / first:.2f}", f"{idle * 1e3:.1f}"
        report.add(count, *cells, f"{idle * 1e6 / count:.0f}")
    return [report]
