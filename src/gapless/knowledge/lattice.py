"""The lattice of what may be believed of one tick, and a shadow that holds streams to it.

Theory of operation
    UNKNOWN is below everything and ERROR above. DATA grows into DONE (delivered to all below).
    FINAL, "no data is needed any more", lies below DONE and SILENCE. Learning joins two beliefs to
    their least upper bound; ERROR means that two sources contradict each other and must never be
    reached, whatever fails. Production streams lower SILENCE and DONE to FINAL, which hides a wrong
    silence; the `Shadow` does not, so it sees a filter that errs. Tests run with it.

Source: DSN 2002, sec. 2.1 and figure 2.
"""

from __future__ import annotations

from enum import Enum
from itertools import product
from typing import TYPE_CHECKING

from gapless.core.spans import SpanSet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.ticks import Span


class Belief(Enum):
    """What a stream believes of one tick; the values are the letters of the paper."""

    UNKNOWN = "Q"
    DATA = "D"
    DONE = "D*"
    SILENCE = "S"
    FINAL = "F"
    ERROR = "E"


ABOVE: dict[Belief, tuple[Belief, ...]] = {
    Belief.UNKNOWN: (Belief.DATA, Belief.FINAL),
    Belief.DATA: (Belief.DONE,),
    Belief.FINAL: (Belief.DONE, Belief.SILENCE),
    Belief.DONE: (Belief.ERROR,),
    Belief.SILENCE: (Belief.ERROR,),
    Belief.ERROR: (),
}
"""The edges of figure 2: what stands directly above each belief."""


def reachable(belief: Belief) -> set[Belief]:
    """The belief and everything above it."""
    return {belief}.union(*(reachable(higher) for higher in ABOVE[belief]))


def least_upper_bound(left: Belief, right: Belief) -> Belief:
    common = reachable(left) & reachable(right)
    [lowest] = [bound for bound in common if common == reachable(bound)]
    return lowest


JOIN = {pair: least_upper_bound(*pair) for pair in product(Belief, Belief)}


def lower(belief: Belief) -> Belief:
    """What production streams keep of a belief: silence and done are both "not needed"."""
    return Belief.FINAL if belief in (Belief.SILENCE, Belief.DONE) else belief


class Shadow:
    """Remembers all that a stream ever learnt and refuses what contradicts it. For tests only."""

    def __init__(self) -> None:
        self._silence = SpanSet()
        self._data: dict[int, bytes] = {}

    def learn(self, span: Span, ticks: Sequence[int], events: Sequence[bytes]) -> None:
        for tick, event in zip(ticks, events, strict=True):
            before = Belief.SILENCE if tick in self._silence else Belief.UNKNOWN
            assert JOIN[before, Belief.DATA] is not Belief.ERROR, f"data at silent tick {tick}"
            assert self._data.setdefault(tick, event) == event, f"two events at tick {tick}"
        silent = SpanSet([span])
        for tick in ticks:
            silent.remove(type(span)(tick, tick + 1))
        for tick in self._data:
            if tick in silent:
                assert JOIN[Belief.DATA, Belief.SILENCE] is not Belief.ERROR, f"silence at {tick}"
        self._silence.update(silent)
