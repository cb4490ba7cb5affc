"""The messages between a client and its broker.

A batch is the unit here too: a `Publish` carries many events, `Deliveries` carries all that one
step of the broker has for one connection, each event once however many subscriptions want it.
"""

from __future__ import annotations

from typing import Literal

from gapless.core.broker_messages import NO_EVENTS
from gapless.core.events import EventBatch
from gapless.core.identity import PubendName, PublisherName, TopicName
from gapless.core.messages import Message
from gapless.core.ticks import Span

Order = Literal["publisher", "total"]


class Publish(Message, frozen=True):
    """Events for a topic. A named publisher numbers them: `sequence` is that of the first."""

    topic: TopicName
    request: int
    events: EventBatch
    publisher: PublisherName | None = None
    sequence: int = 0

    def __post_init__(self) -> None:
        if not len(self.events):
            raise ValueError("a publication needs at least one event")
        if self.sequence < 0:
            raise ValueError("sequence numbers start at 0")


class Receipt(Message, frozen=True):
    """All events of the request are on stable storage, at these ticks.

    A repeated event gets the tick it got the first time; -1 where that is no longer remembered.
    """

    request: int
    pubend: PubendName
    ticks: tuple[int, ...]


class Refused(Message, frozen=True):
    """The request was not carried out; nothing of it took effect."""

    request: int
    problem: str
    remedy: str
    retry: bool = False  # whether the same request may succeed later


class Subscribe(Message, frozen=True):
    """Deliver what matches `condition` from now on, until the connection ends."""

    topic: TopicName
    request: int
    subscription: int  # chosen by the client, unique on its connection
    condition: str = ""
    order: Order = "publisher"


class Subscribed(Message, frozen=True):
    """The subscription counts from these ticks on: all that match and none before them."""

    request: int
    subscription: int
    start: dict[str, int]  # by pubend: the first tick that counts


class Unsubscribe(Message, frozen=True):
    """End a subscription; nothing is delivered to it after the `Ended`."""

    subscription: int


class Ended(Message, frozen=True):
    """The subscription is over. Empty `problem`: as asked."""

    subscription: int
    problem: str = ""
    remedy: str = ""


class Deliveries(Message, frozen=True):
    """Events for one connection, and who gets which.

    Event i, at `ticks[i]`, goes to the subscriptions `takers[i]`, in this order. All else below
    `through` is silence for the subscriptions of that order: their position is now `through`.
    With a `pubend`, this is about that one; without, about all pubends of the topic, merged.
    """

    topic: TopicName
    through: int
    pubend: PubendName | None = None
    ticks: tuple[int, ...] = ()
    events: EventBatch = NO_EVENTS
    takers: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not len(self.ticks) == len(self.events) == len(self.takers):
            raise ValueError("each delivered event has a tick and takers")


class Lost(Message, frozen=True):
    """These subscriptions have lost every event of the span: it was released early."""

    subscriptions: tuple[int, ...]
    pubend: PubendName
    span: Span


class Consumed(Message, frozen=True):
    """The client has taken this many events off its queue since it last said so."""

    count: int
