"""Packed numbers are unpacked as they were packed, and compared as if they had been unpacked."""

from __future__ import annotations

from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapless.pipelines import packed

BITS = st.integers(0, packed.BITS_MAX)


def pack(numbers: list[int], bits: int, groups_max: int = 63) -> bytes:
    """As writers do: what comes eight times or more once, with how often; the rest in groups."""
    out, waiting = b"", list[int]()

    def flush() -> None:
        nonlocal out, waiting
        while waiting:
            part, waiting = waiting[: 8 * groups_max], waiting[8 * groups_max :]
            part += [0] * (-len(part) % 8)
            out += varint(len(part) // 8 << 1 | 1)
            whole = sum(number << bits * place for place, number in enumerate(part))
            out += whole.to_bytes(len(part) // 8 * bits, "little")

    for number, some in groupby(numbers):
        count = len(list(some))
        filler = min(-len(waiting) % 8, count)
        waiting, count = [*waiting, *[number] * filler], count - filler
        if count >= 8:
            flush()
            out += varint(count << 1) + number.to_bytes((bits + 7) // 8, "little")
        else:
            waiting += [number] * count
    flush()
    return out


def varint(number: int) -> bytes:
    low = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(each | 128 for each in low[:-1]), low[-1]])


def array(data: bytes) -> Any:
    return np.frombuffer(data, np.uint8)


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, list[int]]:
    bits = draw(BITS)
    some = st.tuples(st.integers(0, (1 << bits) - 1), st.sampled_from((1, 1, 2, 9, 40)))
    return bits, [number for number, count in draw(st.lists(some)) for _ in range(count)]


@given(runs(), st.integers(1, 70), st.integers(0, 20))
def test_what_was_packed_is_unpacked(given: tuple[int, list[int]], most: int, wanted: int) -> None:
    bits, numbers = given
    data = array(pack(numbers, bits, most))
    for count in (len(numbers), min(wanted, len(numbers))):
        out = np.zeros(count, np.int32)
        assert packed.unpack(data, bits, out) == max(numbers[:count], default=0)
        assert out.tolist() == numbers[:count]
    assert packed.unpack(data, bits, np.zeros(len(numbers) + 8, np.int32)) == -1


@given(
    st.integers(1, 6).flatmap(
        lambda bits: st.tuples(
            st.just(bits), st.lists(st.integers(0, (1 << bits) - 1), min_size=1, max_size=20)
        )
    ),
    *(st.integers(0, 1_500), st.integers(1, 70), st.integers(0, 1_500)),
)
@example((3, [1, 1, 1, 1, 1, 1, 1, 1, 1, 2]), 1_000, 63, 999)  # both kinds of runs
@example((2, [0, 1, 3]), 1_512, 63, 700)  # longer than what is compared at once
def test_repeated_numbers_are_known_and_any_that_differs_is_found(
    given: tuple[int, list[int]], count: int, most: int, odd: int
) -> None:
    bits, pattern = given
    numbers = [pattern[place % len(pattern)] for place in range(count)]
    data, wanted = array(pack(numbers, bits, most)), np.array(pattern, np.int32)
    assert packed.repeats(data, bits, wanted, count)
    assert packed.repeats(data, bits, wanted, count // 2)
    assert not packed.repeats(data, bits, wanted, count + 8)
    if odd < count:
        numbers[odd] ^= 1
        assert not packed.repeats(array(pack(numbers, bits, most)), bits, wanted, count)
        assert packed.repeats(array(pack(numbers, bits, most)), bits, wanted, odd)


@given(st.binary(max_size=40), BITS)
@example(b"\xd0\x01\xff\xff\xff\xff", 31)  # more bits than there may be
def test_any_bytes_are_numbers_or_refused(data: bytes, bits: int) -> None:
    out = np.zeros(100, np.int32)
    assert -1 <= packed.unpack(array(data), bits, out) < 1 << 31
    assert packed.repeats(array(data), bits, out[:3], 100) in (True, False)
    assert -1 <= packed.read_header(array(data), 0, np.zeros(128, np.int64)) <= len(data)


@given(st.lists(st.binary(max_size=9)))
def test_texts_behind_their_lengths_are_moved_together(texts: list[bytes]) -> None:
    data = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    offsets, out = np.zeros(len(texts) + 1, np.int32), np.zeros(len(data), np.uint8)
    for cut in range(min(len(data), 6), -1, -1):
        assert packed.cut_texts(array(data[: len(data) - cut]), offsets, out) is (not cut)
    assert [out[a:b].tobytes() for a, b in pairwise(offsets.tolist())] == texts


def test_a_header_gives_its_numbers_by_place() -> None:
    """Type 0, sizes 300 and -2, a text, a struct 5 with 7 and a struct with 9 in it, and 1 in 7."""
    header = bytes([0x15, 0, 0x15, 0xD8, 4, 0x15, 3, 0x18, 2, 65, 66])
    header += bytes([0x1C, 0x15, 14, 0x3C, 0x15, 18, 0x11, 0, 0x15, 10, 0, 0x2C, 0x16, 2, 0, 0])
    out = np.zeros(128, np.int64)
    assert packed.read_header(array(b"?" + header + b"?"), 1, out) == 1 + len(header)
    found = {place: number for place, number in enumerate(out.tolist()) if number != -1}
    assert found == {1: 0, 2: 300, 3: -2, 81: 7, 85: 5, 113: 1}
    assert all(packed.read_header(array(header[:end]), 0, out) == -1 for end in range(len(header)))


WRAPS = [(bits, pow(bits, -1, 1 << 64) * least % (1 << 64)) for bits in (7, 31) for least in (3, 5)]


@pytest.mark.parametrize(("bits", "groups"), [*WRAPS, (4, 1 << 60), (8, 1 << 61), (16, 1 << 60)])
def test_a_run_so_long_that_its_size_wraps_is_refused(bits: int, groups: int) -> None:
    """In 64 bits, `groups * bits` is a few bytes, which are there, or none."""
    data = array(varint((groups % (1 << 62)) << 1 | 1) + bytes(200))
    assert packed.unpack(data, bits, np.zeros(100, np.int32)) == -1
    assert not packed.repeats(data, bits, np.zeros(1, np.int32), 100_000)


@pytest.mark.parametrize(("bits", "pattern"), [(0, [0, 1]), (2, [0, 5])])
def test_numbers_with_too_few_bits_for_a_pattern_do_not_repeat_it(
    bits: int, pattern: list[int]
) -> None:
    """Though their bits are those of the pattern, as far as they go."""
    numbers = [number & (1 << bits) - 1 for number in pattern] * 4
    whole = sum(number << bits * place for place, number in enumerate(numbers))
    data = array(bytes([3]) + whole.to_bytes(bits, "little"))
    assert packed.unpack(data, bits, np.zeros(8, np.int32)) >= 0
    assert not packed.repeats(data, bits, np.array(pattern, np.int32), 8)


def test_a_header_with_a_number_that_does_not_end_is_none() -> None:
    out = np.zeros(128, np.int64)
    assert packed.read_header(array(bytes([0x16, *[0x80] * 5, 1, 0])), 0, out) == -1
    assert packed.read_header(array(bytes([0x16, *[0x80] * 4, 1, 0])), 0, out) == 7


@given(st.lists(st.tuples(st.binary(max_size=30), st.integers(1, 900)), max_size=9))
def test_the_size_of_what_lz4_has_packed_is_known(parts: list[tuple[bytes, int]]) -> None:
    plain = b"".join(part * count for part, count in parts)
    packed_bytes = pa.Codec("lz4_raw").compress(plain, asbytes=True)
    assert packed.lz4_size(array(packed_bytes)) == len(plain)
    assert packed.lz4_size(array(packed_bytes[:-1])) < 1 << 40  # whatever: it ends
