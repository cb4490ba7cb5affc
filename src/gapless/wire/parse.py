"""Parse: where everything stands in a batch of encoded events, found by compiled code.

Theory of operation
    A batch of events end to end is walked once. Each attribute becomes one place in flat arrays:
    where its name stands, what kind its value is, and the value itself (a number's 64 bits, the
    microseconds of a timestamp, or where a text or bytes stand). Nothing is copied and no Python
    object is made; callers pick columns from the arrays. These walks refuse what they do not know
    (a MessagePack form that our encoder never makes, a name that occurs twice). Then the caller
    decodes event by event, which is slower and exact.

Invariants
    I1  no byte outside of an event is read for it, whatever the bytes are
    I2  accepted bytes mean what `wire.events.decode_contents` gives

Cost: some 20 ns for each attribute. `survey` and `locate` repeat the code that reads an attribute:
with a shared function they took half as long again. Compiling takes some 10 s of CPU, once a
machine (`machine_code` keeps the result); loading 0.5 s, once a process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit

from gapless import machine_code
from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, TEXT, TIMESTAMP
from gapless.core.timestamps import FIRST, LAST, to_microseconds

if TYPE_CHECKING:
    from collections.abc import Callable

REPEATS_CHECKED_MAX = 32
"""The most attributes of an event that is checked for repeated names; one with more is refused."""

PUBLISHER, SEQUENCE = 2, 3  # places in an event, behind the attributes and the body
SECOND = 1_000_000  # microseconds
SECONDS_MIN, SECONDS_MAX = to_microseconds(FIRST) // SECOND, to_microseconds(LAST) // SECOND


def _keep(function: Callable[..., Any]) -> Any:
    return machine_code.keep(function, nogil=True)


def _inner(function: Callable[..., Any]) -> Any:
    return njit(nogil=True, inline="always")(function)


@_inner
def whole(data, at, size):  # type: ignore[no-untyped-def]
    """An unsigned number of `size` bytes, as 64 bits."""
    value = np.int64(0)
    for index in range(size):
        value = (value << 8) | np.int64(data[at + index])
    return value


@_inner
def span(data, at, end, short, short_mask, first):  # type: ignore[no-untyped-def]
    """Where the bytes of a text or a body start, and how many; below 0: it is none.

    `short`: the byte of the short form without its length bits, if there is one; `first`: the byte
    of the form with 8 bits of length, the next two being those with 16 and 32."""
    if at >= end:
        return np.int64(-1), np.int64(0)
    byte = data[at]
    if byte & ~short_mask & 0xFF == short and short_mask:
        start, length = at + 1, np.int64(byte & short_mask)
    elif first <= byte <= first + 2:
        size = 1 << (byte - first)
        if at + 1 + size > end:
            return np.int64(-1), np.int64(0)
        start, length = at + 1 + size, whole(data, at + 1, size)
    else:
        return np.int64(-1), np.int64(0)
    return (start, length) if start + length <= end else (np.int64(-1), np.int64(0))


@_inner
def piece(data, at, end):  # type: ignore[no-untyped-def]
    """The kind of a value that is a text or bytes, where it starts, and how long it is; below 0: it
    is none."""
    start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)
    if start >= 0:
        return TEXT, start, length
    start, length = span(data, at, end, 0x00, 0x00, 0xC4)
    return BYTES, start, length


@_inner
def timestamp(data, at, end):  # type: ignore[no-untyped-def]
    """The microseconds of a timestamp, and where it ends; below 0: refused."""
    byte = data[at]
    if byte == 0xD6 and at + 6 <= end and data[at + 1] == 0xFF:
        return whole(data, at + 2, 4) * SECOND, at + 6
    if byte == 0xD7 and at + 10 <= end and data[at + 1] == 0xFF:
        part = whole(data, at + 2, 4) >> 2
        seconds = whole(data, at + 2, 8) & 0x3FFFFFFFF
        at += 10
    elif byte == 0xC7 and at + 15 <= end and data[at + 1] == 12 and data[at + 2] == 0xFF:
        part, seconds = whole(data, at + 3, 4), whole(data, at + 7, 8)
        at += 15
    else:
        return np.int64(0), np.int64(-1)
    if part % 1000 or part >= 1000 * SECOND or not SECONDS_MIN <= seconds <= SECONDS_MAX:
        return np.int64(0), np.int64(-1)
    return seconds * SECOND + part // 1000, at


@_inner
def number(data, at, end):  # type: ignore[no-untyped-def]
    """The kind of a value that is no text and no bytes, its 64 bits, and where it ends; below 0:
    refused."""
    byte = data[at]
    if byte < 0x80:
        return INT, np.int64(byte), at + 1
    if byte >= 0xE0:
        return INT, np.int64(byte) - 256, at + 1
    if byte in (0xC2, 0xC3):
        return BOOL, np.int64(byte & 1), at + 1
    if byte == 0xCB:
        return (FLOAT, whole(data, at + 1, 8), at + 9) if at + 9 <= end else (INT, 0, -1)
    if 0xCC <= byte <= 0xCF:
        size = 1 << (byte - 0xCC)
    elif 0xD0 <= byte <= 0xD3:
        size = 1 << (byte - 0xD0)
    else:
        value, at = timestamp(data, at, end)
        return TIMESTAMP, value, at
    if at + 1 + size > end:
        return INT, np.int64(0), np.int64(-1)
    value = whole(data, at + 1, size)
    if byte == 0xCF and value < 0:  # beyond 63 bits
        return INT, np.int64(0), np.int64(-1)
    if byte >= 0xD0 and size < 8 and data[at + 1] & 0x80:
        value -= np.int64(1) << (8 * size)
    return INT, value, at + 1 + size


@_inner
def map_size(data, at, end):  # type: ignore[no-untyped-def]
    """How many attributes the event at this place has, and where they begin; below 0: refused."""
    if end - at < 2 or data[at] & 0xF0 != 0x90 or data[at] == 0x90:
        return np.int64(-1), at
    byte = data[at + 1]
    if byte & 0xF0 == 0x80:
        return np.int64(byte & 0x0F), at + 2
    if byte == 0xDE and end - at >= 4:
        return whole(data, at + 2, 2), at + 4
    return np.int64(-1), at


@_keep
def count(data, bounds, firsts):  # type: ignore[no-untyped-def]
    """How many attributes there are before each event, and in all; False if one is refused."""
    total = np.int64(0)
    for event in range(len(bounds) - 1):
        firsts[event] = total
        size, _ = map_size(data, bounds[event], bounds[event + 1])
        if size < 0:
            return False
        total += size
    firsts[len(bounds) - 1] = total
    return True


@_inner
def parse_rest(data, at, end, parts, rest):  # type: ignore[no-untyped-def]
    """What is behind the attributes of one event."""
    rest[0], rest[1], rest[2], rest[3], rest[4] = end, 0, -1, 0, -1
    if parts > 1:
        start, length = span(data, at, end, 0x00, 0x00, 0xC4)
        if start < 0:
            return False
        rest[0], rest[1] = start, length
        at = start + length
    if parts <= PUBLISHER:
        return True
    start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)  # nil is no form of our encoder
    at = start + length
    if start < 0 or at >= end or parts <= SEQUENCE:
        return False
    kind, sequence, at = number(data, at, end)
    rest[2], rest[3], rest[4] = start, length, sequence
    return at >= 0 and kind == INT


@_keep
def parse(data, bounds, firsts, names, kinds, values, rest):  # type: ignore[no-untyped-def]
    """Fill the places of all attributes, and of what is behind them; False if one is refused.

    `names`: start and length of each; `kinds` and `values`: of each; for a text or bytes, where it
    starts, and its length in the third column of `names`. `rest`: by event, start and length of the
    body and of the publisher (-1: none), and the sequence (-1: none)."""
    for event in range(len(bounds) - 1):
        at, end = bounds[event], bounds[event + 1]
        parts = data[at] & 0x0F
        at += 4 if data[at + 1] == 0xDE else 2
        first, last = firsts[event], firsts[event + 1]
        if last - first > REPEATS_CHECKED_MAX:
            return False
        for place in range(first, last):
            start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)
            at = start + length
            if start < 0 or at >= end:
                return False
            names[place, 0], names[place, 1] = start, length
            kind, text, size = piece(data, at, end)
            if text >= 0:
                kinds[place], values[place], names[place, 2] = kind, text, size
                at = text + size
            else:
                kinds[place], values[place], at = number(data, at, end)
                if at < 0:
                    return False
            for other in range(first, place):
                if names[other, 1] == length and is_same(data, names[other, 0], start, length):
                    return False
        if not parse_rest(data, at, end, parts, rest[event]):
            return False
    return True


@_inner
def is_same(data, one, other, length):  # type: ignore[no-untyped-def]
    for index in range(length):  # noqa: SIM110 - numba knows no generators
        if data[one + index] != data[other + index]:
            return False
    return True


@_keep
def find(data, firsts, names, name, places):  # type: ignore[no-untyped-def]
    """By event: the place of the attribute of this name; -1 if it has none."""
    size = len(name)
    for event in range(len(firsts) - 1):
        places[event] = -1
        for place in range(firsts[event], firsts[event + 1]):
            if names[place, 1] == size:
                start = names[place, 0]
                index = 0
                while index < size and data[start + index] == name[index]:
                    index += 1
                if index == size:
                    places[event] = place
                    break


@_inner
def checksum(data, start, length, table):  # type: ignore[no-untyped-def]
    """The CRC-32 of a text, as zlib has it."""
    value = np.int64(0xFFFFFFFF)
    for index in range(start, start + length):
        value = np.int64(table[(value ^ np.int64(data[index])) & 0xFF]) ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@_keep
def survey(data, bounds, names, ends, table, kinds, values, first):  # type: ignore[no-untyped-def]
    """By name and event, the kind of an attribute and a number that stands for it, over zeros;
    False if one is refused. Of a name that occurs twice the last counts. `names`: end to end;
    `first`: the place of the first event."""
    for event in range(first, first + len(bounds) - 1):
        end = bounds[event - first + 1]
        left, at = map_size(data, bounds[event - first], end)
        if left < 0:
            return False
        for _ in range(left):
            start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)
            at = start + length
            if start < 0 or at >= end:
                return False
            row = -1
            for other in range(len(ends) - 1):
                if ends[other + 1] - ends[other] == length and is_name(
                    data, start, names, ends[other], length
                ):
                    row = other
            kind, text, size = piece(data, at, end)
            if text >= 0:
                at = text + size
                if row >= 0:
                    kinds[row, event] = kind
                    values[row, event] = checksum(data, text, size, table)
                continue
            kind, bits, at = number(data, at, end)
            if at < 0:
                return False
            if row >= 0:
                kinds[row, event] = kind
                bits = np.int64(bits)  # numba must be told
                values[row, event] = bits.view(np.float64) if kind == FLOAT else np.float64(bits)
    return True


@_inner
def is_name(data, start, names, low, length):  # type: ignore[no-untyped-def]
    for index in range(length):  # noqa: SIM110 - numba knows no generators
        if data[start + index] != names[low + index]:
            return False
    return True


@_keep
def gather(data, starts, ends, out):  # type: ignore[no-untyped-def]
    """Copy pieces end to end: piece i starts at `starts[i]` and goes to `ends[i]:ends[i + 1]`."""
    for index in range(len(starts)):
        # Without a sign: numba need not think of places counted from the end, and copies in bulk.
        start, low = np.uint64(starts[index]), np.uint64(ends[index])
        for offset in range(np.uint64(ends[index + 1]) - low):
            out[low + offset] = data[start + offset]


@_inner
def is_text(data, start, length):  # type: ignore[no-untyped-def]
    """Is it UTF-8 as Python decodes it: the shortest forms, and no surrogates?"""
    at, end = start, start + length
    while at < end and data[at] < 0x80:
        at += 1
    while at < end:
        byte = data[at]
        if byte < 0x80:
            at += 1
            continue
        low, high, more = 0x80, 0xBF, 1
        if 0xE0 <= byte <= 0xEF:
            more = 2
            low, high = (0xA0 if byte == 0xE0 else 0x80), (0x9F if byte == 0xED else 0xBF)
        elif 0xF0 <= byte <= 0xF4:
            more = 3
            low, high = (0x90 if byte == 0xF0 else 0x80), (0x8F if byte == 0xF4 else 0xBF)
        elif not 0xC2 <= byte <= 0xDF:
            return False
        if at + more >= end or not low <= data[at + 1] <= high:
            return False
        for index in range(2, more + 1):
            if data[at + index] & 0xC0 != 0x80:
                return False
        at += more + 1
    return True


@_inner
def skip_name(data, at, end, name_max):  # type: ignore[no-untyped-def]
    """Where the name that begins there ends; below 0: it is no good name."""
    start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)
    if start < 0 or not 0 < length <= name_max or not is_text(data, start, length):
        return np.int64(-1)
    return start + length


@_keep
def is_plain(data, bounds, count_max, name_max):  # type: ignore[no-untyped-def]
    """Is every event whole, within these limits, and of the forms that our encoder makes? False
    decides nothing: an event may be good in another form."""
    for event in range(len(bounds) - 1):
        end = bounds[event + 1]
        left, at = map_size(data, bounds[event], end)
        parts = data[bounds[event]] & 0x0F if left >= 0 else 0
        if left < 0 or left > count_max or parts > SEQUENCE + 1 or parts == PUBLISHER + 1:
            return False
        for _ in range(left):
            at = skip_name(data, at, end, name_max)
            if at < 0 or at >= end:
                return False
            if data[at] == 0xCB:  # as many are: a float
                at += 9
                continue
            kind, start, length = piece(data, at, end)
            if start < 0:
                _, _, at = number(data, at, end)
            else:
                is_whole = kind == BYTES or is_text(data, start, length)
                at = start + length if is_whole else -1
            if at < 0:
                return False
        if parts > 1:
            start, length = span(data, at, end, 0x00, 0x00, 0xC4)
            at = start + length
            if start < 0:
                return False
        if parts > PUBLISHER:
            at = skip_name(data, at, end, name_max)
            if at < 0 or at >= end:
                return False
            kind, sequence, at = number(data, at, end)
            if at < 0 or kind != INT or sequence < 0:
                return False
        if at != end:
            return False
    return True


@_keep
def locate(data, bounds, names, ends, kinds, values, starts, lengths):  # type: ignore[no-untyped-def]
    """By name and event, the kind of an attribute, over zeros, and its number or where its text
    stands; False if an event is refused. Of a name that occurs twice the last counts. `names`: end
    to end."""
    for event in range(len(bounds) - 1):
        end = bounds[event + 1]
        left, at = map_size(data, bounds[event], end)
        if left < 0:
            return False
        for _ in range(left):
            start, length = span(data, at, end, 0xA0, 0x1F, 0xD9)
            at = start + length
            if start < 0 or at >= end:
                return False
            row = -1
            for other in range(len(ends) - 1):
                if ends[other + 1] - ends[other] == length and is_name(
                    data, start, names, ends[other], length
                ):
                    row = other
            kind, text, size = piece(data, at, end)
            if text >= 0:
                at = text + size
                if row >= 0:
                    kinds[row, event] = kind
                    starts[row, event], lengths[row, event] = text, size
                continue
            kind, bits, at = number(data, at, end)
            if at < 0:
                return False
            if row >= 0:
                kinds[row, event] = kind
                bits = np.int64(bits)  # numba must be told
                values[row, event] = bits.view(np.float64) if kind == FLOAT else np.float64(bits)
    return True
