"""Adoption: the pubends of a broker that is removed go on at another broker.

Their logs, and what is known of their publishers and transactions, are copied from the folder of
the old broker to that of the new one, while both are stopped. A pubend goes on where it was: with
its events, its numbers and its promises. The network file says `moved = { old = "new" }`, so that
all brokers look for it there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from gapless.core.effects import Append, Chop, Put
from gapless.core.errors import StorageError
from gapless.knowledge import transactions
from gapless.knowledge.past import LIVES
from gapless.knowledge.pubend import PROMISES
from gapless.knowledge.receipts import FLOORS, OWNERS, PUBLISHERS
from gapless.knowledge.stages import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.core.effects import Write
    from gapless.storage.disk import DiskVolume

LOG = "log/"
PIECE_BYTES = 1 << 20


def hosted(volume: DiskVolume) -> list[str]:
    """The pubends whose logs a volume has."""
    return [each.removeprefix(LOG) for each in volume.streams() if each.startswith(LOG)]


def adopt(source: DiskVolume, target: DiskVolume, pubend: str) -> int:
    """Copy one pubend; how many events. The facts come last: what a crash leaves is refused."""
    streams = [each for each in source.streams() if is_stream_of(each, pubend)]
    if any(target.bounds(each)[1] for each in streams):
        raise StorageError(f"the log of {pubend!r} is there already", "It was adopted before.")
    events = 0
    for stream in streams:
        start, end = source.bounds(stream)
        position = start
        while position < end:
            indices, records = source.scan(stream, position, end, bytes_max=PIECE_BYTES)
            if not indices:
                break
            target.commit([Append(stream, tuple(indices), tuple(map(bytes, records)))])
            events += len(indices) if stream == f"{LOG}{pubend}" else 0
            position = indices[-1] + 1
    chops = [Chop(each, source.bounds(each)[0]) for each in streams]
    target.commit([*chops, *facts_of(source, pubend)])
    return events


def is_stream_of(stream: str, pubend: str) -> bool:
    return stream == f"{LOG}{pubend}" or bool(
        re.fullmatch(rf"stage/[0-9]+/{re.escape(pubend)}", stream)
    )


def facts_of(volume: DiskVolume, pubend: str) -> Iterator[Write]:
    producers = (transactions.PRODUCERS, transactions.OWNERS, TRANSACTIONS)
    for table in dict.fromkeys(f"{each}/{pubend}" for each in (PUBLISHERS, OWNERS, *producers)):
        for key, value in volume.items(table).items():
            yield Put(table, key, value)
    for table in (PROMISES, FLOORS, LIVES):
        if (fact := volume.get(table, pubend)) is not None:
            yield Put(table, pubend, fact)
