"""Any cut of the bytes gives the same frames; bad bytes give `WireError`, at once and for good."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gapless.core.errors import WireError
from gapless.wire.framing import HEADER, UNSEALED, Unframer, frame, seal

PAYLOADS = [b"first", b"", b"x" * 40, b"last"]
STREAM = b"".join(map(frame, PAYLOADS))


def unframed(pieces: list[bytes], frame_bytes_max: int = 1000) -> list[bytes]:
    unframer = Unframer(frame_bytes_max)
    frames = [bytes(payload) for piece in pieces for payload in unframer.feed(piece)]
    assert unframer.buffered_bytes == 0
    return frames


@pytest.mark.parametrize("first", range(len(STREAM) + 1))
def test_every_split_into_three_gives_the_same_frames(first: int) -> None:
    for second in range(first, len(STREAM) + 1):
        pieces = [STREAM[:first], STREAM[first:second], STREAM[second:]]
        assert unframed(pieces) == PAYLOADS


@pytest.mark.parametrize("size", range(1, len(STREAM) + 1))
def test_every_read_size_gives_the_same_frames(size: int) -> None:
    assert unframed([STREAM[at : at + size] for at in range(0, len(STREAM), size)]) == PAYLOADS


@given(st.lists(st.binary(max_size=50), max_size=6), st.lists(st.integers(0, 400), max_size=20))
def test_frames_survive_any_cut(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(frame, payloads))
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(places)]
    assert unframed(pieces) == payloads


def test_frames_do_not_change_when_the_reader_uses_its_buffer_again() -> None:
    buffer = bytearray(STREAM)
    frames = Unframer().feed(buffer)
    buffer[:] = bytes(len(buffer))
    assert frames == PAYLOADS


def test_a_frame_that_was_kept_does_not_change_with_the_next_one() -> None:
    unframer = Unframer()
    pieces = [STREAM[at : at + 3] for at in range(0, len(STREAM), 3)]
    assert [payload for piece in pieces for payload in unframer.feed(piece)] == PAYLOADS


def test_a_frame_may_have_the_limit_and_not_one_byte_more() -> None:
    assert unframed([frame(b"x" * 10)], frame_bytes_max=10) == [b"x" * 10]
    with pytest.raises(WireError, match="11 bytes is announced; the limit is 10"):
        Unframer(10).feed(frame(b"x" * 11))
    with pytest.raises(WireError, match="11 bytes does not fit a frame of 10"):
        frame(b"x" * 11, 10)
    with pytest.raises(WireError, match="11 bytes does not fit a frame of 10"):
        seal(bytearray(UNSEALED + b"x" * 11), 0, 10)


@pytest.mark.parametrize("cut", range(HEADER.size))
def test_a_length_beyond_the_limit_is_refused_with_its_header(cut: int) -> None:
    header = HEADER.pack(2**32 - 1, 0)
    unframer = Unframer()
    assert unframer.feed(header[:cut]) == []
    with pytest.raises(WireError, match="4294967295 bytes"):
        unframer.feed(header[cut:] + b"body")
    assert unframer.buffered_bytes == 0


def test_memory_grows_with_what_arrived_not_with_what_was_announced() -> None:
    tracemalloc.start()
    try:
        unframers = [Unframer() for _ in range(100)]
        for unframer in unframers:
            unframer.feed(HEADER.pack(16 * 1024 * 1024, 0) + b"x")
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()


def test_after_an_error_nothing_comes_out_any_more() -> None:
    unframer = Unframer(100)
    with pytest.raises(WireError) as first:
        unframer.feed(HEADER.pack(101, 0))
    with pytest.raises(WireError) as second:
        unframer.feed(frame(b"good"))
    assert first.value is second.value
    assert unframer.buffered_bytes == 0


@pytest.mark.parametrize("size", range(1, len(STREAM) + 20))
def test_good_frames_before_a_bad_one_come_out_however_they_are_cut(size: int) -> None:
    stream = STREAM + HEADER.pack(101, 0) + b"rest"
    unframer = Unframer(100)
    pieces = iter([stream[at : at + size] for at in range(0, len(stream), size)])
    frames: list[memoryview] = []
    while len(frames) < len(PAYLOADS):
        frames += unframer.feed(next(pieces))
    assert frames == PAYLOADS
    with pytest.raises(WireError, match="101 bytes"):
        unframer.feed(b"".join(pieces))
    assert unframer.error is not None


@pytest.mark.parametrize("bit", range(8 * len(frame(b"payload"))))
def test_no_flipped_bit_gets_through(bit: int) -> None:
    damaged = bytearray(frame(b"payload"))
    damaged[bit // 8] ^= 1 << bit % 8
    unframer = Unframer(1000)
    try:
        # A length that grew makes it wait for more; the checksum then tells.
        assert unframer.feed(bytes(damaged)) == []
        unframer.feed(bytes(1000))
    except WireError:
        return
    raise AssertionError("a damaged frame was taken")


@pytest.mark.parametrize(
    ("greeting", "protocol"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"HTTP/1.1 400\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS"),
    ],
)
def test_a_peer_of_another_protocol_is_named(greeting: bytes, protocol: str) -> None:
    with pytest.raises(WireError, match=f"speaks {protocol}, not gapless"):
        Unframer().feed(greeting)


def test_frames_sealed_in_place_equal_frames_made_one_by_one() -> None:
    buffer = bytearray()
    for payload in PAYLOADS:
        start = len(buffer)
        buffer += UNSEALED + payload
        seal(buffer, start)
    assert buffer == STREAM


@pytest.mark.parametrize("size", [1, 3, 4, 5, 100])
def test_the_first_frame_has_a_limit_of_its_own(size: int) -> None:
    long, short = frame(b"x" * 11), frame(b"x" * 10)
    unframer = Unframer(first_bytes_max=10)
    with pytest.raises(WireError, match="the limit is 10"):
        [unframer.feed(long[at : at + size]) for at in range(0, len(long), size)]
    unframer = Unframer(first_bytes_max=10)
    stream = short + long
    found = [f for at in range(0, len(stream), size) for f in unframer.feed(stream[at : at + size])]
    assert found == [b"x" * 10, b"x" * 11]


def test_an_alert_of_tls_is_told_from_a_frame() -> None:
    with pytest.raises(WireError, match="the other end speaks TLS"):
        Unframer().feed(b"\x15\x03\x03\x00\x02\x02\x28\x00")


@pytest.mark.parametrize("cut", range(HEADER.size, HEADER.size + 40))
def test_a_frame_that_is_skipped_leaves_nothing_and_the_next_is_read(cut: int) -> None:
    stream = frame(b"x" * 40)
    unframer = Unframer()
    assert unframer.feed(stream[:cut]) == []
    assert unframer.awaited == 40
    assert unframer.begin(4) == b"xxxx"[: cut - HEADER.size]
    unframer.skip()
    assert unframer.buffered_bytes == unframer.awaited == 0
    rest = stream[cut:] + STREAM
    pieces = [rest[at : at + 7] for at in range(0, len(rest), 7)]
    assert [bytes(each) for piece in pieces for each in unframer.feed(piece)] == PAYLOADS
