"""The inbox: what a broker sends for the subscriptions of one channel, handed to each of them.

Theory of operation
    A broker sends each event once, with the numbers of the subscriptions that want it, and says
    how far everything is settled. The inbox queues each event at every subscription it is for,
    together with the position; it is decoded once, when the first of them looks at it. A ticket
    ties the queues together: when all subscriptions have taken their part, the events count as
    consumed.
    A position holds for all subscriptions of a topic and order, so it is noted here once, and a
    subscription looks it up when needed: a message costs only the subscriptions that take part in
    it. Only subscriptions that hand out silences are told of each position.
    Subscriptions that are read together have one queue (`shared_backlog`).
    A durable subscription that lags at a pubend gets messages of its own about it. Messages to all
    subscriptions do not count for it until it has caught up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from gapless.client.delivered_events import DeliveredEvents
from gapless.client.delivery import Ticket
from gapless.client.errors import SubscriptionInterruptedError
from gapless.core.client_messages import FellBehind, Unreached
from gapless.core.identity import PubendName
from gapless.core.ticks import Tick, pubend_number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.client.channel import Channel, Subscriber
    from gapless.client.shared_backlog import SharedBacklog
    from gapless.core.client_messages import (
        CaughtUp,
        Deliveries,
        Ended,
        Lost,
        Order,
        Subscribed,
        SubscriptionAltered,
    )
    from gapless.core.errors import GaplessError
    from gapless.core.group_messages import Handed, TakenBack
    from gapless.core.identity import TopicName


class Inbox:
    """The subscriptions of one channel, by number."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.shared: SharedBacklog | None = None
        self._number = 0
        self._subscribers: dict[int, Subscriber] = {}
        self._listeners: dict[int, Subscriber] = {}  # that hand out silences
        self._positions: dict[tuple[TopicName, Order], dict[PubendName | None, int]] = {}
        self._pubends: dict[TopicName, dict[int, PubendName]] = {}  # by number, of total orders

    def __len__(self) -> int:
        return len(self._subscribers)

    def positions(self, topic: TopicName, order: Order) -> Mapping[PubendName | None, int]:
        """Up to where all is settled for subscriptions that do not lag, on this connection."""
        return self._positions.setdefault((topic, order), {})

    def register(self, subscriber: Subscriber) -> int:
        self._number += 1
        self._subscribers[self._number] = subscriber
        if subscriber.tells_silence:
            self._listeners[self._number] = subscriber
        return self._number

    def unregister(self, number: int) -> None:
        self._subscribers.pop(number, None)
        self._listeners.pop(number, None)

    def start(self, message: Subscribed) -> None:
        subscriber = self._subscribers.get(message.subscription)
        if subscriber is not None:
            names = map(PubendName, message.start)
            self._pubends[subscriber.topic] = {pubend_index(name): name for name in names}
            subscriber.start(message)

    def deliver(self, message: Deliveries) -> None:
        events = self._events(message)
        shared = self.shared
        if message.only is None and shared is not None and shared.has_members:
            ticket, others = shared.add(message, events)
        else:
            ticket, others = (
                Ticket(self.channel, self.channel.session, len(events), 0),
                message.takers,
            )
        wanted = _by_subscription(others)
        takers = [number for number in wanted if number in self._subscribers]
        ticket.parts += len(takers)
        if events and not ticket.parts:
            self.channel.consume(len(events))
        for number in takers:
            indices = wanted[number]
            part = events if indices is None else events.pick(indices)
            self._subscribers[number].add(message.pubend, part, message.through, ticket)
        if message.only is None:
            self._settle(message, wanted)
        elif message.only not in wanted and message.only in self._subscribers:
            subscriber = self._subscribers[message.only]
            subscriber.add(message.pubend, [], message.through, None)

    def _events(self, message: Deliveries) -> DeliveredEvents:
        pubends: PubendName | tuple[PubendName, ...] | None = message.pubend
        if pubends is None:
            names = self._pubends.get(message.topic, {})
            ticks = cast("tuple[Tick, ...]", message.ticks)
            pubends = tuple([names[pubend_number_of(tick)] for tick in ticks])
        return DeliveredEvents(message.topic, pubends, message.ticks, message.events)

    def _settle(self, message: Deliveries, wanted: dict[int, list[int] | None]) -> None:
        """For subscriptions that do not lag, all up to this position is settled."""
        order: Order = "total" if message.pubend is None else "publisher"
        positions = self._positions.setdefault((message.topic, order), {})
        if message.through > positions.get(message.pubend, 0):
            positions[message.pubend] = message.through
        for number, subscriber in self._listeners.items():
            if number not in wanted:
                subscriber.settle()

    def switch(self, message: CaughtUp | FellBehind | Unreached) -> None:
        subscriber = self._subscribers.get(message.subscription)
        if subscriber is None:
            return
        if isinstance(message, Unreached):
            subscriber.set_unreached(message.brokers)
        else:
            subscriber.set_behind(message.pubend, is_behind=isinstance(message, FellBehind))

    def alter(self, message: SubscriptionAltered) -> None:
        if (subscriber := self._subscribers.get(message.subscription)) is not None:
            subscriber.set_condition(message)

    def lose(self, message: Lost) -> None:
        for number in message.subscriptions:
            if number in self._subscribers:
                self._subscribers[number].lose(message.pubend, message.span)

    def hand(self, message: Handed | TakenBack) -> None:
        """For a member of a group."""
        if (subscriber := self._subscribers.get(message.subscription)) is not None:
            subscriber.hand(message)

    def ended(self, message: Ended) -> None:
        if (subscriber := self._subscribers.get(message.subscription)) is not None:
            if message.elsewhere:
                subscriber.relocate()
                return
            self.unregister(message.subscription)
            problem = message.problem
            error = SubscriptionInterruptedError(problem, message.remedy) if problem else None
            subscriber.end(error)

    def interrupt(self, error: GaplessError) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber.interrupt(error)
        self._positions.clear()

    def resume(self) -> None:
        for subscriber in list(self._subscribers.values()):
            subscriber.resume()

    def end(self, error: GaplessError | None = None) -> None:
        """The client is closed; or, with an error, every broker refuses it."""
        for subscriber in list(self._subscribers.values()):
            subscriber.end(error)


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


def pubend_index(name: PubendName) -> int:
    """The number at the end of a pubend's name, which its ticks carry too."""
    return int(name.rpartition("/")[2])
