"""One commit as bytes: what goes in comes out, and nothing else passes for it."""

from __future__ import annotations

from zlib import crc32

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.storage.frame import (
    HEADER,
    PAGE_BYTES,
    TERMINATOR,
    Block,
    Header,
    Mark,
    Move,
    Section,
    SegmentHolding,
    decode,
    decode_blocks,
    encode,
    place_in,
)

SALT = 12345
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(0, (1 << 63) - 1)


@st.composite
def appends(draw: st.DrawFn, kind: type[Append]) -> Append:
    some = st.sets(numbers, min_size=1, max_size=5).map(sorted)
    steps = st.builds(
        lambda start, count, step: list(range(start, start + count * step, step)),
        st.integers(0, 1 << 40), st.integers(1, 9), st.integers(1, 5000),
    )  # fmt: skip
    indices = draw(st.one_of(some, steps))
    return kind(draw(names), tuple(indices), tuple(draw(st.binary(max_size=50)) for _ in indices))


sections = st.one_of(
    appends(Append),
    appends(Move),
    st.builds(Chop, names, numbers),
    st.builds(Put, names, names, st.binary(max_size=50)),
    st.builds(Delete, names, names),
    st.builds(Mark, names, numbers, numbers),
    st.builds(SegmentHolding, numbers, names, numbers),
)


def read_back(frame: bytes) -> list[Section]:
    header = Header(frame)
    description = frame[HEADER.size : HEADER.size + header.description_bytes]
    assert header.is_whole(description, SALT)
    assert frame[header.frame_bytes :] == TERMINATOR
    found: list[Section] = []
    for section in decode(description):
        if isinstance(section, Block):
            places = (
                (section.start + section.reach(n), section.start + section.reach(n + 1))
                for n in range(len(section.indices))
            )
            records = tuple(frame[start:end] for start, end in places)
            kind = Move if section.moved else Append
            found.append(kind(section.stream, tuple(section.indices), records))
        else:
            found.append(section)
    return found


@given(st.lists(sections, max_size=6), numbers)
def test_a_frame_reads_back_as_it_was_written(written: list[Section], sequence: int) -> None:
    frame = b"".join(encode(written, sequence, SALT))
    assert read_back(frame) == written
    assert [type(section) for section in read_back(frame)] == [type(part) for part in written]
    assert Header(frame).sequence == sequence


def test_any_other_byte_in_header_or_description_is_noticed() -> None:
    frame = b"".join(encode([Append("stream", (7,), (b"",)), Put("t", "k", b"v")], 3, SALT))
    for place in range(Header(frame).frame_bytes):
        damaged = bytearray(frame)
        damaged[place] ^= 0x10
        header = Header(bytes(damaged))
        description = bytes(damaged[HEADER.size : HEADER.size + header.description_bytes])
        assert not header.is_whole(description, SALT), place


def blocks_of(*sections: Section) -> tuple[bytes, list[Block]]:
    frame = b"".join(encode(sections, 1, SALT))
    description = frame[HEADER.size : HEADER.size + Header(frame).description_bytes]
    return frame, [part for part in decode(description) if isinstance(part, Block)]


def test_indices_at_equal_steps_take_no_room_each() -> None:
    ticks = tuple(range(7, 7 + 100 * 1024, 1024))
    equal, _ = blocks_of(Append("a", ticks, (b"",) * 100))
    other, _ = blocks_of(Append("a", (*ticks[:50], ticks[50] + 1, *ticks[51:]), (b"",) * 100))
    assert len(other) - len(equal) == 8 * 100 - 16
    for count in (1, 2, 3, 100):
        some = range(7, 7 + count * 1024, 1024)
        named = Append("a", tuple(some), (b"x",) * count)
        assert blocks_of(Append("a", some, (b"x",) * count))[0] == blocks_of(named)[0]


def test_records_share_a_page_as_long_as_they_fit_it() -> None:
    sizes = [PAGE_BYTES // 2, PAGE_BYTES // 2, 0, 1, 3 * PAGE_BYTES, PAGE_BYTES, 5]
    _, [block] = blocks_of(Append("a", tuple(range(7)), tuple(map(bytes, sizes))))
    starts = [block.first_of(page) for page in range(block.page_count + 1)]
    assert starts == [0, 3, 4, 5, 6, 7]
    assert [block.page_of(number) for number in range(7)] == [0, 0, 0, 1, 2, 3, 4]


@given(st.data(), st.lists(st.integers(0, PAGE_BYTES), min_size=1, max_size=9))
def test_a_record_is_located_with_the_page_that_it_is_checked_by(
    data: st.DataObject, sizes: list[int]
) -> None:
    indices = sorted(data.draw(st.sets(numbers, min_size=len(sizes), max_size=len(sizes))))
    records = tuple(bytes([number]) * size for number, size in enumerate(sizes, 1))
    frame, blocks = blocks_of(Append("b", (5,), (b"x",)), Append("a", tuple(indices), records))
    assert blocks[1:] == decode_blocks(frame[HEADER.size : blocks[0].start], "a")
    description = frame[HEADER.size : blocks[0].start]
    for index, record in zip(indices, records, strict=True):
        place = blocks[1].locate(index)
        assert place
        assert place == place_in(description, "a", index)
        start, end, checksum, low, high = place
        assert frame[start:end][low:high] == record
        assert crc32(frame[start:end], SALT) == checksum
    assert blocks[1].locate(indices[-1] + 1) is None
    assert place_in(description, "a", indices[-1] + 1) is None
    assert place_in(description, "c", indices[0]) is None
    assert (indices[0] == 0) or blocks[1].locate(indices[0] - 1) is None


def test_any_other_byte_of_a_record_is_found_in_its_page() -> None:
    records = tuple(bytes([number]) * 1000 for number in range(10))
    frame, [block] = blocks_of(Append("a", tuple(range(10)), records))
    data = frame[block.start : block.start + 10_000]
    assert block.page_count == 3
    assert block.damaged_page(data, 0, 3, SALT) is None
    for place in range(0, 10_000, 499):
        damaged = bytearray(data)
        damaged[place] ^= 1
        assert block.damaged_page(bytes(damaged), 0, 3, SALT) == block.page_of(place // 1000)
    assert block.damaged_page(data[4000:8000], 1, 2, SALT) is None


def test_a_frame_of_another_volume_is_not_whole() -> None:
    frame = b"".join(encode([Chop("stream", 7)], 3, SALT))
    assert not Header(frame).is_whole(frame[HEADER.size : -len(TERMINATOR)], SALT + 1)
