"""A record made by hand, of one name at one pubend, for the tests of checkers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gapless.core.client_messages import (
    Deliveries,
    Lost,
    Subscribe,
    Subscribed,
)
from gapless.core.effects import Append, Chop, Put
from gapless.core.events import EventBatch
from gapless.core.identity import (
    BrokerName,
    ClientName,
    Instant,
    PubendName,
    SubscriptionName,
    TopicName,
)
from gapless.core.ticks import Span
from gapless.node.config import Config
from gapless.node.network import Network, Topic
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.record import Publication, Record, Subscription
from gapless.testing.run import CHECKERS
from gapless.testing.shapes import cell
from gapless.testing.watch import Watch
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from gapless.testing.named import Named

TOPIC, CLIENT, HOST = TopicName("t"), ClientName("c"), BrokerName("a")
PUBEND, NAME = PubendName("t/0"), SubscriptionName("desk")


class Host:
    """A broker as checkers see it."""

    def __init__(self) -> None:
        self.name = HOST
        self.incarnation = 1
        self.clock_jumps = 0
        self.now = Instant(1_000)
        self.store = MemoryVolume()

    def statistics(self) -> dict[str, object]:
        return {}


class Facts:
    """A short way to make facts about one name at one pubend; events are known by their tick."""

    def __init__(self, **policy: int) -> None:
        topic = Topic(TOPIC, (HOST,), **policy)  # type: ignore[arg-type]  # a retention
        network = Network((cell("a", 1, subscribers=True),), (topic,))
        self.record = Record(network)
        self.watch = Watch(self.record, [each(self.record, Config()) for each in CHECKERS])
        self.host = Host()
        self._number = 0

    def log(self, *ticks: int) -> None:
        for tick in ticks:
            encoded = encode_event({"price": tick}, str(tick).encode())
            self.record.publish(Publication(encoded, {"price": tick}, TOPIC))
            self.write(Append(f"log/{PUBEND}", (tick,), (encoded,)))

    def write(self, *writes: Any) -> None:
        self.watch.committed(self.host, writes)

    def put(self, table: str, value: object) -> None:
        self.write(Put(table, NAME, json.dumps(value).encode()))

    def ask(self, named: Named, condition: str = "", **asked: Any) -> Subscription:
        self._number += 1
        number = self._number
        session = Subscription(
            client=CLIENT,
            number=number,
            topic=TOPIC,
            condition=condition,
            order="publisher",
            named=named,
            asked=Subscribe(TOPIC, number, number, condition, name=NAME, **asked),
        )
        self.record.subscribe(session)
        return session

    def attach(
        self, named: Named, start: int, condition: str = "", *, level: bool = False, **asked: Any
    ) -> Subscription:
        session = self.ask(named, condition, **asked)
        behind = () if level else (PUBEND,)
        told = Subscribed(session.number, session.number, {PUBEND: start}, behind)
        self.watch.sent(self.host, CLIENT, told)
        self.watch.told(CLIENT, told)
        return session

    def deliver(self, session: Subscription, through: int, *ticks: int) -> None:
        log = self.record.logs[PUBEND].events
        only = session.number if PUBEND in session.behind else None
        events = EventBatch.join([log[tick] for tick in ticks])
        takers = ((session.number,),) * len(ticks)
        message = Deliveries(TOPIC, through, PUBEND, ticks, events, takers, only)
        self.watch.told(CLIENT, message)

    def consume(self, session: Subscription, through: int, *ticks: int) -> None:
        self.watch.consume(session, PUBEND, list(ticks), through)

    def lose(self, session: Subscription, start: int, end: int) -> None:
        self.watch.told(CLIENT, Lost((session.number,), PUBEND, Span(start, end)))

    def chop(self, tick: int) -> None:
        self.write(Chop(f"log/{PUBEND}", tick))
