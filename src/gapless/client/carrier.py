"""What publishers and subscriptions ask of the client they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gapless.client.delivery import Ticket
    from gapless.client.lane import Lane
    from gapless.core.client_messages import Order, Subscribed
    from gapless.core.errors import GaplessError
    from gapless.core.events import Event
    from gapless.core.identity import BrokerName, PubendName, TopicName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span


class Places(Protocol):
    """The other brokers that a client was sent to; see `gapless.client.elsewhere`."""

    def at(self, addresses: tuple[str, ...]) -> Carrier: ...
    def remembered(self, about: str) -> Carrier | None: ...
    def remember(self, about: str, addresses: tuple[str, ...] | None) -> None: ...


class Subscriber(Protocol):
    """A subscription, as the inbox sees it."""

    topic: TopicName
    order: Order
    tells_silence: bool

    def start(self, message: Subscribed) -> None: ...
    def set_behind(self, pubend: PubendName, *, is_behind: bool) -> None: ...
    def set_unreached(self, brokers: tuple[BrokerName, ...]) -> None: ...
    def add(
        self, pubend: PubendName | None, events: list[Event], through: int, ticket: Ticket | None
    ) -> None: ...
    def settle(self) -> None: ...
    def lose(self, pubend: PubendName, span: Span) -> None: ...
    def end(self, error: GaplessError | None) -> None: ...
    def interrupt(self, error: GaplessError) -> None: ...
    def relocate(self) -> None: ...
    def resume(self) -> None: ...


class Mail(Protocol):
    """What comes on a connection for the subscriptions that live there; `gapless.client.inbox`."""

    lane: Lane | None
    """Where those are that are read together, if there are any."""

    carrier: Carrier
    """Whose inbox it is."""

    def add(self, subscriber: Subscriber) -> int: ...
    def remove(self, number: int) -> None: ...
    def positions(self, topic: TopicName, order: Order) -> Mapping[PubendName | None, int]: ...


class Carrier(Protocol):
    """A client, as its parts see it."""

    patience_s: float
    session: int
    """Counts the connections there were."""

    broker: BrokerName | None
    """Who is at the other end, or was last."""

    address: str
    """Where that is; empty if there never was anyone."""

    @property
    def inbox(self) -> Mail: ...

    @property
    def others(self) -> Places:
        """Connections to other brokers, for what this one cannot serve."""
        ...

    @property
    def is_up(self) -> bool:
        """Is there a connection just now?"""
        ...

    @property
    def problem(self) -> GaplessError | None:
        """Why nothing can be sent any more: the client is closed, or was never opened."""
        ...

    def send(self, message: Message) -> None:
        """Send it if there is a connection."""
        ...

    def request(self, answer: Callable[[Message | GaplessError], None]) -> int:
        """A number for a request; `answer` gets what comes back with it, or why nothing will."""
        ...

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
        """Wait for a connection, send a request, and wait for its answer; an error if it broke."""
        ...

    async def wait_up(self) -> None:
        """Until there is a connection; `LinkError` when there is none for `patience_s`."""
        ...

    async def wait_writable(self) -> None: ...
    def listen(self, changed: Callable[[], None]) -> None:
        """Call this when a new connection is up, and when the client is closed."""
        ...

    def unlisten(self, changed: Callable[[], None]) -> None: ...
    def consume(self, count: int) -> None:
        """So many events of the present connection are consumed."""
        ...

    def tell_consumed(self) -> None:
        """Nothing more to take: tell the broker what is consumed so far."""
        ...
