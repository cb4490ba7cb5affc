"""Bucket: the rows that stand under one key, and the bitmaps that rule most of them out.

Theory of operation
    Every test of a conjunction is a *slot*, a closed interval of one *column*. An event is a row
    of floats, one per column, NaN where there is nothing to compare; then every comparison is
    false, which is SQL's UNKNOWN. A slot whose low end lies above its high end admits what is
    *outside*: `a <> 5`. What the columns mean is the business of `columns`.

    A row is a word of identity (its number, and what to report when it matches), the numbers of
    its columns, four in a word, and two bounds a slot. From `BITMAPS_FROM` rows on a bucket also
    has, for the columns that most of its rows use, 63 cuts that divide the column into 64 cells
    with about as many bounds in each, and for each cell one bit per row, set if the row admits
    nothing of that cell. A 65th cell stands for NaN. To match is to clear the bits of one cell
    per column from the bits of the rows alive, 64 rows at a time; what is left is verified.

    Region    masks of the rows alive | rows | (column, 63 cuts) per column | 65 masks per column

Invariants
    I1  a bit of a cell is set only for a row alive that uses the column and admits nothing there
    I2  the positions below USED that are not alive are linked from HOLE (position + 1; 0 ends)

Source: bitmaps of violations after REIN (INFOCOM 2014). Deviation: the cells are of each bucket,
cut at quantiles of its own bounds, so that symbols of different price levels do not share them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.filters.matching.arena import (
    ALIVE,
    BUCKET_WORDS,
    BUCKETS,
    BUCKETS_COUNT,
    CAP,
    EDGE,
    HOLE,
    LOW_HALF,
    REGION,
    ROWS,
    SHAPE,
    SLOTS_MAX,
    USED,
    allocate,
    compiled,
    has_room,
    release,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matching.arena import Words

    Floats = NDArray[np.float64]

NO_COLUMN = 0xFFFF
CELLS, CUTS = 65, 64  # 64 words of cuts: the column and 63 cuts
BITMAPS_FROM = 64
BITMAP_COLUMNS_MAX = 32
COLUMNS_COUNTED_MAX = 256
SAMPLE_MAX = 1024


@compiled
def new_bucket(words: Words, key: int) -> int:
    bucket = words[BUCKETS_COUNT]
    words[BUCKETS_COUNT] += 1
    words[words[BUCKETS] + BUCKET_WORDS * bucket + EDGE] = key
    return bucket  # type: ignore[no-any-return]


@compiled
def stride_of(slots: int) -> int:
    """The words of one row."""
    return 1 + (slots + 3) // 4 + 2 * slots


@compiled
def region_words(cap: int, slots: int, columns: int) -> int:
    masks = (cap + 63) // 64
    return masks + cap * stride_of(slots) + columns * (CUTS + CELLS * masks)


@compiled
def column_of(words: Words, row: int, slot: int) -> int:
    return (words[row + 1 + (slot >> 2)] >> (16 * (slot & 3))) & NO_COLUMN  # type: ignore[no-any-return]


@compiled
def cell_of(floats: Floats, cuts: int, value: float) -> int:
    """How many of the 63 cuts are at or below the value; 64 for NaN."""
    if value != value:
        return 64
    cell, step = 0, 32
    while step:
        if floats[cuts + cell + step] <= value:
            cell += step
        step >>= 1
    return cell


@compiled
def mark(words: Words, floats: Floats, at: int, position: int, alive: bool) -> None:
    """Set or clear the bits of one row: that it is alive, and where it admits nothing."""
    region, cap = words[at + REGION], words[at + CAP]
    slots, columns = words[at + SHAPE] & LOW_HALF, words[at + SHAPE] >> 32
    masks = (cap + 63) // 64
    row = region + masks + position * stride_of(slots)
    cuts = region + masks + cap * stride_of(slots)
    word, bit = position >> 6, np.int64(1) << (position & 63)
    if alive:
        words[region + word] |= bit
    else:
        words[region + word] &= ~bit
    for index in range(columns):
        bits = cuts + CUTS * columns + CELLS * masks * index + word
        for slot in range(slots):
            column = column_of(words, row, slot)
            if column == NO_COLUMN:
                break
            if words[cuts + CUTS * index] != column:
                continue
            value = row + 1 + (slots + 3) // 4 + 2 * slot
            inside = floats[value] <= floats[value + 1]
            low = cell_of(floats, cuts + CUTS * index, floats[value])
            high = cell_of(floats, cuts + CUTS * index, floats[value + 1])
            for cell in range(CELLS):
                if cell == 64 or (inside and (cell < low or cell > high)):
                    if alive:
                        words[bits + cell * masks] |= bit
                    else:
                        words[bits + cell * masks] &= ~bit


@compiled
def choose_columns(words: Words, at: int, chosen: Words) -> int:
    """The columns that most rows of a bucket use, into `chosen`; how many."""
    slots = words[at + SHAPE] & LOW_HALF
    rows = words[at + REGION] + (words[at + CAP] + 63) // 64
    names = np.empty(COLUMNS_COUNTED_MAX, np.int64)
    counts = np.zeros(COLUMNS_COUNTED_MAX, np.int64)
    known = 0
    for position in range(words[at + USED]):
        for slot in range(slots):
            column = column_of(words, rows + position * stride_of(slots), slot)
            if column == NO_COLUMN:
                break
            index = 0
            while index < known and names[index] != column:
                index += 1
            if index == known < COLUMNS_COUNTED_MAX:
                names[known] = column
                known += 1
            if index < known:
                counts[index] += 1
    columns = min(known, BITMAP_COLUMNS_MAX)
    for place in range(columns):
        best = 0
        for index in range(known):
            if counts[index] > counts[best]:
                best = index
        chosen[place] = names[best]
        counts[best] = 0
    return columns


@compiled
def sort_distinct(values: Floats, count: int) -> int:
    """Sort values[:count] and drop repeats; how many are left."""
    gap = count
    while gap > 1:
        gap = max(1, gap * 5 // 11)
        for index in range(gap, count):
            value, place = values[index], index
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
    distinct = min(count, 1)
    for index in range(1, count):
        if values[index] != values[distinct - 1]:
            values[distinct] = values[index]
            distinct += 1
    return distinct


@compiled
def cut(words: Words, floats: Floats, at: int, column: int, cuts: int) -> None:
    """Divide a column into cells with about as many of the rows' bounds in each."""
    slots = words[at + SHAPE] & LOW_HALF
    rows = words[at + REGION] + (words[at + CAP] + 63) // 64
    sample = np.empty(SAMPLE_MAX + 2 * SLOTS_MAX)
    count = 0
    for position in range(0, words[at + USED], 1 + 2 * words[at + USED] // SAMPLE_MAX):
        row = rows + position * stride_of(slots)
        for slot in range(slots):
            if column_of(words, row, slot) == column and count < SAMPLE_MAX:
                value = row + 1 + (slots + 3) // 4 + 2 * slot
                for place in range(value, value + 2):
                    if abs(floats[place]) < np.inf:
                        sample[count] = floats[place]
                        count += 1
    distinct = sort_distinct(sample, count)
    words[cuts] = column
    for index in range(1, 64):
        if distinct >= 64:
            floats[cuts + index] = sample[index * distinct // 64]
        else:
            floats[cuts + index] = sample[index - 1] if index <= distinct else np.inf


@compiled
def rebuild(words: Words, floats: Floats, at: int, cap: int, slots: int) -> int:
    """Give a bucket room for `cap` rows of `slots` slots. How many words are missing, or 0."""
    old, old_cap = words[at + REGION], words[at + CAP]
    old_slots, old_columns = words[at + SHAPE] & LOW_HALF, words[at + SHAPE] >> 32
    chosen = np.empty(BITMAP_COLUMNS_MAX, np.int64)
    columns = choose_columns(words, at, chosen) if cap >= BITMAPS_FROM and old else 0
    need = region_words(cap, slots, columns)
    if not has_room(words, need):
        return 2 * need
    new = allocate(words, need)
    words[new : new + need] = 0
    masks, old_masks = (cap + 63) // 64, (old_cap + 63) // 64
    heads, old_heads = (slots + 3) // 4, (old_slots + 3) // 4
    for index in range(columns):
        cut(words, floats, at, chosen[index], new + masks + cap * stride_of(slots) + CUTS * index)
    words[at + REGION], words[at + CAP], words[at + SHAPE] = new, cap, slots | columns << 32
    used = 0
    for position in range(words[at + USED]):
        if not (words[old + (position >> 6)] >> (position & 63)) & 1:
            continue
        source = old + old_masks + position * stride_of(old_slots)
        target = new + masks + used * stride_of(slots)
        words[target] = words[source]
        for word in range(1, 1 + heads):
            words[target + word] = words[source + word] if word <= old_heads else -1
        for word in range(2 * old_slots):
            words[target + 1 + heads + word] = words[source + 1 + old_heads + word]
        place = words[ROWS] + 2 * (words[source] >> 32)
        words[place] = words[place] >> 32 << 32 | used
        mark(words, floats, at, used, True)
        used += 1
    words[at + USED], words[at + HOLE] = used, 0
    if old:
        release(words, old, region_words(old_cap, old_slots, old_columns))
    return 0


@compiled
def clear(words: Words, at: int) -> None:
    """Give back the region of a bucket without rows."""
    slots, columns = words[at + SHAPE] & LOW_HALF, words[at + SHAPE] >> 32
    release(words, words[at + REGION], region_words(words[at + CAP], slots, columns))
    for field in (REGION, USED, ALIVE, HOLE, CAP):
        words[at + field] = 0
    words[at + SHAPE] = slots if slots > 4 else 0
