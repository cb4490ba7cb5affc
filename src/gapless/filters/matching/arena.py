"""Arena: the compiled index is one flat array of 64-bit words. Its layout, memory and edges.

Theory of operation
    Everything is addressed by offset into one array: so a call passes one argument (a quarter of
    a microsecond), a snapshot is a copy of the array, and a mapped file is an index.

    Header    the words below, by name: where the tables are, how big, how full.
    Edges     a hash table (node, code) -> bucket. A key of several values is a path of edges. The
              roots are *sets*: the columns whose codes, together, make a key; those of one column
              share a root, for a code stands for one value of one attribute.
    Buckets   a table of descriptors; what a bucket holds is in its region (see `bucket`).
    Rows      where each row stands, and the next row of the same filter.
    Handles   the first row of each filter.
    Memory    small pieces in four sizes per power of two, a list of free ones for each size;
              big ones to the word, free ones in one list by address, neighbours joined.

Invariants
    I1  an edge leads to a bucket, 1 <= bucket < BUCKETS_COUNT, whose EDGE is the key of the edge
    I2  a key is never 0: codes start at `CODE_FIRST`
    I3  the edge table is at most three quarters full

Functions of this module, of `bucket`, `rows` and `search` run compiled, inside the entry points
that `kernels` makes of them: plain loops over arrays, no objects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    Words = NDArray[np.int64]

FunctionT = TypeVar("FunctionT", bound="Callable[..., Any]")

TOP = 0  # the first word never used
EDGES, EDGES_CAP, EDGES_COUNT = 1, 2, 3  # two words an edge: key, bucket
BUCKETS, BUCKETS_CAP, BUCKETS_COUNT = 4, 5, 6  # bucket 0 is none, bucket 1 has the empty key
ROWS, ROWS_CAP, ROWS_COUNT, ROWS_FREE = 7, 8, 9, 10  # two words a row: place; next and handle
HANDLES, HANDLES_CAP = 11, 12  # one word a handle: its first row
SETS, SETS_CAP, SETS_COUNT = 13, 14, 15  # SET_WORDS a set: how many columns, which; its root
EVENT, EVENT_CAP = 16, 17  # one event, for `match_one`
EXTRA, EXTRA_CAP = 18, 19  # how many edge keys the event has besides, its prefixes; and they
OUT, SCRATCH = 20, 21  # the matches of `match_one`; masks, and room to merge
REQUEST = 22  # the row that `insert` shall add
ROWS_ALIVE = 23
FREE_BIG = 24  # the first free big piece; each begins with the next one and its own size
SETS_SEVERAL = 25  # how many sets, the first ones, have several columns
FREE = 32  # heads of the lists of free small pieces, one per size
HEADER_WORDS = 256

BUCKET_WORDS, SET_WORDS, SET_ROOT = 8, 8, 5
REGION, USED, ALIVE, HOLE, CAP, SHAPE, NEXT, EDGE = 0, 1, 2, 3, 4, 5, 6, 7  # of a bucket

ASK_HANDLE, ASK_IDENTITY, ASK_DEPTH, ASK_SET, ASK_CODES, ASK_SLOTS = 0, 1, 2, 3, 4, 8
ASK_SLOT_WORDS = 9  # then three words a slot: column, low, high
SLOTS_MAX = 32
REQUEST_WORDS = ASK_SLOT_WORDS + 3 * SLOTS_MAX

BIG, BIG_STEP = 4096, 64  # words from which on a piece is big, and what its size is rounded to
SETS_MAX = 1 << 20
CODE_FIRST = 4  # what is nearer to 0 in a code column is not a known value
LOW_HALF = 0xFFFFFFFF


def compiled(function: FunctionT) -> FunctionT:
    """Part of an entry point; not kept on disk by itself, see `kernels`."""
    made: Any = njit(nogil=True, error_model="numpy")(function)
    return made  # type: ignore[no-any-return]


def _prefetch(_context, array, index):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        items = context.make_array(signature.args[0])(context, builder, arguments[0])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        address = builder.bitcast(builder.gep(items.data, [arguments[1]]), byte)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        ask = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")  # type: ignore[no-untyped-call]
        to_read, keep, data = number(0), number(3), number(1)
        builder.call(ask, [address, to_read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


prefetch: Any = intrinsic(_prefetch)
"""prefetch(array, index) asks the memory for an element without waiting; numba has no such call."""


@compiled
def size_of(need: int) -> int:
    """The size of the piece that serves a need; if small, 4, 5, 6 or 7 times a power of two."""
    if need > BIG:
        return (need + BIG_STEP - 1) // BIG_STEP * BIG_STEP
    unit = 1
    while 7 * unit < need:
        unit *= 2
    return max(4 * unit, (need + unit - 1) // unit * unit)


@compiled
def kind_of(size: int) -> int:
    octave = 0
    while 8 << octave <= size:
        octave += 1
    return 4 * octave + (size >> octave) - 4


@compiled
def find_big(words: Words, size: int) -> int:
    """The word that points to the first free big piece of at least this size, or to none."""
    link = FREE_BIG
    while words[link] and words[words[link] + 1] < size:
        link = words[link]
    return link


@compiled
def has_room(words: Words, need: int) -> bool:
    size = size_of(need)
    if len(words) - words[TOP] >= size:
        return True
    return size > BIG and words[find_big(words, size)] != 0


@compiled
def allocate(words: Words, need: int) -> int:
    """The offset of a piece of at least `need` words. The caller has seen to it that there is."""
    size = size_of(need)
    link = find_big(words, size) if size > BIG else FREE + kind_of(size)
    offset = words[link]
    if offset == 0:
        words[TOP] += size
        return words[TOP] - size  # type: ignore[no-any-return]
    left = words[offset + 1] - size if size > BIG else 0
    if left:
        words[offset + size], words[offset + size + 1] = words[offset], left
        words[link] = offset + size
    else:
        words[link] = words[offset]
    return offset  # type: ignore[no-any-return]


@compiled
def release(words: Words, offset: int, need: int) -> None:
    size = size_of(need)
    if size <= BIG:
        words[offset] = words[FREE + kind_of(size)]
        words[FREE + kind_of(size)] = offset
        return
    link = FREE_BIG
    while words[link] and words[link] < offset:
        link = words[link]
    after = words[link]
    if after == offset + size:
        size += words[after + 1]
        after = words[after]
    if link != FREE_BIG and link + words[link + 1] == offset:
        words[link], words[link + 1] = after, words[link + 1] + size
    else:
        words[link], words[offset], words[offset + 1] = offset, after, size


@compiled
def mix(key: int) -> int:
    key = (key ^ (key >> 32)) * 0x1E3779B97F4A7C15
    return key ^ (key >> 29)


@compiled
def find_edge(words: Words, key: int) -> int:
    """The bucket at the end of an edge; 0 if there is none."""
    mask, edges = words[EDGES_CAP] - 1, words[EDGES]
    place = mix(key) & mask
    while True:
        found = words[edges + 2 * place]
        if found == key:
            return words[edges + 2 * place + 1]  # type: ignore[no-any-return]
        if found == 0:
            return 0
        place = (place + 1) & mask


@compiled
def put_edge(words: Words, key: int, bucket: int) -> None:
    mask, edges = words[EDGES_CAP] - 1, words[EDGES]
    place = mix(key) & mask
    while words[edges + 2 * place]:
        place = (place + 1) & mask
    words[edges + 2 * place] = key
    words[edges + 2 * place + 1] = bucket


@compiled
def double(words: Words, table: int, capacity: int, entry_words: int) -> None:
    """Double a table; its new half is zero."""
    old, size = words[table], words[capacity] * entry_words
    new = allocate(words, 2 * size)
    words[new : new + size] = words[old : old + size]
    words[new + size : new + 2 * size] = 0
    release(words, old, size)
    words[table] = new
    words[capacity] *= 2


@compiled
def double_edges(words: Words) -> None:
    old, count = words[EDGES], words[EDGES_CAP]
    new = allocate(words, 4 * count)
    words[new : new + 4 * count] = 0
    words[EDGES], words[EDGES_CAP] = new, 2 * count
    for place in range(old, old + 2 * count, 2):
        if words[place]:
            put_edge(words, words[place], words[place + 1])
    release(words, old, 2 * count)


@compiled
def make_room(words: Words, handle: int) -> int:
    """Grow the tables for one more row. How many words are missing; 0 once all is done."""
    if 4 * (words[EDGES_COUNT] + 4) > 3 * words[EDGES_CAP]:
        if not has_room(words, 4 * words[EDGES_CAP]):
            return 5 * words[EDGES_CAP]  # type: ignore[no-any-return]
        double_edges(words)
    if words[BUCKETS_COUNT] + 6 > words[BUCKETS_CAP]:
        if not has_room(words, 2 * BUCKET_WORDS * words[BUCKETS_CAP]):
            return 3 * BUCKET_WORDS * words[BUCKETS_CAP]  # type: ignore[no-any-return]
        double(words, BUCKETS, BUCKETS_CAP, BUCKET_WORDS)
    if words[ROWS_COUNT] + 1 >= words[ROWS_CAP]:
        if len(words) - words[TOP] < 8 * words[ROWS_CAP]:
            return 8 * words[ROWS_CAP]  # type: ignore[no-any-return]
        double(words, ROWS, ROWS_CAP, 2)
        # Matches of one event and the room to merge them: half a word each, for every row.
        release(words, words[OUT], words[ROWS_CAP] // 2)
        words[OUT] = allocate(words, words[ROWS_CAP])
        words[SCRATCH] = words[OUT] + words[ROWS_CAP] // 2
    while handle >= words[HANDLES_CAP]:
        if not has_room(words, 2 * words[HANDLES_CAP]):
            return 3 * words[HANDLES_CAP]  # type: ignore[no-any-return]
        double(words, HANDLES, HANDLES_CAP, 1)
    return 0
