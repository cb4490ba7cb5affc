"""Log part: a piece of a log as it stands there, its events not cut apart.

Theory of operation
    The log gives runs of events that stand end to end, one for each commit or page of one. Long
    runs are taken as they are, nothing being copied; where they are short, all are joined, as who
    looks at them pays for each piece.

Cost: some nanoseconds an event. Importing this module imports numpy.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from gapless.core.errors import StorageDamagedError
from gapless.core.events import EventRun, Piece
from gapless.core.store import RUN_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gapless.core.store import RecordRun
    from gapless.core.ticks import Span
    from gapless.knowledge.pubend import Pubend

PIECE_EVENTS_MIN = 128
"""If pieces have fewer on average, they are joined."""


class LogPart:
    """Events that follow each other in a log, numbered from 0."""

    def __init__(self, runs: Sequence[RecordRun]) -> None:
        self.ticks = np.concatenate([_numbers(run.indices) for run in runs])
        self._runs = runs
        self.nbytes = sum(len(run.data) for run in runs)
        self.effort = self.nbytes + RUN_BYTES * len(runs)  # what reading it took

    @cached_property
    def pieces(self) -> list[Piece]:
        pieces = [Piece(run.data, _bounds(run)) for run in self._runs]
        are_short = len(self.ticks) < PIECE_EVENTS_MIN * len(pieces)
        return [_joined(pieces)] if are_short else pieces

    @cached_property
    def _firsts(self) -> list[int]:
        """Of each piece the number of its first event, and how many events there are."""
        return [0, *accumulate(len(piece.bounds) - 1 for piece in self.pieces)]

    def sizes(self) -> NDArray[np.int64]:
        """Of all events, in bytes."""
        return np.concatenate([np.diff(piece.bounds) for piece in self.pieces])

    def pick(self, chosen: NDArray[np.int64], bytes_max: int) -> tuple[list[int], list[bytes]]:
        """Ticks and events of the first of these, as many as fit and one at least."""
        if not len(chosen):
            return [], []
        fitting = np.searchsorted(np.cumsum(self.sizes()[chosen]), bytes_max, "right")
        chosen = chosen[: max(1, int(fitting))]
        return self.ticks[chosen].tolist(), [self._event(number) for number in chosen.tolist()]

    def run(self) -> EventRun:
        """All of it."""
        ends = np.cumsum(self.sizes()).astype("<u4").tobytes()
        data = b"".join([data for data, _ in self.pieces])
        return EventRun(self.ticks.astype("<i8").tobytes(), ends, data)

    def _event(self, number: int) -> bytes:
        place = bisect_right(self._firsts, number) - 1
        data, bounds = self.pieces[place]
        number -= self._firsts[place]
        return bytes(data[bounds[number] : bounds[number + 1]])


def read_part(pubend: Pubend, span: Span, bytes_max: int) -> tuple[LogPart | None, int]:
    """The first events of a span, as many as fit; None if there are none before the tick that
    follows: the end of the span, or what is damaged. `StorageDamagedError` if it begins with
    that."""
    end = span.end
    while True:
        try:
            runs = pubend.store.scan_runs(pubend.stream, span.start, end, bytes_max=bytes_max)
        except StorageDamagedError as damage:
            if damage.start <= span.start:
                raise
            end = damage.start
        else:
            return (LogPart(runs) if runs else None), end


def _numbers(indices: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    return np.asarray(indices, np.int64)


def _bounds(run: RecordRun) -> NDArray[np.int64]:
    bounds = np.zeros(len(run.ends) + 1, np.int64)
    np.subtract(run.ends, run.start, out=bounds[1:], dtype=np.int64)
    return bounds


def _joined(pieces: Sequence[Piece]) -> Piece:
    sizes = np.concatenate([np.diff(piece.bounds) for piece in pieces])
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return Piece(b"".join([piece.data for piece in pieces]), bounds)
