"""Log search: what matches in a part of a log, a bounded piece of work at a time.

Theory of operation
    The first search reads the log, unless somebody has looked ahead (`node.outlook`), and makes
    digests (`node.digests`) of the attributes that the condition asks for, from the bytes as they
    stand (`survey`), or by decoding each event where the driver has no survey, or has none yet.
    Where there are digests, a search sifts them and reads the candidates alone, each with one look;
    where these are many it reads the log through, as that is cheaper. Only candidates are decoded,
    and asked the condition. Bodies are never looked at.

    Who wants everything gets the log as it stands, not even cut into events.

    A piece of work ends when `range_bytes_max` of the log were decoded (a look counts `LOOK_BYTES`,
    what is surveyed a quarter, what goes out as it stands a half), less where the condition is dear
    (`filters.cost`), or the digests of `range_events_max` events were sifted: some milliseconds,
    whatever matches and whatever is asked for.

Invariants
    I1  all that matches below `through` is found, with digests or without, surveyed or decoded

Cost: `python -m benchmarks ranges`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.errors import StorageDamagedError
from gapless.core.events import EventBatch, EventRun
from gapless.core.ticks import Span
from gapless.filters.cost import charges_of
from gapless.filters.filter import Filter
from gapless.knowledge.batch import read

if TYPE_CHECKING:
    from gapless.core.events import Attributes
    from gapless.filters.sieve import Sieve
    from gapless.knowledge.pubend import Pubend
    from gapless.node.config import Config
    from gapless.node.context import EventEncoding
    from gapless.node.reads.digests import Digests

LOOK_BYTES = 4 << 10
"""What reading one event alone counts: it takes about as long as reading so much in one go."""

SPARSE = 16
"""If more than one event in so many is a candidate, the log is read through."""

DIGESTED_MIN = 256
"""Digests of fewer events are not kept: they are read again as quickly."""


DECODED_COST = 300
"""What decoding an event costs, about, in units of `filters.cost`."""

SURVEYED = 4
"""A survey goes through so many bytes in the time that one takes to be decoded."""

WHOLE = 2
"""The same for what goes out as it stands: most of that time is the network's."""

COUNTED = 8
"""The same for events that are only counted: the volume checks their bytes."""

WHOLE_BYTES_MAX = 8 << 20
"""Up to here `WHOLE` counts: it must fit a frame."""


class Selection:
    """A condition, in both of its forms. `FilterError` if it is none."""

    def __init__(self, text: str) -> None:
        self.filter = Filter.parse(text)
        self.is_all = not text

    @cached_property
    def cost(self) -> int:
        """What it costs to ask an event the whole condition, in units of `filters.cost`."""
        return 0 if self.is_all else sum(charge.cost for charge in charges_of(self.filter))

    def room(self, bytes_max: int) -> int:
        """How much of the log may be looked at in one piece of work: the dearer, the less."""
        return max(1, bytes_max * DECODED_COST // (DECODED_COST + self.cost))

    @cached_property
    def sieve(self) -> Sieve | None:
        """None: it would not hold anything back."""
        from gapless.filters.sieve import Sieve  # loads numpy

        sieve = Sieve(self.filter)
        return sieve if sieve.is_tight else None


class Found(NamedTuple):
    """What matches up to `through`, and what it took to find it."""

    ticks: list[int]
    events: list[bytes]
    through: int
    bytes_read: int
    lost_below: int = 0  # what is below is damaged on the disk, and nothing is found
    events_sifted: int = 0


class LogSearch:
    """Searches the logs of one broker, and remembers what it has seen."""

    def __init__(
        self,
        config: Config,
        encoding: EventEncoding,
    ) -> None:
        self.config = config
        self._attributes_of = encoding.attributes_of
        self._survey = encoding.survey
        self.digests: Digests | None = None  # made when first wanted, for it loads numpy

    def find(
        self, pubend: Pubend, span: Span, wanted: Selection, events_max: int = 0
    ) -> tuple[list[int], list[bytes], int, int]:
        """Ticks and events that match at the beginning of a span that is settled and kept, at most
        `events_max` of them (0: any number), up to where these are all, and what is lost below
        where (0: nothing): then there are none."""
        ticks, events = list[int](), list[bytes]()
        at, room, sifted = int(span.start), wanted.room(self.config.range_bytes_max), 0
        while at < span.end and room > 0 and sifted < self.config.range_events_max:
            part = self._look(pubend, Span(at, span.end), wanted, room)
            if part.lost_below:  # told by itself, when it is asked for
                is_first = at == span.start
                return ticks, events, part.through if is_first else at, is_first * part.lost_below
            ticks += part.ticks
            events += part.events
            if events_max and len(ticks) > events_max:
                return ticks[:events_max], events[:events_max], ticks[events_max], 0
            at = part.through
            room -= part.bytes_read
            sifted += part.events_sifted
        return ticks, events, at, 0

    def count(
        self, pubend: Pubend, span: Span, wanted: Selection, events_max: int, places: slice
    ) -> tuple[int, list[int], int, int]:
        """As `find`, without events: how many there are, and the ticks of these places alone."""
        from gapless.node.reads.part import read_part  # loads numpy

        if not wanted.is_all:
            ticks, _, through, lost = self.find(pubend, span, wanted, events_max)
            return len(ticks), ticks[places], through, lost
        try:
            part, end = read_part(pubend, span, self.config.range_bytes_max * COUNTED)
        except StorageDamagedError as damage:
            lost_below = min(damage.end, span.end)
            return 0, [], lost_below, lost_below
        if part is None:
            return 0, [], end, 0
        numbers, through = part.ticks, int(part.ticks[-1]) + 1
        if events_max and len(numbers) > events_max:
            numbers, through = numbers[:events_max], int(numbers[events_max])
        return len(numbers), numbers[places].tolist(), through, 0

    def read_whole(self, pubend: Pubend, span: Span) -> tuple[EventRun, int, int]:
        """Everything at the beginning of such a span, up to where that is all, and what is lost
        below where (0: nothing): then it is empty."""
        from gapless.node.reads.part import read_part  # loads numpy

        bytes_max = self.config.range_bytes_max
        bytes_max = max(bytes_max, min(bytes_max * WHOLE, WHOLE_BYTES_MAX))
        try:
            part, end = read_part(pubend, span, bytes_max)
        except StorageDamagedError as damage:
            lost_below = min(damage.end, span.end)
            return EventRun(), lost_below, lost_below
        if part is None:
            return EventRun(), end, 0
        return part.run(), int(part.ticks[-1]) + 1, 0

    def _look(self, pubend: Pubend, span: Span, wanted: Selection, room: int) -> Found:
        """At the beginning of the span, in the cheapest way that there is."""
        if wanted.is_all or self.digests is None or wanted.sieve is None:
            return self._scan(pubend, span, wanted, room)
        stretch, ahead = self.digests.find(pubend, span.start, wanted.sieve.names)
        if stretch is None:
            return self._scan(pubend, Span(span.start, min(ahead, span.end)), wanted, room)
        span = Span(span.start, min(span.end, stretch.end))
        low, high = stretch.places(span)
        candidates = stretch.ticks_of(stretch.sift(wanted.sieve, low, high))
        search = self._sift if len(candidates) <= (high - low) // SPARSE else self._sift_through
        return search(pubend, span, candidates, wanted, room)._replace(events_sifted=high - low)

    def _scan(self, pubend: Pubend, span: Span, wanted: Selection, room: int) -> Found:
        """By reading all; what was seen is kept."""
        if self._survey is not None and not wanted.is_all and wanted.sieve is not None:
            part = self._scan_surveyed(pubend, span, wanted.filter, wanted.sieve, room)
            if part is not None:
                return part
        ticks, events, through, lost_below = read(pubend.store, pubend.stream, span, room)
        size = room if through < span.end else sum(map(len, events))
        if wanted.is_all or lost_below:
            return Found(ticks, events, through, size, lost_below)
        rows = list(self._attributes_of(EventBatch.join(events)))
        if len(ticks) >= DIGESTED_MIN and wanted.sieve is not None:
            import numpy as np

            from gapless.filters.sieve import digest

            seen, kept = Span(span.start, through), self.kept_digests()
            names = kept.names(pubend, seen, wanted.sieve.names)
            digests = {name: digest([row.get(name) for row in rows]) for name in names}
            stretch = kept.learn(pubend, seen, np.array(ticks, np.int64), digests)
            chosen = stretch.sift(wanted.sieve, 0, len(ticks))
            ticks, events = [ticks[i] for i in chosen], [events[i] for i in chosen]
            rows = [rows[i] for i in chosen]
        return Found(*_passing(ticks, events, rows, wanted.filter), through, size)

    def _scan_surveyed(
        self, pubend: Pubend, span: Span, condition: Filter, sieve: Sieve, room: int
    ) -> Found | None:
        """The same without decoding any but candidates; None: it is not worth it, or is refused."""
        from gapless.filters.sieve import compact
        from gapless.node.reads.part import read_part

        try:
            part, _ = read_part(pubend, span, room * SURVEYED)
        except StorageDamagedError:
            return None  # who reads it otherwise will be told
        if part is None or len(part.ticks) < DIGESTED_MIN:
            return None
        seen, kept = Span(span.start, int(part.ticks[-1]) + 1), self.kept_digests()
        names = kept.names(pubend, seen, sieve.names)
        assert self._survey is not None
        columns = self._survey(part.pieces, names)
        if columns is None:
            return None
        digests = {name: compact(*each) for name, each in zip(names, columns, strict=True)}
        stretch = kept.learn(pubend, seen, part.ticks, digests)
        chosen = stretch.sift(sieve, 0, len(part.ticks))
        ticks, events = part.pick(chosen, room)
        fitting = len(ticks)
        through = int(part.ticks[chosen[fitting]]) if fitting < len(chosen) else int(seen.end)
        rows = list(self._attributes_of(EventBatch.join(events)))
        size = part.effort // SURVEYED + sum(map(len, events))
        return Found(*_passing(ticks, events, rows, condition), through, size)

    def kept_digests(self) -> Digests:
        """What is kept, which may be nothing yet."""
        if self.digests is None:
            from gapless.node.reads.digests import Digests

            self.digests = Digests(self.config.range_digest_bytes_max)
        return self.digests

    def _sift(
        self, pubend: Pubend, span: Span, candidates: list[int], wanted: Selection, room: int
    ) -> Found:
        """By looking at each candidate."""
        looks_max = max(1, room // LOOK_BYTES)
        ticks = candidates[:looks_max]
        through = candidates[looks_max] if len(candidates) > looks_max else span.end
        try:
            events = [pubend.store.read(pubend.stream, tick) for tick in ticks]
        except StorageDamagedError:
            return self._sift_through(pubend, span, candidates, wanted, room)
        rows = list(self._attributes_of(EventBatch.join(events)))
        size = LOOK_BYTES * len(ticks)
        return Found(*_passing(ticks, events, rows, wanted.filter), through, size)

    def _sift_through(
        self, pubend: Pubend, span: Span, candidates: list[int], wanted: Selection, room: int
    ) -> Found:
        """By reading all, and decoding the candidates."""
        ticks, events, through, lost_below = read(pubend.store, pubend.stream, span, room)
        size = room if through < span.end else sum(map(len, events))
        if lost_below:
            return Found([], [], through, size, lost_below)
        known = frozenset(candidates)
        chosen = [i for i, tick in enumerate(ticks) if tick in known]
        ticks, events = [ticks[i] for i in chosen], [events[i] for i in chosen]
        rows = list(self._attributes_of(EventBatch.join(events)))
        return Found(*_passing(ticks, events, rows, wanted.filter), through, size)


def _passing(
    ticks: list[int], events: list[bytes], rows: list[Attributes], condition: Filter
) -> tuple[list[int], list[bytes]]:
    passing = [i for i, row in enumerate(rows) if condition.matches(row)]
    return [ticks[i] for i in passing], [events[i] for i in passing]
