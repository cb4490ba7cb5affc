"""Rows: adding and removing them, and moving all of them to a fresh arena.

Theory of operation
    The caller writes a request into the arena (identity, key, slots) and calls `insert`. A filter
    has one row per conjunction and key, linked from its handle; `remove` unlinks them all. What
    was removed leaves edges, buckets and codes behind that no row uses; from time to time
    `transfer` moves the rows alive to a fresh arena and says which codes and columns they use.

Invariants
    I1  when memory is short, `insert` returns before it has changed anything that matters: grow
        the arena and call it again
    I2  rows of more than 4 slots stand in buckets of their own, one for each multiple of 4,
        linked from the first: they do not widen the others

Cost: one bucket; growing it is amortised over its rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gapless.filters.matching.arena import (
    ALIVE,
    ASK_CODES,
    ASK_DEPTH,
    ASK_HANDLE,
    ASK_IDENTITY,
    ASK_SET,
    ASK_SLOT_WORDS,
    ASK_SLOTS,
    BUCKET_WORDS,
    BUCKETS,
    CAP,
    CODE_FIRST,
    EDGE,
    EDGES_COUNT,
    HANDLES,
    HANDLES_CAP,
    HOLE,
    LOW_HALF,
    NEXT,
    REGION,
    REQUEST,
    ROWS,
    ROWS_ALIVE,
    ROWS_COUNT,
    ROWS_FREE,
    SETS_MAX,
    SHAPE,
    USED,
    compiled,
    find_edge,
    make_room,
    put_edge,
)
from gapless.filters.matching.bucket import (
    NO_COLUMN,
    clear,
    column_of,
    mark,
    new_bucket,
    rebuild,
    stride_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matching.arena import Words

SLOTS_SHARED_MAX = 4
NO_OWNER = -1  # in place of the handle: the row is free


@compiled
def find_bucket(words: Words, slots: int) -> int:
    """The descriptor of the bucket for the requested row, made where it is missing."""
    ask = words[REQUEST]
    bucket, key = 1, 0
    for depth in range(words[ask + ASK_DEPTH]):
        node = bucket + SETS_MAX if depth else words[ask + ASK_SET]
        key = node << 32 | words[ask + ASK_CODES + depth]
        bucket = find_edge(words, key)
        if bucket == 0:
            bucket = new_bucket(words, key)
            put_edge(words, key, bucket)
            words[EDGES_COUNT] += 1
    at = words[BUCKETS] + BUCKET_WORDS * bucket
    if slots <= SLOTS_SHARED_MAX:
        return at  # type: ignore[no-any-return]
    wide = (slots + 3) // 4 * 4
    while words[at + NEXT]:
        at = words[BUCKETS] + BUCKET_WORDS * words[at + NEXT]
        if words[at + SHAPE] & LOW_HALF == wide:
            return at  # type: ignore[no-any-return]
    words[at + NEXT] = new_bucket(words, key)
    at = words[BUCKETS] + BUCKET_WORDS * words[at + NEXT]
    words[at + SHAPE] = wide
    return at  # type: ignore[no-any-return]


@compiled
def new_row(words: Words, at: int) -> int:
    """Place the requested row in a bucket that has room; its position."""
    ask = words[REQUEST]
    number = words[ROWS_FREE]
    if number:
        words[ROWS_FREE] = words[words[ROWS] + 2 * number]
    else:
        number = words[ROWS_COUNT]
        words[ROWS_COUNT] += 1
    wide = words[at + SHAPE] & LOW_HALF
    rows = words[at + REGION] + (words[at + CAP] + 63) // 64
    position = words[at + HOLE] - 1
    if position >= 0:
        words[at + HOLE] = words[rows + position * stride_of(wide)]
    else:
        position = words[at + USED]
        words[at + USED] += 1
    row = rows + position * stride_of(wide)
    words[row] = number << 32 | words[ask + ASK_IDENTITY]
    heads = (wide + 3) // 4
    for word in range(1, 1 + heads):
        words[row + word] = -1
    for slot in range(words[ask + ASK_SLOTS]):
        asked = ask + ASK_SLOT_WORDS + 3 * slot
        words[row + 1 + (slot >> 2)] ^= (words[asked] ^ NO_COLUMN) << (16 * (slot & 3))
        words[row + 1 + heads + 2 * slot] = words[asked + 1]
        words[row + 1 + heads + 2 * slot + 1] = words[asked + 2]
    handle, entry = words[ask + ASK_HANDLE], words[ROWS] + 2 * number
    words[entry] = (at - words[BUCKETS]) // BUCKET_WORDS << 32 | position
    words[entry + 1] = words[words[HANDLES] + handle] << 32 | handle
    words[words[HANDLES] + handle] = number
    return position  # type: ignore[no-any-return]


@compiled
def insert(words: Words) -> int:
    """Add the requested row. How many more words the arena must have; 0 if it is done."""
    floats = words.view(np.float64)
    slots = words[words[REQUEST] + ASK_SLOTS]
    short = make_room(words, words[words[REQUEST] + ASK_HANDLE])
    if short:
        return short
    at = find_bucket(words, slots)
    cap, wide = words[at + CAP], words[at + SHAPE] & LOW_HALF
    full = words[at + USED] == cap and words[at + HOLE] == 0
    if full or slots > wide:
        if full:
            cap = max(1, 2 * cap) if cap < 64 else (cap + cap // 2 + 63) // 64 * 64
        short = rebuild(words, floats, at, cap, max(slots, wide))
        if short:
            return short
    position = new_row(words, at)
    words[at + ALIVE] += 1
    words[ROWS_ALIVE] += 1
    mark(words, floats, at, position, True)
    return 0


@compiled
def remove(words: Words, handle: int) -> int:
    """Remove all rows of a filter, which may have none; how many."""
    if handle >= words[HANDLES_CAP]:
        return 0
    removed = 0
    floats = words.view(np.float64)
    number = words[words[HANDLES] + handle]
    words[words[HANDLES] + handle] = 0
    while number:
        entry = words[ROWS] + 2 * number
        place, after = words[entry], words[entry + 1] >> 32
        at, position = words[BUCKETS] + BUCKET_WORDS * (place >> 32), place & LOW_HALF
        words[at + ALIVE] -= 1
        words[ROWS_ALIVE] -= 1
        if words[at + ALIVE]:
            mark(words, floats, at, position, False)
            stride = stride_of(words[at + SHAPE] & LOW_HALF)
            row = words[at + REGION] + (words[at + CAP] + 63) // 64 + position * stride
            words[row] = words[at + HOLE]
            words[at + HOLE] = position + 1
        else:
            clear(words, at)
        words[entry], words[entry + 1] = words[ROWS_FREE], NO_OWNER
        words[ROWS_FREE] = number
        number = after
        removed += 1
    return removed


@compiled
def write_key(words: Words, bucket: int, ask: Words) -> int:
    """The key of a bucket into a request: its set and codes; the set, or -1 for the empty key."""
    depth, key = 0, words[words[BUCKETS] + BUCKET_WORDS * bucket + EDGE]
    upward = np.empty(4, np.int64)
    while key:
        upward[depth] = key & LOW_HALF
        depth += 1
        node = key >> 32
        ask[ASK_SET] = node
        key = 0
        if node >= SETS_MAX:
            key = words[words[BUCKETS] + BUCKET_WORDS * (node - SETS_MAX) + EDGE]
    ask[ASK_DEPTH] = depth
    for index in range(depth):
        ask[ASK_CODES + index] = upward[depth - 1 - index]
    return ask[ASK_SET] if depth else -1


@compiled
def transfer(
    words: Words,
    fresh: Words,
    codes: NDArray[np.uint8],
    columns: NDArray[np.uint8],
    sets: NDArray[np.uint8],
) -> int:
    """Insert all rows into a fresh arena; count what they use. Words missing there, or 0.

    `columns` holds 1 for a column of codes, else 0; a column in use gets 2 added.
    """
    ask = fresh[fresh[REQUEST] :]
    floats = words.view(np.float64)
    for number in range(1, words[ROWS_COUNT]):
        place, owner = words[words[ROWS] + 2 * number], words[words[ROWS] + 2 * number + 1]
        if owner == NO_OWNER:
            continue
        at = words[BUCKETS] + BUCKET_WORDS * (place >> 32)
        slots = words[at + SHAPE] & LOW_HALF
        stride = stride_of(slots)
        row = words[at + REGION] + (words[at + CAP] + 63) // 64 + (place & LOW_HALF) * stride
        root = write_key(words, place >> 32, ask)
        if root >= 0:
            sets[root] = 1
        for index in range(ask[ASK_DEPTH]):
            codes[ask[ASK_CODES + index]] = 1
        ask[ASK_HANDLE], ask[ASK_IDENTITY] = owner & LOW_HALF, words[row] & LOW_HALF
        ask[ASK_SLOTS] = 0
        for slot in range(slots):
            column = column_of(words, row, slot)
            if column == NO_COLUMN:
                break
            value = row + 1 + (slots + 3) // 4 + 2 * slot
            ask[ASK_SLOTS] += 1
            ask[ASK_SLOT_WORDS + 3 * slot] = column
            ask[ASK_SLOT_WORDS + 3 * slot + 1] = words[value]
            ask[ASK_SLOT_WORDS + 3 * slot + 2] = words[value + 1]
            columns[column] |= 2
            middle = (floats[value] + floats[value + 1]) / 2
            if columns[column] & 1 and CODE_FIRST <= abs(middle) < np.inf:
                codes[np.int64(abs(middle))] = 1
        short = insert(fresh)
        if short:
            return short
    return 0
