"""Trail: a message's way, and how repeats are told: by the source's number, or nearby numbers.

Theory of operation
    What comes from one source comes in the order of its numbers, on every way: a broker sends in
    the order of its queue, and lets a younger one pass only after the older was sent there, or is
    confirmed. So the last number of each source tells every repeat (`Sources`), whatever was
    bypassed. It takes one number for each broker that publishes.
    The paper's way (`NearbyNumbers`) needs numbers of brokers nearby only. Every broker gives each
    publication one number, its position in the broker's queue. A copy carries the numbers of the
    brokers it passed, `hops`, nearest first; one that was stepped over is in its place without a
    number. A receiver keeps, for each broker near upstream, the highest number it has seen from it:
    a copy with a number at or below that is a repeat.
    That finds every repeat if any two copies share a broker within the window of 2δ+1: they do, if
    none of them bypasses more than δ of any 2δ+1 brokers in a row. So a broker sends only what is
    *legitimate*, and holds back what is not, with all that comes after it on that session.
    A copy never seen but late, with something younger from the same broker before it, counts as a
    repeat: that broker let the younger pass only after the older was sent there, or confirmed.

Invariants
    I1  the number seen of a broker, or of a source, never falls

Cost: `Sources` O(1) a publication, memory one position a source. `NearbyNumbers` O(window) a
publication, memory one position for each broker within the window.

Source: SRDS 2011, sec. VII, which names both, and docs/protocols/reliable-tree.md, 3.3. Decision
0017 says which is the default.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from gapless.tree.messages import Hop, Position

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.identity import BrokerName
    from gapless.tree.settings import TreeSettings

Hops = tuple[Hop, ...]

NOTHING = Position(-1, 0)
"""Before every position."""

PASSED = Position(0, 0)
"""The position of a hop of a subscription: it was there; its number says nothing."""


def extend(hops: Hops, here: Hop, bypassed: Sequence[BrokerName]) -> Hops:
    """The hops of a copy sent from `here` over `bypassed`, given in path order."""
    return (*(Hop(broker, None) for broker in reversed(bypassed)), here, *hops)


def is_legitimate(hops: Hops, settings: TreeSettings) -> bool:
    """Have at most δ of the last 2δ+1 brokers been bypassed? If that tells nothing, all is."""
    if settings.repeats == "source":
        return True
    missing = sum(hop.position is None for hop in hops[: settings.window])
    return missing <= settings.failures_tolerated


class NearbyNumbers:
    """The highest number seen of each broker near upstream."""

    def __init__(self, settings: TreeSettings) -> None:
        self._settings = settings
        self._last: dict[BrokerName, Position] = {}

    def is_repeat(self, hops: Hops) -> bool:
        """Has this copy, or one that says the same, come before? Notes it if not."""
        near = [hop for hop in hops[: self._settings.window] if hop.position is not None]
        if any(hop.position <= self._last.get(hop.broker, NOTHING) for hop in near if hop.position):
            return True
        for broker, position in near:
            assert position is not None
            self._last[broker] = position
        return False


class Sources:
    """The last number of each source."""

    def __init__(self, settings: TreeSettings) -> None:
        self._settings = settings
        self._last: dict[BrokerName, Position] = {}  # longest silent first
        self._ended: dict[BrokerName, int] = {}  # lives that have said goodbye, of those

    def end(self, source: BrokerName, epoch: int) -> None:
        """This life of it has come to its end, and all of it has come."""
        if self.last(source).epoch == epoch:
            self._ended[source] = epoch

    def former_life(self, source: BrokerName, epoch: int) -> int | None:
        """The epoch of the last life that something came of, if that is a former one that has not
        come to its end."""
        last = self._last.get(source)
        if last is None or last.epoch >= epoch or self._ended.get(source) == last.epoch:
            return None
        return last.epoch

    def repeats(self, source: BrokerName, epoch: int, numbers: Sequence[int]) -> int:
        """How many of these ascending numbers are at or below the last; notes the highest."""
        last = self._last.pop(source, NOTHING)
        highest = Position(epoch, numbers[-1])
        if highest <= last:
            self._last[source] = last
            return len(numbers)
        self._last[source] = highest
        if len(self._last) > self._settings.sources_max:
            silent = next(iter(self._last))
            del self._last[silent]
            self._ended.pop(silent, None)
        return bisect_right(numbers, last.number) if last.epoch == epoch else 0

    def last(self, source: BrokerName) -> Position:
        return self._last.get(source, NOTHING)
