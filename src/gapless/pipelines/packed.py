"""Packed: Parquet's runs of small numbers and headers of pages, read by compiled code.

Theory of operation
    Levels and indices stand in runs: a number once and how often, or groups of eight numbers of
    so many bits each, packed. Of most columns one wants the numbers: `unpack`. Of levels one mostly
    wants to know whether they repeat with a period, as those of maps with the same names do. For
    that no number need be unpacked: eight periods fill whole bytes, so `repeats` packs what it
    expects, once, and compares bytes, as fast as memory is read.

Invariants
    I1  no byte outside of the given ones is read, whatever they are
    I2  what the runs do not hold in full is refused

Cost: a nanosecond a number unpacked, a twentieth of one compared. Compiling takes some seconds of
CPU, once a machine (`machine_code` keeps the result); loading 0.1 s, once a process.

Source: Apache Parquet, encodings, "RLE / Bit-Packing Hybrid"; Thrift, compact protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from gapless import machine_code

if TYPE_CHECKING:
    from collections.abc import Callable

BITS_MAX = 31

PIECE = 256
"""Bytes that are compared at once."""

DEPTH_MAX = 4
TRUE, FALSE, SHORT, INT, LONG, BINARY, STRUCT = 1, 2, 4, 5, 6, 8, 12  # Thrift's, compact


def _keep(function: Callable[..., Any]) -> Any:
    return machine_code.keep(function, nogil=True)


def _inner(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, inline="always")(function)


@_inner
def head(data, at):  # type: ignore[no-untyped-def]
    """A number, seven bits a byte, the lowest first, and where it ends; below 0: there is none.

    Of 35 bits at most: what is computed with it stays far from where numbers wrap."""
    value, shift = np.int64(0), 0
    while at < len(data) and shift < 35:
        byte = np.int64(data[at])
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
    return np.int64(-1), at


@_inner
def low_bytes(data, at, size):  # type: ignore[no-untyped-def]
    """So many bytes, at most 8, as one number."""
    value = np.uint64(0)
    for index in range(size):
        value |= np.uint64(data[at + index]) << np.uint64(8 * index)
    return value


@_keep
def unpack(data, bits, out):  # type: ignore[no-untyped-def]
    """Fill `out` with the first numbers; the largest of them, or -1 if there are not so many."""
    filled, at, largest = 0, 0, np.int64(0)
    mask = np.uint64((1 << bits) - 1)
    while filled < len(out):
        run, at = head(data, at)
        size = (run >> 1) * bits if run & 1 else (bits + 7) // 8
        if run < 2 or at + size > len(data):
            return np.int64(-1)
        if run & 1:
            count = min((run >> 1) * 8, len(out) - filled)
            for index in range(count):
                place = at + (index * bits >> 3)
                # Without a sign, for a place is not counted from the end: one instruction.
                word, first = np.uint64(0), np.uint64(place)
                if place + 8 <= len(data):
                    for byte in range(8):
                        word |= np.uint64(data[first + np.uint64(byte)]) << np.uint64(8 * byte)
                else:
                    word = low_bytes(data, place, len(data) - place)
                number = np.int64(word >> np.uint64(index * bits & 7) & mask)
                out[filled + index] = number
                largest = max(largest, number)
        else:
            count = min(run >> 1, len(out) - filled)
            number = np.int64(low_bytes(data, at, size))
            if number >> bits:
                return np.int64(-1)
            out[filled : filled + count] = number
            largest = max(largest, number)
        filled, at = filled + count, at + size
    return largest


@_inner
def number_at(data, at, index, bits):  # type: ignore[no-untyped-def]
    """One of the numbers of the groups that begin here."""
    place = at + (index * bits >> 3)
    word = low_bytes(data, place, min(8, len(data) - place))
    return np.int64(word >> np.uint64(index * bits & 7)) & ((1 << bits) - 1)


@_inner
def packed_pattern(pattern, bits):  # type: ignore[no-untyped-def]
    """The bytes of groups of the pattern, over and over, enough to compare `PIECE` at any group."""
    period = len(pattern)
    step = period * bits
    out = np.zeros((PIECE // max(step, 1) + 2) * step, np.uint8)
    for index in range(len(out) * 8 // max(bits, 1)):
        number = pattern[index % period]
        for bit in range(index * bits, (index + 1) * bits):
            out[bit >> 3] |= np.uint8((number & 1) << (bit & 7))
            number >>= 1
    return out


@_keep
def repeats(data, bits, pattern, count):  # type: ignore[no-untyped-def]
    """Are these numbers, so many of them, the pattern over and over?"""
    period, done, at = len(pattern), 0, 0
    for number in pattern:
        if number >> bits:
            return False
    expected = packed_pattern(pattern, bits)
    while done < count:
        run, at = head(data, at)
        size = (run >> 1) * bits if run & 1 else (bits + 7) // 8
        if run < 2 or at + size > len(data):
            return False
        if run & 1:
            numbers = min((run >> 1) * 8, count - done)
            # Whole groups as bytes; behind a run that was no groups, and in the last one, numbers.
            groups = 0 if done & 7 else numbers >> 3
            differ = np.uint8(0)
            for place in range(0, groups * bits, PIECE):
                length = min(PIECE, groups * bits - place)
                begin = ((done >> 3) * bits + place) % (period * bits)
                one, other = data[at + place : at + place + length], expected[begin:]
                for index in range(length):
                    differ |= one[index] ^ other[index]
            if differ:
                return False
            for index in range(8 * groups, numbers):
                if number_at(data, at, index, bits) != pattern[(done + index) % period]:
                    return False
        else:
            numbers = min(run >> 1, count - done)
            value = np.int64(low_bytes(data, at, size))
            for index in range(min(numbers, period)):
                if pattern[(done + index) % period] != value:
                    return False
        done, at = done + numbers, at + size
    return True


@_keep
def read_header(data, at, out):  # type: ignore[no-untyped-def]
    """The whole numbers of a page's header, by number of the field, of those in a struct by 16 *
    its number + the field's; where there is none, -1. Where it ends; below 0: it is none."""
    out[:] = -1
    numbers, depth, number = np.zeros(DEPTH_MAX, np.int64), 0, np.int64(0)
    while 0 <= at < len(data):
        kind = np.int64(data[at])
        at += 1
        if kind == 0:
            if depth == 0:
                return at
            depth -= 1
            number = numbers[depth]
            continue
        if not kind >> 4:
            return -1  # numbered anew, which no header needs
        number, kind = number + (kind >> 4), kind & 15
        if kind == STRUCT:
            if depth == DEPTH_MAX:
                return -1
            numbers[depth], number, depth = number, np.int64(0), depth + 1
        elif kind in (SHORT, INT, LONG):
            value, at = head(data, at)
            at = at if value >= 0 else -1
            value = value >> 1 ^ -(value & 1)
            place = number if depth == 0 else 16 * numbers[0] + number
            if depth < 2 and number < 16 and place < len(out):
                out[place] = value
        elif kind == BINARY:
            size, at = head(data, at)
            at = at + size if size >= 0 else -1
        elif kind not in (TRUE, FALSE):
            return -1
    return -1


@_keep
def lz4_size(data):  # type: ignore[no-untyped-def]
    """How many bytes a block of lz4 is unpacked, which its decoder checks but does not tell."""
    at, size = 0, np.int64(0)
    while at < len(data):
        token = np.int64(data[at])
        literals, at = lz4_length(data, at + 1, token >> 4)
        at, size = at + literals, size + literals
        if at < len(data):  # the last sequence has no copy
            copied, at = lz4_length(data, at + 2, token & 15)
            size += copied + 4
    return size


@_inner
def lz4_length(data, at, length):  # type: ignore[no-untyped-def]
    """15 goes on in bytes, up to one that is not 255; and where it ends."""
    goes_on = length == 15
    while goes_on and at < len(data):
        length += np.int64(data[at])
        goes_on = data[at] == 255
        at += 1
    return length, at


@_keep
def cut_texts(data, offsets, out):  # type: ignore[no-untyped-def]
    """Texts that stand behind their lengths, moved together; False if there are not so many."""
    begin, filled = np.int64(0), np.int64(0)
    for index in range(len(offsets) - 1):
        if begin + 4 > len(data):
            return False
        begin += 4
        end = begin + np.int64(low_bytes(data, begin - 4, 4))
        if end > len(data):
            return False
        out[filled : filled + end - begin] = data[begin:end]
        begin, filled = end, filled + end - begin
        offsets[index + 1] = filled
    return True
