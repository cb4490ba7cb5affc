"""The record: facts of one run, shared by all checkers.

Theory of operation
    What was published, what became durable (seen at the disks, not believed from brokers), who
    subscribed from where, and what each subscription was told. Facts are only added. `watch`
    adds them as they happen; a checker compares them and never asks a broker.

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

if TYPE_CHECKING:
    from gapless.core.client_messages import Order
    from gapless.core.events import Attributes
    from gapless.node.network import Network


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
    filter: Filter = field(init=False)
    start: dict[PubendName, int] = field(default_factory=dict)
    position: dict[PubendName, int] = field(default_factory=dict)
    """By pubend: everything below is settled."""
    delivered: list[tuple[PubendName, int]] = field(default_factory=list)
    live: bool = False
    over: bool = False

    def __post_init__(self) -> None:
        self.filter = Filter.parse(self.condition)

    def __str__(self) -> str:
        return f"{self.client}#{self.number} ({self.topic}, {self.condition or 'all'})"


@dataclass(slots=True)
class Log:
    """What a pubend's log durably held, chopped or not, at ascending ticks."""

    ticks: list[int] = field(default_factory=list)
    events: dict[int, bytes] = field(default_factory=dict)
    chopped: int = 0

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
    queued: dict[ClientName, int] = field(default_factory=dict)
    """Events sent to a client and not yet consumed, as its broker knows it."""
    largest_request: int = 0
    """Events in the largest publication."""
    deliveries: int = 0
    _matches: dict[tuple[str, bytes], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in self.network.pubends:
            self.logs[name] = Log()

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

    def matches(self, subscription: Subscription, encoded: bytes) -> bool:
        """Brute force, by evaluating the condition; no index, no digest, nobody's word."""
        key = subscription.condition, encoded
        answer = self._matches.get(key)
        if answer is None:
            answer = subscription.filter.matches(self.publications[encoded].attributes)
            self._matches[key] = answer
        return answer

    def wanted(
        self, subscription: Subscription, pubend: PubendName, start: int, end: int
    ) -> list[int]:
        """The durable ticks of a span that this subscription is to get, ascending."""
        log = self.logs[pubend]
        return [
            tick for tick in log.between(start, end) if self.matches(subscription, log.events[tick])
        ]

    def live(self) -> list[Subscription]:
        """Subscriptions that have started and are not over."""
        return [each for each in self.subscriptions.values() if each.live and not each.over]
