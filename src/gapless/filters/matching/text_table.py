"""Text table: which code a string has, looked up by its bytes, many strings at a time.

Theory of operation
    An open-addressing table of entries (hash, code, where its bytes begin, how many) over one
    heap of bytes. A hash that agrees is never trusted: the bytes are compared. Strings come as
    Arrow keeps them, bytes and offsets, and never become Python objects. All hashes of a batch
    are made first, and their entries asked of the memory, so that it answers while others are
    being made.
    A client that knows this hash can choose strings that all want the same entry. So no string
    stands farther than `PROBES_MAX` from the entry that its hash says, and no look-up goes farther.
    Where that is impossible, the table refuses, and the caller decodes strings instead.

Invariants
    I1  the table is at most half full, and an entry without a code (0) is free; the last one is
        always free, and no hash leads there
    I2  an entry is less than `PROBES_MAX` behind the one that its hash says
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.core.attribute_table import BOOL, BYTES, FLOAT, INT, MISSING, TEXT, TIMESTAMP
from gapless.filters.matching.arena import compiled, mix, prefetch

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matching.arena import Words
    from gapless.filters.matching.bucket import Floats

    Heap = NDArray[np.uint8]

ENTRY_WORDS = 4
HASH, CODE, BEGIN, LENGTH = 0, 1, 2, 3  # of an entry
UNKNOWN_TEXT, UNKNOWN_OTHER = 2.0, -1.0
PROBES_MAX = 256
"""Far more than chance makes of a table that is half full."""


@compiled
def eight_bytes(data: Heap, begin: int) -> int:
    """As one word. (An unsigned index cannot mean "from the end"; so this is one instruction.)"""
    place, word = np.uint64(begin), np.int64(0)
    for index in range(8):
        word |= np.int64(data[place + np.uint64(index)]) << (8 * index)
    return word  # type: ignore[return-value]


@compiled
def hash_text(data: Heap, begin: int, end: int) -> int:
    """Eight bytes at a time, the last eight even if they overlap."""
    found = (end - begin) * 0x1E3779B97F4A7C15
    if end - begin < 8:
        for place in range(begin, end):
            found = found << 8 ^ (found >> 56) ^ data[place]
        return mix(found)
    while begin + 8 < end:
        found = mix(found ^ eight_bytes(data, begin))
        begin += 8
    return mix(found ^ eight_bytes(data, end - 8))


@compiled
def are_equal(heap: Heap, own: int, data: Heap, begin: int, length: int) -> bool:
    if length < 8:
        index = 0
        while index < length and heap[own + index] == data[begin + index]:
            index += 1
        return index == length
    for index in range(0, length - 8, 8):
        if eight_bytes(heap, own + index) != eight_bytes(data, begin + index):
            return False
    return eight_bytes(heap, own + length - 8) == eight_bytes(data, begin + length - 8)


@compiled
def find_text(table: Words, heap: Heap, found: int, data: Heap, begin: int, end: int) -> int:
    """The entry of a string, or the free one where it would stand; the last if there is neither."""
    mask, length = len(table) // ENTRY_WORDS - 2, end - begin
    place = found & mask
    last = (place + PROBES_MAX) & mask
    while True:
        entry = place * ENTRY_WORDS
        if table[entry + CODE] == 0:
            return entry
        if (
            table[entry + HASH] == found
            and table[entry + LENGTH] == length
            and are_equal(heap, table[entry + BEGIN], data, begin, length)
        ):
            return entry
        place = (place + 1) & mask
        if place == last:
            return len(table) - ENTRY_WORDS


@compiled
def learn(table: Words, heap: Heap, offsets: Words, codes: Words) -> int:
    """Enter strings that stand in the heap already; how many of them, in order."""
    for index in range(len(codes)):
        begin, end = offsets[index], offsets[index + 1]
        found = hash_text(heap, begin, end)
        entry = find_text(table, heap, found, heap, begin, end)
        if entry == len(table) - ENTRY_WORDS:
            return index
        table[entry + HASH], table[entry + CODE] = found, codes[index]
        table[entry + BEGIN], table[entry + LENGTH] = begin, end - begin
    return len(codes)


@compiled
def look_up(table: Words, heap: Heap, data: Heap, offsets: Words, codes: Floats) -> int:
    """The codes of strings; `UNKNOWN_TEXT` for those that have none."""
    hashes = np.empty(len(codes), np.int64)
    mask = len(table) // ENTRY_WORDS - 2
    for index in range(len(codes)):
        hashes[index] = hash_text(data, offsets[index], offsets[index + 1])
        prefetch(table, (hashes[index] & mask) * ENTRY_WORDS)
    for index in range(len(codes)):
        entry = find_text(table, heap, hashes[index], data, offsets[index], offsets[index + 1])
        code = table[entry + CODE]
        codes[index] = code or UNKNOWN_TEXT
    return len(codes)


@compiled
def place(
    table: Words,
    heap: Heap,
    data: Heap,
    kinds: Heap,
    starts: Words,
    lengths: Words,
    rows: Floats,
    width: int,
    column: int,
) -> int:
    """Write the codes of the values that are texts and have one into their rows."""
    for index in range(len(kinds)):
        if kinds[index] == TEXT:
            begin = starts[index]
            end = begin + lengths[index]
            found = hash_text(data, begin, end)
            code = table[find_text(table, heap, found, data, begin, end) + CODE]
            if code != 0:
                rows[index * width + column] = code
    return len(kinds)


@compiled
def fill(kinds: Heap, values: Floats, columns: Words, rows: Floats, width: int) -> int:
    """Write values into rows, all but the codes of what filters name. `columns`: for each
    attribute those of its number, code, presence and moment; -1: there is none."""
    rows[:] = np.nan
    count: int = kinds.shape[1]
    for attribute in range(kinds.shape[0]):
        number = columns[4 * attribute]
        code = columns[4 * attribute + 1]
        presence = columns[4 * attribute + 2]
        moment = columns[4 * attribute + 3]
        for index in range(count):
            kind, first = kinds[attribute, index], index * width
            if presence >= 0:
                rows[first + presence] = 0.0 if kind == MISSING else 1.0
            if kind in (INT, FLOAT):
                if number >= 0:
                    rows[first + number] = values[attribute, index]
                if code >= 0:
                    rows[first + code] = UNKNOWN_OTHER
            elif kind in (TIMESTAMP, BYTES):
                if moment >= 0 and kind == TIMESTAMP:
                    rows[first + moment] = values[attribute, index]
                if code >= 0:
                    rows[first + code] = UNKNOWN_OTHER
            elif kind == TEXT and code >= 0:
                rows[first + code] = UNKNOWN_TEXT
            elif kind == BOOL and code >= 0:
                rows[first + code] = values[attribute, index]
    return count
