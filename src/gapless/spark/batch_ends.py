"""Batch ends: how far the next micro-batch of a stream may go.

Theory of operation
    A pubend's settled end moves on with time, also when nothing is published; if every move were
    new data, an idle query would run empty batches without end. So the log is walked, ahead of the
    executors, and what the walk finds are ticks of events that match, as many as a batch may have
    (one suffices where a batch has no limit). Nothing found: nothing new. What was walked is
    remembered, so that each part of the log is walked once.
    A limit is kept over all pubends together: ticks are times, so the earliest events of all go
    first, and a batch ends everywhere at the same time.
    What was released already counts as found: it has to be read to be told.

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
    """What is known of the log ahead of a query. See the module docstring."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        self._start = Token()
        self._walked: dict[str, int] = {}
        self._found: dict[str, list[int]] = {}

    def advance(self, client: Client, start: Token, settled: Token, limit: int | None) -> Token:
        """Where a batch from `start` on may end; `start` itself if nothing matches so far."""
        self._start = start
        for pubend, end in settled:
            self._walk(client, pubend, start.get(pubend), end, limit or 1)
        ahead = sum(map(len, self._found.values()))
        if not ahead:
            return start
        if limit is None or (ahead <= limit and self._has_walked(settled)):
            return start.join(settled)
        following = islice(merge(*self._found.values()), limit - 1, None)
        cut = next(following, 0) + 1
        return start.join(Token({pubend: min(end, cut) for pubend, end in settled}))

    def _has_walked(self, settled: Token) -> bool:
        return all(self._walked[pubend] >= end for pubend, end in settled)

    def _walk(self, client: Client, pubend: str, start: int, end: int, wanted: int) -> None:
        found = self._found.setdefault(pubend, [])
        del found[: bisect_left(found, start)]
        at = max(self._walked.get(pubend, 0), start)
        if at < end and len(found) < wanted:
            steps = client.read(
                self.options.topic,
                self.options.condition,
                start=Token({pubend: at}),
                end=Token({pubend: end}),
                pubends=[pubend],
                limit=wanted - len(found),
                gaps="yield",
            )
            for item in steps:
                found += [item.span.start] if isinstance(item, Gap) else item.ticks
                at = item.span.end
        self._walked[pubend] = at

    def without_silence(self, start: Token) -> Token:
        """The same place, moved on over what is known to have no match. Of a batch that is read
        again after a restart nothing is known."""
        if start != self._start:
            return start
        found = self._found.items()
        return start.join(Token({name: t[0] if t else self._walked[name] for name, t in found}))
