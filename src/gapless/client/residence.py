"""Where a subscription lives: on which connection, under which number, and at which broker.

Theory of operation
    A subscription begins on the connection of its client. A named one that exists at another broker
    may be sent there: then it lives on a further connection, which is shared with all that was sent
    to the same place. When that is lost it asks at the client's own again, which knows best.
    One that holds its token says where it was before and is taken over from there, wherever it
    comes; a move that was not answered may have happened or not, and the next one treats it as if
    it had. Where the broker keeps the token the subscription stays with that broker: a copy that is
    left behind would know an older one.

Invariants
    I1  it is in the inbox of the connection that it lives on, under its number, until it leaves
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.client.elsewhere import HOPS_MAX
from gapless.core.client_messages import Subscribe
from gapless.core.errors import UsageError

if TYPE_CHECKING:
    from gapless.client.carrier import Carrier, Subscriber
    from gapless.client.wish import Wish
    from gapless.core.client_messages import Refused, Subscribed
    from gapless.core.identity import BrokerName
    from gapless.core.token import Token

RETRY_S = 0.1
"""When to ask again for a subscription that was refused for the moment."""


class Residence:
    """Of one subscription. See the module docstring."""

    def __init__(self, client: Carrier, wish: Wish, subscriber: Subscriber) -> None:
        self.carrier = client  # on whose connection it lives
        self.number = 0  # there; 0: it does not
        self._client = client
        self._wish = wish
        self._subscriber = subscriber
        self._hops = 0
        self._asked: tuple[Carrier, int] | None = None  # where a restart waits for its answer
        self._home: BrokerName | None = None  # the broker that has it
        self._attempt: BrokerName | None = None  # one that was asked to take it over
        self._moves = 0
        self._is_lost = False
        self._is_begun = False

    def begin(self) -> None:
        """`UsageError` if it was begun before: what it knows is of that time."""
        if self._is_begun:
            raise UsageError("a subscription is entered once", "Make another: client.subscribe(…).")
        self._is_begun = True
        self.enter()

    def enter(self) -> None:
        self.number = self.carrier.inbox.add(self._subscriber)

    def check_entered(self) -> None:
        """`UsageError` where someone would wait for ever."""
        if not self.number:
            raise UsageError(
                "the subscription has not begun",
                "Use `async with client.subscribe(…) as subscription`; with gapless.sync, `with`.",
            )

    def leave(self) -> None:
        self.carrier.inbox.remove(self.number)
        self.number = 0

    @property
    def is_elsewhere(self) -> bool:
        return self.carrier is not self._client

    def may_ask(self) -> bool:
        """Once on each connection, unless it was refused there."""
        asked = (self.carrier, self.carrier.session)
        is_new, self._asked = asked != self._asked, asked
        return is_new

    def refused(self, answer: Refused) -> float | None:
        """When to ask again: where it lives then, at once if it was sent there. None: never."""
        self._asked = None
        self._hops += bool(answer.elsewhere)
        if answer.elsewhere and self._hops <= HOPS_MAX:
            self._change(self._client.others.at(answer.elsewhere))
            return 0.0
        if answer.elsewhere:  # it was sent about too often
            self.come_back()
        return RETRY_S if answer.retry or answer.elsewhere else None

    def come_back(self) -> None:
        self._hops = 0
        self._change(self._client)

    def _change(self, carrier: Carrier) -> None:
        self.leave()
        self.carrier = carrier
        self.enter()

    def settle(self, message: Subscribed) -> None:
        """It is at the broker of its connection."""
        self._home, self._attempt = self.carrier.broker, None
        self._moves = message.moves
        self._hops = 0
        self._is_lost = False

    def check(self, message: Subscribed) -> None:
        """`UsageError` where it was promised what the topic cannot do: it counts from no tick, so
        that nobody could say what was missed."""
        if self._wish.goes_on and not message.start:
            raise UsageError(
                f"topic {self._wish.topic!r} stores nothing, so that a gap could not be told",
                'Leave interruption="gap" out, and subscribe again when you are interrupted.',
            )

    def lose(self) -> None:
        """It is not at this broker any more, but at one that is to be found out."""
        self._asked = None
        self._is_lost = True

    def message(self, request: int, received: Token | None, acknowledged: Token) -> Subscribe:
        """Ask for it; `received`: everything below has come, if it has begun at all."""
        wish = self._wish
        if wish.name is None:
            return Subscribe(wish.topic, request, self.number, wish.condition, wish.order)
        here = self.carrier.broker
        if self._attempt not in (None, here):  # that may have happened or not
            self._home, self._moves, self._attempt = self._attempt, self._moves + 1, None
        token, previous = received if received is not None else wish.token, None
        if self._is_lost:
            token = acknowledged
        elif self._home not in (None, here) and wish.tokens == "client":
            token, previous, self._attempt = acknowledged, self._home, here
        return Subscribe(
            wish.topic,
            request,
            self.number,
            wish.condition,
            wish.order,
            wish.name,
            None if token is None else dict(token),
            earliest=wish.earliest and received is None,
            instant=None if received is not None else wish.instant,
            tokens=wish.tokens,
            previous=previous,
            moves=self._moves if previous else 0,
        )
