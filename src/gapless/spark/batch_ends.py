"""Batch ends: how far the next micro-batch of a stream may go.

Theory of operation
    A pubend's settled end moves on with time, also when nothing is published; if every move were
    new data, an idle query would run empty batches without end. So the driver walks the log ahead
    of the executors and gathers the ticks of events that match, as many as a batch may have (one
    suffices where a batch has no limit). If there is none, nothing is new. The walk goes on where
    it ended, so that each part of the log is walked once.
    A limit is kept over all pubends together: ticks are times, so the earliest events of all go
    first, and a batch ends everywhere at the same time.
    A part that was released counts as an event: it has to be read to be told.

Invariants
    I1  the end of a batch is at or after its start, and never beyond what is settled
    I2  a batch with a limit holds at most that many events, and one at least

Cost: without a limit the walk ends with the first match; with one, brokers read everything twice.
At most `limit` ticks are remembered for each pubend.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING

from gapless.client.delivery import Gap
from gapless.core.token import Token

if TYPE_CHECKING:
    from gapless.spark.options import ReadOptions
    from gapless.sync import Client


class BatchEnds:
    """The events ahead of a query, as far as they were looked for. See the module docstring."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._start = Token()
        self._walk_ends: dict[str, int] = {}
        self._ticks: dict[str, list[int]] = {}

    def advance(self, client: Client, start: Token, settled: Token, limit: int | None) -> Token:
        """Where a batch from `start` on may end; `start` itself if nothing matches so far."""
        self._start = start
        for pubend, end in settled:
            self._walk(client, pubend, start.get(pubend), end, limit or 1)
        ahead = sum(map(len, self._ticks.values()))
        if not ahead:
            return start
        if limit is None or (ahead <= limit and self._reaches(settled)):
            return start.join(settled)
        following = islice(merge(*self._ticks.values()), limit - 1, None)
        cut = next(following, 0) + 1
        return start.join(Token({pubend: min(end, cut) for pubend, end in settled}))

    def _reaches(self, settled: Token) -> bool:
        return all(self._walk_ends[pubend] >= end for pubend, end in settled)

    def _walk(self, client: Client, pubend: str, start: int, end: int, wanted: int) -> None:
        ticks = self._ticks.setdefault(pubend, [])
        del ticks[: bisect_left(ticks, start)]
        at = max(self._walk_ends.get(pubend, 0), start)
        if at < end and len(ticks) < wanted:
            steps = client.read(
                self.options.topic,
                self.options.condition,
                start=Token({pubend: at}),
                end=Token({pubend: end}),
                pubends=[pubend],
                limit=wanted - len(ticks),
                gaps="yield",
            )
            for item in steps:
                ticks += [item.span.start] if isinstance(item, Gap) else item.ticks
                at = item.span.end
        self._walk_ends[pubend] = at

    def without_silence(self, start: Token) -> Token:
        """The same place, moved on over what is known to have no match. Of a batch that is read
        again after a restart nothing is known."""
        if start != self._start:
            return start
        ends = self._walk_ends
        return start.join(
            Token({name: ticks[0] if ticks else ends[name] for name, ticks in self._ticks.items()})
        )
