"""Search: which rows admit an event. The inner loop of the product.

Theory of operation
    An event is a row of floats (`events[base:]`) and some edge keys of its own (its prefixes).
    It visits the bucket of the empty key, those of its edge keys, and for each set the bucket at
    the end of the path of its codes, if there is one. Each bucket appends what matches.
    Where there are too many columns to write a row of them for each event, there is one row for
    all: an event writes what it has (`match_pairs`) and takes it back. The values that it has are
    edge keys then, so that only sets of several columns are probed.
    In a large index nearly all of that is far from the processor. So the events of a batch first
    ask the memory for what they will need, some dozens at a time, and then find it near.

Invariants
    I1  the matches of one event are strictly ascending: sorted, each once
    I2  an event never writes more than one match per row alive: the caller has that much room

Cost
    One probe a set, two memory accesses a bucket, an eighth of a bit-operation cycle per row and
    column in large buckets, a few nanoseconds per row verified. Rows were mostly added in order
    of their handles, so sorting is mostly merging a few runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numba.cpython.unsafe import numbers as unsafe_numbers

from gapless.filters.matching.arena import (
    ALIVE,
    BUCKET_WORDS,
    BUCKETS,
    CAP,
    CODE_FIRST,
    EDGES,
    EDGES_CAP,
    EVENT,
    EXTRA,
    LOW_HALF,
    NEXT,
    OUT,
    REGION,
    ROWS_ALIVE,
    SCRATCH,
    SET_ROOT,
    SET_WORDS,
    SETS,
    SETS_COUNT,
    SETS_MAX,
    SETS_SEVERAL,
    SHAPE,
    TOP,
    USED,
    compiled,
    find_edge,
    mix,
    prefetch,
)
from gapless.filters.matching.bucket import (
    CELLS,
    CUTS,
    NO_COLUMN,
    cell_of,
    column_of,
    stride_of,
)

# How many zero bits a word ends in; one instruction, for which numba has no other name.
trailing_zeros: Any = unsafe_numbers.trailing_zeros

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gapless.filters.matching.arena import Words
    from gapless.filters.matching.bucket import Floats

    Identities = NDArray[np.uint32]

AHEAD = 32
"""How many events of a batch announce what they will need, before they need it."""

CACHED_WORDS = 1 << 17
"""An arena up to this size stays near the processor: nothing needs to be announced."""

LINE_WORDS, LINES_MAX = 8, 16


@compiled
def survivors(words: Words, floats: Floats, at: int, cuts: int, events: Floats, base: int) -> int:
    """Clear, from the rows alive, those that a cell rules out; the offset of the masks left."""
    region, masks = words[at + REGION], (words[at + CAP] + 63) // 64
    columns = words[at + SHAPE] >> 32
    target = words[words[SCRATCH] : words[SCRATCH] + masks]
    alive = words[region : region + masks]
    for word in range(masks):
        target[word] = alive[word]
    for index in range(columns):
        value = events[base + words[cuts + CUTS * index]]
        cell = cell_of(floats, cuts + CUTS * index, value)
        bits = cuts + CUTS * columns + (CELLS * index + cell) * masks
        source = words[bits : bits + masks]
        for word in range(masks):
            target[word] &= ~source[word]
    return words[SCRATCH]  # type: ignore[no-any-return]


@compiled
def match_bucket(
    words: Words, floats: Floats, at: int, events: Floats, base: int, out: Identities, count: int
) -> int:
    """Append the identities of all rows of a bucket that admit the event; the new count."""
    slots = words[at + SHAPE] & LOW_HALF
    masks = (words[at + CAP] + 63) // 64
    stride, head = stride_of(slots), 1 + (slots + 3) // 4
    left_at = words[at + REGION]
    rows = left_at + masks
    if words[at + SHAPE] >> 32:
        cuts = rows + words[at + CAP] * stride
        left_at = survivors(words, floats, at, cuts, events, base)
    for word in range(masks):
        left = words[left_at + word]
        while left:
            row = rows + (64 * word + trailing_zeros(left)) * stride
            left &= left - 1
            admitted = True
            for slot in range(slots):
                column = column_of(words, row, slot)
                if column == NO_COLUMN:
                    break
                low, high = floats[row + head + 2 * slot], floats[row + head + 2 * slot + 1]
                value = events[base + column]
                above, below = value >= low, value <= high
                if not ((above and below) or (low > high and (above or below))):
                    admitted = False
                    break
            if admitted:
                out[count] = words[row] & LOW_HALF
                count += 1
    return count


@compiled
def match_node(
    words: Words,
    floats: Floats,
    bucket: int,
    events: Floats,
    base: int,
    out: Identities,
    count: int,
) -> int:
    while bucket:
        at = words[BUCKETS] + BUCKET_WORDS * bucket
        if words[at + ALIVE]:
            count = match_bucket(words, floats, at, events, base, out, count)
        bucket = words[at + NEXT]
    return count


@compiled
def follow(words: Words, at: int, events: Floats, base: int) -> int:
    """The bucket at the end of the path that the event's codes take from a set; 0 if none."""
    bucket = words[at + SET_ROOT] - SETS_MAX
    for place in range(at + 1, at + 1 + words[at]):
        code = abs(events[base + words[place]])
        if not code >= CODE_FIRST:
            return 0
        bucket = find_edge(words, (bucket + SETS_MAX) << 32 | int(code))
        if bucket == 0:
            return 0
    return max(bucket, 0)  # type: ignore[no-any-return]


@compiled
def match_event(
    words: Words,
    floats: Floats,
    events: Floats,
    base: int,
    extra: Words,
    extra_from: int,
    extra_to: int,
    sets: int,
    out: Identities,
    count: int,
) -> int:
    """Append the identities that match one event, strictly ascending; the new count."""
    first = count
    count = match_node(words, floats, 1, events, base, out, count)
    for place in range(extra_from, extra_to):
        bucket = find_edge(words, extra[place])
        count = match_node(words, floats, bucket, events, base, out, count)
    at = words[SETS]
    for _ in range(sets):
        bucket = follow(words, at, events, base)
        count = match_node(words, floats, bucket, events, base, out, count)
        at += SET_WORDS
    return put_in_order(out, first, count, words.view(np.uint32), 2 * words[SCRATCH])


@compiled
def put_in_order(out: Identities, first: int, last: int, scratch: Identities, room: int) -> int:
    """Sort out[first:last] by merging its ascending runs, then drop repeats; the new end."""
    runs = 2
    while runs > 1:
        runs, place = 0, first
        while place < last:
            middle = run_end(out, place, last)
            end = run_end(out, middle, last)
            runs += 1
            merge(out, place, middle, end, scratch, room)
            place = end
    kept = min(first + 1, last)
    for place in range(first + 1, last):
        if out[place] != out[kept - 1]:
            out[kept] = out[place]
            kept += 1
    return kept


@compiled
def run_end(out: Identities, place: int, last: int) -> int:
    """The end of the ascending run that begins here."""
    if place < last:
        place += 1
        while place < last and out[place - 1] <= out[place]:
            place += 1
    return place


@compiled
def merge(
    out: Identities, first: int, middle: int, last: int, scratch: Identities, room: int
) -> None:
    """Merge two neighbouring runs in place."""
    if middle == last:
        return
    for index in range(middle - first):
        scratch[room + index] = out[first + index]
    left, left_end, right, to = room, room + middle - first, middle, first
    while left < left_end:
        if right < last and out[right] < scratch[left]:
            out[to] = out[right]
            right += 1
        else:
            out[to] = scratch[left]
            left += 1
        to += 1


@compiled
def match_one(words: Words) -> int:
    """Match the event in the arena. The number of matches, or -1 - that if any is unverified."""
    floats, out = words.view(np.float64), words.view(np.uint32)
    first, extra = 2 * words[OUT], words[EXTRA] + 1
    extra_to = extra + words[extra - 1]
    base, sets = words[EVENT], words[SETS_COUNT]
    last = match_event(words, floats, floats, base, words, extra, extra_to, sets, out, first)
    if last > first and out[last - 1] >> 31:
        return first - last - 1  # type: ignore[no-any-return]
    return last - first  # type: ignore[no-any-return]


@compiled
def announce(words: Words, events: Floats, width: int, first: int, last: int) -> None:
    """Ask the memory for the edges, then the buckets, then the rows that some events will need.

    One event waits for each in turn; many events together wait about as long as one.
    """
    sets, edges, mask = words[SETS], words[EDGES], words[EDGES_CAP] - 1
    for index in range(words[SETS_COUNT]):
        at = sets + SET_WORDS * index
        root = words[at + SET_ROOT] << 32
        for event in range(first, last):
            code = abs(events[event * width + words[at + 1]])
            if code >= CODE_FIRST:
                prefetch(words, edges + 2 * (mix(root | int(code)) & mask))
        for event in range(first, last):
            bucket = follow(words, at, events, event * width)
            prefetch(words, words[BUCKETS] + BUCKET_WORDS * bucket)
        for event in range(first, last):
            bucket = follow(words, at, events, event * width)
            if bucket:
                head = words[BUCKETS] + BUCKET_WORDS * bucket
                size = words[head + USED] * stride_of(words[head + SHAPE] & LOW_HALF)
                for line in range(0, min(size + 1, LINES_MAX * LINE_WORDS), LINE_WORDS):
                    prefetch(words, words[head + REGION] + line)


@compiled
def match_rows(
    words: Words,
    events: Floats,
    width: int,
    extra: Words,
    extra_ends: Words,
    out: Identities,
    ends: Words,
    first: int,
) -> int:
    """Match events from `first` on while there is room in `out`; the first that is left."""
    floats = words.view(np.float64)
    count = 0
    for event in range(first, len(ends)):
        if len(out) - count < words[ROWS_ALIVE]:
            return event
        if (event - first) % AHEAD == 0 and words[TOP] > CACHED_WORDS:
            announce(words, events, width, event, min(event + AHEAD, len(ends)))
        begin, end = extra_ends[event - 1] if event else 0, extra_ends[event]
        base, sets = event * width, words[SETS_COUNT]
        count = match_event(words, floats, events, base, extra, begin, end, sets, out, count)
        ends[event] = count
    return len(ends)


@compiled
def match_pairs(
    words: Words,
    row: Floats,
    columns: Words,
    values: Floats,
    value_ends: Words,
    extra: Words,
    extra_ends: Words,
    out: Identities,
    ends: Words,
    first: int,
) -> int:
    """As `match_rows`, for events that are pairs of a column and a value. `row` is that of an event
    without attributes, before and after."""
    floats = words.view(np.float64)
    blank = np.empty(len(values))
    count = 0
    for event in range(first, len(ends)):
        if len(out) - count < words[ROWS_ALIVE]:
            return event
        begin, end = value_ends[event - 1] if event else 0, value_ends[event]
        for place in range(begin, end):
            blank[place] = row[columns[place]]
            row[columns[place]] = values[place]
        low, high = extra_ends[event - 1] if event else 0, extra_ends[event]
        sets = words[SETS_SEVERAL]
        count = match_event(words, floats, row, 0, extra, low, high, sets, out, count)
        for place in range(begin, end):
            row[columns[place]] = blank[place]
        ends[event] = count
    return len(ends)
