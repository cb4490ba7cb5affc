"""One commit as bytes: what goes in comes out, and nothing else passes for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gapless.core.effects import Append, Chop, Delete, Put
from gapless.storage.frame import (
    HEADER,
    TERMINATOR,
    Block,
    Header,
    Hold,
    Mark,
    Move,
    Section,
    decode,
    encode,
)

SALT = 12345
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
numbers = st.integers(0, (1 << 63) - 1)


@st.composite
def appends(draw: st.DrawFn, kind: type[Append]) -> Append:
    indices = sorted(draw(st.sets(numbers, min_size=1, max_size=5)))
    return kind(draw(names), tuple(indices), tuple(draw(st.binary(max_size=50)) for _ in indices))


sections = st.one_of(
    appends(Append),
    appends(Move),
    st.builds(Chop, names, numbers),
    st.builds(Put, names, names, st.binary(max_size=50)),
    st.builds(Delete, names, names),
    st.builds(Mark, names, numbers, numbers),
    st.builds(Hold, numbers, names, numbers),
)


def read_back(frame: bytes) -> list[Section]:
    header = Header(frame)
    description = frame[HEADER.size : HEADER.size + header.description_bytes]
    assert header.is_whole(description, SALT)
    assert frame[header.frame_bytes :] == TERMINATOR
    found: list[Section] = []
    for section in decode(description):
        if isinstance(section, Block):
            places = map(section.place, range(len(section.indices)))
            records = tuple(frame[start:end] for start, end in places)
            kind = Move if section.moved else Append
            found.append(kind(section.stream, tuple(section.indices), records))
        else:
            found.append(section)
    return found


@given(st.lists(sections, max_size=6), numbers)
def test_a_frame_reads_back_as_it_was_written(written: list[Section], sequence: int) -> None:
    frame = encode(written, sequence, SALT)
    assert read_back(frame) == written
    assert [type(section) for section in read_back(frame)] == [type(part) for part in written]
    assert Header(frame).sequence == sequence


def test_any_other_byte_in_header_or_description_is_noticed() -> None:
    frame = encode([Append("stream", (7,), (b"",)), Put("t", "k", b"v")], 3, SALT)
    for place in range(Header(frame).frame_bytes):
        damaged = bytearray(frame)
        damaged[place] ^= 0x10
        header = Header(bytes(damaged))
        description = bytes(damaged[HEADER.size : HEADER.size + header.description_bytes])
        assert not header.is_whole(description, SALT), place


def test_a_frame_of_another_volume_is_not_whole() -> None:
    frame = encode([Chop("stream", 7)], 3, SALT)
    assert not Header(frame).is_whole(frame[HEADER.size : -len(TERMINATOR)], SALT + 1)
