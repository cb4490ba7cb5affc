"""What publishers, subscriptions and requests ask of the channel to their broker.

A channel is a connection to one of several brokers that is made anew when it is lost.
`gapless.client.reconnection` is the channel of a real client; tests play others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gapless.client.delivery import Ticket
    from gapless.client.shared_backlog import SharedBacklog
    from gapless.core.client_messages import Order, Subscribed, SubscriptionAltered
    from gapless.core.errors import GaplessError
    from gapless.core.events import Event
    from gapless.core.group_messages import Handed, TakenBack
    from gapless.core.identity import BrokerName, PubendName, TopicName
    from gapless.core.messages import Message
    from gapless.core.ticks import Span

ChangeKind = Literal["connected", "lost", "failed", "retrying", "ended"]


class ConnectionChange(NamedTuple):
    """Something happened between a client and its brokers.

    `kind` is "connected" (a connection is up), "lost" (it broke, and the client connects again),
    "failed" (no connection to this address, for this reason; told once until the reason changes),
    "retrying" (the broker refused a request for now, and the client repeats it), or "ended" (every
    broker refuses the client for good).
    """

    kind: ChangeKind
    address: str
    broker: str | None = None
    reason: str = ""


class Redirects(Protocol):
    """Channels to the other brokers that refusals name; see `gapless.client.requests`."""

    def at(self, addresses: tuple[str, ...]) -> Channel: ...
    def last_used(self, about: str) -> Channel | None: ...
    def remember(self, about: str, addresses: tuple[str, ...] | None) -> None: ...


class Subscriber:
    """A subscription, as the inbox sees it. What it has no method for does not concern it."""

    topic: TopicName
    order: Order
    tells_silence: bool

    def start(self, message: Subscribed) -> None: ...
    def set_behind(self, pubend: PubendName, *, is_behind: bool) -> None: ...
    def set_unreached(self, brokers: tuple[BrokerName, ...]) -> None: ...
    def set_condition(self, message: SubscriptionAltered) -> None: ...
    def add(
        self,
        pubend: PubendName | None,
        events: Sequence[Event],
        through: int,
        ticket: Ticket | None,
    ) -> None: ...
    def settle(self) -> None: ...
    def lose(self, pubend: PubendName, span: Span) -> None: ...
    def end(self, error: GaplessError | None) -> None: ...
    def interrupt(self, error: GaplessError) -> None: ...
    def relocate(self) -> None: ...
    def resume(self) -> None: ...
    def hand(self, message: Handed | TakenBack) -> None: ...


class ChannelInbox(Protocol):
    """What arrives for the subscriptions of one channel; see `gapless.client.inbox`."""

    shared: SharedBacklog | None
    """The backlog of subscriptions that are read together, if there are any."""

    channel: Channel

    def register(self, subscriber: Subscriber) -> int: ...
    def unregister(self, number: int) -> None: ...
    def positions(self, topic: TopicName, order: Order) -> Mapping[PubendName | None, int]: ...


class Channel(Protocol):
    """The way to a broker."""

    patience_s: float
    session: int
    """Counts the connections so far."""

    broker: BrokerName | None
    """The broker at the other end, now or last."""

    address: str
    """Its address; empty if there never was a connection."""

    @property
    def inbox(self) -> ChannelInbox: ...

    @property
    def other_brokers(self) -> Redirects:
        """Channels to other brokers, for requests that this one cannot serve."""
        ...

    @property
    def is_up(self) -> bool:
        """Is there a connection now?"""
        ...

    @property
    def problem(self) -> GaplessError | None:
        """Why nothing can be sent any more: the client is closed, or was never opened."""
        ...

    def send(self, message: Message) -> None:
        """Send a message if there is a connection; drop it otherwise."""
        ...

    def request(self, answer: Callable[[Message | GaplessError], None]) -> int:
        """A number for a request; `answer` gets the reply with that number, or why none comes."""
        ...

    async def ask(self, make: Callable[[int], Message]) -> Message | GaplessError:
        """Wait for a connection, send a request, return its reply; or why none comes."""
        ...

    async def wait_up(self) -> None:
        """Wait for a connection; `LinkError` when there is none for `patience_s`."""
        ...

    async def wait_writable(self) -> None: ...
    def listen(self, changed: Callable[[], None]) -> None:
        """Call this when a new connection is up, and when the client is closed."""
        ...

    def unlisten(self, changed: Callable[[], None]) -> None: ...
    def consume(self, count: int) -> None:
        """Count events of the present connection as consumed."""
        ...

    def tell_consumed(self) -> None:
        """The application waits for more: tell the broker soon what is consumed."""
        ...

    def report(self, kind: ChangeKind, reason: str) -> None:
        """Tell the application, by log and callback, what happened on this channel."""
        ...
