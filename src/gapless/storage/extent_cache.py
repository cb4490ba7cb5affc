"""Extent cache: all records of an extent in memory, for subscriptions that catch up.

Theory of operation
    A subscription that catches up reads a record here and one there, and many that return together
    read the same ones. A single read costs a `pread` and a checksum. After enough single reads of
    an extent to pay for it, all its records are read in one go, checked, and cached by index. From
    then on a read is a dictionary look-up, and the caller may use the dictionary for neighbours. So
    a subscription that wants one record in a thousand still reads no others.
    An extent that has grown is read anew. One with a damaged page is never cached: its other
    records can still be read one by one.

Invariants
    I1  a cached extent was read and checked, and has not grown since
    I2  at most `WHOLE_BYTES_MAX` is cached, or one extent

Cost: to read all of an extent takes about as long as one single read for each `LOOK_BYTES` of it,
so that at most about half of the work is in vain.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from gapless.core.errors import StorageCorruptError
from gapless.storage.reading import records_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gapless.core.store import RecordRun
    from gapless.storage.extent import Extent
    from gapless.storage.reading import RecordReader

LOOK_BYTES = 8 << 10
WHOLE_BYTES_MAX = 16 << 20
"""The size of the cache, with `RECORD_BYTES` for each record; beyond it the oldest extent goes."""

RECORD_BYTES = 150
"""What a record takes in memory besides its bytes."""

LOOKS_MAX = 1_000
"""Extents of which single reads are counted; beyond it the oldest is forgotten."""


class CachedExtent(NamedTuple):
    """All records of an extent."""

    end: int
    records: dict[int, bytes]
    size: int


class ExtentCache:
    """The cached extents of one volume. See the module docstring."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._kept: dict[Extent, CachedExtent] = {}
        self._size = 0
        self._looks: dict[Extent, int] = {}

    def near(self, extent: Extent, index: int) -> Mapping[int, bytes]:
        """The record at this index by its index, with others of the extent if they are cached. The
        result has no such index if the extent has no such record."""
        kept = self._kept.get(extent)
        if kept is None or kept.end != extent.end:
            kept = self._look(extent)
        if kept is not None:
            return kept.records
        record = self._reader.read(extent, index)
        return {} if record is None else {index: record}

    def _look(self, extent: Extent) -> CachedExtent | None:
        """Count a single read; the whole extent, if there were enough."""
        looks = self._looks.pop(extent, 0)
        if looks * LOOK_BYTES >= max(extent.kept, 1):
            try:
                return self._keep(extent)
            except StorageCorruptError:
                looks = -sys.maxsize  # never; reading the damaged record raises the error
        self._looks[extent] = looks + 1
        if len(self._looks) > LOOKS_MAX:
            del self._looks[next(iter(self._looks))]
        return None

    def _keep(self, extent: Extent) -> CachedExtent:
        runs: list[RecordRun] = []
        self._reader.scan(extent, extent.first, extent.last + 1, sys.maxsize, runs)
        found = records_of(runs)
        size = sum(map(len, found.records)) + RECORD_BYTES * len(found.records)
        self._drop(extent)
        while self._kept and self._size + size > WHOLE_BYTES_MAX:
            self._drop(next(iter(self._kept)))
        kept = self._kept[extent] = CachedExtent(extent.end, dict(zip(*found, strict=True)), size)
        self._size += size
        return kept

    def _drop(self, extent: Extent) -> None:
        kept = self._kept.pop(extent, None)
        self._size -= kept.size if kept else 0

    def check(self) -> None:
        assert self._size == sum(kept.size for kept in self._kept.values())
        assert self._size <= WHOLE_BYTES_MAX or len(self._kept) == 1, "I2"
