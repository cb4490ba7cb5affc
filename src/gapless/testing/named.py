"""Named subscriptions as facts: what each was asked for, what its client consumed and acknowledged.

Theory of operation
    A named subscription outlives connections, so its facts are kept apart from those of a session
    (`record.Subscription`). One `Named` is one life: from its creation until it is forgotten; the
    same name made anew is another. `position` is the client's token. A client that goes back, with
    an older token or with none, gives up what it had consumed from there on: those facts are taken
    back, so that what is left is always what one pass over the stream has given.

Invariants
    I1  the ticks consumed of a pubend ascend, and lie before its position
    I2  gaps are spans before the position in which nothing was consumed
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.client_messages import Former, TokenKeeper
    from gapless.core.identity import ClientName, PubendName, SubscriptionName

Ticks = dict["PubendName", int]
"""By pubend: a position."""


@dataclass(slots=True)
class Conditions:
    """The conditions of a named subscription, as a client was told: by tick, which one decides."""

    current: str
    altered: int = 0
    former: tuple[Former, ...] = ()

    def note(self, altered: int, current: str, former: tuple[Former, ...]) -> None:
        """A broker says how often it has changed. What is older than all that it says stays."""
        if altered >= max(1, self.altered):
            self.former = (*self.before(former), *former)
            self.altered, self.current = altered, current

    def before(self, former: tuple[Former, ...]) -> tuple[Former, ...]:
        """Our conditions that ended before the first of these: the broker has dropped them."""
        first = former[0]
        if first in self.former:
            return self.former[: self.former.index(first)]
        return tuple(
            each
            for each in self.former
            if all(tick <= first.until.get(pubend, 0) for pubend, tick in each.until.items())
        )

    def at(self, pubend: PubendName, tick: int) -> str:
        ended = (each for each in self.former if tick < each.until.get(pubend, 0))
        return next((each.condition for each in ended), self.current)

    def copy(self) -> Conditions:
        return Conditions(self.current, self.altered, self.former)


@dataclass(frozen=True, kw_only=True)
class Birth:
    """Where a subscription is to start, the first time."""

    at: Literal["latest", "earliest", "token", "instant"] = "latest"
    token: dict[str, int] | None = None
    instant: int | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Named:
    """One life of one name."""

    name: SubscriptionName
    birth: Birth = field(default_factory=Birth)
    conditions: Conditions = field(default_factory=lambda: Conditions(""))
    """As its client was told, on the connections that it listened to."""
    is_late: bool = False
    """Has a change of its condition reached it late, because it was moving just then?"""
    moves: list[tuple[int, int]] = field(default_factory=list)
    """When its client was told that it has moved, and the count of changes that it knew then."""
    keeper: TokenKeeper = "client"
    origin: Ticks = field(default_factory=dict)
    """Where it started; empty until its client was told."""
    held_from: Ticks = field(default_factory=dict)
    """What was logged from there on was logged when the subscription certainly existed."""
    position: Ticks = field(default_factory=dict)
    consumed: dict[PubendName, list[int]] = field(default_factory=dict)
    gaps: dict[PubendName, list[Span]] = field(default_factory=dict)
    """What its client passed over: losses it was told of, and what it need not see again."""
    acknowledged: Ticks = field(default_factory=dict)
    """The furthest that its client has said."""
    assured: Ticks = field(default_factory=dict)
    """The furthest that it was told to be durable."""
    ends: list[tuple[ClientName, int]] = field(default_factory=list)
    """Requests to forget it."""
    is_over: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def token(self) -> dict[str, int]:
        """What its client would send now."""
        return {str(pubend): tick for pubend, tick in self.position.items()}

    def begin(self, start: Mapping[PubendName, int]) -> None:
        """Its client goes on from here, perhaps again."""
        self.origin = self.origin or dict(start)
        for pubend, tick in start.items():
            before = self.position.get(pubend, tick)
            consumed, gaps = self.consumed.get(pubend, []), self.gaps.get(pubend, [])
            self.consumed[pubend] = [each for each in consumed if each < tick]
            self.gaps[pubend] = [
                Span(gap.start, min(gap.end, tick)) for gap in gaps if gap.start < tick
            ]
            if tick > before:  # it had gone back, and goes on from what it once acknowledged
                self.gaps[pubend].append(Span(before, tick))
            self.position[pubend] = tick

    def consume(self, pubend: PubendName, ticks: list[int], through: int) -> None:
        self.consumed[pubend] += ticks
        self.position[pubend] = max(through, self.position[pubend])

    def skip(self, pubend: PubendName, span: Span) -> None:
        self.gaps[pubend].append(span)
        self.position[pubend] = max(span.end, self.position[pubend])

    def acknowledge(self, token: Mapping[str, int]) -> None:
        raise_to(self.acknowledged, token)

    def assure(self, token: Mapping[str, int]) -> None:
        raise_to(self.assured, token)


def raise_to(ticks: Ticks, token: Mapping[str, int]) -> None:
    for pubend in ticks.keys() | token.keys():
        name: PubendName = pubend  # type: ignore[assignment]  # tokens have plain names
        ticks[name] = max(ticks.get(name, 0), token.get(pubend, 0))
