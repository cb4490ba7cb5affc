"""The consolidated stream: one pubend for all subscribers of a broker that keep up with it.

Theory of operation
    The node sends settled events to the connected subscribers at once. This machine records which
    durable subscription takes which event: `advance` takes a batch with its durable takers and
    gives it to the filtered log. `latest` moves only when that record is durable; it is the
    position that is reported upstream as delivered, and from which a restart continues. While one
    write is under way, further batches gather and become the next write. A position that moved
    without any taken event may wait for `delivered_flush`. If the disk has no room, the same write
    is tried again. Nothing is lost meanwhile: beyond `filtered_pending_max` events or
    `filtered_pending_bytes_max` bytes (`is_full`) the broker takes nothing more from the stream,
    and events wait upstream. A catch-up reads durable records only, so it ends at `latest`. What
    was delivered after that is still in memory here: `tail` gives the subscriber its part, and from
    then on the subscriber gets what `advance` gets. This is one step, so nothing falls between.
    What is damaged in the pubend's log comes as an event that is `LOST`, which everyone takes. It
    is recorded like any other event, and delivered to nobody: `has_lost` keeps subscribers from the
    `tail` until the record is durable. Then they catch up, ask for the event, and are told.

Invariants (checked by `check`)
    I1  latest <= delivered, the end of what was advanced; neither moves back
    I2  records that wait or are being written lie in [latest, delivered)
    I3  while a record waits, a write is under way or there is a deadline
    I4  nothing that was released is missing here: the pubend releases only what was delivered

Source: DSN 2003, sec. 4.1; docs/protocols/durable-subscriptions.md, 3.2, 3.5.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Effect, Persist, Tell
from gapless.core.identity import Instant, PubendName
from gapless.core.messages import Message
from gapless.durable.filtered_log import FilteredLog

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gapless.core.effects import Write
    from gapless.core.store import Store
    from gapless.durable.timing import DurableTiming
    from gapless.knowledge.subend import Settled


LOST = b""
"""Stands for an event that cannot be read; no real event is empty."""


class RecordsPersisted(Message, frozen=True):
    """To the consolidated stream itself: its write is durable (or, not `ok`, had no room)."""

    pubend: PubendName
    number: int
    ok: bool = True


class SubscriptionBatch(NamedTuple):
    """Events for one subscription; all else below `through` is silence for it."""

    ticks: list[int]
    events: list[bytes]
    through: int


@dataclass(slots=True)
class PendingRecords:
    """Events that durable subscriptions took, until their records are durable. Works on columns."""

    ticks: list[int] = field(default_factory=list)
    events: list[bytes] = field(default_factory=list)
    takers: list[Sequence[int]] = field(default_factory=list)
    size: int = 0  # of the events, in bytes

    def __len__(self) -> int:
        return len(self.ticks)

    def add(self, settled: Settled, takers: Sequence[Sequence[int]]) -> None:
        """Add the settled events that some subscription takes."""
        self.ticks += compress(settled.ticks, takers)
        before = len(self.events)
        self.events += compress(settled.events, takers)
        self.size += sum(map(len, self.events[before:]))
        self.takers += filter(None, takers)


class Consolidated:
    """One pubend at one subscriber-hosting broker. Sans-IO: see the module docstring."""

    def __init__(self, pubend: PubendName, store: Store, timing: DurableTiming) -> None:
        self.pubend = pubend
        self.timing = timing
        self.log = FilteredLog(pubend, store, timing)
        self.delivered = self.log.end
        self.deadline: Instant | None = None
        self._next_records = PendingRecords()
        self._current_records = PendingRecords()
        self._writes: tuple[Write, ...] = ()  # under way, or to be tried again
        self._is_out = False
        self._number = 0
        self._recorded = [0, 0]  # events and bytes since the start of the process

    @property
    def mean_size(self) -> float | None:
        """The mean size of the events that were taken since the start, in bytes; None if none."""
        count, size = self._recorded
        return size / count if count else None

    @property
    def latest(self) -> int:
        """Everything below is delivered and durably logged; 0 before the first `begin`."""
        return self.log.end

    @property
    def pending_count(self) -> int:
        """The number of events that are delivered and not durably recorded."""
        return len(self._next_records) + len(self._current_records)

    @property
    def is_full(self) -> bool:
        """Must the broker stop taking events until a write has ended?"""
        timing, waiting, writing = self.timing, self._next_records, self._current_records
        return (
            self.pending_count >= timing.filtered_pending_max
            or waiting.size + writing.size >= timing.filtered_pending_bytes_max
        )

    def begin(self, tick: int, now: Instant) -> list[Effect]:
        """Start a stream that was never here before, at this tick."""
        assert self.delivered == 0, "a stream that was here before goes on from `latest`"
        self.delivered = tick
        return self._write(now, in_haste=True)

    def advance(
        self, settled: Settled, takers: Sequence[Sequence[int]], through: int, now: Instant
    ) -> list[Effect]:
        """Record that everything below `through` is delivered. `takers[i]` are the numbers of the
        durable subscriptions, connected or not, that take the i-th event."""
        assert not settled.lost, "I4"
        assert through >= self.delivered, "I1"
        self.delivered = through
        assert len(settled.ticks) == len(takers)
        self._next_records.add(settled, takers)
        return self._write(now)

    def flush(self, now: Instant) -> list[Effect]:
        """Write what waits, without waiting for more."""
        return self._write(now, in_haste=True)

    def _write(self, now: Instant, *, in_haste: bool = False) -> list[Effect]:
        """Write the waiting records, unless a write is under way or they may wait longer."""
        if self._writes or self.delivered == self.log.written:
            return []
        if not self._next_records and not in_haste:
            if self.deadline is None:
                self.deadline = Instant(now + self.timing.delivered_flush)
            return []
        taken = self._current_records = self._next_records
        self._next_records = PendingRecords()
        self._recorded[0] += len(taken)
        self._recorded[1] += taken.size
        self._writes = self.log.write(taken.ticks, taken.takers, self.delivered)
        return self._put_out()

    def _put_out(self) -> list[Effect]:
        self.deadline = None
        self._is_out = True
        self._number += 1
        done, failed = (RecordsPersisted(self.pubend, self._number, ok=ok) for ok in (True, False))
        return [Persist(self._writes, (Tell(done),), (Tell(failed),))]

    def persisted(self, message: RecordsPersisted, now: Instant) -> list[Effect]:
        """Handle the end of the write."""
        assert message.number == self._number
        self._is_out = False
        if not message.ok:
            self.deadline = Instant(now + self.timing.storage_retry)
            return []
        self.log.persisted()
        self._writes, self._current_records = (), PendingRecords()
        return self._write(now)

    def fire(self, now: Instant) -> list[Effect]:
        if self.deadline is None or now < self.deadline:
            return []
        self.deadline = None
        return self._put_out() if self._writes else self._write(now, in_haste=True)

    def has_lost(self, taker: int, start: int) -> bool:
        """Is the taker still owed an event that is lost? It must catch up with that, once the
        record of it is durable."""
        return any(
            event == LOST and tick >= start and taker in takers
            for taken in (self._current_records, self._next_records)
            for tick, event, takers in zip(taken.ticks, taken.events, taken.takers, strict=True)
        )

    def tail(self, taker: int, start: int) -> SubscriptionBatch:
        """What a subscription that has everything below `latest` is owed before it joins the
        others."""
        ticks, events = list[int](), list[bytes]()
        known: dict[int, bool] = {}  # by identity: equal takers share one list
        for taken in (self._current_records, self._next_records):
            for tick, event, takers in zip(taken.ticks, taken.events, taken.takers, strict=True):
                takes = known.get(id(takers))
                if takes is None:
                    takes = known[id(takers)] = taker in takers
                if takes and tick >= start:
                    ticks.append(tick)
                    events.append(event)
        return SubscriptionBatch(ticks, events, max(start, self.delivered))

    def chop(self, tick: int, lost_below: int = 0) -> list[Effect]:
        """Give back the log before `tick`, which no subscription needs; and soon what lies before
        `lost_below`, where the pubend has released everything."""
        self.log.lost_below = max(self.log.lost_below, lost_below)
        chop = self.log.chop(tick)
        return [Persist((chop,))] if chop else []

    def check(self) -> None:
        self.log.check()
        assert self.latest <= self.delivered, "I1"
        pending = [*self._current_records.ticks, *self._next_records.ticks]
        assert all(self.latest <= tick < self.delivered for tick in pending), "I2"
        idle = self.delivered == self.latest
        assert idle or self._is_out or self.deadline is not None, "I3"
