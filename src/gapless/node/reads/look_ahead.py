"""Outlook: logs are surveyed before anybody searches them, so that a first search is quick too.

Theory of operation
    A search is quick where there are digests, and whoever searches first has to make them. So the
    driver, when it has little else to do, asks here for the next part of a log of which nothing is
    known (`next_part`), looks at it beside the node (`look`, which touches nothing but the store
    and may run in a thread), and hands over what it saw (`take`). All attributes that events of the
    part have are looked at, for nobody knows yet what will be asked.
    A log is looked through once, in the order of ticks, as far as it is settled; what is too little
    for a stretch waits until more is there. What is seen takes only room that is free: it never
    drives out what searches have learned, and when room is short nothing is looked at.

Invariants
    I1  what is taken is of a log that is still hosted here, and covers nothing that is known
    I2  every part is looked at once at most: what does not fit, or is refused, is passed over

Cost: some 0.3 µs an event for each attribute, in the driver's thread; a stretch that is kept takes
4 bytes an event and 1 to 9 for each attribute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gapless.core.events import EventBatch
from gapless.core.ticks import Span
from gapless.node.reads.search import DIGESTED_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from gapless.core.events import Attributes
    from gapless.core.identity import PubendName
    from gapless.core.store import RecordRun
    from gapless.filters.sieve import Coded, Digest
    from gapless.knowledge.pubend import Pubend
    from gapless.node.context import Survey
    from gapless.node.reads.part import LogPart
    from gapless.node.reads.search import LogSearch

PART_BYTES = 4 << 20
"""What one look goes through, and a stretch is made of."""

READ_BYTES = 512 << 10
"""What is read of the store at a time: it serves nobody else meanwhile."""

ROOM_SHARE = 16
"""When less than one part in so many of the room for digests is free, nothing is looked at."""


class Preview(NamedTuple):
    """A part of a log of which nothing is known. `is_open`: it ends where the log does."""

    pubend: Pubend
    span: Span
    is_open: bool


class View(NamedTuple):
    """What was seen: up to `end`, all of it. Without digests it is not worth keeping."""

    end: int
    ticks: NDArray[np.int64] | None = None
    digests: Mapping[str, Digest | Coded] | None = None


class Outlook:
    """What is known ahead of searches at one broker."""

    def __init__(self, search: LogSearch, pubends: Mapping[PubendName, Pubend]) -> None:
        self._search = search
        self._pubends = pubends
        self._seen: dict[PubendName, tuple[Pubend, int]] = {}  # up to where
        self._short: dict[PubendName, int] = {}  # where a log ended that had too little to see

    def next_part(self) -> Preview | None:
        """What is to be looked at next, if there is anything."""
        digests = self._search.digests
        if digests is not None and digests.bytes_free < digests.bytes_max // ROOM_SHARE:
            return None
        for name in self._seen.keys() - self._pubends.keys():
            del self._seen[name]
        for name, pubend in self._pubends.items():
            before, at = self._seen.get(name, (pubend, 0))
            at = max(at if before is pubend else 0, pubend.released)
            if at >= pubend.newest or self._short.get(name) == pubend.newest:
                continue
            span: Span | None = Span(at, pubend.end)
            if digests is not None:
                span = digests.unknown(pubend, Span(at, pubend.end))
            self._seen[name] = (pubend, span.start if span else pubend.end)
            if span is not None:
                return Preview(pubend, span, is_open=span.end == pubend.end)
        return None

    def take(self, part: Preview, view: View | None) -> None:
        """Keep what was seen; None: there is too little yet."""
        pubend = part.pubend
        if self._pubends.get(pubend.name) is not pubend:
            return
        if view is None:
            self._short[pubend.name] = pubend.newest
            return
        self._short.pop(pubend.name, None)
        self._seen[pubend.name] = (pubend, view.end)
        if view.digests and view.ticks is not None:
            span = Span(part.span.start, view.end)
            self._search.kept_digests().offer(pubend, span, view.ticks, view.digests)


def look(
    part: Preview,
    survey: Survey,
    attributes_of: Callable[[EventBatch], list[Attributes]],
    bytes_max: int = PART_BYTES,
) -> View | None:
    """Survey the beginning of a part; None: there is too little yet."""
    runs, end = _read(part, bytes_max)
    if part.is_open and sum(len(run.data) for run in runs) < bytes_max // 2:
        return None
    if sum(len(run.ends) for run in runs) < DIGESTED_MIN:
        return View(end)
    from gapless.filters.sieve import compact, shrink
    from gapless.node.reads.part import LogPart

    log = LogPart(runs)
    names = _names(log, attributes_of)
    columns = survey(log.pieces, names) if names else None
    if columns is None:
        return View(end)
    seen = zip(names, columns, strict=True)
    return View(end, log.ticks, {name: shrink(compact(*column)) for name, column in seen})


def _read(part: Preview, bytes_max: int) -> tuple[list[RecordRun], int]:
    """What stands there, and up to where."""
    pubend, start, end = part.pubend, part.span.start, part.span.end
    runs: list[RecordRun] = []
    size = 0
    while size < bytes_max:
        read_bytes_max = min(READ_BYTES, bytes_max)
        some = pubend.store.scan_runs(pubend.stream, start, end, bytes_max=read_bytes_max)
        if not some:
            return runs, end
        runs += some
        start = some[-1].indices[-1] + 1
        size += sum(len(run.data) for run in some)
    return runs, start


def _names(log: LogPart, attributes_of: Callable[[EventBatch], list[Attributes]]) -> list[str]:
    """The attributes that events at the beginning, in the middle and at the end have."""
    import numpy as np

    from gapless.node.reads.digests import ATTRIBUTES_MAX

    count = len(log.ticks)
    _, events = log.pick(np.array([0, count // 2, count - 1]), log.nbytes)
    names = {name: None for row in attributes_of(EventBatch.join(events)) for name in row}
    return list(names)[:ATTRIBUTES_MAX]
