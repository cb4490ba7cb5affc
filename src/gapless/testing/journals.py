"""Journals of real clients, held against the same promises as a simulated run.

Theory of operation
    A publisher's journal has what it sent and how much of that it was told to be durable; a
    subscriber's has what it was handed, session by session; the logs are read from the disks of
    the brokers that host pubends, when all is over. From these a record is made as if it had been
    watched: the logs first, then the receipts, then every session. The checkers are those of the
    simulator. A client cannot see whether its broker counts it as level or behind, so a named one
    is taken as behind all the time, which forbids it nothing but an unjust loss.

Invariants
    I1  a log must be whole: nothing of it was released (someone who never acknowledges sees to it)

Deviation: an anonymous subscription that goes on after a gap is replayed as two, since a gap is no
loss of one that was never there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gapless.client.delivery import Gap, Silence
from gapless.core.client_messages import (
    Deliveries,
    Lost,
    Publish,
    Receipt,
    Subscribe,
    Subscribed,
)
from gapless.core.effects import Append
from gapless.core.events import Event, EventBatch
from gapless.core.identity import (
    ClientName,
    Instant,
    PubendName,
    PublisherName,
    SubscriptionName,
    TopicName,
)
from gapless.node.config import Config
from gapless.testing.checkers.across_sessions import AcrossSessions
from gapless.testing.checkers.durable import FORGOTTEN, DurableBeforeAcknowledged
from gapless.testing.checkers.exactly_once import ExactlyOnce
from gapless.testing.checkers.gaps import Gaps
from gapless.testing.checkers.no_gap import NoGap
from gapless.testing.checkers.once_published import OncePublished
from gapless.testing.checkers.only_matching import OnlyMatching
from gapless.testing.checkers.order import InOrder
from gapless.testing.checkers.start_points import StartPoints
from gapless.testing.checkers.total_order import TotalOrder
from gapless.testing.memory_volume import MemoryVolume
from gapless.testing.named import Conditions, Named
from gapless.testing.record import Publication, Record, Subscription, Violation
from gapless.testing.trace import show_tick
from gapless.testing.watch import LOG, Watch
from gapless.wire.events import encode_event

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gapless.client.delivery import Delivery
    from gapless.core.client_messages import Order
    from gapless.core.events import Attributes
    from gapless.core.identity import BrokerName
    from gapless.node.network import Network

CHECKERS = (
    ExactlyOnce,
    InOrder,
    NoGap,
    OnlyMatching,
    DurableBeforeAcknowledged,
    OncePublished,
    TotalOrder,
    StartPoints,
    AcrossSessions,
    Gaps,
)
BATCH_COUNT = 50
"""Events that are replayed as one delivery."""


@dataclass(slots=True)
class PublisherJournal:
    """What one publisher sent; the first `durable` of it are on stable storage, as told.

    Without a name its events have no numbers, and must each be unlike the others.
    """

    name: str | None
    topic: str
    sent: list[tuple[Attributes, bytes]] = field(default_factory=list)
    durable: int = 0


@dataclass(slots=True)
class Session:
    """One time that a subscriber was there: from where, what it was handed, and how far it came.

    `shown` is the token it came with; None if it had none to show.
    """

    start: Mapping[str, int]
    shown: Mapping[str, int] | None = None
    items: list[Delivery] = field(default_factory=list)
    token: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SubscriberJournal:
    """What one subscriber saw; `name` is None for an anonymous one."""

    label: str
    topic: str
    condition: str = ""
    name: str | None = None
    order: Order = "publisher"
    sessions: list[Session] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [item for each in self.sessions for item in each.items if isinstance(item, Event)]

    @property
    def gaps(self) -> list[Gap]:
        return [item for each in self.sessions for item in each.items if isinstance(item, Gap)]


class Host:
    """The broker that hosts a pubend, as far as a checker asks for it."""

    incarnation = 1
    clock_jumps = 0
    now = Instant(0)

    def __init__(self, name: BrokerName) -> None:
        self.name = name
        self.store = MemoryVolume()

    def statistics(self) -> Mapping[str, object]:
        return {}


def judge(
    network: Network,
    logs: Mapping[str, Sequence[tuple[int, bytes]]],
    publishers: Iterable[PublisherJournal],
    subscribers: Iterable[SubscriberJournal],
) -> int:
    """How many deliveries were right, if all were; `Violation` says which promise is broken.

    `logs`: by pubend, what its broker's disk has: ticks and events, ascending.
    """
    replay = Replay(network)
    for publisher in publishers:
        replay.send(publisher)
    for pubend, records in logs.items():
        replay.log(PubendName(pubend), records)
    replay.confirm()
    for subscriber in subscribers:
        replay.see(subscriber)
        replay.check_end(subscriber)
    replay.watch.finish()
    return replay.record.deliveries


class Replay:
    """Journals on their way into a record."""

    def __init__(self, network: Network) -> None:
        self.record = Record(network)
        self.watch = Watch(self.record, [each(self.record, Config()) for each in CHECKERS])
        self._hosts = {name: Host(host) for name, host in self.record.hosts.items()}
        self._durable: list[tuple[ClientName, Publish]] = []
        self._number = 0

    # --- publishers and logs ---------------------------------------------------------------------

    def send(self, journal: PublisherJournal) -> None:
        name = PublisherName(journal.name) if journal.name else None
        topic, encoded = TopicName(journal.topic), []
        for number, (attributes, body) in enumerate(journal.sent):
            encoded.append(encode_event(attributes, body, name, number if name else None))
            self.record.publish(Publication(encoded[-1], attributes, topic, name, number))
        if journal.durable:
            events = EventBatch(tuple(encoded[: journal.durable]))
            self._durable.append((ClientName(f"publisher {name}"), Publish(topic, 1, events, name)))

    def log(self, pubend: PubendName, records: Sequence[tuple[int, bytes]]) -> None:
        ticks, events = tuple(tick for tick, _ in records), tuple(event for _, event in records)
        self.watch.committed(self._hosts[pubend], [Append(f"{LOG}{pubend}", ticks, events)])

    def confirm(self) -> None:
        """All that a publisher was told to be durable is in a log: there, if nowhere else."""
        for client, message in self._durable:
            self.watch.asked(client, message)
            pubend, _ = self.record.places.get(
                message.events[0], (self.record.pubends_of(message.topic)[0], 0)
            )
            receipt = Receipt(message.request, pubend, (FORGOTTEN,) * len(message.events))
            self.watch.sent(self._hosts[pubend], client, receipt)

    # --- subscribers -----------------------------------------------------------------------------

    def see(self, journal: SubscriberJournal) -> None:
        named = None
        if journal.name:
            conditions = Conditions(journal.condition)
            named = Named(name=SubscriptionName(journal.name), conditions=conditions)
        for session in journal.sessions:
            self._see(journal, session, named)

    def check_end(self, journal: SubscriberJournal) -> None:
        """Who was there at the end has come past everything that was logged."""
        token = journal.sessions[-1].token
        for pubend in self.record.pubends_of(TopicName(journal.topic)):
            last = self.record.logs[pubend].ticks[-1:]
            if last and token.get(pubend, 0) <= last[0]:
                raise Violation(
                    "everything arrives",
                    f"{journal.label} ends at {pubend} {show_tick(token.get(pubend, 0))}, before "
                    f"{show_tick(last[0])}",
                )

    def _see(self, journal: SubscriberJournal, session: Session, named: Named | None) -> None:
        subscription = self._begin(journal, session, named)
        waiting: list[Event] = []
        for item in session.items:
            if (
                not isinstance(item, Event)
                or len(waiting) == BATCH_COUNT
                or (waiting and item.pubend != waiting[0].pubend)
            ):
                self._deliver(subscription, waiting)
                waiting = []
            if isinstance(item, Event):
                waiting.append(item)
            elif isinstance(item, Silence):
                self._settle(subscription, item.pubend, item.through)
            elif named is not None:
                self._lose(subscription, item)
            else:
                self.watch.gone(subscription.client)
                moved = {**subscription.position, item.pubend: item.span.end}
                after = replace(session, start={str(key): tick for key, tick in moved.items()})
                subscription = self._begin(journal, after, None)
        self._deliver(subscription, waiting)
        if journal.order == "publisher":
            for pubend, through in session.token.items():
                self._settle(subscription, PubendName(pubend), through)
        if named is not None:
            named.acknowledge(session.token)
        self.watch.gone(subscription.client)

    def _begin(
        self, journal: SubscriberJournal, session: Session, named: Named | None
    ) -> Subscription:
        self._number += 1
        number, topic = self._number, TopicName(journal.topic)
        asked = None
        if named is not None and session.shown is not None:
            asked = Subscribe(topic, number, number, name=named.name, token=dict(session.shown))
        subscription = Subscription(
            client=ClientName(f"{journal.label}:{number}"),
            number=number,
            topic=topic,
            condition=journal.condition,
            order=journal.order,
            named=named,
            asked=asked,
        )
        self.record.subscribe(subscription)
        pubends = self.record.pubends_of(topic)
        start = {str(pubend): session.start.get(pubend, 0) for pubend in pubends}
        if named is not None and not named.held_from:
            named.held_from = {PubendName(pubend): tick for pubend, tick in start.items()}
        behind = tuple(map(str, pubends)) if named is not None else ()
        self.watch.told(subscription.client, Subscribed(number, number, start, behind))
        return subscription

    def _deliver(self, subscription: Subscription, events: list[Event]) -> None:
        if not events:
            return
        pubend, ticks = events[0].pubend, [event.tick for event in events]
        self._tell(subscription, pubend, ticks[-1] + 1, events)
        if subscription.named is not None:
            self.watch.consume(subscription, pubend, [*ticks], ticks[-1] + 1)

    def _settle(self, subscription: Subscription, pubend: PubendName | None, through: int) -> None:
        self._tell(subscription, pubend, through, [])
        if subscription.named is not None:
            assert pubend is not None, "a named one is in publisher order"
            self.watch.consume(subscription, pubend, [], through)

    def _tell(
        self,
        subscription: Subscription,
        pubend: PubendName | None,
        through: int,
        events: list[Event],
    ) -> None:
        number = subscription.number
        message = Deliveries(
            subscription.topic,
            through,
            None if subscription.order == "total" else pubend,
            tuple(event.tick for event in events),
            EventBatch(tuple(self._bytes_of(subscription, event) for event in events)),
            ((number,),) * len(events),
            number if subscription.named is not None else None,
        )
        self.watch.told(subscription.client, message)

    def _lose(self, subscription: Subscription, gap: Gap) -> None:
        lost = Lost((subscription.number,), gap.pubend, gap.span)
        self.watch.told(subscription.client, lost)
        self.watch.skip(subscription, gap.pubend, gap.span)

    def _bytes_of(self, subscription: Subscription, event: Event) -> bytes:
        """What was handed out, as its publisher must have encoded it."""
        encoded = encode_event(event.attributes, event.body, event.publisher, event.sequence)
        if encoded not in self.record.publications:
            raise Violation("only matching", f"{subscription} got {event}, which nobody published")
        return encoded
