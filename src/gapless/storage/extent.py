"""The catalogue of extents: where in which segment the records of a stream stand.

Theory of operation
    An extent says: the records `first..last` of this stream stand in the frames between `start`
    and `end` of this segment. Commits that follow each other closely share an extent, so there is
    about one per `EXTENT_BYTES` of log and not one per record; frames of other streams in between
    are skipped when reading. The catalogue is in memory. When a segment is full its extents are
    written beside it, which makes opening quick; that file can always be made anew.

Invariants (checked by `check`)
    I1  the extents of a stream are disjoint and ascending
    I2  the live bytes of a segment are the sum over its live extents

Cost: about 250 bytes of memory per extent, so 2 per cent of a log of small commits and much less
of one of large commits. Finding an extent is one bisection.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import defaultdict
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

EXTENT_BYTES = 16 << 10
ROW = struct.Struct("<HBQQQQQ")  # name bytes, moved, first, last, start, end, kept
INDEX_HEADER = struct.Struct("<4sIQ")  # magic, checksum, last sequence
NUMBERS = struct.Struct("<QQ")
INDEX_MAGIC = b"gLi\x01"
BY_LAST = attrgetter("last")


class FrameRange(NamedTuple):
    """The frames between two bytes of a segment."""

    segment: int
    start: int
    end: int


class Extent:
    """A part of a segment that holds records of one stream."""

    __slots__ = ("end", "first", "kept", "last", "live", "moved", "segment", "start", "stream")

    def __init__(
        self, stream: str, first: int, last: int, kept: int, frames: FrameRange, moved: bool = False
    ) -> None:
        self.stream = stream
        self.first = first
        self.last = last
        self.kept = kept  # bytes of this stream's records and their description
        self.segment, self.start, self.end = frames
        self.moved = moved
        self.live = True


class ExtentCatalogue:
    """All extents of a volume, by stream and by segment."""

    def __init__(self) -> None:
        self._streams: dict[str, list[Extent]] = {}
        self._segments: defaultdict[int, list[Extent]] = defaultdict(list)
        self.live_bytes: defaultdict[int, int] = defaultdict(int)

    def add(self, extent: Extent) -> None:
        """Add records that follow all others of their stream, or copies that replace the originals.

        All live records of a segment are copied in one commit, so an extent that overlaps a copy
        has nothing left that was not copied or chopped.
        """
        extents = self._streams.setdefault(extent.stream, [])
        if extent.moved:
            place = bisect_left(extents, extent.first, key=BY_LAST)
            while place < len(extents) and extents[place].first <= extent.last:
                self._bury(extents.pop(place))
            extents.insert(place, extent)
        else:
            newest = extents[-1] if extents else None
            if newest and self._can_grow(newest, extent):
                newest.last = extent.last
                newest.end = extent.end
                newest.kept += extent.kept
                self.live_bytes[extent.segment] += extent.kept
                return
            extents.append(extent)
        self._segments[extent.segment].append(extent)
        self.live_bytes[extent.segment] += extent.kept

    @staticmethod
    def _can_grow(newest: Extent, extent: Extent) -> bool:
        return (
            newest.segment == extent.segment
            and not newest.moved
            and (extent.end - newest.start <= EXTENT_BYTES or extent.end == newest.end)
        )

    def chop(self, stream: str, index: int) -> None:
        extents = self._streams.get(stream, [])
        cut = bisect_left(extents, index, key=BY_LAST)
        for extent in extents[:cut]:
            self._bury(extent)
        del extents[:cut]

    def _bury(self, extent: Extent) -> None:
        extent.live = False
        self.live_bytes[extent.segment] -= extent.kept

    def from_index(self, stream: str, index: int) -> Iterator[Extent]:
        """The extents of a stream, beginning with the one that may hold `index`."""
        extents = self._streams.get(stream, [])
        place = bisect_left(extents, index, key=BY_LAST)
        while place < len(extents):
            yield extents[place]
            place += 1

    def find(self, stream: str, index: int) -> Extent | None:
        """The extent that holds `index`, if there is a record at it."""
        extents = self._streams.get(stream, ())
        place = bisect_left(extents, index, key=BY_LAST)
        if place < len(extents) and extents[place].first <= index:
            return extents[place]
        return None

    def in_segment(self, segment: int) -> list[Extent]:
        """The live extents of a segment."""
        live = [extent for extent in self._segments.get(segment, ()) if extent.live]
        self._segments[segment] = live
        return live

    def stretches(self, segment: int) -> Iterator[list[Extent]]:
        """The live extents of a segment, in groups of neighbours of one stream with at most
        `EXTENT_BYTES` of records: the cleaner copies a group as one extent."""
        stretch: list[Extent] = []
        kept = 0
        for extent in sorted(self.in_segment(segment), key=attrgetter("stream", "first")):
            kept += extent.kept
            if stretch and (kept > EXTENT_BYTES or not self._is_next(stretch[-1], extent)):
                yield stretch
                stretch, kept = [], extent.kept
            stretch.append(extent)
        if stretch:
            yield stretch

    def _is_next(self, one: Extent, other: Extent) -> bool:
        """Are both of one stream, and no other extent of it lies between them?"""
        if one.stream != other.stream:
            return False
        extents = self._streams[one.stream]
        return extents[bisect_left(extents, one.last, key=BY_LAST) + 1] is other

    def forget(self, segment: int) -> None:
        assert not self.in_segment(segment), "only a segment without live records is let go"
        del self._segments[segment]
        self.live_bytes.pop(segment, None)

    def holds(self, stream: str, last: int) -> bool:
        """Is there an extent that ends with exactly this record?"""
        return next((extent.last == last for extent in self.from_index(stream, last)), False)

    def check(self) -> None:
        for extents in self._streams.values():
            ends = [end for extent in extents for end in (extent.first, extent.last)]
            assert ends == sorted(ends), "I1"
            assert all(extent.live for extent in extents), "I1"
        for segment in list(self._segments):
            live = sum(extent.kept for extent in self.in_segment(segment))
            assert live == self.live_bytes[segment], "I2"


def encode_index(extents: list[Extent], segment: int, last_sequence: int, salt: int) -> bytes:
    """The extents of one segment, to be kept beside it."""
    parts = []
    for extent in extents:
        name = extent.stream.encode()
        parts.append(
            ROW.pack(
                len(name), extent.moved, extent.first, extent.last,
                extent.start, extent.end, extent.kept,
            ) + name
        )  # fmt: skip
    body = b"".join(parts)
    checksum = crc32(body, crc32(NUMBERS.pack(segment, last_sequence), salt))
    return INDEX_HEADER.pack(INDEX_MAGIC, checksum, last_sequence) + body


def decode_index(data: bytes, segment: int, salt: int) -> tuple[list[Extent], int] | None:
    """The extents and the last sequence number, or None if these bytes are not whole."""
    if len(data) < INDEX_HEADER.size:
        return None
    magic, checksum, last_sequence = INDEX_HEADER.unpack_from(data)
    body = memoryview(data)[INDEX_HEADER.size :]
    expected = crc32(body, crc32(NUMBERS.pack(segment, last_sequence), salt))
    if magic != INDEX_MAGIC or checksum != expected:
        return None
    extents, offset = [], INDEX_HEADER.size
    while offset < len(data):
        name_bytes, moved, first, last, start, end, kept = ROW.unpack_from(data, offset)
        offset += ROW.size + name_bytes
        name = data[offset - name_bytes : offset].decode()
        extents.append(
            Extent(name, first, last, kept, FrameRange(segment, start, end), bool(moved))
        )
    return extents, last_sequence
