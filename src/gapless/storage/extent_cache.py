"""Extents that are kept whole in memory, for those who catch up.

Theory of operation
    Who catches up looks at a record here and one there, and many who return together look at the
    same ones. A look into an extent costs a read and a checksum of its own; when there were enough
    of them to pay for it, all records of the extent are read in one go, checked, and kept by
    index. From then on a look is one into a dictionary, which the caller may go on using for the
    records that stand beside. So who wants one record in a thousand still reads no others.
    An extent that has grown is looked at anew. One with a damaged page is never kept: its other
    records can still be read one by one.

Invariants
    I1  what is kept is as it was read and checked, of an extent that ends where it ended then
    I2  at most `WHOLE_BYTES_MAX` is kept, or one extent

Cost: reading all of an extent takes about as long as one look for each `LOOK_BYTES` of it, so
that at most about half of the work is in vain.
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
"""What is kept, with `RECORD_BYTES` for each record; beyond it the extent kept longest goes."""

RECORD_BYTES = 150
"""What a record takes in memory besides its bytes."""

LOOKS_MAX = 1_000
"""Extents of which looks are counted; beyond it the one counted longest is forgotten."""


class CachedExtent(NamedTuple):
    """All records of an extent."""

    end: int
    records: dict[int, bytes]
    size: int


class ExtentCache:
    """The extents of one volume that are kept. See the module docstring."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader
        self._kept: dict[Extent, CachedExtent] = {}
        self._size = 0
        self._looks: dict[Extent, int] = {}

    def near(self, extent: Extent, index: int) -> Mapping[int, bytes]:
        """The record at this index with others of the extent, if these are at hand; none if the
        extent has no such record."""
        kept = self._kept.get(extent)
        if kept is None or kept.end != extent.end:
            kept = self._look(extent)
        if kept is not None:
            return kept.records
        record = self._reader.read(extent, index)
        return {} if record is None else {index: record}

    def _look(self, extent: Extent) -> CachedExtent | None:
        """Count a look; the whole extent, if there were enough."""
        looks = self._looks.pop(extent, 0)
        if looks * LOOK_BYTES >= max(extent.kept, 1):
            try:
                return self._keep(extent)
            except StorageCorruptError:
                looks = -sys.maxsize  # whoever wants the damaged record is told
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
