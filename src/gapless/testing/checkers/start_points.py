"""Start points: a named subscription starts, and goes on, exactly where it should.

Statement: with a token it starts there; at an instant, at its tick, or now if the stream has not
come there; with the oldest kept event (which a position of 0 stands for), where nothing that it
wants and that is kept lies before. One that returns without a token goes on from what its
client acknowledged: not before what it was assured to be durable, not behind what it has said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.core.ticks import PUBEND_BITS
from gapless.testing.checkers.checker import Checker
from gapless.testing.trace import show_tick

if TYPE_CHECKING:
    from gapless.core.client_messages import Subscribed
    from gapless.core.identity import PubendName
    from gapless.testing.named import Named
    from gapless.testing.record import Subscription


class StartPoints(Checker):
    """Looks at every start that a client is told."""

    promise = "it starts where it should"

    def begun(self, subscription: Subscription, told: Subscribed) -> None:
        named, asked = subscription.named, subscription.asked
        if named is None:
            return
        for pubend in self.record.pubends_of(subscription.topic):
            start = told.start[pubend]
            if asked is not None and asked.token is not None:
                low = high = asked.token.get(pubend, 0)
                high = high or self._oldest(subscription, pubend)
            elif not named.origin and named.birth.at == "earliest":
                low, high = 0, self._oldest(subscription, pubend)
            elif not named.origin:
                low, high = _first(named)
            else:
                low, high = _kept(named, pubend)
            if not low <= start <= high:
                raise self.violated(
                    f"{subscription} starts at {pubend} {show_tick(start)}, not between "
                    f"{show_tick(low)} and {show_tick(high)}"
                )

    def _oldest(self, subscription: Subscription, pubend: PubendName) -> int:
        """Where the first event that it wants, of those that are kept, lies at the latest."""
        chopped = self.record.logs[pubend].chopped
        kept = self.record.wanted(subscription, pubend, chopped, 1 << 63)
        return kept[0] if kept else 1 << 63


def _first(named: Named) -> tuple[int, int]:
    birth = named.birth
    if birth.instant is not None:
        return 0, (birth.instant + 1) << PUBEND_BITS
    return 0, 1 << 63


def _kept(named: Named, pubend: PubendName) -> tuple[int, int]:
    origin = named.origin[pubend]
    return (
        max(origin, named.assured.get(pubend, 0)),
        max(origin, named.acknowledged.get(pubend, 0)),
    )
