"""Reading records back from segments, every byte checked.

Theory of operation
    A reader walks an extent frame by frame: it checks header and description together, then each
    page of records that it touches. It checks everything each time it is used, also places that it
    remembers from an earlier read, except descriptions of frames with copies (below).

    A wrong checksum is a `StorageDamagedError` that names the stream and the lost records: those of
    one page; or, if the description of a frame is damaged, those between the record before the
    frame and the record behind it. The walk goes on at the next whole frame. If all records of the
    extent are there although a frame is damaged, that frame held records of other streams.

    A frame with copies holds many extents. It is decoded once for all of them, and kept.

Cost: a point read walks its extent, unless a recent read did, and checks one page: at most two
`pread`s for a frame whose description fits `WINDOW_BYTES`. The first point read of a large frame
looks for its record alone, as a catch-up takes one here and one there; the second one remembers all
places. A scan takes one `pread` per large frame or run of small ones, one CRC-32 per page and,
unless runs are wanted, one slice per record.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from gapless.core.errors import StorageDamagedError
from gapless.core.store import RUN_BYTES, RecordRun
from gapless.storage.extent import EXTENT_BYTES
from gapless.storage.frame import (
    ENTRY_BYTES,
    HEADER,
    MAGIC,
    TERMINATOR,
    Block,
    Header,
    decode,
    decode_blocks,
    place_in,
)
from gapless.storage.volume import Records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gapless.storage.extent import Extent
    from gapless.storage.segment import Segments
    from gapless.storage.volume import Statistics

WINDOW_BYTES = 16 << 10
HEADER_BYTES = HEADER.size
EMPTY = memoryview(b"")
RECENT_MAX = 64
"""Extents of which the places of all records are remembered."""

TOLD_MAX = 10_000
"""Damages that are remembered, so that each is reported once; others are reported each time."""

COPIES_MAX = 4
COPIES_BYTES_MAX = 16 << 20
"""Frames with copies whose descriptions are kept, and what these may take; but always one."""


class LostRecords(NamedTuple):
    """The records of an extent from `start` up to, without, `end`: they stood in the frame at
    `offset`, which is damaged."""

    start: int
    end: int
    offset: int


ExtentMap = tuple[int, list[tuple[int, Block]], list[LostRecords]]
"""Where an extent ended, its blocks with the offsets of their frames, and its lost records."""


def _last_index(located: tuple[int, Block]) -> int:
    return int(located[1].indices[-1])


def _first_of_block(block: Block) -> int:
    return int(block.indices[0])


def _last_of_block(block: Block) -> int:
    return int(block.indices[-1])


class ReadAhead:
    """The part of a segment that was read last, so that small frames cost no call each."""

    __slots__ = ("_data", "_offset", "_segment", "_segments")

    def __init__(self, segments: Segments, segment: int) -> None:
        self._segments = segments
        self._segment = segment
        self._offset = 0
        self._data = EMPTY

    def read(self, start: int, end: int, end_max: int) -> memoryview:
        """The bytes from `start` to `end`; may read ahead, never past `end_max`."""
        low = start - self._offset
        if low < 0 or end - self._offset > len(self._data):
            ahead = max(end - start, min(WINDOW_BYTES, end_max - start))
            self._data = memoryview(self._segments.read(self._segment, start, ahead))
            self._offset, low = start, 0
        return self._data[low : low + end - start]


def records_of(runs: list[RecordRun]) -> Records:
    """The records of these runs, one by one."""
    found = Records([], [])
    for indices, ends, start, data in runs:
        found.indices.extend(indices)
        whole = bytes(data)
        if len(ends) == 1:
            found.records.append(whole)
        else:
            cuts = [end - start for end in ends]
            found.records.extend(map(whole.__getitem__, map(slice, [0, *cuts], cuts)))
    return found


class RecordReader:
    """Reads records of extents, and remembers where the records of recent ones stand."""

    __slots__ = (
        "_ahead", "_copies", "_last", "_recent", "_salt", "_segments", "_statistics", "_told",
        "tell",
    )  # fmt: skip

    def __init__(self, segments: Segments, salt: int, statistics: Statistics) -> None:
        self._segments = segments
        self._salt = salt
        self._statistics = statistics
        self._ahead = WINDOW_BYTES  # header and description of the last frame that was alone
        self._recent: dict[Extent, ExtentMap] = {}
        self._last: Extent | None = None  # of which one record was read, and no places are known
        self.tell: Callable[[StorageDamagedError], None] | None = None  # once of all that is lost
        self._told: set[tuple[str, int, int]] = set()
        # By segment and offset, the blocks of a frame with copies: how large, and by stream.
        self._copies: dict[tuple[int, int], tuple[int, dict[str, list[Block]]]] = {}

    def read(self, extent: Extent, index: int) -> bytes | None:
        """The record at this index; None if the extent has none there."""
        known = self._recent.get(extent)
        if known is None or known[0] != extent.end:
            if self._last is not extent:  # a second look is worth remembering all places for
                self._last = extent
                record = None if extent.moved else self._peek(extent, index)
                if record is not None:
                    return record
            known = self._locate(extent)
        _, blocks, losses = known
        for lost in losses:
            if lost.start <= index < lost.end:
                raise self._lost(extent, lost)
        found = bisect_left(blocks, index, key=_last_index) if len(blocks) > 1 else 0
        if found == len(blocks):
            return None
        offset, block = blocks[found]
        place = block.locate(index)
        if place is None:
            return None
        start, end, checksum, low, high = place
        page = self._segments.read(extent.segment, offset + start, end - start)
        if crc32(page, self._salt) != checksum:
            number = bisect_left(block.indices, index)
            raise self._damaged(extent, offset, block, block.page_of(number))
        return page[low:high]

    def _locate(self, extent: Extent) -> ExtentMap:
        """Where the records of the extent stand; remembered as long as it does not grow."""
        losses = list[LostRecords]()
        blocks = None if extent.moved else self._only_frame(extent)
        if blocks is None:
            blocks = []
            for offset, item, _ in self._blocks(extent):
                if isinstance(item, LostRecords):
                    losses.append(item)
                else:
                    blocks.append((offset, item))
        located = extent.end, blocks, losses
        recent = self._recent
        recent.pop(extent, None)
        if len(recent) >= RECENT_MAX:
            del recent[next(iter(recent))]
        recent[extent] = located
        return located

    def _only_frame(self, extent: Extent) -> list[tuple[int, Block]] | None:
        """The blocks of an extent that is one frame, with their places; None if it is more."""
        description = self._only_description(extent)
        if description is None:
            return None
        return [(extent.start, block) for block in self._own(description, extent)]

    def _only_description(self, extent: Extent) -> bytes | None:
        """The description of an extent that is one frame, as large batches make them, in one read
        if it is no longer than the last one; None if it is more, or anything is wrong with it."""
        offset, size = extent.start, extent.end - extent.start
        data = self._segments.read(extent.segment, offset, min(self._ahead, size))
        if len(data) < HEADER_BYTES:
            return None
        header = Header(data)
        if header.frame_bytes != size:
            return None
        end = HEADER_BYTES + header.description_bytes
        if end > len(data):
            data += self._segments.read(extent.segment, offset + len(data), end - len(data))
        self._ahead = min(WINDOW_BYTES, end)
        description = data[HEADER_BYTES:end]
        return description if header.is_whole(description, self._salt) else None

    def _peek(self, extent: Extent, index: int) -> bytes | None:
        """The record, if the extent is one frame and all is well; nothing is remembered of it."""
        description = self._only_description(extent)
        if description is not None:
            self._statistics.frames_decoded += 1
        place = None if description is None else place_in(description, extent.stream, index)
        if place is None:
            return None
        start, end, checksum, low, high = place
        page = self._segments.read(extent.segment, extent.start + start, end - start)
        return page[low:high] if crc32(page, self._salt) == checksum else None

    def scan(
        self, extent: Extent, start: int, end: int, bytes_max: int, found: list[RecordRun]
    ) -> int:  # fmt: skip
        """Add to `found` the records that fit `bytes_max`, at least one if it is empty. Each run
        counts `RUN_BYTES` besides. Return how many bytes are left; below 0, it is full."""
        for offset, block, window in self._blocks(extent):
            if isinstance(block, LostRecords):
                if block.start < end and start < block.end:
                    raise self._lost(extent, block)
                continue
            low = bisect_left(block.indices, max(start, extent.first))
            high = bisect_left(block.indices, min(end, extent.last + 1))
            if low >= high:
                continue
            base = block.reach(low)
            fitting = block.fitting(base + bytes_max)
            if fitting < high:
                high = max(fitting, low if found else low + 1)
                bytes_max = -1
            if low < high:
                found.append(self._run(extent, window, offset, block, low, high))
            if bytes_max < 0:
                return -1
            bytes_max -= block.reach(high) - base + RUN_BYTES
            if bytes_max < 0:
                return -1
        return bytes_max

    def _run(
        self, extent: Extent, window: ReadAhead, offset: int, block: Block, low: int, high: int
    ) -> RecordRun:
        """The records `low` to `high` of a block, with the pages that they stand on checked."""
        if block.page_count == 1:  # a small commit, of which there may be many
            first, after, base, end = 0, 1, 0, block.reach(len(block.indices))
        else:
            first, after = block.page_of(low), block.page_of(high - 1) + 1
            base, end = block.reach(block.first_of(first)), block.reach(block.first_of(after))
        start = offset + block.start
        data = window.read(start + base, start + end, extent.end)
        wrong = block.damaged_page(data, first, after, self._salt)
        if wrong is not None:
            raise self._damaged(extent, offset, block, wrong)
        first_byte, after = block.reach(low), block.reach(high)
        if after - first_byte < len(data):
            data = data[first_byte - base : after - base]
        return RecordRun(block.indices[low:high], block.words[low:high], first_byte, data)

    def _blocks(self, extent: Extent) -> Iterator[tuple[int, Block | LostRecords, ReadAhead]]:
        """The blocks of the extent with the place of their frame, and what is lost, ascending."""
        window = ReadAhead(self._segments, extent.segment)
        if extent.moved:
            for item in self._copies_of(extent, window):
                yield extent.start, item, window
            return
        offset = extent.start
        while offset < extent.end:
            description, size = self._description(extent, offset, window)
            if description is None:
                for place, item in self._around(extent, window):
                    if place >= offset:
                        yield place, item, window
                return
            for block in self._own(description, extent):
                yield offset, block, window
            offset += size

    def _description(
        self, extent: Extent, offset: int, window: ReadAhead
    ) -> tuple[bytes | None, int]:
        """The description of the frame there, and how long the frame is; None: it is damaged."""
        body = offset + HEADER.size
        found = window.read(offset, body, extent.end)
        header = Header(found if len(found) == HEADER.size else TERMINATOR)
        if not header.is_frame or header.frame_bytes > extent.end - offset:
            return None, 0
        description = window.read(body, body + header.description_bytes, extent.end)
        if not header.is_whole(description, self._salt):
            return None, 0
        return bytes(description), header.frame_bytes

    def _around(self, extent: Extent, window: ReadAhead) -> list[tuple[int, Block | LostRecords]]:
        """All that an extent with a damaged frame has, and what it has lost."""
        items = list[tuple[int, Block | LostRecords]]()
        offset, after, lost_at = extent.start, extent.first, -1
        found = 0
        while offset < extent.end:
            description, size = self._description(extent, offset, window)
            if description is None:
                lost_at = offset if lost_at < 0 else lost_at
                offset = self._next_frame(extent, offset + 1)
                continue
            for block in self._own(description, extent):
                if lost_at >= 0:
                    items.append((lost_at, LostRecords(after, _first_of_block(block), lost_at)))
                    lost_at = -1
                items.append((offset, block))
                after = _last_of_block(block) + 1
                found += block.reach(len(block.indices)) + ENTRY_BYTES * len(block.indices)
            offset += size
        if lost_at >= 0:
            items.append((lost_at, LostRecords(after, extent.last + 1, lost_at)))
        is_all = found >= extent.kept  # the damaged frame held none of this stream
        return [
            (place, item)
            for place, item in items
            if not isinstance(item, LostRecords) or (item.start < item.end and not is_all)
        ]

    def _next_frame(self, extent: Extent, start: int) -> int:
        """Where the next whole frame begins; the end of the extent if there is none. What is
        longer than extents grow is a single frame."""
        if extent.end - extent.start > EXTENT_BYTES:
            return extent.end
        data = self._segments.read(extent.segment, start, extent.end - start)
        place = data.find(MAGIC)
        while place >= 0:
            window = ReadAhead(self._segments, extent.segment)
            if self._description(extent, start + place, window)[0] is not None:
                return start + place
            place = data.find(MAGIC, place + 1)
        return extent.end

    def _copies_of(self, extent: Extent, window: ReadAhead) -> list[Block | LostRecords]:
        """The blocks of an extent of copies, out of its frame, which is decoded once."""
        key = (extent.segment, extent.start)
        known = self._copies.pop(key, None)
        if known is None:
            description, _ = self._description(extent, extent.start, window)
            if description is None:
                return [LostRecords(extent.first, extent.last + 1, extent.start)]
            known = len(description), self._decode_copies(description)
        self._copies[key] = known  # the newest
        while len(self._copies) > 1 and (
            len(self._copies) > COPIES_MAX
            or sum(size for size, _ in self._copies.values()) > COPIES_BYTES_MAX
        ):
            del self._copies[next(iter(self._copies))]
        blocks = known[1].get(extent.stream, [])
        low = bisect_left(blocks, extent.first, key=_last_of_block)
        high = bisect_left(blocks, extent.last + 1, low, key=_first_of_block)
        return list(blocks[low:high])

    def _decode_copies(self, description: bytes) -> dict[str, list[Block]]:
        self._statistics.frames_decoded += 1
        found: dict[str, list[Block]] = {}
        for section in decode(description):
            if isinstance(section, Block):
                found.setdefault(section.stream, []).append(section)
        for blocks in found.values():
            blocks.sort(key=_first_of_block)
        return found

    def _own(self, description: bytes, extent: Extent) -> list[Block]:
        """The blocks of the extent. Frames between its own may have older copies of its stream."""
        self._statistics.frames_decoded += 1
        return [each for each in decode_blocks(description, extent.stream) if not each.moved]

    def _lost(self, extent: Extent, lost: LostRecords) -> StorageDamagedError:
        path = self._segments.path(extent.segment)
        problem = f"the commit at byte {lost.offset} of {path} is "
        problem += f"damaged; it held records of {extent.stream!r} between {lost.start} and "
        problem += f"{lost.end - 1}"
        return self._noted(
            StorageDamagedError(
                problem, "", extent.stream, lost.start, lost.end, (str(path), lost.offset)
            )
        )

    def _noted(self, damage: StorageDamagedError) -> StorageDamagedError:
        """The damage itself; it is counted and reported if it is new."""
        key = damage.stream, damage.start, damage.end
        if key not in self._told:
            if len(self._told) < TOLD_MAX:
                self._told.add(key)
            self._statistics.damaged += 1
            if self.tell is not None:
                self.tell(damage)
        return damage

    def _damaged(self, extent: Extent, offset: int, block: Block, page: int) -> StorageDamagedError:
        """The error for a damaged page of a block whose frame stands at `offset`."""
        path = self._segments.path(extent.segment)
        first, last = block.first_of(page), block.first_of(page + 1) - 1
        start, end = block.indices[first], block.indices[last] + 1
        which = f"record {start} of {extent.stream!r} in {path} is damaged"
        if first < last:
            which = f"one or more of the records from {start} to {end - 1} of "
            which += f"{extent.stream!r} in {path} are damaged"
        place = str(path), offset + block.start + block.reach(first)
        return self._noted(StorageDamagedError(which, "", extent.stream, start, end, place))
