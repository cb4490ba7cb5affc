"""Retention: how much of a pubend's log must be kept, and for whom.

Theory of operation
    Each broker reports two positions up the tree: everything below `delivered` has reached all its
    connected subscribers, everything below `released` was acknowledged by all its durable ones.
    A relay keeps the least of both over the cells below. At the pubend, what is below the least
    `released` may go. What is between the two is kept for subscribers that are away; a
    policy may end that early, by age or by size. What is not yet delivered everywhere is never
    released, so one who keeps up never sees a gap.
    Released is a prefix of the log. Once it is chopped, durably, it is lost: who asks is told so.
    Where that prefix would be silence alone it is not released: nothing would be gained, and who
    asks would be told of a loss that there was not.
    Between the decision and that moment nothing is said of it: a crash may bring it back, and a
    look into the log may find it or not.

    A report may be lower than one before, when a subscription has arrived that is behind; but what
    was released stays so.

Invariants (checked by `check`)
    I1  what is released never moves back, and never passes what is delivered
    I2  gone <= going, and they differ only while a chop is written

Source: DSN 2003, sec. 3 (release protocol, PHB controlled policy);
docs/protocols/durable-subscriptions.md, 3.4.
Deviation: positions are exclusive; a policy by bytes beside the one by time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gapless.core.effects import Chop, Effect, Persist
from gapless.core.errors import StorageDamagedError
from gapless.core.identity import Instant
from gapless.core.ticks import PUBEND_BITS, Span
from gapless.knowledge.batch import scan_through

if TYPE_CHECKING:
    from gapless.core.effects import Tell
    from gapless.core.store import Store
    from gapless.knowledge.timing import KnowledgeTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """When to give up on subscribers that are away. None: never."""

    retention_time: int | None = None  # microseconds
    retention_bytes: int | None = None


def lost_below(
    released: int, delivered: int, now: Instant, policy: Policy, fitting_from: int = 0
) -> int:
    """The end of the prefix that is released: acknowledged by all, or too old, or too much.

    `fitting_from` is where the part of the log begins that is within `retention_bytes`.
    """
    early = fitting_from if policy.retention_bytes is not None else 0
    if policy.retention_time is not None:
        early = max(early, (now - policy.retention_time) << PUBEND_BITS)
    return max(min(released, delivered), min(delivered, early))


class LogSize:
    """How many bytes of a log lie where, to the batch; a question costs a bisection, however many
    batches there are."""

    def __init__(self) -> None:
        self._ticks: list[int] = []  # the first one of each batch
        self._before: list[int] = []  # bytes of all batches before it, those that are gone included
        self._end = 0  # the same for the next
        self._first = 0  # the oldest batch that is there

    @classmethod
    def of(cls, store: Store, stream: str) -> LogSize:
        """Of a log as a restart finds it: reads it through once, so only where it is needed."""
        size, (start, end) = cls(), store.bounds(stream)
        for part in scan_through(store, stream, start, end):
            if not isinstance(part, Span):  # what cannot be read has no size to speak of
                size.append(part[0][0], sum(map(len, part[1])))
        return size

    @property
    def total(self) -> int:
        return self._end - self._before[self._first] if self._ticks else 0

    def append(self, first_tick: int, byte_count: int) -> None:
        self._ticks.append(first_tick)
        self._before.append(self._end)
        self._end += byte_count

    def fitting_from(self, bytes_max: int) -> int:
        """From this tick on the log has at most so many bytes. The newest batch always fits."""
        if not self._ticks:
            return 0
        place = bisect_left(self._before, self._end - bytes_max, self._first)
        return self._ticks[min(place, len(self._ticks) - 1)]

    def chop(self, tick: int) -> None:
        """Everything before `tick` is gone; a batch goes with its last event."""
        place = bisect_right(self._ticks, tick, self._first) - 1
        self._first = max(self._first, min(place, len(self._ticks) - 1))
        if self._first > len(self._ticks) // 2:
            del self._ticks[: self._first], self._before[: self._first]
            self._first = 0


class Release:
    """One pubend's log: how far it is delivered, how far nobody needs it, how far it is gone."""

    def __init__(
        self,
        stream: str,
        store: Store,
        policy: Policy,
        timing: KnowledgeTiming,
        ended: tuple[Tell, Tell],
    ) -> None:
        self.stream = stream
        self.store = store
        self.policy = policy
        self.timing = timing
        self.ended = ended  # to be told when a chop is durable, and when it failed
        self.chop_end = self.next_chop_end = store.bounds(stream)[
            0
        ]  # everything below is, will be released
        self.delivered = self.chop_end
        self.needed_from = self.chop_end  # no durable subscription needs what is below
        self.deadline: Instant | None = None
        self._size = LogSize.of(store, stream) if policy.retention_bytes is not None else None

    def append(self, first_tick: int, byte_count: int, now: Instant) -> None:
        """Events were logged from this tick on."""
        if self._size is not None:
            self._size.append(first_tick, byte_count)
        self._arm(now)

    def acknowledge(self, delivered: int, freed: int, now: Instant) -> None:
        """Everyone below has all before `delivered`, and needs nothing before `freed`."""
        self.delivered = max(self.delivered, delivered)
        self.needed_from = min(freed, self.delivered)
        self._arm(now)

    def _arm(self, now: Instant) -> None:
        is_limited = self.policy != Policy() and self.next_chop_end < self.delivered
        if self.deadline is None and (is_limited or self.needed_from > self.next_chop_end):
            self.deadline = Instant(now + self.timing.release_delay)

    def fire(self, now: Instant) -> list[Effect]:
        """Give space back."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        if self.next_chop_end > self.chop_end:  # one chop at a time
            return []
        fitting_from = 0
        if self._size is not None and self.policy.retention_bytes is not None:
            fitting_from = self._size.fitting_from(self.policy.retention_bytes)
        below = lost_below(self.needed_from, self.delivered, now, self.policy, fitting_from)
        self.next_chop_end = max(self.chop_end, below)
        if self._has_events():
            done, failed = self.ended
            return [Persist((Chop(self.stream, self.next_chop_end),), (done,), (failed,))]
        self.next_chop_end = (
            self.chop_end
        )  # nothing but silence: there is nothing to give back, nor to lose
        return []

    def chopped(self, now: Instant, *, ok: bool) -> None:
        """The chop is durable, or there was no room to note it."""
        if ok:
            self.chop_end = self.next_chop_end
        self.next_chop_end = self.chop_end
        if self._size is not None:
            self._size.chop(self.chop_end)
        self._arm(now)

    def _has_events(self) -> bool:
        try:
            return bool(
                self.store.scan(self.stream, self.chop_end, self.next_chop_end, bytes_max=1)[0]
            )
        except StorageDamagedError:
            return True

    def check(self) -> None:
        assert self.next_chop_end <= self.delivered, "I1"
        assert self.chop_end <= self.next_chop_end, "I2"
        assert self.needed_from <= self.delivered, "I1"
