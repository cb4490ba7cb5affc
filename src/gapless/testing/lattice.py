"""The lattice of what may be believed of one tick, and streams that are held to it.

Theory of operation
    UNKNOWN is below everything and ERROR above. DATA grows into DONE (delivered to all below).
    FINAL, "no data is needed any more", lies below DONE and SILENCE. Learning joins two beliefs to
    their least upper bound; ERROR means that two sources contradict each other and must never be
    reached, whatever fails. A broker's streams lower SILENCE and DONE to FINAL, which hides a wrong
    silence. A `StrictStream` has a `Shadow` that does not, so it notices a filter that errs.
    `strict` makes a node of such streams where that is right: under changing subscriptions a tick
    may be filtered at one time and sent at another, so only streams that nobody has filtered are
    held to the lattice.

Source: DSN 2002, sec. 2.1 and figure 2.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from gapless.core.spans import SpanSet
from gapless.knowledge.neighbours import SOURCE
from gapless.knowledge.relay import Relay
from gapless.knowledge.stream import KnowledgeStream
from gapless.knowledge.subend import Subend
from gapless.node.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.ticks import Span
    from gapless.node.config import Config


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
    """Remembers all that a stream ever learnt and refuses what contradicts it."""

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


class StrictStream(KnowledgeStream):
    """A knowledge stream with a shadow."""

    __slots__ = ("_shadow",)

    def __init__(self, base: int = 0) -> None:
        super().__init__(base)
        self._shadow = Shadow()

    def learn(self, span: Span, ticks: Sequence[int], events: Sequence[bytes]) -> list[Span]:
        fresh = super().learn(span, ticks, events)
        self._shadow.learn(span, ticks, events)
        return fresh


class StrictRelay(Relay):
    """A relay whose stream is held to the lattice, where no broker has filtered on the way."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.upstream == SOURCE or not cast("Config", self.timing).propagates:
            self.stream = StrictStream()


class StrictSubend(Subend):
    """The same of a subend."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if not cast("Config", self.timing).propagates:
            self.stream = StrictStream(self.taken)


@cache
def strict(parts: Parts = Parts()) -> Parts:  # noqa: B008  # it is frozen
    """These parts, with relays and subends that are held to the lattice."""
    relay, subend = parts.relay, parts.subend
    return replace(
        parts,
        relay=StrictRelay if relay is Relay else type("Held", (StrictRelay, relay), {}),
        subend=StrictSubend if subend is Subend else type("Held", (StrictSubend, subend), {}),
    )
