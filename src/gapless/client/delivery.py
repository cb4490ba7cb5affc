"""What an application gets: receipts, gaps, silences; and the credit for what it has taken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gapless.core.events import Event

if TYPE_CHECKING:
    from gapless.core.identity import PubendName, TopicName
    from gapless.core.ticks import Span, Tick


class Receipt(NamedTuple):
    """An event is on stable storage, at this tick of this pubend.

    `tick` is -1 for a repeated event that was published so long ago that its tick is forgotten.
    """

    pubend: PubendName
    tick: Tick


class Gap(NamedTuple):
    """Events of this span that match, if there were any, are not delivered."""

    topic: TopicName
    pubend: PubendName
    span: Span


class Silence(NamedTuple):
    """Nothing else matches below the tick `through`: of this pubend, or (None) of all of them."""

    topic: TopicName
    pubend: PubendName | None
    through: Tick


Delivery = Event | Gap | Silence


class Creditor(Protocol):
    """The channel that counts consumed events."""

    session: int

    def consume(self, count: int) -> None: ...
    def tell_consumed(self) -> None: ...


@dataclass(slots=True)
class Ticket:
    """Events that came in one message: consumed when all subscriptions they are for are done.

    `channel` and `session` name the connection they came on: credit for an old connection means
    nothing to the next.
    """

    channel: Creditor
    session: int
    count: int
    parts: int


def finish(ticket: Ticket) -> None:
    """Count one part of a message as done."""
    ticket.parts -= 1
    if ticket.parts == 0 and ticket.session == ticket.channel.session:
        ticket.channel.consume(ticket.count)
