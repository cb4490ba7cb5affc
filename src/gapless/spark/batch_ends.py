"""Batch ends: how far the next micro-batch of a stream may go.

Theory of operation
    A pubend's settled end moves on with time, also when nothing is published; if every move were
    new data, an idle query would run empty batches without end. So the driver counts ahead of the
    executors: brokers send no events, only how many match and where every so many-th of them is
    (`client.count`). If none matches, nothing is new. The count goes on where it ended, so that
    each part of the log is counted once.
    A limit is kept over all pubends together: ticks are times, so the earliest events of all go
    first, and a batch ends everywhere at the same time, at one of the places that were told. Where
    several pubends are read, a batch may be smaller than the limit by what lies between two places.
    A part that was released counts as an event: it has to be read to be told.

Invariants
    I1  the end of a batch is at or after its start, and never beyond what is settled
    I2  a batch with a limit holds at most that many events, and one at least

Cost: without a limit the count ends with the first match; with one, brokers look at everything
twice, and `SHARES` places for each batch come over the network.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from gapless.client.delivery import Gap
from gapless.client.errors import LinkError
from gapless.core.token import Token
from gapless.spark.topics import topic_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gapless.spark.options import ReadOptions
    from gapless.sync import Client

SHARES = 16
"""Places that are told for each batch with a limit, and each pubend."""


class Place(NamedTuple):
    """A tick with an event or a gap, and the number of events up to it since the last place."""

    tick: int
    weight: int


class BatchEnds:
    """The events ahead of a query, as far as they were counted. See the module docstring."""

    def __init__(
        self,
        options: ReadOptions,
        is_silent: Callable[[str, LinkError], None] = lambda _, error: _fail(error),
    ) -> None:
        self.options = options
        self._is_silent = is_silent
        self._start = Token()
        self._count_ends: dict[str, int] = {}
        self._places: dict[str, list[Place]] = {}

    def advance(
        self, client: Client, topics: Sequence[str], start: Token, settled: Token, limit: int | None
    ) -> Token:
        """Where a batch from `start` on may end; `start` itself if nothing matches so far."""
        self._start = start
        counted: dict[str, int] = {}
        stride = 1 if limit is None else max(1, limit // (SHARES * len(settled) or 1))
        for pubend, end in settled:
            try:
                self._count(client, topics, pubend, (start.get(pubend), end), limit or 1, stride)
                counted[pubend] = end
            except LinkError as error:
                self._is_silent(pubend, error)
        settled = Token(counted)
        ahead = {name: self._places[name] for name in counted}
        total = sum(place.weight for places in ahead.values() for place in places)
        if not total:
            return start
        if limit is None or (total <= limit and self._reaches(settled)):
            return start.join(settled)
        cut = self._cut(ahead, limit)
        return start.join(Token({pubend: min(end, cut) for pubend, end in settled}))

    def _cut(self, ahead: dict[str, list[Place]], limit: int) -> int:
        """Behind the last place up to which there are surely at most `limit` events."""
        following = {name: iter(places) for name, places in ahead.items()}
        current = {name: next(each, None) for name, each in following.items()}
        passed, cut = 0, 0
        while waiting := {name: place for name, place in current.items() if place is not None}:
            first = min(waiting, key=lambda name: waiting[name].tick)
            passed += waiting[first].weight
            current[first] = next(following[first], None)
            between = sum(place.weight - 1 for name, place in current.items() if place is not None)
            own = current[first]
            between -= own.weight - 1 if own is not None else 0
            if cut and passed + between > limit:
                break
            cut = waiting[first].tick + 1
        return cut

    def _reaches(self, settled: Token) -> bool:
        return all(self._count_ends[pubend] >= end for pubend, end in settled)

    def _count(
        self,
        client: Client,
        topics: Sequence[str],
        pubend: str,
        ticks: tuple[int, int],
        wanted: int,
        stride: int,
    ) -> None:
        start, end = ticks
        places = self._places.setdefault(pubend, [])
        del places[: bisect_left(places, start, key=lambda place: place.tick)]
        at = max(self._count_ends.get(pubend, 0), start)
        ahead = sum(place.weight for place in places)
        if at >= end or ahead >= wanted:
            self._count_ends[pubend] = at
            return
        counts = client.count(
            topic_of(pubend, topics),
            self.options.condition,
            start=Token({pubend: at}),
            end=Token({pubend: end}),
            pubends=[pubend],
            limit=wanted - ahead,
            stride=stride,
        )
        since = phase = 0  # events behind the last place, and behind the last that the broker told
        try:
            for item in counts:
                at = item.span.end
                if isinstance(item, Gap):
                    places.append(Place(item.span.start, since + 1))
                    since = 0
                    continue
                rest = item.count
                for tick in item.ticks:
                    step = stride - phase
                    places.append(Place(tick, since + step))
                    rest -= step
                    since = phase = 0
                since, phase = since + rest, phase + rest
        finally:
            if since:
                places.append(Place(at - 1, since))
            self._count_ends[pubend] = at

    def without_silence(self, start: Token) -> Token:
        """The same place, moved on over what is known to have no match. Of a batch that is read
        again after a restart nothing is known."""
        if start != self._start:
            return start
        moved = {
            name: places[0].tick if places[0].weight == 1 else start.get(name)
            for name, places in self._places.items()
            if places
        }
        ends = {name: self._count_ends[name] for name, each in self._places.items() if not each}
        return start.join(Token({**ends, **moved}))


def _fail(error: LinkError) -> None:
    raise error
