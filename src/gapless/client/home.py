"""The home of a subscription: its channel, its number there, and the broker that has it.

Theory of operation
    A subscription begins on the channel of its client. A broker may redirect a named one to the
    broker where it exists: then it lives on a further channel, which all requests redirected to
    that place share. When that connection is lost, it asks on the client's own channel again.
    A client that holds the token names the broker where the subscription was before, and the new
    broker takes it over from there. A move that was not answered may have happened or not; the next
    move assumes that it has. Where the broker keeps the token, the subscription stays with that
    broker: a copy at another one would know an older token.
    The condition of a named subscription may change. The broker tells the client the present one,
    and the former ones with the ticks where they end; the client takes them along when it moves.

Invariants
    I1  it is registered in the inbox of its channel, under its number, until it leaves
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client.requests import HOPS_MAX
from gapless.core.client_messages import UNKNOWN, Subscribe
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.client.channel import Channel, Subscriber
    from gapless.client.subscription_options import SubscriptionOptions
    from gapless.core.client_messages import Former, Refused, Subscribed
    from gapless.core.identity import BrokerName
    from gapless.core.token import Token

RETRY_S = 0.1
"""When to ask again for a subscription that was refused for now."""


class SubscriptionHome:
    """Of one subscription. See the module docstring."""

    def __init__(
        self, channel: Channel, options: SubscriptionOptions, subscriber: Subscriber
    ) -> None:
        self.channel = channel
        self.number = 0  # in the inbox of that channel; 0: it is not registered
        self._client = channel
        self._options = options
        self._subscriber = subscriber
        self._hops = 0
        self._asked: tuple[Channel, int] | None = None  # where a restart waits for its answer
        self._broker: BrokerName | None = None  # that has it
        self._next_broker: BrokerName | None = None  # that was asked to take it over
        self._moves = 0
        self._altered = UNKNOWN  # how often the condition has changed, as we were told
        self._condition = options.condition
        self._former: tuple[Former, ...] = ()
        self._is_lost = False
        self._is_begun = False

    def begin(self) -> None:
        """`UsageError` if it was begun before: its positions are of that time."""
        if self._is_begun:
            raise UsageError("a subscription is entered once", "Make another: client.subscribe(…).")
        self._is_begun = True
        self.enter()

    def enter(self) -> None:
        self.number = self.channel.inbox.register(self._subscriber)

    def check_entered(self) -> None:
        """`UsageError` if the caller would wait for ever."""
        if not self.number:
            raise UsageError(
                "the subscription has not begun",
                "Use `async with client.subscribe(…) as subscription`; with gapless.sync, `with`.",
            )

    def leave(self) -> None:
        self.channel.inbox.unregister(self.number)
        self.number = 0

    @property
    def is_redirected(self) -> bool:
        return self.channel is not self._client

    def may_ask(self) -> bool:
        """Once on each connection, unless it was refused there."""
        asked = (self.channel, self.channel.session)
        is_new, self._asked = asked != self._asked, asked
        return is_new

    def refused(self, answer: Refused) -> float | None:
        """After how many seconds to ask again; 0 after a redirect. None: never."""
        self._asked = None
        self._hops += bool(answer.elsewhere)
        if answer.elsewhere and self._hops <= HOPS_MAX:
            self._change(self._client.other_brokers.at(answer.elsewhere))
            return 0.0
        if answer.elsewhere:  # redirected too often
            self.come_back()
        return RETRY_S if answer.retry or answer.elsewhere else None

    def come_back(self) -> None:
        """Go on on the client's own channel."""
        self._hops = 0
        self._change(self._client)

    def _change(self, channel: Channel) -> None:
        self.leave()
        self.channel = channel
        self.enter()

    def settle(self, message: Subscribed) -> None:
        """The broker of this channel has it now."""
        self._broker, self._next_broker = self.channel.broker, None
        self._moves = message.moves
        self.note(message.altered, message.condition, message.former)
        self._hops = 0
        self._is_lost = False

    def note(self, altered: int, condition: str, former: tuple[Former, ...]) -> None:
        """The broker says how often the condition has changed, and what counts where."""
        if altered < self._altered:
            return  # said before what we know
        self._altered = altered
        if altered:
            self._condition, self._former = condition, former

    def check(self, message: Subscribed) -> None:
        """`UsageError` if the topic stores nothing, and so has no positions: the gap that was asked
        for could not be told."""
        if self._options.resumes and not message.start:
            raise UsageError(
                f"topic {self._options.topic!r} stores nothing, so that a gap could not be told",
                'Leave interruption="gap" out, and subscribe again when you are interrupted.',
            )

    def lose(self) -> None:
        """It is not at this broker any more; the next broker that is asked finds it."""
        self.ask_anew()
        self._is_lost = True

    def ask_anew(self) -> None:
        """The next request may go to the same connection again."""
        self._asked = None

    def message(self, request: int, received: Token | None, acknowledged: Token) -> Subscribe:
        """The request for it. `received`: everything below has come; None: it has not begun."""
        options = self._options
        if options.name is None:
            return Subscribe(options.topic, request, self.number, options.condition, options.order)
        here = self.channel.broker
        if self._next_broker not in (None, here):  # that move may have happened or not
            self._broker, self._moves = self._next_broker, self._moves + 1
            self._next_broker = None
        token, previous = received if received is not None else options.token, None
        if self._is_lost:
            token = acknowledged
        elif self._broker not in (None, here) and options.tokens == "client":
            token, previous, self._next_broker = acknowledged, self._broker, here
        return Subscribe(
            options.topic,
            request,
            self.number,
            self._condition,
            options.order,
            options.name,
            None if token is None else dict(token),
            earliest=options.earliest and received is None,
            instant=None if received is not None else options.instant,
            tokens=options.tokens,
            previous=previous,
            moves=self._moves if previous else 0,
            altered=self._altered,
            former=self._former,
            share=options.share,
            in_hand_max=options.in_hand_max,
            topics=options.topics,
        )
