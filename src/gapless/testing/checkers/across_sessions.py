"""Across sessions: a named subscription's client consumes every match once, however often it left.

Statement: taken over all its sessions, what a client consumed of a pubend between where it started
and its token is exactly what matches there, in order, less the losses it was told of. Only a client
that itself went back sees an event again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import Span
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_span, show_tick

if TYPE_CHECKING:
    from gapless.core.identity import PubendName
    from gapless.testing.record import Subscription


class AcrossSessions(Checker):
    """Looks at every step of every token, and at the whole at the end of each phase."""

    promise = "exactly once across sessions"

    def consumed(
        self, subscription: Subscription, pubend: PubendName, ticks: list[int], through: int
    ) -> None:
        assert subscription.named
        before = subscription.named.position[pubend]
        if ticks and ticks[0] < before:
            raise self.violated(
                f"{subscription} consumes {pubend} {show_tick(ticks[0])}, though its token was at "
                f"{show_tick(before)}"
            )
        if through <= before or subscription.named.is_late:
            return
        wanted = self.record.wanted(subscription, pubend, before, through)
        if wanted != ticks:
            raise self.violated(
                f"{subscription} consumes {_shown(ticks)} of {pubend} "
                f"{show_span(Span(before, through))}, where {_shown(wanted)} match"
            )

    def skipped(self, subscription: Subscription, pubend: PubendName, span: Span) -> None:
        assert subscription.named
        before = subscription.named.position[pubend]
        missed = self.record.wanted(subscription, pubend, before, span.start)
        if span.start < before or (missed and not subscription.named.is_late):
            raise self.violated(
                f"{subscription} at {show_tick(before)} of {pubend} is told that "
                f"{show_span(span)} is lost; before it, {_shown(missed)} match"
            )

    def finished(self) -> None:
        last = {id(each.named): each for each in self.record.subscriptions.values() if each.named}
        for subscription in last.values():
            assert subscription.named
            for pubend in subscription.named.position if not subscription.named.is_late else ():
                self._compare(subscription, pubend)

    def _compare(self, subscription: Subscription, pubend: PubendName) -> None:
        """Brute force over everything that was ever logged."""
        named = subscription.named
        assert named
        matching = self.record.wanted(
            subscription, pubend, named.origin[pubend], named.position[pubend]
        )
        gaps = named.gaps[pubend]
        expected = [tick for tick in matching if not any(tick in gap for gap in gaps)]
        if named.consumed[pubend] != expected:
            unlike = sorted(set(named.consumed[pubend]) ^ set(expected))
            raise self.violated(
                f"{subscription} consumed {len(named.consumed[pubend])} events of {pubend} where "
                f"{len(expected)} match; they differ at {_shown(unlike)}"
            )


def _shown(ticks: list[int]) -> str:
    return " ".join(map(show_tick, ticks)) or "nothing"
