"""Delivery start: from which message on a new subscription gets everything it wants.

Theory of operation
    A message whose vector has this leaf at or beyond a subscription's virtual start time was
    matched against it everywhere; and so is every later one of its source, because vectors do
    not go back. So delivery starts there, for each source by itself. Before it, what matches may
    be delivered to others and still not to this one: the next might have been filtered away.
    The leaf keeps, for each source, since which digest its own element has had which value. A
    message with a digest that it does not know starts nothing.

Invariants (checked by `check`)
    I1  digests and times of a source ascend together
    I2  at most `STEPS_MAX` steps are kept for a source; what is older starts nothing

Source: Middleware 2004, sec. 3.6.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

STEPS_MAX = 64


def may_start(message: Mapping[str, int], leaf: str, start: int) -> bool:
    """May delivery start at a message with this vector?"""
    return message.get(leaf, 0) >= start


class DeliveryStart:
    """Which subscriptions of one leaf have started, for each source."""

    def __init__(self, leaf: str) -> None:
        self.leaf = leaf
        self._steps: dict[str, tuple[list[int], list[int]]] = {}  # digests, and times since them
        self._highest: dict[str, int] = {}
        self._waiting: dict[str, dict[str, int]] = {}

    def learn(self, source: str, digest: int, vector: Mapping[str, int]) -> None:
        """This is the vector behind a digest, higher than those before."""
        if digest <= self._highest.get(source, 0):
            return
        self._highest[source] = digest
        digests, times = self._steps.setdefault(source, ([], []))
        time = vector.get(self.leaf, 0)
        if not times or time > times[-1]:
            digests.append(digest)
            times.append(time)
            del digests[:-STEPS_MAX], times[:-STEPS_MAX]

    def time_of(self, source: str, digest: int) -> int | None:
        """Our element in the vector behind this digest; None if that is not known."""
        if digest > self._highest.get(source, 0):
            return None
        digests, times = self._steps[source]
        place = bisect_right(digests, digest)
        return times[place - 1] if place else None

    def add(self, source: str, subscription: str, start: int) -> None:
        """It waits for its first message of this source."""
        self._waiting.setdefault(source, {})[subscription] = start

    def remove(self, source: str, subscription: str) -> None:
        self._waiting.get(source, {}).pop(subscription, None)

    def see(self, source: str, digest: int) -> list[str]:
        """Those that start with this message, in the order in which they came."""
        waiting = self._waiting.get(source)
        time = self.time_of(source, digest) if waiting else None
        if not waiting or time is None:
            return []
        started = [key for key, start in waiting.items() if start <= time]
        for key in started:
            del waiting[key]
        return started

    def check(self) -> None:
        for digests, times in self._steps.values():
            assert digests == sorted(set(digests)), "I1"
            assert times == sorted(set(times)), "I1"
            assert len(digests) <= STEPS_MAX, "I2"
