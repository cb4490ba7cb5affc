"""The filtered log: which durable subscriptions take which events of one pubend.

Theory of operation
    Each pubend has one log stream, indexed by tick. Every event that a durable subscription takes
    has one record: for each taker its number and the tick of its previous event. So the records of
    one subscription form a chain that leads back from its newest record, its head. A read follows
    the chain and touches nothing else, however much other subscriptions took in between.
    Takers that want the same events have the same previous event. If all takers of a record do, it
    is written once, and a walk past it keeps it for the others (`_shared_backs`).
    Heads are kept in memory. A restart takes them from the last snapshot and reads the records
    after it. `end` says how far the log is complete: below it, what is not in the chain is silence
    for that subscription. It is written in one commit with the records, so both hold or neither
    does. Several writes may be under way, in order: records that are not durable yet serve as back
    pointers, but are not read.
    A damaged record breaks the chains that lead through it: nothing is known of what lies before
    it, and its takers ask for all of that. A restart that finds one does not know its takers: every
    subscription that took nothing after it asks for all that it covers. No snapshot is made until
    the damaged record is chopped, because a snapshot would hide it from the next restart.
    `read` returns the earliest ticks and says how far its answer goes. Chains only lead back, so a
    walk down a long chain leaves marks (`Trail`) from which the next reads start: every record is
    looked at about twice in all, and no single read looks at more than `filtered_walk_max`.
    Records of released events are not looked at: a walk ends with the first back pointer that leads
    there, which tells whether the subscription has lost anything.
    What every subscription has acknowledged is chopped (`chop`). A subscription that is away for
    good would keep the log growing although its events are released: so each snapshot also chops
    what the pubend has released (`lost_below`). The snapshot keeps the heads of chains that are
    chopped to their end, and `acknowledged_below`, so that a read still tells whether anything was
    lost. Of what was acknowledged no head is kept: a client that goes back there is told a loss.

Invariants (checked by `check`)
    I1  start <= end <= written; all three never move back
    I2  records that are not durable yet lie in [end, written)
    I3  a back pointer leads to an earlier tick, or nowhere
    I4  acknowledged_below <= start; no head at or after it is forgotten

Cost: 8 bytes (the index) + 16 n at most for an event with n takers, whatever its size: 4 + 12 n, or
12 + 4 n where all took the same event before.
Source: DSN 2003, sec. 4.2 and figure 2; docs/protocols/durable-subscriptions.md, 3.3. Deviation:
the index is the tick itself; positions are exclusive; `end` covers silence behind the last record
too; the record is shorter.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from itertools import compress
from struct import Struct, pack, unpack, unpack_from
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.effects import Append, Chop, Put, Write
from gapless.core.errors import StorageDamagedError
from gapless.core.ticks import Span
from gapless.knowledge.batch import scan_through

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gapless.core.identity import PubendName
    from gapless.core.store import Store
    from gapless.durable.timing import DurableTiming

DELIVERED = "delivered"
"""Table: for each pubend, the tick below which everything was delivered and logged here."""

HEADS = "filtered"
"""Table: for each pubend, a tick and the heads of all chains as they were there."""

ACKNOWLEDGED = -1
"""In a snapshot, in place of a subscription: the tick below which no heads are kept."""

NOWHERE = -1
"""The back pointer of the first record of a chain."""

BACK = Struct("<q")
BYTES = Struct("8s")  # a back pointer, still packed

BACKS_MAX = 50_000
"""Cached back pointers that all takers of a record share; beyond it the cache is emptied, and they
are read again."""


class LogReading(NamedTuple):
    """What the log knows of a span, in four consecutive zones, each of which may be empty: unknown
    below `unknown_below`; lost below `lost_below`; silence except at `wanted` below `unknown_from`;
    unknown below `through`, where the answer ends."""

    unknown_below: int
    lost_below: int
    wanted: list[int]
    unknown_from: int
    through: int

    def lose_below(self, released: int) -> LogReading:
        """This reading, after everything before the tick was released."""
        place = bisect_left(self.wanted, released)
        if not place or self.wanted[place - 1] < self.lost_below:
            return self
        return self._replace(lost_below=self.wanted[place - 1] + 1)


class PendingWrite(NamedTuple):
    """A write under way, which makes the log complete below `end`."""

    end: int
    ticks: list[int]
    records: list[bytes]

    def record(self, tick: int) -> bytes:
        place = bisect_left(self.ticks, tick)
        assert self.ticks[place] == tick, "a chain leads to records that are kept"
        return self.records[place]


@dataclass(slots=True)
class Trail:
    """Marks that reads of one chain, or of equal chains, have left: ticks of records, ascending;
    one for each `filtered_read_max` records."""

    marks: list[int] = field(default_factory=list)

    def lowest(self, start: int) -> int | None:
        """The lowest mark at or after `start`."""
        place = bisect_left(self.marks, start)
        return self.marks[place] if place < len(self.marks) else None

    def add(self, tick: int) -> None:
        if self.lowest(tick) != tick:
            insort(self.marks, tick)


class ChainWalk(NamedTuple):
    """The result of a walk down a chain: the earliest ticks of a span, all of them from
    `known_from` to `through`; and the tick before the span, or `NOWHERE`."""

    through: int
    wanted: list[int]
    before: int
    known_from: int


class FilteredLog:
    """One pubend's filtered log at one broker. See the module docstring."""

    def __init__(self, pubend: PubendName, store: Store, timing: DurableTiming) -> None:
        self.pubend = pubend
        self.stream = f"filtered/{pubend}"
        self.store = store
        self.timing = timing
        self.reads = 0  # records looked at by `read`, for statistics
        self.start = store.bounds(self.stream)[0]
        self.end = int.from_bytes(store.get(DELIVERED, pubend) or b"", "little")
        self.written = self.end  # like `end`, including what is not durable yet
        self._heads: dict[int, int] = {}
        self._pending_writes: deque[PendingWrite] = deque()
        self._snapshot_age = 0  # records since the last snapshot of heads
        self._shared_backs: dict[int, int] = {}  # of durable records with one for all takers
        self._holes: list[Span] = []  # damaged records, found by a restart
        self.lost_below = 0  # the pubend has released everything before it, as far as is known here
        self.acknowledged_below = self.start
        self._load_heads()

    # --- recovery -------------------------------------------------------------------------------

    def _load_heads(self) -> None:
        fact = self.store.get(HEADS, self.pubend)
        start = 0
        if fact:
            start, *flat = unpack(f"<{len(fact) // 8}q", fact)
            self._heads = dict(zip(flat[::2], flat[1::2], strict=True))
            acknowledged = self._heads.pop(ACKNOWLEDGED, self.start)
            if self.start <= start:  # else records after the snapshot are gone, and their heads
                self.acknowledged_below = min(acknowledged, self.start)
        start = max(start, self.start)
        for part in scan_through(self.store, self.stream, start, self.end):
            if isinstance(part, Span):
                self._holes.append(part)
                continue
            for tick, record in zip(*part, strict=True):
                self._heads.update(dict.fromkeys(_decode(record)[0], tick))
            self._snapshot_age += len(part[0])

    def _snapshot(self) -> Put:
        self._snapshot_age = 0
        kept = {key: tick for key, tick in self._heads.items() if tick >= self.acknowledged_below}
        self._heads = kept
        pairs = [(ACKNOWLEDGED, self.acknowledged_below), *kept.items()]
        flat = [number for pair in pairs for number in pair]
        return Put(HEADS, self.pubend, pack(f"<{len(flat) + 1}q", self.written, *flat))

    # --- writing --------------------------------------------------------------------------------

    def write(
        self, ticks: Sequence[int], takers: Sequence[Sequence[int]], through: int
    ) -> tuple[Write, ...]:
        """The writes that make the log complete below `through`; call `persisted` after them.

        `takers[i]` are the numbers of the subscriptions that take the event at `ticks[i]`. What was
        written before is skipped, so a replay does no harm. Empty if there is nothing to write.
        """
        if through <= self.written:
            return ()
        first = bisect_left(ticks, self.written)
        ticks, takers = ticks[first:], takers[first:]
        taken = list(compress(ticks, takers))
        records = self._encode_all(taken, list(filter(None, takers)))
        self.written = through
        self._pending_writes.append(PendingWrite(through, taken, records))
        self._snapshot_age += len(taken)
        writes: list[Write] = [Put(DELIVERED, self.pubend, through.to_bytes(8, "little"))]
        if taken:
            writes.append(Append(self.stream, tuple(taken), tuple(records)))
        if self._snapshot_age > self.timing.filtered_replay_max and not self._holes:
            writes.append(self._snapshot())
            end = min(self.lost_below, self.end)
            if end > self.start:
                self.start = end
                writes.append(Chop(self.stream, end))
        return tuple(writes)

    def _encode_all(self, ticks: Sequence[int], takers: Sequence[Sequence[int]]) -> list[bytes]:
        """The records of these ticks. If the same takers took an earlier event and nothing since,
        their records differ in the back pointer alone."""
        if takers and takers.count(takers[0]) == len(takers):
            return self._encode_alike(ticks, takers[0])
        records = list[bytes]()
        last: dict[int, tuple[bytes, int, Sequence[int]]] = {}  # by identity of the takers
        busy = set[int]()  # all of those
        for tick, some in zip(ticks, takers, strict=True):
            known = last.get(id(some))
            if known is not None:
                last[id(some)] = known[0], tick, some
                records.append(known[0] + BACK.pack(known[1]))
                continue
            if not busy.isdisjoint(some):
                self._move_heads(last.values())
                last, busy = {}, set()
            busy.update(some)
            records.append(record := self._encode(tick, some))
            last[id(some)] = record[: 4 + 4 * len(some)], tick, some
        self._move_heads(last.values())
        return records

    def _encode_alike(self, ticks: Sequence[int], takers: Sequence[int]) -> list[bytes]:
        """The records of events that all have the same takers: a copy for each."""
        first = self._encode(ticks[0], takers)
        head = first[: 4 + 4 * len(takers)]
        backs = pack(f"<{len(ticks) - 1}q", *ticks[:-1])
        self._heads.update(dict.fromkeys(takers, ticks[-1]))
        return [first, *[head + back for (back,) in BYTES.iter_unpack(backs)]]

    def _move_heads(self, last: Iterable[tuple[bytes, int, Sequence[int]]]) -> None:
        for _, tick, takers in last:
            self._heads.update(dict.fromkeys(takers, tick))

    def _encode(self, tick: int, takers: Sequence[int]) -> bytes:
        heads, ordered = self._heads, sorted(takers)
        count = len(ordered)
        backs = [heads.get(taker, NOWHERE) for taker in ordered]
        heads.update(dict.fromkeys(ordered, tick))
        if backs.count(backs[0]) == count:
            del backs[1:]
        return pack(f"<{count + 1}I{len(backs)}q", count, *ordered, *backs)

    def persisted(self) -> None:
        """Take note that the oldest write under way is durable."""
        self.end = self._pending_writes.popleft().end

    def chop(self, tick: int) -> Chop | None:
        """The write that gives up everything before `tick`; None if that is gone already."""
        tick = min(tick, self.end)
        self.acknowledged_below = max(self.acknowledged_below, tick)
        if tick <= self.start:
            return None
        self.start = tick
        self._holes = [hole for hole in self._holes if hole.end > tick]
        return Chop(self.stream, tick)

    # --- reading --------------------------------------------------------------------------------

    def read(
        self,
        taker: int,
        start: int,
        end: int,
        *,
        since: int = 0,
        released: int = 0,
        trail: Trail | None = None,
    ) -> LogReading:
        """What the log knows of `[start, end)` for one subscription, from `start` on.

        Of ticks before `since` the log knows nothing: the subscription was not here then. Before
        `released` the pubend has no events any more. If one read was not enough, `through` is
        `start`: read again with the same trail.
        """
        assert start < end
        trail = Trail() if trail is None else trail
        unknown_below = max(start, min(since, end))
        lost_below = max(unknown_below, min(self.acknowledged_below, end))
        for hole in self._holes:
            if lost_below < hole.end and self._durable_head(taker) < hole.start < end:
                if hole.start <= lost_below:
                    known_from = min(hole.end, end)
                    return LogReading(known_from, known_from, [], known_from, known_from)
                end = hole.start
        high = min(self.end, end)
        if lost_below >= high:
            return LogReading(unknown_below, lost_below, [], lost_below, end)
        low = max(lost_below, min(released, high), self.start)
        walked = self._walk(taker, low, high, trail)
        if walked is None:
            return LogReading(unknown_below, lost_below, [], lost_below, lost_below)
        lost_below = max(lost_below, min(walked.before + 1, high))
        if walked.known_from > low:  # the chain is broken there
            unknown_below = lost_below = walked.known_from
        through, wanted = walked.through, walked.wanted
        end = end if through == high else through
        return LogReading(unknown_below, lost_below, wanted, through, end)

    def _walk(self, taker: int, low: int, high: int, trail: Trail) -> ChainWalk | None:
        """Walk a chain back to `low`; None if that takes more than one read."""
        count_max, through = self.timing.filtered_read_max, high
        mark = trail.lowest(low)
        if mark is not None and mark < high:
            through = mark + 1
        kept: deque[int] = deque(maxlen=count_max + 1)
        before, known_from, tick = NOWHERE, low, high
        try:
            for count, tick in enumerate(self.chain(taker, mark, low)):
                if tick < low:
                    before = tick
                    break
                if count == self.timing.filtered_walk_max:
                    trail.add(tick)
                    return None
                if tick < high:
                    kept.append(tick)
                if count and count % count_max == 0:
                    trail.add(tick)
        except StorageDamagedError:
            known_from = min(tick, high)
            before = high - 1 if low > high else NOWHERE  # it is lost, taken or not
        wanted = sorted(kept)
        if len(wanted) > count_max:
            through = wanted.pop()
        return ChainWalk(through, wanted, before, known_from)

    def chain(self, taker: int, mark: int | None, low: int) -> Iterator[int]:
        """The ticks of a chain from the mark (or the newest durable one) back to `low`, and the one
        before that."""
        tick = self._durable_head(taker) if mark is None else mark
        near: Mapping[int, bytes] = {}
        backs = self._shared_backs
        while tick >= low:
            yield tick
            self.reads += 1
            back = backs.get(tick)
            if back is None:
                if tick not in near:
                    near = self.store.read_near(self.stream, tick)
                    assert tick in near, "a chain leads to records that are kept"
                back, is_shared = _previous(near[tick], taker)
                if is_shared:
                    if len(backs) >= BACKS_MAX:
                        backs.clear()
                    backs[tick] = back
            tick = back
        yield tick

    def takers_at(self, tick: int) -> Sequence[int]:
        """The subscriptions that took the event at a tick, if its record is durable and kept."""
        if not self.start <= tick < self.end:
            return ()
        record = self.store.read_near(self.stream, tick).get(tick)
        return _decode(record)[0] if record is not None else ()

    @property
    def has_holes(self) -> bool:
        """Has a restart found damaged records, whose takers are not known?"""
        return bool(self._holes)

    def _durable_head(self, taker: int) -> int:
        tick = self._heads.get(taker, NOWHERE)
        while tick >= self.end:
            flight = next(each for each in self._pending_writes if tick < each.end)
            tick = _previous(flight.record(tick), taker)[0]
        return tick

    def check(self) -> None:
        assert self.start <= self.end <= self.written, "I1"
        assert self.acknowledged_below <= self.start, "I4"
        for flight in self._pending_writes:
            assert all(self.end <= tick < flight.end for tick in flight.ticks), "I2"
            for tick, record in zip(flight.ticks, flight.records, strict=True):
                assert all(back < tick for back in _decode(record)[1]), "I3"


def _decode(record: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The takers of a record, and their back pointers.

    A record holds the count of takers, their numbers in ascending order, and for each the tick that
    it took before, or one tick for all of them.
    """
    count = memoryview(record).cast("I")[0]
    start = 4 + 4 * count
    takers = unpack_from(f"<{count}I", record, 4)
    backs = unpack_from(f"<{(len(record) - start) // 8}q", record, start)
    return takers, backs * count if len(backs) < count else backs


def _previous(record: bytes, taker: int) -> tuple[int, bool]:
    """The back pointer of one taker, and whether all takers share it; decodes no other."""
    words = memoryview(record).cast("I")
    count = words[0]
    place = bisect_left(words, taker, 1, count + 1)
    assert words[place] == taker, "a chain leads to records of its subscription"
    is_shared = len(words) == count + 3
    place = 4 * count + (4 if is_shared else 8 * place - 4)
    return BACK.unpack_from(record, place)[0], is_shared
