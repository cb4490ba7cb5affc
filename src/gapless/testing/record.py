"""The record: facts of one run, shared by all checkers.

Theory of operation
    What was published, what became durable (seen at the disks, not believed from brokers), who
    subscribed from where, and what each subscription was told. Facts are only added. `watch`
    adds them as they happen; a checker compares them and never asks a broker.
    A `Subscription` is one session, on one connection; what a named one has over all its sessions
    is in `named`.

Invariants
    I1  the ticks of a pubend's log ascend (the volume refuses anything else)
    I2  every published event has bytes of its own, so that bytes say which publication it was
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gapless.core.identity import BrokerName, ClientName, PubendName, PublisherName, TopicName
from gapless.core.ticks import Tick, pubend_number_of
from gapless.filters.filter import Filter
from gapless.testing.founded import Founded
from gapless.testing.ledger import Ledger
from gapless.testing.named import Conditions
from gapless.testing.openings import Openings

if TYPE_CHECKING:
    from gapless.core.client_messages import Order, Subscribe
    from gapless.core.events import Attributes
    from gapless.node.network import Network, Topic
    from gapless.testing.named import Named


class Violation(Exception):  # noqa: N818 - what a checker found, not an error of ours
    """A promise was broken: which one, and how."""

    def __init__(self, promise: str, found: str) -> None:
        super().__init__(promise, found)
        self.promise = promise
        self.found = found

    def __str__(self) -> str:
        return f"{self.promise}: {self.found}"


@dataclass(frozen=True, slots=True)
class Publication:
    """One event that a client tried to publish."""

    encoded: bytes
    attributes: Attributes
    topic: TopicName
    publisher: PublisherName | None = None
    sequence: int = 0


@dataclass(slots=True, kw_only=True)
class Subscription:
    """One subscription as its client sees it."""

    client: ClientName
    number: int
    topic: TopicName
    condition: str
    order: Order
    broker: BrokerName = field(default_factory=lambda: BrokerName(""))
    conditions: Conditions = field(init=False)
    """As its client was told on this connection, and had been told before."""
    start: dict[PubendName, int] = field(default_factory=dict)
    position: dict[PubendName, int] = field(default_factory=dict)
    """By pubend: everything below is settled."""
    delivered: list[tuple[PubendName, int]] = field(default_factory=list)
    live: bool = False
    over: bool = False
    named: Named | None = None
    """The named subscription of which this is one session; None for an anonymous one."""
    asked: Subscribe | None = None
    behind: set[PubendName] = field(default_factory=set)
    """Where it gets deliveries of its own, until it has caught up."""

    def __post_init__(self) -> None:
        before = self.named.conditions if self.named is not None else None
        self.conditions = before.copy() if before is not None else Conditions(self.condition)

    @property
    def filter(self) -> Filter:
        """What it wants now."""
        return Filter.parse(self.conditions.current)

    def __str__(self) -> str:
        name = f" {self.named}" if self.named else ""
        return f"{self.client}#{self.number}{name} ({self.topic}, {self.condition or 'all'})"


@dataclass(slots=True)
class Log:
    """What a pubend's log durably held, chopped or not, at ascending ticks."""

    ticks: list[int] = field(default_factory=list)
    events: dict[int, bytes] = field(default_factory=dict)
    chopped: int = 0
    lost: set[int] = field(default_factory=set)
    """Ticks whose events went with a disk of their host."""

    def between(self, start: int, end: int) -> list[int]:
        """The ticks of events with `start <= tick < end`."""
        return self.ticks[bisect_left(self.ticks, start) : bisect_left(self.ticks, end)]


@dataclass(slots=True)
class Record:
    """All facts of one run."""

    network: Network
    publications: dict[bytes, Publication] = field(default_factory=dict)
    logs: dict[PubendName, Log] = field(default_factory=dict)
    places: dict[bytes, tuple[PubendName, int]] = field(default_factory=dict)
    """Where in which log an event became durable first."""
    committed_at: dict[tuple[PubendName, int], int] = field(default_factory=dict)
    """The incarnation of its broker that made an event durable."""
    subscriptions: dict[tuple[ClientName, int], Subscription] = field(default_factory=dict)
    repeats: set[tuple[ClientName, int]] = field(default_factory=set)
    """Requests to forget what may be forgotten already: these may be refused."""
    promised: dict[tuple[ClientName, int], tuple[Named, dict[str, int]]] = field(
        default_factory=dict
    )
    """Acknowledgements that are to be answered once they are durable: whose, and the token."""
    queued: dict[ClientName, int] = field(default_factory=dict)
    """Events sent to a client and not yet consumed, as its broker knows it."""
    ledger: Ledger = field(default_factory=Ledger)
    """Transactions."""
    openings: Openings = field(default_factory=Openings)
    """Of the names of publishers."""
    largest_request: int = 0
    """Events in the largest publication."""
    early_releases: int = 0
    """Chops by which a named subscription lost what it had not acknowledged, as the policy says."""
    deliveries: int = 0
    alterations: list[tuple[Named, int, dict[str, int], int]] = field(default_factory=list)
    """Changes of conditions that a caller was told: whose, the count of changes, the ticks, and
    when it was asked for."""
    drained: set[BrokerName] = field(default_factory=set)
    """Brokers that give their named subscriptions to others."""
    lost_disks: set[BrokerName] = field(default_factory=set)
    """Brokers that were given an empty disk, or a copy of some time ago."""
    _matches: dict[tuple[str, bytes], bool] = field(default_factory=dict)

    founded: Founded = field(default_factory=Founded)

    def __post_init__(self) -> None:
        self.network = self.network.own()
        for name in self.network.pubends:
            self.logs[name] = Log()

    def add_topic(self, topic: Topic) -> None:
        """One that was created at run time, before anything is published to it."""
        self.network.put_topic(topic)
        self.logs.update((pubend.name, Log()) for pubend in topic.pubends)

    @property
    def hosts(self) -> dict[PubendName, BrokerName]:
        return {name: pubend.host for name, pubend in self.network.pubends.items()}

    def publish(self, publication: Publication) -> None:
        assert publication.encoded not in self.publications, "I2"
        self.publications[publication.encoded] = publication

    def subscribe(self, subscription: Subscription) -> None:
        self.subscriptions[subscription.client, subscription.number] = subscription

    def drop(self, client: ClientName, number: int) -> None:
        """The subscription was refused: it never was."""
        self.subscriptions[client, number].over = True

    def pubend_of(self, topic: TopicName, tick: int) -> PubendName:
        return PubendName(f"{topic}/{pubend_number_of(Tick(tick))}")

    def pubends_of(self, topic: TopicName) -> list[PubendName]:
        return [pubend.name for pubend in self.network.topic[topic].pubends]

    def matches(self, subscription: Subscription, pubend: PubendName, tick: int) -> bool:
        """Brute force, by evaluating the condition; no index, no digest, nobody's word."""
        condition, encoded = (
            subscription.conditions.at(pubend, tick),
            self.logs[pubend].events[tick],
        )
        answer = self._matches.get((condition, encoded))
        if answer is None:
            parsed = Filter.parse(condition)
            answer = parsed.matches(self.publications[encoded].attributes)
            self._matches[condition, encoded] = answer
        return answer

    def wanted(
        self, subscription: Subscription, pubend: PubendName, start: int, end: int
    ) -> list[int]:
        """The durable ticks of a span that this subscription is to get, ascending."""
        some = self.logs[pubend].between(start, end)
        return [tick for tick in some if self.matches(subscription, pubend, tick)]

    def has_retention(self, topic: TopicName) -> bool:
        """May events of the topic be released before they are acknowledged?"""
        given = self.network.topic[topic]
        return given.retention_us is not None or given.retention_bytes is not None

    def acknowledged(self, name: str) -> dict[PubendName, int]:
        """The furthest that the client of this name has said, in its present life."""
        lives = [each.named for each in self.subscriptions.values() if each.named]
        return next((each.acknowledged for each in reversed(lives) if each.name == name), {})

    def looks_for_start(self, name: str) -> bool:
        """Is the named subscription of this name to start at the oldest event, and was no client
        told yet which that is? Then its broker may look for it anew."""
        lives = [each.named for each in self.subscriptions.values() if each.named]
        last = next((each for each in reversed(lives) if each.name == name), None)
        return last is not None and last.birth.at == "earliest" and not last.origin

    def is_of(self, name: str, topic: TopicName) -> bool:
        return any(
            each.named.name == name and each.topic == topic
            for each in self.subscriptions.values()
            if each.named
        )

    def releasable(self, pubend: PubendName) -> list[int]:
        """What is in the log though everyone who is attached has acknowledged it, and knows that
        this is durable: an acknowledgement may get lost like any message."""
        log, topic = self.logs[pubend], self.network.pubends[pubend].topic
        settings = self.network.topic[topic]
        if settings.keep_us is not None or settings.keep_bytes is not None:
            return []
        attached = [each.named for each in self.live() if each.topic == topic and each.named]
        ends = [max(named.assured.get(pubend, 0), named.origin[pubend]) for named in attached]
        kept = log.between(log.chopped, min(ends, default=1 << 63))
        return [tick for tick in kept if tick not in log.lost]

    def sessions(self, named: Named) -> list[Subscription]:
        """All sessions of a named subscription, in the order they were asked for."""
        return [each for each in self.subscriptions.values() if each.named is named]

    def is_superseded(self, client: ClientName, request: int) -> bool:
        """May the request be refused for good, because another one has done what it was for?"""
        subscription = self.subscriptions.get((client, request))
        overtaken = subscription is not None and self.has_other(subscription)
        founded = (client, request) in self.founded.asked  # to refuse is an answer too
        taken_over = self.openings.is_taken_over(client, request) or bool(self.lost_disks)
        return overtaken or founded or taken_over or (client, request) in self.repeats

    def has_other(self, subscription: Subscription) -> bool:
        """Has its name another session, asked for later or still open?"""
        if subscription.named is None:
            return False
        sessions = self.sessions(subscription.named)
        return sessions[-1] is not subscription or any(not each.over for each in sessions[:-1])

    def is_outlived(self, subscription: Subscription) -> bool:
        """Has a later session of its name begun before it? Then its client has gone on there, and
        takes nothing of what comes over the older connection."""
        assert subscription.named
        sessions = self.sessions(subscription.named)
        return any(each.live and each.number > subscription.number for each in sessions)

    def live(self) -> list[Subscription]:
        """Subscriptions that have started and are not over."""
        return [each for each in self.subscriptions.values() if each.live and not each.over]
