"""Log part: a piece of a log as it stands there, its events not cut apart.

Cost: the bytes are copied once where they are of more than one commit. Importing this module
imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from gapless.core.ticks import Span
    from gapless.knowledge.pubend import Pubend


class LogPart(NamedTuple):
    """Events end to end: number i stands at `bounds[i]:bounds[i + 1]`."""

    ticks: NDArray[np.int64]
    data: bytes | memoryview
    bounds: NDArray[np.int64]

    def fitting(self, chosen: NDArray[np.int64], bytes_max: int) -> tuple[int, int]:
        """How many of these fit, one at least, and how long they are together."""
        ends = np.cumsum(self.bounds[chosen + 1] - self.bounds[chosen])
        count = max(int(np.searchsorted(ends, bytes_max, "right")), min(1, len(ends)))
        return count, int(ends[count - 1]) if count else 0

    def pick(self, chosen: NDArray[np.int64]) -> tuple[list[int], list[bytes]]:
        """Ticks and events of these."""
        starts, ends = self.bounds[chosen].tolist(), self.bounds[chosen + 1].tolist()
        events = [bytes(self.data[low:high]) for low, high in zip(starts, ends, strict=True)]
        return self.ticks[chosen].tolist(), events


def read_part(pubend: Pubend, span: Span, bytes_max: int) -> LogPart | None:
    """The first events of a span, as many as fit; None if there are none."""
    runs = pubend.store.scan_runs(pubend.stream, span.start, span.end, bytes_max=bytes_max)
    if not runs:
        return None
    ticks = np.concatenate([_numbers(run.indices) for run in runs])
    bounds, count, size = np.zeros(len(ticks) + 1, np.int64), 1, 0
    for run in runs:
        bounds[count : count + len(run.ends)] = np.asarray(run.ends)
        bounds[count : count + len(run.ends)] += size - run.start
        count += len(run.ends)
        size += len(run.data)
    data = runs[0].data if len(runs) == 1 else b"".join([run.data for run in runs])
    return LogPart(ticks, data, bounds)


def _numbers(indices: Sequence[int]) -> NDArray[np.int64]:
    if isinstance(indices, range):
        return np.arange(indices.start, indices.stop, indices.step, dtype=np.int64)
    return np.asarray(indices, np.int64)
