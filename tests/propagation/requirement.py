"""Requirement: which silence a leaf may believe where vectors go back or differ by the way taken.

Theory of operation
    Silence that was made by filtering is true for those subscriptions only that its maker knew,
    and the vector that it carries says which: for this leaf, those that start no later than the
    leaf's element. Where vectors never go back, that is enough: what started once is known ever
    after. Where they may (a stamp that persists nothing; brokers that raise vectors on their way),
    the leaf keeps, for each stream, since which tick it delivers to subscriptions of which start
    time. Silence with a lower element is unknown from there on: it is asked for again, with that
    time as the `minimum`. Events are always good, and so is silence of the pubend itself.
    Silence that was believed before a subscription came did not reckon with it; so a subscription
    starts behind everything that was believed so far.

    A relay that is asked with a minimum takes what it keeps for unknown unless its vector is known
    and reaches it (`reaches`). An event that it keeps it may send all the same, under digest 0
    (`digest_of_answer`): that passes everywhere. The pubend's broker advances its stamp to the
    minimum and answers under the new digest.

Invariants (checked by `check`)
    I1  what is required does not fall as ticks ascend
    I2  at most `STEPS_MAX` steps are kept for a stream; beyond it more is required of old ticks
        than need be, never less

Cost: a bisection for each message.

Source: Middleware 2004, sec. 3.7 ("monotonicity checking").
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.ticks import Span
from gapless.propagation.vector import is_at_least

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.broker_messages import Vector

STEPS_MAX = 64

ABSOLUTE = (1 << 63) - 1
"""The element of silence that nobody made by filtering (that of digest 0)."""


class Doubt(NamedTuple):
    """A part of a silence that is not believed, and what to ask for in its place."""

    span: Span
    minimum: Vector


class Requirement:
    """What one leaf requires of silence, in each stream."""

    def __init__(self, leaf: str) -> None:
        self.leaf = leaf
        self._ticks: dict[str, list[int]] = {}  # from these on ...
        self._times: dict[str, list[int]] = {}  # ... this is required
        self._believed_end: dict[str, int] = {}

    def start(self, stream: str, tick: int, time: int) -> int:
        """A subscription of this start time may start at `tick` (or, after a restart, goes on
        there): where it does start, behind all that was believed without it."""
        tick = max(tick, self._believed_end.get(stream, 0))
        ticks = self._ticks.setdefault(stream, [])
        times = self._times.setdefault(stream, [])
        place = bisect_right(ticks, tick)
        if place and times[place - 1] >= time:
            return tick
        beyond = place  # steps that this one makes needless
        while beyond < len(times) and times[beyond] <= time:
            beyond += 1
        same = place > 0 and ticks[place - 1] == tick
        ticks[place - same : beyond] = [tick]
        times[place - same : beyond] = [time]
        if len(ticks) > STEPS_MAX:
            del ticks[1], times[0]
        return tick

    def at(self, stream: str, tick: int) -> int:
        """The least element that silence at this tick must have."""
        place = bisect_right(self._ticks.get(stream, []), tick)
        return self._times[stream][place - 1] if place else 0

    def see(self, stream: str, span: Span, time: int | None) -> Doubt | None:
        """Silence has come: what of it is not believed, always its end. `time` is our element in
        its vector; None if that is not known."""
        ticks = self._ticks.get(stream, [])
        first = bisect_right(self._times.get(stream, []), time or 0)
        cut = min(max(ticks[first], span.start), span.end) if first < len(ticks) else span.end
        if cut > span.start:
            self._believed_end[stream] = max(cut, self._believed_end.get(stream, 0))
        if cut == span.end:
            return None
        return Doubt(Span(cut, span.end), {self.leaf: self.at(stream, span.end - 1)})

    def check(self) -> None:
        for stream, ticks in self._ticks.items():
            times = self._times[stream]
            assert ticks == sorted(set(ticks)), "I1"
            assert times == sorted(set(times)), "I1"
            assert len(ticks) == len(times) <= STEPS_MAX, "I2"


def reaches(vector: Mapping[str, int] | None, minimum: Mapping[str, int]) -> bool:
    """May silence of this vector (None: not known) answer a nack with this minimum?"""
    return vector is not None and is_at_least(vector, minimum)


def digest_of_answer(
    digest: int, vector: Mapping[str, int] | None, minimum: Mapping[str, int]
) -> int:
    """Under which digest a relay sends an event that was asked for with a minimum."""
    return digest if reaches(vector, minimum) else 0
