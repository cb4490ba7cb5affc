"""A small file of 64-bit counters that all processes of a run map into their memory.

Every slot has one writer, so nothing is locked; readers may see a value that is a moment old.
"""

from __future__ import annotations

import mmap
from pathlib import Path

PUBLISHERS_MAX = 128
CONNECTIONS_MAX = 512
STOP = 0  # 1: publishers end their run early
PUBLISHED = 16  # + publisher
CONFIRMED = PUBLISHED + PUBLISHERS_MAX
EXPECTED = CONFIRMED + PUBLISHERS_MAX  # deliveries due because of what this publisher sent
BY_GROUP = EXPECTED + PUBLISHERS_MAX  # + exchange: events published
DELIVERED = 512  # + subscriber connection
_COUNT = DELIVERED + CONNECTIONS_MAX


class Counters:
    """The counters of one run."""

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        if create:
            Path(path).write_bytes(bytes(8 * _COUNT))
        with Path(path).open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 8 * _COUNT)
        self.slots = memoryview(self._map).cast("q")

    def sum(self, first: int, count: int) -> int:
        return sum(self.slots[first : first + count])
