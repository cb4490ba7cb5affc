"""Slices: a read is a token interval, cut into slices, each read by one executor.

Theory of operation
    Where a read begins and ends may be said by name or by time; positions that the brokers give
    make tokens of that. An interval is cut at the pubends. If more slices are asked for, brokers
    count what matches, and each pubend's part is cut into slices of as many events. The cut depends
    on the two tokens, the condition and that number alone: a batch that is read again after a crash
    is cut alike, or, with another number, differently with the same rows.
    A task opens a connection of its own to the broker that has its slice, reads it step by step,
    and gathers what matches to batches of a good size: Spark pays for each batch, and a step in
    which little matches is small. While a batch is turned into columns, or Spark takes it, a thread
    already reads the next steps. What was released is, as the options say, an error that names it,
    a warning, or a row.

Invariants
    I1  the slices of a plan are disjoint, and cover the interval
    I2  a slice yields everything that matches in it, in order, once, or the read fails; unless the
        user wants to go on, and then the loss is told in its place
"""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from gapless.client.columns import join_runs
from gapless.client.delivery import Gap
from gapless.client.errors import LostError
from gapless.core.errors import UsageError
from gapless.core.ticks import PUBEND_BITS
from gapless.core.token import Token
from gapless.spark.topics import topic_of
from gapless.sync import connect
from gapless.version import __version__
from gapless.wire.buffers import keep_buffers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gapless.client.range_reads import RangeBatch
    from gapless.core.events import EventRun
    from gapless.spark.arrow_batches import ArrowBatches
    from gapless.spark.options import Gaps, Place, ReadOptions
    from gapless.spark.topics import Positions
    from gapless.sync import Client

BATCH_EVENTS = 10_000
"""Events from which on a batch is handed over: about where Spark's cost for each is small."""

BATCH_BYTES = 8 << 20

STEPS_AHEAD = 3
"""Steps that are read, or waited for, before they are taken."""

log = logging.getLogger(__name__)

STRIDE = 64
"""Of this many events one place is told, to cut a read into slices. Where events are so few that
such slices would differ, every place is told."""

Interval = tuple[Token, Token]


class Slice(InputPartition):
    """A span of one pubend, for one task."""

    def __init__(self, topic: str, pubend: str, low: int, high: int) -> None:
        super().__init__((pubend, low, high))
        self.topic = topic
        self.pubend = pubend
        self.version = __version__
        self.low = low
        self.high = high


def resolve_start(place: Place, positions: Positions, gaps: Gaps = "fail") -> Token:
    """Where a read begins. A pubend that a token does not name is read from the oldest event.

    A time before the oldest event begins there, with a warning; with `gaps` of "rows" it begins at
    that time, so that the loss is a row.
    """
    match place:
        case "earliest":
            ticks = {name: low for name, (low, _) in positions.items()}
        case "latest":
            ticks = {name: high for name, (_, high) in positions.items()}
        case Token():
            _check_known(place, positions)
            ticks = {name: place.get(name) or low for name, (low, _) in positions.items()}
        case instant:
            tick = instant << PUBEND_BITS
            ticks = {name: min(tick, high) for name, (_, high) in positions.items()}
            for name, (low, _) in positions.items() if gaps != "rows" else ():
                if ticks[name] < low:
                    log.warning("%s [%d, %d) is not kept: the read begins there", name, tick, low)
                    ticks[name] = low
    return Token(ticks)


def resolve_end(place: Place, positions: Positions) -> Token:
    """Where a read ends: what is settled, at the latest."""
    match place:
        case "earliest":
            raise UsageError("endingOffsets=earliest is before everything", "Give latest.")
        case "latest":
            ticks = {name: high for name, (_, high) in positions.items()}
        case Token():
            _check_known(place, positions)
            for name, tick in place:
                if tick > positions[name][1]:
                    raise UsageError(
                        f"{name} is settled up to {positions[name][1]}, and not up to {tick}",
                        "Give an end that a read or a subscription has given.",
                    )
            return place
        case instant:
            tick = instant << PUBEND_BITS
            ticks = {name: min(tick, high) for name, (_, high) in positions.items()}
    return Token(ticks)


def _check_known(token: Token, positions: Mapping[str, object]) -> None:
    if unknown := [name for name, _ in token if name not in positions]:
        raise UsageError(
            f"the token names {unknown[0]!r}, which is no pubend that is read",
            f"There are {', '.join(positions)}.",
        )


def find_cuts(
    client: Client, topics: Sequence[str], condition: str, interval: Interval, parts: int
) -> dict[str, list[int]]:
    """By pubend that has events or gaps, the ticks at which to cut its part so that all slices have
    about as many events, `parts` of them or more. Brokers send counts, and no events."""
    start, end = interval
    found = {
        name: _count(client, topics, name, condition, (start.get(name), high), parts)
        for name, high in end
        if start.get(name) < high
    }
    total = sum(count for count, _ in found.values())
    cuts: dict[str, list[int]] = {}
    for name, (count, ticks) in found.items():
        if not count:
            continue
        slices = max(1, min(-(-parts * count // total), len(ticks)))
        cuts[name] = [ticks[len(ticks) * k // slices - 1] + 1 for k in range(1, slices)]
    return cuts


def _count(
    client: Client,
    topics: Sequence[str],
    pubend: str,
    condition: str,
    ticks: tuple[int, int],
    parts: int,
) -> tuple[int, list[int]]:
    """How many events and gaps there are, and the ticks of some of them, at equal distances."""
    for stride in (STRIDE, 1):
        total, places = 0, list[int]()
        for item in client.count(
            topic_of(pubend, topics),
            condition,
            start=Token({pubend: ticks[0]}),
            end=Token({pubend: ticks[1]}),
            pubends=[pubend],
            stride=stride,
        ):
            total += 1 if isinstance(item, Gap) else item.count
            places += [item.span.start] if isinstance(item, Gap) else item.ticks
        if len(places) >= STRIDE * parts:
            break
    return total, places


def plan(
    topics: Sequence[str], start: Token, end: Token, cuts: Mapping[str, Sequence[int]] | None = None
) -> list[Slice]:
    """The interval in slices, by pubend and tick. With `cuts`, pubends that are not in them have
    nothing that is read."""
    slices: list[Slice] = []
    for name, high in end:
        low = start.get(name)
        if low < high and (cuts is None or name in cuts):
            edges = [low, *(cuts or {}).get(name, ()), high]
            topic = topic_of(name, topics)
            slices += [Slice(topic, name, *edge) for edge in pairwise(edges) if edge[0] < edge[1]]
    return slices


# --- reading a slice ------------------------------------------------------------------------------


def open_client(options: ReadOptions, patience_s: float | None = None) -> Client:
    """A connection as the options say, for a `with`."""
    credentials: Any = options.credentials
    return connect(options.url, patience_s=patience_s or options.patience_s, **credentials)


def read_slice(
    part: Slice, batches: ArrowBatches, options: ReadOptions, *, from_oldest: bool = False
) -> Iterator[Any]:
    """Arrow batches of everything that matches in the slice. `from_oldest`: it begins with what is
    kept when it is read, and what is before that is not lost."""
    if part.version != __version__:
        problem = f"the driver has gapless {part.version}, and this worker {__version__}"
        raise UsageError(problem, "Install, or ship, the same version everywhere.")
    keep_buffers()
    runs: list[EventRun] = []
    count = size = 0
    for item in _steps(part, options):
        if not isinstance(item, Gap):
            runs.append(item.run)
            count += len(item)
            size += len(item.run.data)
        if count and (isinstance(item, Gap) or count >= BATCH_EVENTS or size >= BATCH_BYTES):
            yield batches.batch(part.topic, part.pubend, join_runs(runs))
            runs, count, size = [], 0, 0
        if isinstance(item, Gap) and not (from_oldest and item.span.start == part.low):
            yield from _lost(item, batches, options)
    if count:
        yield batches.batch(part.topic, part.pubend, join_runs(runs))


def _steps(part: Slice, options: ReadOptions) -> Iterator[RangeBatch | Gap]:
    """What the broker answers, the next ones asked for before this one is taken."""
    with open_client(options) as client, ThreadPoolExecutor(1) as ahead:
        steps = client.read(
            part.topic,
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


def _lost(gap: Gap, batches: ArrowBatches, options: ReadOptions) -> Iterator[Any]:
    what = f"{gap.pubend} [{gap.span.start}, {gap.span.end})"
    if options.gaps == "fail":
        raise LostError(
            what,
            "To go on behind it: failOnDataLoss=false, or gaps=rows to have it told as a row. To "
            "begin with what is kept: startingOffsets=earliest and a new checkpoint.",
        )
    log.warning("%s was released before it was read, and is lost", what)
    if options.gaps == "rows":
        yield batches.gap(gap)
