"""Batches: cutting a run of events to bounded count and size, and reading one from a log."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from gapless.core.broker_messages import Knowledge
from gapless.core.errors import StorageDamagedError, StorageMissingError
from gapless.core.events import EventBatch
from gapless.core.ticks import Span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gapless.core.store import Store


def size_of(events: Iterable[bytes]) -> int:
    return sum(map(len, events))


def fits(events: Sequence[bytes], count_max: int, bytes_max: int) -> bool:
    return len(events) <= count_max and size_of(events) <= bytes_max


def cut(events: Sequence[bytes], count_max: int, bytes_max: int) -> list[tuple[int, int]]:
    """The bounds of consecutive batches within both limits. One event always fits, whatever the
    limits; there is at least one batch, which may be empty."""
    if len(events) < 2 or fits(events, count_max, bytes_max):
        return [(0, len(events))]
    sizes = list(accumulate(map(len, events), initial=0))  # of all events before each
    bounds, low = [], 0
    while low < len(events):
        fitting = bisect_right(sizes, sizes[low] + bytes_max, low) - 1
        high = max(low + 1, min(fitting, low + count_max))
        bounds.append((low, high))
        low = high
    return bounds


def split(
    kind: Knowledge,
    ticks: Sequence[int],
    events: Sequence[bytes],
    limits: tuple[int, int],
    *,
    more: bool = False,
) -> list[Knowledge]:
    """Copies of `kind`, which has no events, that carry these events and cover its span. With
    `more`, the last copy says that there is more to ask for."""
    messages, start, end = [], kind.span.start, kind.span.end
    for low, high in cut(events, *limits):
        is_last = high >= len(ticks)
        span = Span(start, end if is_last else ticks[high])
        messages.append(
            replace(
                kind,
                span=span,
                ticks=tuple(ticks[low:high]),
                events=EventBatch.join(events[low:high]),
                more=more and is_last,
            )
        )
        start = span.end
    return messages


def retell(
    news: Knowledge,
    span: Span,
    ticks: Sequence[int],
    events: Sequence[bytes],
    limits: tuple[int, int],
    lost_below: int = 0,
) -> list[Knowledge]:
    """The messages that pass unrequested news of a span on: the very same message, if it says
    exactly that and fits one message."""
    is_cut = news.lost_below > span.start
    more = news.final_below or is_cut or news.more or news.vector or news.base
    is_same = span == news.span and ticks is news.ticks and not (more or news.purpose)
    if is_same and (len(events) < 2 or fits(events, *limits)):
        return [news]
    lost_below = min(lost_below, span.start)  # it speaks of what lies before the span
    kind = Knowledge(news.pubend, span, lost_below=lost_below, digest=news.digest)
    return split(kind, ticks, events, limits)


class LogRange(NamedTuple):
    """The events at the beginning of a span of a log, all of them up to `through`. If they are
    damaged on the disk up to `lost_below`, there are none."""

    ticks: list[int]
    events: list[bytes]
    through: int
    lost_below: int = 0


def read(store: Store, stream: str, span: Span, bytes_max: int, events_max: int = 0) -> LogRange:
    """Read the events of a span of a log: as many as fit, at least one. The result ends before a
    damaged part, or is that part if the span begins with it. A span of one tick, as catch-ups ask
    for, costs a single look."""
    if len(span) == 1:
        try:
            return LogRange([span.start], [store.read(stream, span.start)], span.end)
        except StorageMissingError:
            return LogRange([], [], span.end)
        except StorageDamagedError:
            return LogRange([], [], span.end, span.end)
    end = span.end
    try:
        ticks, events = store.scan(stream, span.start, end, bytes_max=max(bytes_max, 1))
    except StorageDamagedError as damage:
        if damage.start <= span.start:
            through = min(damage.end, end)
            return LogRange([], [], through, through)
        return read(store, stream, Span(span.start, damage.start), bytes_max, events_max)
    if events_max and len(ticks) > events_max:
        return LogRange(ticks[:events_max], events[:events_max], ticks[events_max])
    if ticks and ticks[-1] + 1 < end:
        end = _next(store, stream, Span(ticks[-1] + 1, end))
    return LogRange(ticks, events, end)


def scan_through(
    store: Store, stream: str, start: int, end: int
) -> Iterator[tuple[list[int], list[bytes]] | Span]:
    """All records of a stream between two indices, a part at a time; a span stands for damaged
    ones."""
    while start < end:
        limit = end
        try:
            part = store.scan(stream, start, limit)
        except StorageDamagedError as damage:
            if damage.start <= start:
                yield Span(start, min(damage.end, end))
                start = damage.end
                continue
            limit = damage.start
            part = store.scan(stream, start, limit)
        if part[0]:
            yield part
            start = part[0][-1] + 1
        elif limit < end:
            start = limit
        else:
            return


def _next(store: Store, stream: str, span: Span) -> int:
    """The index of the first record of a span, damaged or not; its end if there is none."""
    try:
        rest = store.scan(stream, span.start, span.end, bytes_max=1)[0]
    except StorageDamagedError as damage:
        return max(damage.start, span.start)
    return rest[0] if rest else span.end
