"""Retention: how much of a pubend's log must be kept, and for whom.

Theory of operation
    Each broker reports two positions up the tree: everything below `delivered` has reached all its
    connected subscribers, everything below `released` was acknowledged by all its durable ones.
    A relay keeps the least of both over the cells below. At the pubend, what is below the least
    `released` may go. What lies between the two is kept for subscribers that are away; a policy may
    end that early, by age or by size. A policy may also keep a minimum for everybody, by age or by
    size, though nobody needs it. What is not yet delivered everywhere is never released, so a
    subscriber that keeps up never sees a gap.
    The released part is a prefix of the log. Once it is chopped, durably, it is lost, and a
    questioner is told so. A prefix of silence alone is not released: nothing would be gained, and a
    questioner would be told of a loss that never was.
    Between the decision and the durable chop nothing is said of that part: a crash may bring it
    back, and a read of the log may find it or not.

    A report may be lower than one before, when a subscription that is behind has arrived; but what
    was released stays released.

Invariants (checked by `check`)
    I1  what is released never moves back, and never passes what is delivered
    I2  chop_end <= next_chop_end, and they differ only while a chop is written

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
    """When to give up on subscribers that are away (None: never), and what to keep for everybody,
    subscribed or not (None: nothing). Where the two contradict each other, retention counts."""

    retention_time: int | None = None  # microseconds
    retention_bytes: int | None = None
    keep_time: int | None = None  # microseconds
    keep_bytes: int | None = None

    @property
    def needs_sizes(self) -> bool:
        return self.retention_bytes is not None or self.keep_bytes is not None


def lost_below(
    released: int,
    delivered: int,
    now: Instant,
    policy: Policy,
    fitting_from: int = 0,
    kept_from: int = 0,
) -> int:
    """The end of the prefix to release: acknowledged by all and not to be kept, or too old, or too
    much.

    `fitting_from` is the start of the part of the log that is within `retention_bytes`, `kept_from`
    of the part that has `keep_bytes`.
    """
    early = fitting_from if policy.retention_bytes is not None else 0
    if policy.retention_time is not None:
        early = max(early, (now - policy.retention_time) << PUBEND_BITS)
    free = min(released, delivered)
    if policy.keep_time is not None:
        free = min(free, max(0, now - policy.keep_time) << PUBEND_BITS)
    if policy.keep_bytes is not None:
        free = min(free, kept_from)
    return max(free, min(delivered, early))


class LogSize:
    """The bytes of a log by position, to the batch. A query costs one bisection."""

    def __init__(self) -> None:
        self._ticks: list[int] = []  # the first one of each batch
        self._before: list[int] = []  # bytes of all batches before it, chopped ones included
        self._end = 0  # bytes of all batches
        self._first = 0  # the index of the oldest batch that is not chopped

    @classmethod
    def of(cls, store: Store, stream: str) -> LogSize:
        """The sizes of a log on disk. It reads the whole log once, so use it only where needed."""
        size, (start, end) = cls(), store.bounds(stream)
        for part in scan_through(store, stream, start, end):
            if not isinstance(part, Span):  # a damaged part counts as empty
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
        """The tick from which on the log has at most `bytes_max` bytes. The newest batch always
        fits."""
        if not self._ticks:
            return 0
        place = bisect_left(self._before, self._end - bytes_max, self._first)
        return self._ticks[min(place, len(self._ticks) - 1)]

    def keeping_from(self, bytes_min: int) -> int:
        """The latest tick from which on the log has `bytes_min` bytes, or all that it has."""
        place = bisect_right(self._before, self._end - bytes_min, self._first) - 1
        return self._ticks[place] if place >= self._first else 0

    def chop(self, tick: int) -> None:
        """Forget everything before `tick`; a batch goes with its last event."""
        place = bisect_right(self._ticks, tick, self._first) - 1
        self._first = max(self._first, min(place, len(self._ticks) - 1))
        if self._first > len(self._ticks) // 2:
            del self._ticks[: self._first], self._before[: self._first]
            self._first = 0


class Release:
    """One pubend's log: how far it is delivered, needed by nobody, and chopped."""

    def __init__(
        self,
        stream: str,
        store: Store,
        policy: Policy,
        timing: KnowledgeTiming,
        ended: tuple[Tell, Tell],
        born: int = 0,
    ) -> None:
        """`born`: the log knows nothing of what was before, and counts it as released."""
        self.stream = stream
        self.store = store
        self.policy = policy
        self.timing = timing
        self.ended = ended  # effects when a chop is durable, and when it failed
        self.chop_end = self.next_chop_end = max(born, store.bounds(stream)[0])
        """Everything below is released, or about to be."""
        self.delivered = self.chop_end
        self.needed_from = self.chop_end  # no durable subscription needs anything below
        self.deadline: Instant | None = None
        self._size = LogSize.of(store, stream) if policy.needs_sizes else None

    def change(self, policy: Policy, now: Instant) -> None:
        """Another policy counts from now on. What is released stays released."""
        self.policy = policy
        if policy.needs_sizes and self._size is None:
            self._size = LogSize.of(self.store, self.stream)
        self._arm(now)

    def append(self, first_tick: int, byte_count: int, now: Instant) -> None:
        """Note that events were logged from this tick on."""
        if self._size is not None:
            self._size.append(first_tick, byte_count)
        self._arm(now)

    def acknowledge(self, delivered: int, needed_from: int, now: Instant) -> None:
        """Note that all cells below have everything before `delivered`, and that no durable
        subscription needs anything before `needed_from`."""
        self.delivered = max(self.delivered, delivered)
        self.needed_from = min(needed_from, self.delivered)
        self._arm(now)

    def _arm(self, now: Instant) -> None:
        is_limited = self.policy != Policy() and self.next_chop_end < self.delivered
        if self.deadline is None and (is_limited or self.needed_from > self.next_chop_end):
            self.deadline = Instant(now + self.timing.release_delay)

    def fire(self, now: Instant) -> list[Effect]:
        """Release what may go, if it is time."""
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        if self.next_chop_end > self.chop_end:  # one chop at a time
            return []
        fitting_from = kept_from = 0
        if self._size is not None and self.policy.retention_bytes is not None:
            fitting_from = self._size.fitting_from(self.policy.retention_bytes)
        if self._size is not None and self.policy.keep_bytes is not None:
            kept_from = self._size.keeping_from(self.policy.keep_bytes)
        below = lost_below(
            self.needed_from, self.delivered, now, self.policy, fitting_from, kept_from
        )
        self.next_chop_end = max(self.chop_end, below)
        if self._has_events():
            done, failed = self.ended
            return [Persist((Chop(self.stream, self.next_chop_end),), (done,), (failed,))]
        self.next_chop_end = self.chop_end  # only silence: nothing to give back, nothing to lose
        return []

    def chopped(self, now: Instant, *, ok: bool) -> None:
        """Handle the end of a chop: durable, or without room."""
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
