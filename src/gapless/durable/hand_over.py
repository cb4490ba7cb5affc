"""Hand-over: a durable subscription arrives from another broker, and nothing is released meanwhile.

Theory of operation
    A client presents its token to a broker that does not know the subscription. The old broker
    still counts the subscription, at or behind that token, and so holds release. The new broker
    writes it down, so its own reports hold release too. But a relay may swallow such a report,
    since the minimum does not change while the old broker holds. So the new broker sends a hold for
    each pubend: every relay treats it as a report and passes it on whatever the minimum is, and the
    pubend answers with an echo. After all echoes the new broker holds release by itself. Only then
    is the old broker told to forget the subscription, and it answers when that is durable. It may
    first say that more is acknowledged there than the token says, and is then told again
    (`node.subscriptions.moves`). Every step is repeated each `hand_over_repeat` until answered.
    A subscription may come back while an old request to forget it is still on its way. So moves are
    counted, by the client too: a broker forgets its copy only for a copy that has moved more often,
    or as often but to a broker with a greater name (so two copies that know nothing of each other
    agree which of them goes). A broker that has forgotten a subscription remembers where it went,
    and redirects a client that does not know yet.

Invariants (checked by `check`)
    I1  until every pubend has echoed, no broker is told to forget
    I2  a deadline is set exactly until the hand-over is done

Source: docs/protocols/durable-subscriptions.md, 3.6 (DSN 2003, sec. 1, names reconnect-anywhere and
leaves it out).
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.broker_messages import ReleaseEcho, ReleaseHold
from gapless.core.identity import BrokerName, Instant, PubendName, SubscriptionName
from gapless.core.ticks import Tick

if TYPE_CHECKING:
    from gapless.core.identity import CellName
    from gapless.durable.subscriptions import DurableSubscription
    from gapless.durable.timing import DurableTiming


class Step(Enum):
    """How far a hand-over is."""

    HOLDING = "holding"
    HANDING_OVER = "handing over"
    DONE = "done"


TRANSITIONS: dict[Step, dict[str, Step]] = {
    Step.HOLDING: {"every pubend has echoed": Step.HANDING_OVER},
    Step.HANDING_OVER: {"the old broker has forgotten": Step.DONE},
    Step.DONE: {},
}


class ForgetRequest(NamedTuple):
    """For the old broker: the subscription lives here now, after this number of moves."""

    broker: BrokerName
    subscription: SubscriptionName
    moves: int


def may_forget(own: tuple[int, str], other: tuple[int, str]) -> bool:
    """Is our copy (its moves, our name) older than the other?"""
    return own < other


class Arrival:
    """The arrival of one subscription at its new broker. Sans-IO: see the module docstring."""

    def __init__(
        self,
        subscription: DurableSubscription,
        cell: CellName,
        number: int,
        timing: DurableTiming,
        now: Instant,
    ) -> None:
        """Create it when the subscription is durable here. `number` identifies its echoes."""
        definition = subscription.definition
        assert definition.previous is not None, "it came from another broker"
        self.subscription = definition.name
        self.token = subscription.released
        self.cell = cell
        self.previous = definition.previous
        self.moves = definition.moves
        self.number = number
        self.timing = timing
        self.step = Step.HOLDING
        self.silent = set(map(PubendName, subscription.since))  # pubends that have not echoed yet
        self.deadline: Instant | None = now

    def fire(self, now: Instant) -> list[ReleaseHold | ForgetRequest]:
        """Send, or repeat, what is not answered yet."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = Instant(now + self.timing.hand_over_repeat)
        if self.step is Step.HANDING_OVER:
            return [ForgetRequest(self.previous, self.subscription, self.moves)]
        return [
            ReleaseHold(pubend, self.cell, Tick(self.token.get(pubend)), self.number)
            for pubend in sorted(self.silent)
        ]

    def receive_echo(self, echo: ReleaseEcho, now: Instant) -> list[ReleaseHold | ForgetRequest]:
        """Note that a pubend knows of the hold. After the last echo the old broker may forget."""
        if echo.number != self.number or self.step is not Step.HOLDING:
            return []
        self.silent.discard(echo.pubend)
        if self.silent:
            return []
        self._become("every pubend has echoed")
        self.deadline = now
        return self.fire(now)

    def receive_forgotten(self, broker: BrokerName, moves: int) -> None:
        """Note that the old broker has forgotten the subscription, durably, or never knew it."""
        if self.step is Step.HANDING_OVER and (broker, moves) == (self.previous, self.moves):
            self._become("the old broker has forgotten")
            self.deadline = None

    def _become(self, happening: str) -> None:
        self.step = TRANSITIONS[self.step][happening]

    def check(self) -> None:
        assert self.step is Step.HOLDING or not self.silent, "I1"
        assert (self.deadline is None) == (self.step is Step.DONE), "I2"
