"""The filtered log against logging every event for each subscriber that takes it.

The paper's microbenchmark: 800 events a second, each taken by 25 of 100 subscribers, 418 bytes an
event; one sync a second, the last five seconds are kept. Both write to the volume that ships, in a
temporary folder. Bytes are what is logged; time is that of the processor, on a clock that the
caller passes in, and without the wait for the disk.

Source: DSN 2003, sec. 5.1.2.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop
from gapless.core.identity import PubendName
from gapless.durable.filtered_log import FilteredLog
from gapless.node.config import Config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gapless.core.effects import Write
    from gapless.storage.disk import DiskVolume

EVENTS_PER_S, SUBSCRIBERS, MATCHES, EVENT_BYTES, KEPT_S = 800, 100, 25, 418, 5
ROUNDS = 3
"""Of each; the least time counts."""

Takers = list[list[list[int]]]
"""By second, then by event: who takes it."""


@dataclass(frozen=True, kw_only=True)
class Logging:
    """What both ways logged, and what it took."""

    seconds: int
    filtered_bytes: int
    filtered_s: float
    copied_bytes: int
    copied_s: float


def play_logging(*, seconds: int, seed: int, clock: Callable[[], float]) -> Logging:
    from gapless.storage.disk import DiskVolume

    dice, everybody = random.Random(seed), range(SUBSCRIBERS)
    takers = [
        [dice.sample(everybody, MATCHES) for _ in range(EVENTS_PER_S)] for _ in range(seconds)
    ]
    sizes, best = [0, 0], [float("inf")] * 2
    for _ in range(ROUNDS):
        for place, log in enumerate((filtered, copied)):  # in turns, to meet the same machine
            with TemporaryDirectory() as folder:
                volume = DiskVolume(Path(folder))
                begin, size = clock(), 0
                for writes in log(takers, volume):
                    size += logged_bytes(writes)
                    volume.commit(writes)
                sizes[place], best[place] = size, min(best[place], clock() - begin)
                volume.close()
    return Logging(
        seconds=seconds,
        filtered_bytes=sizes[0],
        filtered_s=best[0],
        copied_bytes=sizes[1],
        copied_s=best[1],
    )


def filtered(takers: Takers, volume: DiskVolume) -> Iterator[list[Write]]:
    """One record an event, with the numbers of its takers."""
    log = FilteredLog(PubendName("trades/0"), volume, Config())
    for second, batch in enumerate(takers):
        start = 1 + second * EVENTS_PER_S
        end = start + EVENTS_PER_S
        writes = list(log.write(range(start, end), batch, end))
        chop = log.chop(start - KEPT_S * EVENTS_PER_S)
        yield [*writes, chop] if chop else writes
        log.persisted()


def copied(takers: Takers, _volume: object) -> Iterator[list[Write]]:
    """The event itself, in a queue of each taker."""
    event = bytes(EVENT_BYTES)
    for second, batch in enumerate(takers):
        start = 1 + second * EVENTS_PER_S
        queues: dict[int, list[int]] = {}
        for tick, some in enumerate(batch, start):
            for taker in some:
                queues.setdefault(taker, []).append(tick)
        writes: list[Write] = [
            Append(f"queue/{taker}", tuple(ticks), (event,) * len(ticks))
            for taker, ticks in queues.items()
        ]
        if second >= KEPT_S:
            old = start - KEPT_S * EVENTS_PER_S
            writes += [Chop(f"queue/{taker}", old) for taker in queues]
        yield writes


def logged_bytes(writes: Iterable[Write]) -> int:
    """Of the records; 8 for the index of each in the filtered log, which is part of its fact."""
    return sum(
        sum(map(len, each.records)) + 8 * len(each.records) * each.stream.startswith("filtered/")
        for each in writes
        if isinstance(each, Append)
    )
