"""Trail: the last part of a message's way, the legitimacy rule, and how repeats are told.

Theory of operation
    Every broker gives each publication one number, its position in the broker's queue. A copy
    carries the numbers of the brokers it passed, `hops`, nearest first; one that was stepped over
    is in its place without a number. A receiver keeps, for each broker near upstream, the highest
    number it has seen from it: a copy with a number at or below that is a repeat.
    That finds every repeat if any two copies share a broker within the window of 2δ+1: they do, if
    none of them bypasses more than δ of any 2δ+1 brokers in a row. So a broker sends only what is
    *legitimate*, and holds back what is not, with all that comes after it on that session.
    A copy never seen but late, with something younger from the same broker before it, counts as a
    repeat: that broker let the younger pass only after the older was sent there, or confirmed.

Invariants
    I1  the number seen of a broker never falls

Cost: O(window) a publication; memory one position for each broker within the window.

Source: SRDS 2011, sec. VII, and PROTOCOLS D4, D5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.tree.messages import Hop, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import BrokerName
    from gapless.tree.settings import TreeSettings

Hops = tuple[Hop, ...]

PASSED = Position(0, 0)
"""The position of a hop of a subscription: it was there; its number says nothing."""


def extend(hops: Hops, here: Hop, bypassed: Sequence[BrokerName]) -> Hops:
    """The hops of a copy sent from `here` over `bypassed`, given in path order."""
    return (*(Hop(broker, None) for broker in reversed(bypassed)), here, *hops)


def is_legitimate(hops: Hops, settings: TreeSettings) -> bool:
    """Have at most δ of the last 2δ+1 brokers been bypassed?"""
    missing = sum(hop.position is None for hop in hops[: settings.window])
    return missing <= settings.failures_tolerated


class Seen:
    """The highest number seen of each broker near upstream."""

    def __init__(self, settings: TreeSettings) -> None:
        self._settings = settings
        self._last: dict[BrokerName, Position] = {}

    def is_repeat(self, hops: Hops) -> bool:
        """Has this copy, or one that says the same, come before? Notes it if not."""
        near = [hop for hop in hops[: self._settings.window] if hop.position is not None]
        nothing = Position(-1, 0)
        if any(hop.position <= self._last.get(hop.broker, nothing) for hop in near if hop.position):
            return True
        for broker, position in near:
            assert position is not None
            self._last[broker] = position
        return False
