"""Reading records back from segments, every byte checked.

Theory of operation
    An extent is walked frame by frame: header and description are checked together, then each
    record against its own checksum. What does not fit is a `StorageCorruptError` that names the
    stream and the index (or the file and the place, if the description itself is damaged).

Cost: a point read walks its extent, unless a recent one did, then takes one `pread`. A scan takes
one `pread` per large frame or run of small ones, one CRC-32 and one slice per record.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import repeat
from operator import ne
from typing import TYPE_CHECKING
from zlib import crc32

from gapless.core.errors import StorageCorruptError, StorageMissingError
from gapless.storage.frame import HEADER, Block, Header, decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gapless.storage.extent import Extent
    from gapless.storage.segment import Segments
    from gapless.storage.volume import Records

WINDOW_BYTES = 16 << 10
RECENT_MAX = 64
"""Extents of which the places of all records are remembered."""


def _last_index(located: tuple[int, Block]) -> int:
    return int(located[1].indices[-1])


class Window:
    """The part of a segment that was read last, so that small frames cost no call each."""

    __slots__ = ("_data", "_offset", "_segment", "_segments")

    def __init__(self, segments: Segments, segment: int) -> None:
        self._segments = segments
        self._segment = segment
        self._offset = 0
        self._data = b""

    def read(self, start: int, end: int, end_max: int) -> bytes:
        """The bytes from `start` to `end`; may read ahead, never past `end_max`."""
        low = start - self._offset
        if low < 0 or end - self._offset > len(self._data):
            ahead = max(end - start, min(WINDOW_BYTES, end_max - start))
            self._data = self._segments.read(self._segment, start, ahead)
            self._offset, low = start, 0
        return self._data[low : low + end - start]


class Reader:
    """Reads records of extents, and remembers where the records of recent ones stand."""

    __slots__ = ("_recent", "_salt", "_segments")

    def __init__(self, segments: Segments, salt: int) -> None:
        self._segments = segments
        self._salt = salt
        self._recent: dict[tuple[str, int, int, int], list[tuple[int, Block]]] = {}

    def read(self, extent: Extent, index: int) -> bytes:
        blocks = self._located(extent)
        number = bisect_left(blocks, index, key=_last_index)
        if number < len(blocks):
            offset, block = blocks[number]
            place = bisect_left(block.indices, index)
            if block.indices[place] == index:
                start, end = block.place(place)
                record = self._segments.read(extent.segment, offset + start, end - start)
                if crc32(record, self._salt) != block.checksums[place]:
                    raise self._damaged(extent, index)
                return record
        raise StorageMissingError(f"{extent.stream!r} has no record {index}")

    def _located(self, extent: Extent) -> list[tuple[int, Block]]:
        key = (extent.stream, extent.segment, extent.start, extent.end)
        blocks = self._recent.pop(key, None)
        if blocks is None:
            blocks = [(offset, block) for offset, block, _ in self._blocks(extent)]
            if len(self._recent) >= RECENT_MAX:
                del self._recent[next(iter(self._recent))]
        self._recent[key] = blocks  # last: the least recently used one goes first
        return blocks

    def scan(
        self, extent: Extent, start: int, end: int, bytes_max: int, found: Records
    ) -> int:  # fmt: skip
        """Add to `found` what fits `bytes_max`, but something if it is empty; what is left of it.
        Below 0: full."""
        for offset, block, window in self._blocks(extent):
            low = bisect_left(block.indices, max(start, extent.first))
            high = bisect_left(block.indices, min(end, extent.last + 1))
            if low >= high:
                continue
            base = block.ends[low - 1] if low else 0
            fitting = bisect_right(block.ends, base + bytes_max)
            if fitting < high:
                high = max(fitting, low if found.indices else low + 1)
                bytes_max = -1
            if low < high:
                data_start = offset + block.start
                data = window.read(data_start + base, data_start + block.ends[high - 1], extent.end)
                found.indices.extend(block.indices[low:high])
                found.records.extend(self._cut(extent, block, low, high, data))
            if bytes_max < 0:
                return -1
            bytes_max -= block.ends[high - 1] - base
        return bytes_max

    def _cut(
        self, extent: Extent, block: Block, low: int, high: int, data: bytes
    ) -> list[bytes]:  # fmt: skip
        base = block.ends[low - 1] if low else 0
        ends = [end - base for end in block.ends[low:high]]
        records = list(map(data.__getitem__, map(slice, [0, *ends], ends)))
        checksums = block.checksums[low:high].tolist()
        found = list(map(crc32, records, repeat(self._salt)))
        if found != checksums:
            wrong = list(map(ne, found, checksums)).index(True)
            raise self._damaged(extent, block.indices[low + wrong])
        return records

    def _blocks(self, extent: Extent) -> Iterator[tuple[int, Block, Window]]:
        """The blocks of the extent's stream with the place of their frame, ascending."""
        window = Window(self._segments, extent.segment)
        offset = extent.start
        while offset < extent.end:
            body = offset + HEADER.size
            header = Header(window.read(offset, body, extent.end).ljust(HEADER.size, b"\0"))
            description = b""
            if header.is_frame and header.frame_bytes <= extent.end - offset:
                description = window.read(body, body + header.description_bytes, extent.end)
            if not header.is_whole(description, self._salt):
                raise StorageCorruptError(
                    f"the commit at byte {offset} of {self._segments.path(extent.segment)} is "
                    f"damaged; it held records of {extent.stream!r} between {extent.first} and "
                    f"{extent.last}"
                )
            for block in decode(description):
                if (
                    isinstance(block, Block)
                    and block.stream == extent.stream
                    and extent.first <= block.indices[-1]
                    and block.indices[0] <= extent.last
                ):
                    yield offset, block, window
            offset += header.frame_bytes

    def _damaged(self, extent: Extent, index: int) -> StorageCorruptError:
        path = self._segments.path(extent.segment)
        return StorageCorruptError(f"record {index} of {extent.stream!r} in {path} is damaged")
