"""The inbox: what a broker sends for the subscriptions of one client, handed to each.

Theory of operation
    A broker sends each event once, with the numbers of the subscriptions that want it, and says
    how far everything is settled. Each event is decoded once and queued at every subscription it is
    for, together with the position. A ticket ties the queues together: when all of them have
    taken their part, the events count as consumed.
    A durable subscription that is behind at a pubend gets messages of its own about it; what is
    said to all others does not count for it until it has caught up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gapless.client.delivery import Ticket
from gapless.client.errors import SubscriptionInterruptedError
from gapless.core.client_messages import FellBehind
from gapless.core.identity import PubendName
from gapless.core.ticks import Tick, pubend_number_of
from gapless.wire.events import decode_event

if TYPE_CHECKING:
    from gapless.client.carrier import Carrier
    from gapless.core.client_messages import CaughtUp, Deliveries, Ended, Lost, Order, Subscribed
    from gapless.core.errors import GaplessError
    from gapless.core.events import Event
    from gapless.core.identity import TopicName
    from gapless.core.ticks import Span


class Subscriber(Protocol):
    """A subscription, as the inbox sees it."""

    topic: TopicName
    order: Order

    def start(self, message: Subscribed) -> None: ...
    def is_behind(self, pubend: PubendName | None) -> bool: ...
    def set_behind(self, pubend: PubendName, *, is_behind: bool) -> None: ...
    def add(
        self, pubend: PubendName | None, events: list[Event], through: int, ticket: Ticket | None
    ) -> None: ...
    def lose(self, pubend: PubendName, span: Span) -> None: ...
    def end(self, error: GaplessError | None) -> None: ...
    def interrupt(self, error: GaplessError) -> None: ...
    def resume(self) -> None: ...


class Inbox:
    """The subscriptions of one client by number."""

    def __init__(self, carrier: Carrier) -> None:
        self._carrier = carrier
        self._number = 0
        self._subscribers: dict[int, Subscriber] = {}

    def add(self, subscriber: Subscriber) -> int:
        self._number += 1
        self._subscribers[self._number] = subscriber
        return self._number

    def remove(self, number: int) -> None:
        self._subscribers.pop(number, None)

    def start(self, message: Subscribed) -> None:
        if message.subscription in self._subscribers:
            self._subscribers[message.subscription].start(message)

    def deliver(self, message: Deliveries) -> None:
        order: Order = "total" if message.pubend is None else "publisher"
        wanted = _by_subscription(message.takers)
        events = _decode(message)
        takers = [number for number in wanted if number in self._subscribers]
        ticket = Ticket(self._carrier.session, len(events), len(takers))
        if events and not takers:
            self._carrier.consume(len(events))
        for number, subscriber in self._subscribers.items():
            if number in wanted:
                indices = wanted[number]
                part = events if indices is None else [events[index] for index in indices]
                subscriber.add(message.pubend, part, message.through, ticket)
            elif (
                number == message.only
                if message.only is not None
                else subscriber.topic == message.topic
                and subscriber.order == order
                and not subscriber.is_behind(message.pubend)
            ):
                subscriber.add(message.pubend, [], message.through, None)

    def switch(self, message: CaughtUp | FellBehind) -> None:
        if message.subscription in self._subscribers:
            is_behind = isinstance(message, FellBehind)
            subscriber = self._subscribers[message.subscription]
            subscriber.set_behind(message.pubend, is_behind=is_behind)

    def lose(self, message: Lost) -> None:
        for number in message.subscriptions:
            if number in self._subscribers:
                self._subscribers[number].lose(message.pubend, message.span)

    def ended(self, message: Ended) -> None:
        if (subscriber := self._subscribers.pop(message.subscription, None)) is not None:
            problem = message.problem
            error = SubscriptionInterruptedError(problem, message.remedy) if problem else None
            subscriber.end(error)

    def interrupt(self, error: GaplessError) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber.interrupt(error)

    def resume(self) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber.resume()

    def end(self, error: GaplessError | None = None) -> None:
        """The client is closed; or, with an error, no broker will have it."""
        for subscriber in list(self._subscribers.values()):
            subscriber.end(error)


def _decode(message: Deliveries) -> list[Event]:
    topic, pubend = message.topic, message.pubend
    if pubend is not None:
        return [
            decode_event(event, topic, pubend, Tick(tick))
            for event, tick in zip(message.events, message.ticks, strict=True)
        ]
    return [
        decode_event(
            event, topic, PubendName(f"{topic}/{pubend_number_of(Tick(tick))}"), Tick(tick)
        )
        for event, tick in zip(message.events, message.ticks, strict=True)
    ]


def _by_subscription(takers: tuple[tuple[int, ...], ...]) -> dict[int, list[int] | None]:
    """For each subscription the indices of its events; None where it gets all."""
    if len(distinct := set(takers)) == 1:
        return dict.fromkeys(distinct.pop())
    found: dict[int, list[int] | None] = {}
    for index, numbers in enumerate(takers):
        for number in numbers:
            indices = found.setdefault(number, [])
            assert indices is not None
            indices.append(index)
    return found
