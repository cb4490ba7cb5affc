"""Delivery start: from which tick of a stream on a new subscription gets everything it wants.

Theory of operation
    A message whose vector has this leaf at or beyond a subscription's virtual start time was
    matched against the subscription everywhere, and so is every later tick of its stream, because
    vectors do not go back. So delivery starts there, for each stream by itself. Before it, a
    matching event may be delivered to others and still not to this subscription: the next event
    might have been filtered away.
    The leaf keeps, for each source of vectors, since which digest its own element has had which
    value, and for each stream, since which tick. A message with an unknown digest starts nothing,
    nor does a message that was sent again: its vector may be later than its ticks. A subscription
    that is covered by a long-known one starts at once.

Invariants (checked by `check`)
    I1  digests, or ticks, ascend together with times
    I2  at most `STEPS_MAX` steps are kept of each; an older subscription starts later than it could

Source: Middleware 2004, sec. 3.6.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS_MAX = 64


class Steps(NamedTuple):
    """Since which place (a digest or a tick) the leaf's element has had which time."""

    places: list[int]
    times: list[int]

    def add(self, place: int, time: int) -> bool:
        """Note that the time holds from this place on; False if that was known."""
        if self.times and (time <= self.times[-1] or place <= self.places[-1]):
            return False
        self.places.append(place)
        self.times.append(time)
        del self.places[:-STEPS_MAX], self.times[:-STEPS_MAX]
        return True


class DeliveryStart:
    """Where subscriptions of one leaf may start, in each stream."""

    def __init__(self, leaf: str) -> None:
        self.leaf = leaf
        self._digests: dict[str, Steps] = {}  # by source
        self._highest: dict[str, int] = {}
        self._ticks: dict[str, Steps] = {}  # by stream

    def learn(self, source: str, digest: int, vector: Mapping[str, int]) -> None:
        """Learn the vector behind a digest, unless a higher digest is known."""
        if digest > self._highest.get(source, 0):
            self._highest[source] = digest
            steps = self._digests.setdefault(source, Steps([], []))
            steps.add(digest, vector.get(self.leaf, 0))

    def time_of(self, source: str, digest: int) -> int | None:
        """The leaf's element in the vector behind this digest; None if unknown."""
        if digest > self._highest.get(source, 0):
            return None
        steps = self._digests[source]
        place = bisect_right(steps.places, digest)
        return steps.times[place - 1] if place else None

    def see(self, source: str, stream: str, tick: int, digest: int) -> bool:
        """Note a message that begins at `tick` and is new to its last tick. Is it the first with
        the leaf's element that high, so that a subscription may start?"""
        time = self.time_of(source, digest)
        if time is None:
            return False
        return self._ticks.setdefault(stream, Steps([], [])).add(tick, time)

    def start_of(self, stream: str, start: int) -> int | None:
        """The tick from which a subscription of this start time gets everything; None if not
        yet."""
        steps = self._ticks.get(stream)
        place = bisect_left(steps.times, start) if steps else 0
        return steps.places[place] if steps and place < len(steps.places) else None

    def check(self) -> None:
        for steps in (*self._digests.values(), *self._ticks.values()):
            assert steps.places == sorted(set(steps.places)), "I1"
            assert steps.times == sorted(set(steps.times)), "I1"
            assert len(steps.places) <= STEPS_MAX, "I2"
