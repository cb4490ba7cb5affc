"""Feed: one slice of the log, read by an executor straight from the broker that has it.

Theory of operation
    A task opens a connection of its own, reads its slice step by step, and gathers what matches
    until it makes a batch of a good size: Spark pays for each batch, and a step in which little
    matches is small. While a batch is turned into columns, or Spark takes it, a thread already
    reads the next steps. What was released is, as the options say, an error that names it, a
    warning, or a row.

Invariants
    I1  what a slice yields is everything that matches in it, in order, once, or the read fails;
        unless the user wants to go on, and then what is lost is told in its place
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from gapless.client.columns import join_runs
from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.core.token import Token
from gapless.sync import connect
from gapless.wire.buffers import keep_buffers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.client.range_reads import RangeBatch
    from gapless.core.events import EventRun
    from gapless.spark.columns import Columns
    from gapless.spark.options import ReadOptions
    from gapless.spark.plan import Slice
    from gapless.sync import Client

BATCH_EVENTS = 10_000
"""Events from which on a batch is handed over: about where Spark's cost for each is small."""

BATCH_BYTES = 8 << 20

STEPS_AHEAD = 3
"""Steps that are read, or waited for, before they are taken."""

log = logging.getLogger(__name__)


def open_client(options: ReadOptions) -> Client:
    """A connection as the options say, for a `with`."""
    credentials: Any = options.credentials
    return connect(options.url, patience_s=options.patience_s, **credentials)


def read_slice(
    part: Slice, columns: Columns, options: ReadOptions, *, from_oldest: bool = False
) -> Iterator[Any]:
    """Arrow batches of everything that matches in the slice. `from_oldest`: it begins with what is
    kept when it is read, and what is before that is not lost."""
    keep_buffers()
    runs: list[EventRun] = []
    count = size = 0
    for item in _steps(part, options):
        if not isinstance(item, Gap):
            runs.append(item.run)
            count += len(item)
            size += len(item.run.data)
        if count and (isinstance(item, Gap) or count >= BATCH_EVENTS or size >= BATCH_BYTES):
            yield columns.batch(part.pubend, join_runs(runs))
            runs, count, size = [], 0, 0
        if isinstance(item, Gap) and not (from_oldest and item.span.start == part.low):
            yield from _lost(item, columns, options)
    if count:
        yield columns.batch(part.pubend, join_runs(runs))


def _steps(part: Slice, options: ReadOptions) -> Iterator[RangeBatch | Gap]:
    """What the broker answers, the next ones asked for before this one is taken."""
    with open_client(options) as client, ThreadPoolExecutor(1) as ahead:
        steps = client.read(
            options.topic,
            options.condition,
            start=Token({part.pubend: part.low}),
            end=Token({part.pubend: part.high}),
            pubends=[part.pubend],
            gaps="yield",
        )
        following = deque(ahead.submit(next, steps, None) for _ in range(STEPS_AHEAD))
        try:
            while (item := following.popleft().result()) is not None:
                following.append(ahead.submit(next, steps, None))
                yield item
        finally:
            ahead.shutdown(cancel_futures=True)


def _lost(gap: Gap, columns: Columns, options: ReadOptions) -> Iterator[Any]:
    what = f"{gap.pubend} [{gap.span.start}, {gap.span.end})"
    if options.gaps == "fail":
        raise LostError(
            what,
            "To go on behind it: failOnDataLoss=false, or gaps=rows to have it told as a row. To "
            "begin with what is kept: startingOffsets=earliest and a new checkpoint.",
        )
    log.warning("%s was released before it was read, and is lost", what)
    if options.gaps == "rows":
        yield columns.gap(gap)
