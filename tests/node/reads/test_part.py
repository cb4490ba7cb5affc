"""Events of a part of a log are where its pieces say, joined or not."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest

from gapless.core.events import EventRun
from gapless.core.store import RecordRun
from gapless.node.reads.part import PIECE_EVENTS_MIN, LogPart


def make_runs(*counts: int) -> tuple[list[RecordRun], list[bytes]]:
    """Runs of so many events, which begin anywhere in what they are cut from."""
    runs, events = list[RecordRun](), list[bytes]()
    for count in counts:
        first = len(events)
        some = [bytes([number % 251]) * (number % 7 + 1) for number in range(first, first + count)]
        start = 40 * len(runs)
        ends = list(accumulate(map(len, some), initial=start))[1:]
        indices = range(10 * first, 10 * (first + count), 10)
        given = indices if len(runs) % 2 else np.array(indices).tolist()
        runs.append(RecordRun(given, ends, start, memoryview(b"".join(some))))
        events += some
    return runs, events


@pytest.mark.parametrize(
    ("counts", "pieces"),
    [
        ((5,), 1),
        ((1, 2, 3), 1),
        ((PIECE_EVENTS_MIN,), 1),
        ((PIECE_EVENTS_MIN, PIECE_EVENTS_MIN + 3, 2 * PIECE_EVENTS_MIN), 3),
        ((PIECE_EVENTS_MIN, 1), 1),
    ],
)
def test_every_event_is_found_and_long_runs_are_not_copied(
    counts: tuple[int, ...], pieces: int
) -> None:
    runs, events = make_runs(*counts)
    part = LogPart(runs)
    assert len(part.pieces) == pieces
    assert part.nbytes == sum(map(len, events))
    assert part.run() == EventRun.of([10 * i for i in range(len(events))], events)
    everything = np.arange(len(events))
    assert part.pick(everything, 1 << 20) == ([10 * i for i in range(len(events))], events)
    chosen = np.array([0, len(events) - 1][: len(events)])
    assert part.pick(chosen, 1 << 20)[1] == [events[i] for i in chosen]


def test_as_many_are_picked_as_fit_and_one_at_least() -> None:
    runs, events = make_runs(*[PIECE_EVENTS_MIN] * 2)
    part, everything = LogPart(runs), np.arange(len(events))
    for bytes_max, count in ((0, 1), (1, 1), (3, 2), (5, 2), (6, 3), (1 << 20, len(events))):
        assert part.pick(everything, bytes_max)[1] == events[:count]
    assert part.pick(everything[:0], 100) == ([], [])
