"""What a checker may look at: one method for each thing that can happen in a run.

A checker keeps what it needs, compares with the record, and raises `Violation` at the moment a
promise is broken, so that the trace ends there. Methods it does not define cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from gapless.testing.record import Violation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Ended, Lost, Receipt, Refused, Subscribed
    from gapless.core.effects import Write
    from gapless.core.identity import BrokerName, Instant, PeerName, PubendName
    from gapless.core.messages import Message
    from gapless.core.store import Store
    from gapless.core.ticks import Span
    from gapless.node.config import Config
    from gapless.testing.record import Record, Subscription


class Broker(Protocol):
    """What a checker sees of a broker: its disk and clock, and figures to hold it to its bounds."""

    name: BrokerName
    incarnation: int
    clock_jumps: int

    @property
    def store(self) -> Store: ...

    @property
    def now(self) -> Instant: ...

    def statistics(self) -> Mapping[str, object]: ...


class Checker:
    """Base of all checkers: watches, and does nothing unless a method is overridden."""

    promise: ClassVar[str] = ""

    def __init__(self, record: Record, config: Config) -> None:
        self.record = record
        self.config = config

    def violated(self, found: str) -> Violation:
        return Violation(self.promise, found)

    def committed(self, pubend: PubendName, tick: int, encoded: bytes) -> None:
        """A record is about to become a fact of the log."""

    def written(self, broker: Broker, write: Write) -> None:
        """A write has become durable; the record does not have it yet."""

    def acknowledged(self, broker: Broker, receipt: Receipt, asked: tuple[bytes, ...]) -> None:
        """A receipt leaves its broker; `asked` are the events of that request."""

    def restarted(self, broker: Broker) -> None:
        """A broker is up again with what its disk held."""

    def replaced(self, broker: Broker) -> None:
        """A broker that is down has another disk: an empty one, or a copy of some time ago."""

    def sent(self, broker: Broker, to: PeerName, message: Message) -> None:
        """A message leaves a broker."""

    def received(self, broker: Broker, sender: PeerName, message: Message) -> None:
        """A message reached a broker, which has handled it."""

    def stepped(self, broker: Broker, effort: int) -> None:
        """A step of a broker is over; `effort` is how much it looked at and wants sent."""

    def delivered(
        self, subscription: Subscription, pubend: PubendName, tick: int, encoded: bytes
    ) -> None:
        """A client is given one event; the record does not have it yet."""

    def advanced(
        self, subscription: Subscription, pubend: PubendName, before: int, through: int
    ) -> None:
        """A client is told that all below `through` is settled; it knew that up to `before`."""

    def begun(self, subscription: Subscription, told: Subscribed) -> None:
        """A client is told where its subscription starts; the record does not have it yet."""

    def consumed(
        self, subscription: Subscription, pubend: PubendName, ticks: list[int], through: int
    ) -> None:
        """The client of a named subscription takes these off its queue, and moves its token."""

    def skipped(self, subscription: Subscription, pubend: PubendName, span: Span) -> None:
        """The client of a named subscription takes a loss off its queue, and moves its token."""

    def caught_up(self, subscription: Subscription, pubend: PubendName) -> None:
        """The client of a named subscription is told that it keeps up from now on."""

    def lost(self, subscriptions: list[Subscription], told: Lost) -> None:
        """A client is told of a loss."""

    def ended(self, subscription: Subscription, told: Ended) -> None:
        """A broker ends a subscription; its client does not know yet."""

    def refused(self, told: Refused) -> None:
        """A broker refused a request."""

    def sampled(self, broker: Broker) -> None:
        """Now and then: look at the figures of a broker."""

    def finished(self) -> None:
        """The run is over, or a phase of it: compare what only makes sense as a whole."""
