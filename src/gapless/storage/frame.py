"""Frames: one commit as bytes, and back.

Theory of operation
    A frame is a header, a description and the records themselves, in one piece:

        header       magic, bytes of description, bytes of records, checksum, sequence number
        description  sections: append, chop, put, delete, and the parts of a checkpoint
        records      end to end, in the order of the append sections

    An append section lists the index and the end of every record; indices at equal steps, as a
    pubend's batch has them, are first and step alone. Records that follow each other
    share a checksum as long as they fit a page of `PAGE_BYTES`, about what a disk loses at once: a
    record is found and checked with little more than itself, and a batch of small ones does not
    pay for a checksum each. The header's checksum covers the rest of the header and the
    description; with those of the pages every byte is covered once.
    All checksums start from the volume's secret `salt`: a record that contains what looks like a
    frame is never taken for one.
    Behind each frame stand zeros in place of the next header (`TERMINATOR`), so that recovery
    can tell a commit that was begun from old bytes of a reused segment. Behind the last frame of
    a full segment stands a `seal`: it tells that there is another one.

Cost: one CRC-32 and a few Python steps per page; 12 bytes per record (or 4), 8 per page, 41 and a
name per frame.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import ne
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from gapless.core.effects import Append, Chop, Delete, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAGIC = b"gLf\x02"
HEADER = struct.Struct("<4sIIIQ")  # magic, description bytes, record bytes, checksum, sequence
SECTION = struct.Struct("<cHHQI")  # kind, name bytes, key bytes, number, value bytes
NUMBER = struct.Struct("<Q")
NUMBERS = struct.Struct("<QQ")
LENGTH = struct.Struct("<I")
SECTION_BYTES = SECTION.size
BLOCKS = frozenset((b"A", b"a", b"M", b"m"))  # kinds of sections that have records
REGULAR = frozenset((b"a", b"m"))  # kinds with indices at equal steps
MOVED = frozenset((b"M", b"m"))  # kinds of copies
TERMINATOR = bytes(HEADER.size)
SEAL_MAGIC = b"gLs\x01"
PAGE_BYTES = 4 << 10
ENTRY_BYTES = 12
"""What the description takes for one record, besides its share of the page's entry."""


class Move(Append, frozen=True):
    """Records copied from an old segment; they replace what stands there."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Part of a checkpoint: the bounds of a stream."""

    stream: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SegmentHolding:
    """Part of a checkpoint: an older segment holds records of `stream`, the last at `last`."""

    segment: int
    stream: str
    last: int


Place = tuple[int, int, int, int, int]
"""Start and end of a page from the beginning of the frame, its checksum, start and end of a record
from the beginning of the page."""


class Block(NamedTuple):
    """An append section as it stands on disk: where each record is, without the records."""

    stream: str
    indices: Sequence[int]  # a range, or a view of int64
    words: memoryview  # of uint32: ends of records, ends of pages, checksums of pages
    page_count: int
    start: int  # of the first record, from the beginning of the frame
    moved: bool

    def reach(self, number: int) -> int:
        """Where the first `number` records end, from `start`."""
        return self.words[number - 1] if number else 0

    def fitting(self, size: int) -> int:
        """How many records end within `size` bytes from `start`."""
        return bisect_right(self.words, size, 0, len(self.indices))

    def page_of(self, number: int) -> int:
        """The page that record `number` stands on."""
        count = len(self.indices)
        return bisect_right(self.words, number, count, count + self.page_count) - count

    def first_of(self, page: int) -> int:
        """The number of the first record of a page, or of records if there is no such page."""
        return self.words[len(self.indices) + page - 1] if page else 0

    def checksum(self, page: int) -> int:
        return self.words[len(self.indices) + self.page_count + page]

    def locate(self, index: int) -> Place | None:
        """Where the record at this index stands, all in one step; None if there is none."""
        indices, count = self.indices, len(self.indices)
        number = bisect_left(indices, index)
        if number == count or indices[number] != index:
            return None
        return _place(self.words, count, number, self.start)

    def damaged_page(self, data: bytes | memoryview, low: int, high: int, salt: int) -> int | None:
        """The first of the pages `low` to `high` that is not as written; `data` is all of them."""
        if high - low == 1:
            return low if crc32(data, salt) != self.checksum(low) else None
        words, base = self.words, self.reach(self.first_of(low))
        firsts = len(self.indices) + low  # in `words`, the number of the first record behind a page
        ends = [words[after - 1] - base for after in words[firsts : firsts + high - low]]
        pages = map(memoryview(data).__getitem__, map(slice, [0, *ends], ends))
        checksums = words[firsts + self.page_count : firsts + self.page_count + high - low]
        wrong = map(ne, map(crc32, pages, repeat(salt)), checksums)
        return next((page for page, is_wrong in enumerate(wrong, low) if is_wrong), None)


Section = Append | Chop | Put | Delete | Mark | SegmentHolding


class Header:
    """The fixed part of a frame, read back."""

    __slots__ = ("checksum", "description_bytes", "frame_bytes", "is_frame", "sequence")

    def __init__(self, data: bytes | memoryview, offset: int = 0) -> None:
        self.checksum: int
        self.sequence: int
        magic, description_bytes, record_bytes, self.checksum, self.sequence = HEADER.unpack_from(
            data, offset
        )
        self.description_bytes: int = description_bytes
        self.is_frame: bool = magic == MAGIC
        self.frame_bytes: int = HEADER.size + self.description_bytes + record_bytes

    def is_whole(self, description: bytes | memoryview, salt: int) -> bool:
        """Do header and description belong together, and to this volume?"""
        return self.is_frame and self.checksum == _checksum(
            description, self.sequence, self.frame_bytes, salt
        )


def _checksum(description: bytes | memoryview, sequence: int, frame_bytes: int, salt: int) -> int:
    return crc32(description, crc32(NUMBERS.pack(sequence, frame_bytes), salt))


def seal(sequence: int, salt: int) -> bytes:
    """The bytes behind the last frame of a full segment, instead of zeros: the log goes on in
    another segment, with the commit of this number."""
    return HEADER.pack(SEAL_MAGIC, 0, 0, _checksum(SEAL_MAGIC, sequence, 0, salt), sequence)


def encode(sections: Iterable[Section], sequence: int, salt: int) -> list[bytes]:
    """A whole frame with its terminator, in pieces: a large batch is copied once and not again.
    Between the first piece and the last, one for the records of each append that has any."""
    description: list[bytes] = []
    records: list[bytes] = []
    record_bytes = 0
    for section in sections:
        match section:
            case Append(stream, indices, some):
                count = len(indices)
                if not count:
                    continue
                kind = b"M" if isinstance(section, Move) else b"A"
                index = _regular(indices)
                if index:
                    kind = kind.lower()
                else:
                    index = struct.pack(f"<{count}q", *indices)
                ends = list(accumulate(map(len, some)))
                page_ends = _paginate(ends)
                data = b"".join(some)
                stops = [ends[number - 1] for number in page_ends]
                pages = map(memoryview(data).__getitem__, map(slice, [0, *stops], stops))
                checksums = map(crc32, pages, repeat(salt))
                words = struct.pack(f"<{count + 2 * len(stops)}I", *ends, *page_ends, *checksums)
                description += _section(kind, stream, "", count, index + words)
                records.append(data)
                record_bytes += ends[-1]
            case Chop(stream, index):
                description += _section(b"C", stream, "", index)
            case Put(table, key, value):
                description += _section(b"P", table, key, 0, value)
            case Delete(table, key):
                description += _section(b"D", table, key, 0)
            case Mark(stream, start, end):
                description += _section(b"B", stream, "", start, NUMBER.pack(end))
            case SegmentHolding(segment, stream, last):
                description += _section(b"S", stream, "", segment, NUMBER.pack(last))
    body = b"".join(description)
    checksum = _checksum(body, sequence, HEADER.size + len(body) + record_bytes, salt)
    header = HEADER.pack(MAGIC, len(body), record_bytes, checksum, sequence)
    return [header + body, *records, TERMINATOR]


def _regular(indices: Sequence[int]) -> bytes:
    """First and step of many indices at equal steps; nothing if they are not."""
    count = len(indices)
    if count > 2:
        if isinstance(indices, range):
            return NUMBERS.pack(indices.start, indices.step)
        first, step = indices[0], indices[1] - indices[0]
        equal = range(first, first + count * step, step)
        if equal[-1] == indices[-1] and tuple(equal) == indices:
            return NUMBERS.pack(first, step)
    return b""


def _paginate(ends: Sequence[int]) -> list[int]:
    """How many records stand up to the end of each page: all that fit, but at least one."""
    counts, count, base = list[int](), 0, 0
    while count < len(ends):
        count = max(count + 1, bisect_right(ends, base + PAGE_BYTES, count))
        base = ends[count - 1]
        counts.append(count)
    return counts


def _section(
    kind: bytes, name: str, key: str, number: int, value: bytes = b""
) -> tuple[bytes, bytes]:
    name_bytes, key_bytes = name.encode(), key.encode()
    head = SECTION.pack(kind, len(name_bytes), len(key_bytes), number, len(value))
    return head, b"".join([name_bytes, key_bytes, value])


def decode(description: bytes) -> Iterator[Chop | Put | Delete | Mark | SegmentHolding | Block]:
    """The sections of a description that `Header.is_whole` has accepted."""
    view = memoryview(description)
    offset, record_offset = 0, HEADER.size + len(view)
    while offset < len(view):
        kind, name_bytes, key_bytes, number, value_bytes = SECTION.unpack_from(view, offset)
        name_start = offset + SECTION.size
        key_start = name_start + name_bytes
        value_start = key_start + key_bytes
        offset = value_start + value_bytes
        name, value = str(view[name_start:key_start], "utf-8"), view[value_start:offset]
        if kind in BLOCKS:
            block = _block(name, value, number, record_offset, kind)
            record_offset += block.reach(number)
            yield block
        else:
            yield _fact(kind, name, str(view[key_start:value_start], "utf-8"), number, value)


def decode_blocks(description: bytes, stream: str) -> list[Block]:
    """The blocks of one stream in a description; other sections cost little."""
    offset, end, wanted = 0, len(description), stream.encode()
    record_offset, blocks = HEADER.size + end, list[Block]()
    while offset < end:
        kind, name_bytes, key_bytes, count, value_bytes = SECTION.unpack_from(description, offset)
        name_start = offset + SECTION_BYTES
        value_start = name_start + name_bytes + key_bytes
        offset = value_start + value_bytes
        if kind not in BLOCKS:
            continue
        if name_bytes == len(wanted) and description.startswith(wanted, name_start):
            value = memoryview(description)[value_start:offset]
            blocks.append(_block(stream, value, count, record_offset, kind))
        if offset < end:
            words_start = value_start + (16 if kind in REGULAR else 8 * count)
            record_offset += LENGTH.unpack_from(description, words_start + 4 * count - 4)[0]
    return blocks


def place_in(description: bytes, stream: str, index: int) -> Place | None:
    """Where the record at an index stands in the frame of a description; None if there is none.

    It gives what `decode_blocks` and `locate` give, in less time for a single record."""
    offset, end, wanted = 0, len(description), stream.encode()
    start = HEADER.size + end
    while offset < end:
        kind, name_bytes, key_bytes, count, value_bytes = SECTION.unpack_from(description, offset)
        name_start = offset + SECTION_BYTES
        value_start = name_start + name_bytes + key_bytes
        offset = value_start + value_bytes
        if kind not in BLOCKS:
            continue
        words_start = value_start + (16 if kind in REGULAR else 8 * count)
        if name_bytes == len(wanted) and description.startswith(wanted, name_start):
            number = _number_in(description, value_start, count, kind, index)
            if number >= 0:
                words = memoryview(description)[words_start:offset].cast("I")
                return _place(words, count, number, start)
        start += LENGTH.unpack_from(description, words_start + 4 * count - 4)[0]
    return None


def _number_in(description: bytes, start: int, count: int, kind: bytes, index: int) -> int:
    """Which of the records of a block has this index; -1: none."""
    if kind in REGULAR:
        first, step = NUMBERS.unpack_from(description, start)
        number, rest = divmod(index - first, step)
        return number if not rest and 0 <= number < count else -1
    indices = memoryview(description)[start : start + 8 * count].cast("q")
    number = bisect_left(indices, index)
    return number if number < count and indices[number] == index else -1


def _place(words: memoryview, count: int, number: int, start: int) -> Place:
    """Where record `number` of a block stands, whose first record begins at `start`."""
    page_count = (len(words) - count) // 2
    page = bisect_right(words, number, count, count + page_count)
    first = words[page - 1] if page > count else 0
    base = words[first - 1] if first else 0
    return (
        start + base,
        start + words[words[page] - 1],
        words[page + page_count],
        (words[number - 1] if number else 0) - base,
        words[number] - base,
    )


def _block(name: str, value: memoryview, count: int, start: int, kind: bytes) -> Block:
    indices: Sequence[int]
    if kind in REGULAR:
        first, step = NUMBERS.unpack_from(value)
        indices = range(first, first + count * step, step)
        words = value[16:].cast("I")
    else:
        indices = value[: 8 * count].cast("q")
        words = value[8 * count :].cast("I")
    page_count = (len(words) - count) // 2
    return Block._make((name, indices, words, page_count, start, kind in MOVED))


def _fact(
    kind: bytes, name: str, key: str, number: int, value: memoryview
) -> Chop | Put | Delete | Mark | SegmentHolding:
    match kind:
        case b"C":
            return Chop(name, number)
        case b"P":
            return Put(name, key, bytes(value))
        case b"D":
            return Delete(name, key)
        case b"B":
            return Mark(name, number, *NUMBER.unpack(value))
        case b"S":
            return SegmentHolding(number, name, *NUMBER.unpack(value))
        case _:
            raise AssertionError(f"a section of unknown kind {kind!r} with a right checksum")
